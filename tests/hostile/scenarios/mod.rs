//! The attacks, one per file.

pub mod amqp_deliveries;
pub mod amqp_floods;
pub mod amqp_links;
pub mod amqp_openings;
pub mod amqp_pings;
pub mod amqp_renewals;
pub mod amqp_transfers;
pub mod amqp_websockets;
pub mod any_frames;
pub mod any_operations;
pub mod any_requests;
pub mod any_values;
pub mod anything;
pub mod apart;
pub mod away;
pub mod empty_messages;
pub mod explain;
pub mod failures;
pub mod forwards;
pub mod half_bodies;
pub mod half_frames;
pub mod half_heads;
pub mod hostile_peers;
pub mod overlays;
pub mod patterns;
pub mod peeks;
pub mod pongs;
pub mod presented;
pub mod ranges;
pub mod receives;
pub mod returning;
pub mod states;
pub mod unread;
pub mod waits;
pub mod wrong_tokens;

use serde_json::json;

use super::attacker::Attack;
use super::broker::Broker;
use super::wire::{WebSocket, ask};

/// Starts an attack that is `weight` times as large as usual.
pub type Scenario = fn(&Broker, usize) -> Attack;

/// Memory that pings and frames of forwarding destinations may cost the broker, which buffers none
/// of them.
const PINGED_BYTES_MAX: u64 = 64 << 20;

/// A queue of the attacker.
fn queue(broker: &Broker) {
    assert_eq!(ask(broker.http, "PUT", "/$api/v1/queues/attacked", "{}").unwrap().status, 201);
}

/// Fills the queue of the attacker with messages of maximum size. Every second one is longer in
/// JSON: because of escapes, or in Base64 where escapes would be much longer.
pub fn fill(broker: &Broker, count: usize) {
    queue(broker);
    for part in ["\"", "x", "\u{1}", "x"].into_iter().cycle().take(count) {
        let body = part.repeat(900_000);
        let sent = ask(broker.http, "POST", "/attacked/messages", &body).unwrap();
        assert_eq!(sent.status, 201);
    }
}

/// Creates a topic with a subscription and `rules` rules that are slow to judge or to explain.
fn topic(broker: &Broker, rules: usize, filter: &str) {
    let put = |target: &str, body: &str| {
        let answer = ask(broker.http, "PUT", target, body).unwrap();
        assert_eq!(answer.status, 201, "{target}: {}", String::from_utf8_lossy(&answer.body));
    };
    put("/$api/v1/topics/attacked", "{}");
    put("/$api/v1/topics/attacked/subscriptions/s", "{}");
    for rule in 0..rules {
        let target = format!("/$api/v1/topics/attacked/subscriptions/s/rules/r{rule}");
        let filter = json!({ "filter": { "type": "sql", "sql": filter } });
        put(&target, &filter.to_string());
    }
}

/// Creates a topic with `rules` slow rules, and `clients` clients that publish messages for which
/// all rules are judged. The topic always has a backlog.
fn busy_topic(broker: &Broker, rules: usize, clients: usize) -> Attack {
    topic(broker, rules, &format!("p LIKE '%{}b%'", "a".repeat(950)));
    let properties = json!({ "p": "a".repeat(30_000) });
    let message = json!({ "body": "x", "applicationProperties": properties }).to_string();
    let mut attack = Attack::default();
    for _ in 0..clients {
        let (address, message) = (broker.http, message.clone());
        attack.repeat(move || {
            ask(address, "POST", "/$api/v1/topics/attacked/messages", &message).ok();
        });
    }
    attack
}

/// Opens a connection with a link to the attacker's queue.
fn attached(broker: &Broker, role: &str) -> WebSocket {
    let mut socket = WebSocket::open(broker.websocket).unwrap();
    let attach = json!({ "link": 1, "path": "attacked", "role": role });
    let answer = socket.ask(2, "attach", &attach).unwrap();
    assert!(answer.get("error").is_none(), "{answer}");
    socket
}

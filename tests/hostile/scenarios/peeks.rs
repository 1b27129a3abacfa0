//! Pipelined peeks of large messages over both transports, and peeks of the maximum of small ones,
//! answers unread.

use serde_json::json;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{connect, masked, request};
use super::{attached, fill};

/// Maximum of messages in one peek (PEK-08).
const SMALL: usize = 250;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    fill(broker, 8);
    let peeks: Vec<_> = (10..74)
        .map(|id| json!({ "id": id, "peek": { "link": 1, "from": id % 8 + 1, "maxCount": 1 } }))
        .collect();
    let frame = json!({ "seen": 0, "requests": peeks }).to_string();
    let frame = masked(0x81, frame.as_bytes());
    let mut attack = Attack::default();
    for _ in 0..40 * weight.min(5) {
        let mut socket = attached(broker, "receiver");
        flood(&mut socket.stream, &frame, 4);
        attack.hold(socket);
    }
    small(broker);
    let peeks: Vec<_> = (10..266)
        .map(|id| json!({ "id": id, "peek": { "link": 1, "from": 9, "maxCount": SMALL } }))
        .collect();
    let frame = json!({ "seen": 0, "requests": peeks }).to_string();
    let frame = masked(0x81, frame.as_bytes());
    for _ in 0..20 * weight.min(5) {
        let mut socket = attached(broker, "receiver");
        flood(&mut socket.stream, &frame, 4);
        attack.hold(socket);
    }
    let asked = request("GET", "/$api/v1/queues/attacked/messages?count=8", "").repeat(12);
    for _ in 0..40 * weight.min(5) {
        let mut stream = connect(broker.http).unwrap();
        flood(&mut stream, &asked, 1);
        attack.hold(stream);
    }
    attack
}

/// Adds small messages after the large ones.
fn small(broker: &Broker) {
    let mut socket = attached(broker, "sender");
    let messages = vec![json!({ "body": "x" }); SMALL];
    let sent = socket.ask(10, "send", &json!({ "link": 1, "messages": messages })).unwrap();
    assert!(sent.get("error").is_none(), "{sent}");
}

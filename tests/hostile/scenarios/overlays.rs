//! Messages with thousands of properties on which as many others were set: peeked over WebSocket,
//! received over AMQP, and forwarded into a topic whose subscriptions have actions, so that their
//! headers exceed the limit.

use std::io;
use std::net::SocketAddr;

use peeklock_amqp::performative::Performative;
use serde_json::{Value as Json, json};

use super::super::amqp::{credit, open, receiver};
use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::{WebSocket, ask};

/// Properties of a message, and properties set on it. With those of the actions, the header exceeds
/// its limit.
const PROPERTIES: usize = 4_040;
/// Messages of a queue.
const MESSAGES: u32 = 16;
/// Peeks in a frame.
const PEEKS: u32 = 16;
/// Clients that peek, and as many that receive.
const CLIENTS: usize = 2;
/// Queues that forward, and subscriptions of the topic that they forward to.
const QUEUES: usize = 2;
const SUBSCRIPTIONS: usize = 20;
/// A window that no test exhausts.
const ALL: u32 = 1 << 30;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let mut attack = Attack::default();
    attack.makes_it_keep();
    topic(broker);
    changed(broker, "peeked");
    let address = broker.websocket;
    for _ in 0..CLIENTS * weight.min(5) {
        attack.repeat(move || {
            peek(address).ok();
        });
    }
    for number in 0..CLIENTS {
        let path = format!("received{number}");
        changed(broker, &path);
        let address = broker.amqp;
        attack.repeat(move || {
            receive(address, &path).ok();
        });
    }
    let queues: Vec<_> =
        (0..QUEUES * weight.min(5)).map(|number| format!("forwarded{number}")).collect();
    for path in &queues {
        changed(broker, path);
    }
    let forward = json!({ "forwardTo": "attacked" }).to_string();
    for path in &queues {
        let target = format!("/$api/v1/queues/{path}");
        assert_eq!(ask(broker.http, "PATCH", &target, &forward).unwrap().status, 200);
    }
    attack
}

/// Creates a topic whose subscriptions set properties on each copy.
fn topic(broker: &Broker) {
    let put = |target: &str, body: &Json| {
        let answer = ask(broker.http, "PUT", target, &body.to_string()).unwrap();
        assert_eq!(answer.status, 201, "{target}: {}", String::from_utf8_lossy(&answer.body));
    };
    put("/$api/v1/topics/attacked", &json!({}));
    let set = |number: usize| format!("SET z{number} = '{}'", "y".repeat(230));
    let action = (0..4).map(set).collect::<Vec<_>>().join("; ");
    for number in 0..SUBSCRIPTIONS {
        let subscription = format!("/$api/v1/topics/attacked/subscriptions/s{number}");
        put(&subscription, &json!({}));
        let filter = json!({ "type": "sql", "sql": "1 = 1" });
        let rule = json!({ "filter": filter, "action": { "sql": action } });
        put(&format!("{subscription}/rules/r"), &rule);
    }
}

/// `PROPERTIES` properties whose names begin with `with`.
fn properties(with: char) -> Json {
    (0..PROPERTIES).map(|number| (format!("{with}{number:04}"), json!(true))).collect()
}

/// Creates a queue full of messages on which as many properties were set as they had.
fn changed(broker: &Broker, path: &str) {
    let target = format!("/$api/v1/queues/{path}");
    let settings = json!({ "maxDeliveryCount": 2_000 }).to_string();
    assert_eq!(ask(broker.http, "PUT", &target, &settings).unwrap().status, 201);
    let mut socket = WebSocket::open(broker.websocket).unwrap();
    let mut asked = 1;
    let mut done = |socket: &mut WebSocket, operation: &str, body: Json| {
        asked += 1;
        let answer = socket.ask(asked, operation, &body).unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
    };
    done(&mut socket, "attach", json!({ "link": 1, "path": path, "role": "sender" }));
    let message = json!({ "body": "x", "applicationProperties": properties('a') });
    for _ in 0..MESSAGES {
        done(&mut socket, "send", json!({ "link": 1, "messages": [message] }));
    }
    done(&mut socket, "attach", json!({ "link": 2, "path": path, "role": "receiver" }));
    let credit = json!({ "link": 2, "upTo": MESSAGES });
    socket.send(&json!({ "requests": [{ "credit": credit }] })).unwrap();
    let mut count = 0;
    while count < MESSAGES as usize {
        let frame = socket.frame().unwrap();
        let items = frame["items"].as_array().into_iter().flatten();
        let messages = items.filter_map(|item| item["deliveries"]["messages"].as_array());
        count += messages.map(Vec::len).sum::<usize>();
    }
    let mut settle = json!({ "link": 2, "decision": "abandon", "ranges": [[1, MESSAGES]] });
    settle["properties"] = properties('b');
    done(&mut socket, "settle", settle);
}

/// Peeks all messages many times in a frame, and reads the answers.
fn peek(address: SocketAddr) -> io::Result<()> {
    let mut socket = WebSocket::open(address)?;
    socket.ask(2, "attach", &json!({ "link": 1, "path": "peeked", "role": "receiver" }))?;
    let peek = json!({ "link": 1, "from": 1, "maxCount": MESSAGES });
    let request = |id: u32| json!({ "id": 10 + id, "peek": peek });
    socket.send(&json!({ "requests": (0..PEEKS).map(request).collect::<Vec<_>>() }))?;
    let mut left = PEEKS as usize;
    while left > 0 {
        let frame = socket.frame()?;
        let items = frame["items"].as_array().into_iter().flatten();
        let answers = items.filter(|item| item["id"].as_u64().is_some_and(|id| id >= 10));
        left = left.saturating_sub(answers.count());
    }
    Ok(())
}

/// Receives all messages at once, then disconnects.
fn receive(address: SocketAddr, path: &str) -> io::Result<()> {
    let mut client = open(address, ALL)?;
    client.attach(&receiver(0, path))?;
    client.say(&credit(0, MESSAGES, ALL))?;
    let mut count = 0;
    while count < MESSAGES {
        match client.hear()?.0 {
            Performative::Transfer(transfer) => count += u32::from(!transfer.more),
            Performative::Close(_) => break,
            _ => {}
        }
    }
    Ok(())
}

//! Thousands of requests to explain hundreds of rules, over both transports, answers unread.

use serde_json::json;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{WebSocket, connect, masked, request};
use super::topic;

const RULES: usize = 100;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let tests: Vec<String> = (0..40).map(|number| format!("p{number} = {number}")).collect();
    topic(broker, RULES, &tests.join(" OR "));
    let mut attack = Attack::default();
    let question = json!({ "path": "attacked/subscriptions/s", "message": { "body": "x" } });
    let questions: Vec<_> =
        (10..4_000).map(|id| json!({ "id": id, "explain": question })).collect();
    let frame = json!({ "seen": 0, "requests": questions }).to_string();
    let frame = masked(0x81, frame.as_bytes());
    for _ in 0..4 * weight.min(50) {
        let mut socket = WebSocket::open(broker.websocket).unwrap();
        flood(&mut socket.stream, &frame, 2);
        attack.hold(socket);
    }
    let target = "/$api/v1/topics/attacked/subscriptions/s/explain";
    let asked = request("POST", target, r#"{"message":{"body":"x"}}"#).repeat(100);
    for _ in 0..20 * weight.min(10) {
        let mut stream = connect(broker.http).unwrap();
        flood(&mut stream, &asked, 1);
        attack.hold(stream);
    }
    attack
}

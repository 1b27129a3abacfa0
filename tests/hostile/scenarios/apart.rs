//! Rules of maximum size created in a busy topic, by clients that do not wait for the answer: they
//! close and reconnect.

use std::io::Write as _;

use serde_json::json;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::{WebSocket, masked};
use super::busy_topic;

/// Rules in a frame: the maximum of management requests of a connection at a time.
const RULES: usize = 32;
/// Bytes of each rule, in one property.
const RULE_BYTES: usize = 15 << 10;

/// The rules are created soon, so the frames are the largest cost.
pub fn attack(broker: &Broker, weight: usize) -> Attack {
    behind(busy_topic(broker, 100, 2), broker, weight)
}

/// The rules wait, so the waiting requests are the largest cost. The topic has nearly the maximum
/// of rules.
pub fn attack_waiting(broker: &Broker, weight: usize) -> Attack {
    behind(busy_topic(broker, 1_900, 8), broker, weight)
}

fn behind(mut attack: Attack, broker: &Broker, weight: usize) -> Attack {
    let rule = |number: usize| {
        let properties = json!({ "p": "v".repeat(RULE_BYTES) });
        let filter = json!({ "type": "correlation", "properties": properties });
        let rule = json!({ "name": format!("large{number}"), "filter": filter });
        json!({ "id": 10 + number, "createRule": { "path": "attacked/subscriptions/s", "rule": rule } })
    };
    let frame = json!({ "requests": (0..RULES).map(rule).collect::<Vec<_>>() }).to_string();
    let frame = masked(0x81, frame.as_bytes());
    for _ in 0..4 * weight.min(5) {
        let (address, frame) = (broker.websocket, frame.clone());
        attack.repeat(move || {
            if let Ok(mut socket) = WebSocket::open(address) {
                // The connection closes before the answer.
                socket.stream.write_all(&frame).ok();
            }
        });
    }
    attack
}

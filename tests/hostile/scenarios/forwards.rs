//! Many queues full of large messages that all begin to forward to one topic that is always busy,
//! as after a restart with such backlogs.

use serde_json::json;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::ask;
use super::busy_topic;

/// Queues, and messages of each: as many as one transfer takes. All transfers together exceed the
/// room for them.
const QUEUES: usize = 90;
const MESSAGES: usize = 4;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let attack = busy_topic(broker, 100, 2);
    let asked = |method: &str, target: &str, body: &str, status: u16| {
        assert_eq!(ask(broker.http, method, target, body).unwrap().status, status, "{target}");
    };
    let body = "x".repeat(900_000);
    let queues = 0..QUEUES * weight.min(2);
    for number in queues.clone() {
        asked("PUT", &format!("/$api/v1/queues/from{number}"), "{}", 201);
        for _ in 0..MESSAGES {
            asked("POST", &format!("/from{number}/messages"), &body, 201);
        }
    }
    let forward = json!({ "forwardTo": "attacked" }).to_string();
    for number in queues {
        asked("PATCH", &format!("/$api/v1/queues/from{number}"), &forward, 200);
    }
    attack
}

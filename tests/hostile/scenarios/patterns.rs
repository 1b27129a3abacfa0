//! Messages that each of many rules takes long to judge.

use serde_json::json;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::ask;
use super::topic;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    topic(broker, 150, &format!("p LIKE '%{}b%'", "a".repeat(950)));
    let properties = json!({ "p": "a".repeat(30_000) });
    let message = json!({ "body": "x", "applicationProperties": properties }).to_string();
    let mut attack = Attack::default();
    for _ in 0..2 * weight.min(8) {
        let (address, message) = (broker.http, message.clone());
        attack.repeat(move || {
            ask(address, "POST", "/$api/v1/topics/attacked/messages", &message).ok();
        });
    }
    attack
}

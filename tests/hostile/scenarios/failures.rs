//! Settlements of thousands of deliveries that do not exist, answers unread.

use serde_json::json;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::masked;
use super::{attached, queue};

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let ranges = vec![[1, 1]; 4_096];
    let settle = json!({ "link": 1, "decision": "complete", "ranges": ranges });
    let frame = json!({ "seen": 0, "requests": [{ "id": 5, "settle": settle }] }).to_string();
    let frame = masked(0x81, frame.as_bytes());
    let mut attack = Attack::default();
    for _ in 0..4 {
        let mut socket = attached(broker, "receiver");
        flood(&mut socket.stream, &frame, 500 * weight);
        attack.hold(socket);
    }
    attack
}

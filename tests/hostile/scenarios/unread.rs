//! Peeks of large messages in JSON over many connections, answers unread: several times the default
//! room.

use serde_json::json;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::masked;
use super::{attached, fill};

/// Each connection may hold 2 MiB and a message.
const CLIENTS: usize = 160;
/// Memory that a broker with default settings may use for all of them.
const UNREAD_BYTES_MAX: u64 = 128 << 20;

pub fn attack(broker: &Broker, _: usize) -> Attack {
    fill(broker, 8);
    let peeks: Vec<_> = (10..74)
        .map(|id| json!({ "id": id, "peek": { "link": 1, "from": id % 8 + 1, "maxCount": 1 } }))
        .collect();
    let frame = json!({ "seen": 0, "requests": peeks }).to_string();
    let frame = masked(0x81, frame.as_bytes());
    let mut attack = Attack::default();
    attack.takes_at_most(UNREAD_BYTES_MAX);
    for _ in 0..CLIENTS {
        let mut socket = attached(broker, "receiver");
        flood(&mut socket.stream, &frame, 1);
        attack.hold(socket);
    }
    attack
}

//! WebSocket messages with AMQP in them that lack their end. Together they need more than the room
//! for all.

use std::io::Write as _;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{head_of, upgrade};

/// Maximum size of a message.
const MESSAGE: usize = 256 << 10;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let mut attack = Attack::default();
    for _ in 0..100 * weight.min(2) {
        if let Ok((mut stream, _)) = upgrade(broker.amqp, "/$servicebus/websocket", "amqp") {
            stream.write_all(&head_of(0x82, MESSAGE)).ok();
            flood(&mut stream, &vec![b'x'; MESSAGE - 1], 1);
            attack.hold(stream);
        }
    }
    attack
}

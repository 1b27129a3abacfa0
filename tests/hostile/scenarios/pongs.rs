//! Pings whose pongs are not read, after the hello and before the first frame of the upgrade.

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{WebSocket, masked};
use super::PINGED_BYTES_MAX;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let pings = masked(0x89, &[b'x'; 125]).repeat(500);
    let mut attack = Attack::default();
    attack.takes_at_most(PINGED_BYTES_MAX);
    for _ in 0..4 {
        let mut socket = WebSocket::open(broker.websocket).unwrap();
        // About 256 MiB, if the broker reads all of it: each socket would exceed the memory of the
        // broker.
        flood(&mut socket.stream, &pings, 4_000 * weight);
        attack.hold(socket);
    }
    attack
}

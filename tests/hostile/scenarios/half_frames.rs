//! Frames that lack their end. Together they need more than the room for all frames.

use std::io::Write as _;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::{WebSocket, head_of};

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let text = vec![b'x'; (4 << 20) - 1];
    let mut attack = Attack::default();
    for _ in 0..20 * weight.min(5) {
        let mut socket = WebSocket::open(broker.websocket).unwrap();
        socket.stream.set_write_timeout(Some(std::time::Duration::from_millis(200))).ok();
        // The broker reads as much as it has room for.
        socket.stream.write_all(&head_of(0x81, 4 << 20)).ok();
        socket.stream.write_all(&text).ok();
        attack.hold(socket);
    }
    attack
}

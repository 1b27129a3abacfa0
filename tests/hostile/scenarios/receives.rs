//! Clients over HTTP that do not read. Each pipelines receives of large messages, under lock and
//! with receive-and-delete.

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{connect, request};
use super::fill;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    fill(broker, 60);
    let mut attack = Attack::default();
    for number in 0..100 * weight.min(2) {
        let method = if number % 2 == 0 { "POST" } else { "DELETE" };
        let asked = request(method, "/attacked/messages/head", "").repeat(12);
        let mut stream = connect(broker.http).unwrap();
        flood(&mut stream, &asked, 1);
        attack.hold(stream);
    }
    attack
}

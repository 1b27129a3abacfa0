//! Receivers over AMQP with credit for thousands of large messages. Some do not read, some open no
//! window for the requested messages.

use super::super::amqp::{WINDOW, credit, open, receiver};
use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::fill;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    // More than all budgets together.
    fill(broker, 400);
    let mut attack = Attack::default();
    for number in 0..40 * weight.min(3) {
        let window = if number % 2 == 0 { WINDOW } else { 0 };
        let Ok(mut client) = open(broker.amqp, window) else { continue };
        for handle in 0..4 {
            if client.attach(&receiver(handle, "attacked")).is_err() {
                break;
            }
            client.say(&credit(handle, 5_000, window)).ok();
        }
        attack.hold(client);
    }
    attack
}

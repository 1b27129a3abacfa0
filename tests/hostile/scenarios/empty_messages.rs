//! A frame and a batch of more than a million empty messages, again and again.

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{ask, masked};
use super::{attached, queue};

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let list = |count: usize| format!("[{}{{}}]", "{},".repeat(count - 1));
    let send = format!(r#"{{"id":9,"send":{{"link":1,"messages":{}}}}}"#, list(1_300_000));
    let frame = masked(0x81, format!(r#"{{"seen":0,"requests":[{send}]}}"#).as_bytes());
    let mut attack = Attack::default();
    for _ in 0..5 * weight {
        let mut socket = attached(broker, "sender");
        flood(&mut socket.stream, &frame, 2);
        attack.hold(socket);
    }
    let batch = format!(r#"{{"messages":{}}}"#, list(690_000));
    for _ in 0..4 {
        let (address, batch) = (broker.http, batch.clone());
        attack.repeat(move || {
            // The request may be refused or its connection closed.
            ask(address, "POST", "/$api/v1/queues/attacked/messages/batch", &batch).ok();
        });
    }
    attack
}

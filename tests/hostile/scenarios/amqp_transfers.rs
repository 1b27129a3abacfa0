//! Messages over AMQP that lack their end, on many links, and frames that lack their end. Together
//! they need more than the room for all.

use super::super::amqp::{WINDOW, encoded, frame, open, part, sender};
use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::queue;

/// Links of each connection.
const LINKS: u32 = 8;
/// Parts of one message, which may have about a million bytes.
const PARTS: usize = 16;
const PART: usize = 60_000;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let piece = vec![b'x'; PART];
    let mut attack = Attack::default();
    for number in 0..20 * weight.min(5) {
        let Ok(mut client) = open(broker.amqp, WINDOW) else { continue };
        for handle in 0..LINKS {
            if client.attach(&sender(handle, "attacked")).is_err() {
                break;
            }
            let first = encoded(0, &part(handle, Some(handle), true), &piece);
            let next = encoded(0, &part(handle, None, true), &piece);
            flood(&mut client.stream, &first, 1);
            flood(&mut client.stream, &next, PARTS - 1);
        }
        if number % 2 == 0 {
            let whole = frame(0, 0, &piece);
            flood(&mut client.stream, &whole[..whole.len() - 1], 1);
        }
        attack.hold(client);
    }
    attack
}

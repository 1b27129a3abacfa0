//! Receives that wait for days, followed in the same frame by one that does not wait and the
//! maximum of requests. If these wait for the first ones, they need more than the room of all
//! transports.

use serde_json::{Value as Json, json};

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::masked;
use super::{attached, queue};

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let receive = |id: usize, seconds: u32| {
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": seconds });
        json!({ "id": id, "receive": receive })
    };
    let waits = frame((10..600).map(|id| receive(id, 86_400)).collect());
    let unknown = (6_000..10_095).map(|id| json!({ "id": id, "x": {} }));
    let behind = frame(std::iter::once(receive(5_000, 0)).chain(unknown).collect());
    let mut attack = Attack::default();
    for _ in 0..20 * weight.min(3) {
        let mut socket = attached(broker, "receiver");
        flood(&mut socket.stream, &waits, 1);
        flood(&mut socket.stream, &behind, 1);
        attack.hold(socket);
    }
    attack
}

fn frame(requests: Vec<Json>) -> Vec<u8> {
    masked(0x81, json!({ "seen": 0, "requests": requests }).to_string().as_bytes())
}

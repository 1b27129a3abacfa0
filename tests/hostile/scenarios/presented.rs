//! Unsigned tokens as long as a frame, and requests for absent paths of that length. The memory of
//! identities and paths is bounded (SEC-08, SEC-15), and so is the buffer that a connection retains
//! after large frames, for clients that have requested large messages and read them.

use serde_json::json;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::WebSocket;
use super::{attached, fill};

/// Less than the maximum of a frame.
const LONG: usize = 3 << 20;
const PATHS: u64 = 12;
/// Each token is sent twice. Together they exceed the memory of the broker several times.
const TOKENS: usize = 50;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    fill(broker, 1);
    let mut attack = Attack::default();
    for _ in 0..100 {
        let mut socket = attached(broker, "receiver");
        let peek = json!({ "link": 1, "from": 0, "maxCount": 1 });
        let told = socket.ask(3, "peek", &peek).unwrap();
        assert!(told["error"].is_null(), "{told}");
        attack.hold(socket);
    }
    let token = "t".repeat(LONG);
    for _ in 0..TOKENS * weight.min(4) {
        let Ok(mut socket) = WebSocket::open_with(broker.websocket, &json!({ "token": token }))
        else {
            continue;
        };
        socket.ask(2, "authenticate", &json!({ "token": token })).ok();
        attack.hold(socket);
    }
    for _ in 0..8 * weight.min(4) {
        let Ok(mut socket) = WebSocket::open(broker.websocket) else { continue };
        for id in 2..2 + PATHS {
            let path = format!("{id}{}", "p".repeat(LONG));
            if socket.ask(id, "getQueue", &json!({ "path": path })).is_err() {
                break;
            }
        }
        attack.hold(socket);
    }
    attack
}

//! Clients that may resume and confirm no frame: many frames with answers of a few bytes, and large
//! answers that are not read. They are cut, resume, get everything again, and finally stay away.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::WebSocket;
use super::fill;

/// Together they need several times the room of the broker.
const CLIENTS: usize = 16;
const MESSAGES: usize = 8;
const CUTS: usize = 4;
/// Small answers between two cuts, followed by more large answers than there is room for.
const SMALL_ANSWERS: usize = 300;
const LARGE_ANSWERS: usize = 64;
const GRACE: Duration = Duration::from_secs(3);

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    fill(broker, MESSAGES);
    let mut attack = Attack::default();
    attack.is_kept_for(GRACE);
    let address = broker.websocket;
    for _ in 0..CLIENTS * weight.min(4) {
        attack.repeat(move || {
            // There may be no room for a connection, or the broker may reclaim the retained frames.
            if live(address).is_err() {
                std::thread::sleep(GRACE / 100);
            }
        });
    }
    attack
}

fn live(address: SocketAddr) -> io::Result<()> {
    let mut hello = json!({ "graceSeconds": GRACE.as_secs() });
    let mut socket = open(address, &hello)?;
    hello["resume"] = json!({ "resumeToken": socket.welcome["resumeToken"], "received": 0 });
    let attach = json!({ "link": 1, "path": "attacked", "role": "receiver" });
    say(&mut socket, json!([{ "id": 2, "attach": attach }]))?;
    for _ in 0..CUTS {
        for _ in 0..SMALL_ANSWERS {
            say(&mut socket, json!([{ "id": 3, "heartbeat": {} }]))?;
            socket.frame()?;
        }
        let peeks = (0..LARGE_ANSWERS).map(|number| {
            let from = number % MESSAGES + 1;
            json!({ "id": 10 + number, "peek": { "link": 1, "from": from, "maxCount": 1 } })
        });
        say(&mut socket, peeks.collect())?;
        socket.stream.shutdown(Shutdown::Both)?;
        socket = open(address, &hello)?;
    }
    Ok(())
}

/// A connection whose retained frames exceed the limit gets nothing more, so its client reads with
/// a short timeout.
fn open(address: SocketAddr, hello: &Json) -> io::Result<WebSocket> {
    let socket = WebSocket::open_with(address, hello)?;
    socket.stream.set_read_timeout(Some(GRACE / 3))?;
    Ok(socket)
}

/// Sends a frame that confirms nothing.
fn say(socket: &mut WebSocket, requests: Json) -> io::Result<()> {
    socket.send(&json!({ "seen": 0, "requests": requests }))
}

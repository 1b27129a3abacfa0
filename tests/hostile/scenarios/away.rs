//! Clients that may come back, and of what they were told confirm nothing: answers of a few bytes, a frame each, and
//! large ones that are not read. They are cut, come back, are told all of it again, and at last are away.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::WebSocket;
use super::fill;

/// All of it together is several times the room of the broker.
const CLIENTS: usize = 16;
const MESSAGES: usize = 8;
const CUTS: usize = 4;
/// Between two of them, and then as many large ones as there is room for.
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
            // There may be no place, or what it holds is needed.
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

/// A connection of which too much is kept is told nothing more: its client does not wait for that.
fn open(address: SocketAddr, hello: &Json) -> io::Result<WebSocket> {
    let socket = WebSocket::open_with(address, hello)?;
    socket.stream.set_read_timeout(Some(GRACE / 3))?;
    Ok(socket)
}

/// A frame that confirms nothing.
fn say(socket: &mut WebSocket, requests: Json) -> io::Result<()> {
    socket.send(&json!({ "seen": 0, "requests": requests }))
}

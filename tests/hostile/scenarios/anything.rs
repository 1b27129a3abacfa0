//! Any number of commands in any order, with values that exist, that do not, and at the bounds;
//! answers read or not; over HTTP, WebSocket in both encodings, AMQP, and AMQP over WebSocket; at
//! the ports of the transports and the gateway, directly and through a proxy that announces a
//! client address; and all of that within TLS. `PEEKLOCK_HOSTILE_SEED` selects other commands.
//!
//! Requests are drawn from the lists of the transports themselves ([`super::any_operations`],
//! [`super::any_requests`], [`super::any_frames`]). A test fails if a new operation is not drawn.
//!
//! Messages and other things with bounds of their own that such commands store are allowed in
//! addition to the budgets: see [`Attack::makes_it_keep`].

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use peeklock_websocket::testing::in_binary;
use serde_json::json;

use super::super::amqp::{WINDOW, open};
use super::super::attacker::Attack;
use super::super::broker::{Broker, Ways};
use super::super::random::Random;
use super::super::wire::{WebSocket, ask, connect, masked, upgrade};
use super::any_frames::Script;
use super::any_operations::{GRACE_SECONDS, LOOKING};
use super::any_values::{FULL, FULL_MESSAGES, TOPIC, Values, WRITE_BYTES};
use super::{any_operations, any_requests};

/// Minimum duration of the short and the long round.
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(120);
/// Maximum of connections that each attacker leaves open.
const HELD_MAX: usize = 48;
/// Bytes of each message to be peeked.
const FULL_BYTES: usize = 900_000;
/// Reads of 64 KiB between two writes.
const READS_MAX: usize = 256;
/// Maximum of frames or writes of a connection.
const WRITES_MAX: usize = 12;
/// One of this many WebSocket clients requests only large answers, reads none, and puts `HOARDED`
/// requests into a frame.
const HOARDERS: usize = 2;
const HOARDED: usize = 1_000;
/// Maximum size of a WebSocket message with AMQP in it.
const PIECE_BYTES: usize = 256 << 10;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let seed = std::env::var("PEEKLOCK_HOSTILE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(1_u64) << 16;
    let put = |target: &str, body: &str| {
        let answer = ask(broker.http, "PUT", &format!("/$api/v1/{target}"), body).unwrap();
        assert_eq!(answer.status, 201, "{target}: {}", String::from_utf8_lossy(&answer.body));
    };
    put("queues/any-plain", "{}");
    put("queues/any-session", r#"{"requiresSession":true}"#);
    put("queues/any-detecting", r#"{"requiresDuplicateDetection":true}"#);
    put("queues/any-full", "{}");
    for _ in 0..FULL_MESSAGES {
        let sent = ask(broker.http, "POST", "/any-full/messages", &"x".repeat(FULL_BYTES));
        assert_eq!(sent.unwrap().status, 201);
    }
    put("topics/any-topic", "{}");
    put("topics/any-topic/subscriptions/s", "{}");
    put("topics/any-topic/subscriptions/t", "{}");
    let (ways, tunnels) = broker.ways();
    for Ways { http, websocket, amqp } in &ways {
        // Without this check, the attack might reach only a closed door.
        assert_eq!(ask(*http, "GET", "/$api/v1/queues/any-plain", "").unwrap().status, 200);
        drop(WebSocket::open(*websocket).unwrap());
        drop(open(*amqp, WINDOW).unwrap());
    }
    let mut attack = Attack::default();
    attack.makes_it_keep();
    attack.may_leave(HELD_MAX / 2);
    attack.hold(tunnels);
    attack.is_kept_for(Duration::from_secs(GRACE_SECONDS as u64));
    attack.last(if weight > 1 { LONG } else { SHORT });
    // Each attacker uses every transport in turn, over any route.
    let kinds: [Kind; 4] = [Attacker::web, Attacker::http, Attacker::amqp, Attacker::web_amqp];
    for number in 0..(kinds.len() + 2) * weight.min(5) {
        let random = Random::new(seed + number as u64);
        let mut attacker = Attacker::new(random, ways.clone());
        let kind = kinds[number % kinds.len()];
        attack.repeat(move || attacker.live(kind));
    }
    attack
}

/// Runs one connection to its end.
type Kind = fn(&mut Attacker, Ways) -> std::io::Result<TcpStream>;

struct Attacker {
    values: Values,
    ways: Vec<Ways>,
    held: VecDeque<TcpStream>,
}

impl Attacker {
    fn new(random: Random, ways: Vec<Ways>) -> Self {
        Self { values: Values { random }, ways, held: VecDeque::new() }
    }

    /// Runs one connection, which then stays open for a while.
    fn live(&mut self, kind: Kind) {
        let way = self.ways[self.values.below(self.ways.len())];
        if let Ok(stream) = kind(self, way) {
            self.held.push_back(stream);
        }
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
        }
    }

    /// A WebSocket connection in JSON or in the binary form. Some ask to be able to resume, and in
    /// JSON some do so.
    fn web(&mut self, ways: Ways) -> std::io::Result<TcpStream> {
        let is_binary = self.values.random.one_in(2);
        let mut hello = any_operations::hello(&mut self.values);
        let mut socket = match is_binary {
            true => WebSocket::open_binary(ways.websocket, &hello)?,
            false => WebSocket::open_with(ways.websocket, &hello)?,
        };
        loop {
            // A connection that accepts nothing more is still held, here and below.
            self.ask_over_web(&mut socket.stream, is_binary).ok();
            let token = &socket.welcome["resumeToken"];
            if token.is_null() || self.values.random.one_in(2) {
                return Ok(socket.stream);
            }
            // Frames that the client has not confirmed are sent again on resumption. It has
            // confirmed none.
            hello["resume"] = json!({ "resumeToken": token, "received": 0 });
            if self.values.random.one_in(2) {
                socket.stream.shutdown(Shutdown::Both).ok();
            }
            socket = WebSocket::open_with(ways.websocket, &hello)?;
        }
    }

    fn ask_over_web(&mut self, stream: &mut TcpStream, is_binary: bool) -> std::io::Result<()> {
        let hoards = self.values.random.one_in(HOARDERS);
        let reads = !hoards && self.values.random.one_in(3);
        // Most confirm nothing, some more than was sent.
        let seen = [0, 0, 20, u64::MAX][self.values.below(4)];
        let mut say = |values: &mut Values, frame: String| {
            let frame = match is_binary {
                // A request without a binary form is not sent.
                true => match in_binary(&frame) {
                    Some(frame) => masked(0x82, &frame),
                    None => return Ok(()),
                },
                false => masked(0x81, frame.as_bytes()),
            };
            // Occasionally the frame lacks its end.
            let length = match values.below(100) {
                0 => values.below(frame.len()),
                _ => frame.len(),
            };
            hand_in(stream, &frame[..length], reads)
        };
        for link in 1..=6 {
            let path = if link % 2 == 0 { self.values.queue() } else { self.values.subscription() };
            let role = if link < 3 { "sender" } else { "receiver" };
            let path = if role == "sender" && link == 1 { TOPIC } else { path };
            let attach = json!({ "link": link, "path": path, "role": role, "credit": 5_000 });
            let frame = any_operations::frame(seen, &[(link, "attach", &attach)]);
            say(&mut self.values, frame)?;
        }
        let attach = json!({ "link": LOOKING, "path": FULL, "role": "receiver" });
        say(&mut self.values, any_operations::frame(seen, &[(7, "attach", &attach)]))?;
        let mut id = 10;
        for _ in 0..1 + self.values.below(WRITES_MAX) {
            let count = if hoards { HOARDED } else { self.count() };
            let same = match hoards {
                true => Some(any_operations::draw_large(&mut self.values)),
                false => {
                    self.values.random.one_in(2).then(|| any_operations::draw(&mut self.values))
                }
            };
            let (mut requests, mut bytes) = (Vec::new(), 0);
            for _ in 0..count {
                let (name, body) =
                    same.clone().unwrap_or_else(|| any_operations::draw(&mut self.values));
                id += 1;
                bytes += body.to_string().len();
                requests.push((id, name, body));
                if bytes > WRITE_BYTES {
                    break;
                }
            }
            let requests: Vec<_> =
                requests.iter().map(|(id, name, body)| (*id, *name, body)).collect();
            let frame = any_operations::frame(seen, &requests);
            say(&mut self.values, frame)?;
        }
        Ok(())
    }

    /// Requests to the JSON API, the REST data plane and Atom.
    fn http(&mut self, ways: Ways) -> std::io::Result<TcpStream> {
        let mut stream = connect(ways.http)?;
        self.ask_over_http(&mut stream).ok();
        Ok(stream)
    }

    fn ask_over_http(&mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        let reads = self.values.random.one_in(3);
        for _ in 0..1 + self.values.below(WRITES_MAX) {
            let mut bytes = Vec::new();
            for _ in 0..1 + self.count() / 40 {
                bytes.extend_from_slice(&any_requests::draw(&mut self.values));
                if bytes.len() > WRITE_BYTES {
                    break;
                }
            }
            // Occasionally the rest is not sent.
            if self.values.random.one_in(40) {
                bytes.truncate(self.values.below(bytes.len()));
                return hand_in(stream, &bytes, reads);
            }
            hand_in(stream, &bytes, reads)?;
        }
        Ok(())
    }

    /// AMQP frames in WebSocket messages after a legal start, cut anywhere.
    fn web_amqp(&mut self, ways: Ways) -> std::io::Result<TcpStream> {
        let (mut stream, _) = upgrade(ways.amqp, "/$servicebus/websocket", "amqp")?;
        let (mut script, begun) = Script::of_one();
        let cut = 1 + self.values.below(PIECE_BYTES);
        self.say_all(&mut script, begun, |bytes, reads| {
            let mut pieces = bytes.chunks(cut);
            pieces.try_for_each(|piece| hand_in(&mut stream, &masked(0x82, piece), reads))
        })
        .ok();
        Ok(stream)
    }

    /// AMQP frames after a legal start, or without one.
    fn amqp(&mut self, ways: Ways) -> std::io::Result<TcpStream> {
        let (mut script, mut stream) = match self.values.random.one_in(8) {
            true => (Script::of_nothing(), connect(ways.amqp)?),
            false => {
                let window = [0, 1, WINDOW, u32::MAX][self.values.below(4)];
                Script::begin(open(ways.amqp, window)?)?
            }
        };
        let say = |bytes: &[u8], reads| hand_in(&mut stream, bytes, reads);
        self.say_all(&mut script, Vec::new(), say).ok();
        Ok(stream)
    }

    /// Sends all frames of a connection over AMQP after `bytes`.
    fn say_all(
        &mut self,
        script: &mut Script,
        mut bytes: Vec<u8>,
        mut say: impl FnMut(&[u8], bool) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let reads = self.values.random.one_in(3);
        bytes.extend(script.links(&mut self.values.random));
        for _ in 0..1 + self.values.below(WRITES_MAX) {
            self.say_frames(script, &mut bytes);
            say(&bytes, reads)?;
            bytes.clear();
        }
        Ok(())
    }

    fn say_frames(&mut self, script: &mut Script, bytes: &mut Vec<u8>) {
        let count = self.count();
        let same = self.values.random.one_in(4).then(|| script.next(&mut self.values.random));
        for _ in 0..count {
            let frames = same.clone().unwrap_or_else(|| script.next(&mut self.values.random));
            bytes.extend_from_slice(&frames);
            if bytes.len() > WRITE_BYTES {
                break;
            }
        }
    }

    /// Number of requests in a frame: usually few, sometimes the maximum or more.
    fn count(&mut self) -> usize {
        match self.values.below(8) {
            // More requests than a frame may have end its connection.
            0 if self.values.random.one_in(8) => self.values.below(20_000),
            0 => self.values.below(4_000),
            1 | 2 => self.values.below(1_000),
            _ => 1 + self.values.below(8),
        }
    }
}

/// Writes all bytes, and reads meanwhile if `reads`.
fn hand_in(stream: &mut TcpStream, bytes: &[u8], reads: bool) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    let mut answers = vec![0; 64 << 10];
    for part in bytes.chunks(256 << 10) {
        // Some requests have gigabytes of answers.
        for _ in 0..READS_MAX {
            if !reads || !stream.read(&mut answers).is_ok_and(|read| read > 0) {
                break;
            }
        }
        stream.write_all(part)?;
    }
    Ok(())
}

//! Any number of any command in any order, with values that are there, that are not, and at the bounds; answers read
//! or not; over HTTP, WebSocket and AMQP. `PEEKLOCK_HOSTILE_SEED` gives other ones.
//!
//! What such commands make the broker keep as it should, messages and what has a bound of its own, is allowed beside
//! the budgets: see [`Attack::counter`].

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::amqp::{WINDOW, open};
use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::random::Random;
use super::super::wire::{WebSocket, ask, connect, masked, request};
use super::any_frames::Script;

/// Attackers at once, a transport.
const ATTACKERS: u64 = 2;
/// Connections that each leaves open behind it.
const HELD_MAX: usize = 8;
/// Frames or writes in the life of a connection.
const WRITES_MAX: usize = 12;
/// A write has no more requests once it is so large; a frame may be of 4 MiB.
const WRITE_BYTES: usize = 5 << 20;

pub const QUEUES: [&str; 4] = ["any-plain", "any-session", "any-detecting", "any-absent"];
pub const TOPIC: &str = "any-topic";
pub const SUBSCRIPTIONS: [&str; 3] =
    ["any-topic/subscriptions/s", "any-topic/subscriptions/t", "any-topic/subscriptions/none"];

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
    put("topics/any-topic", "{}");
    put("topics/any-topic/subscriptions/s", "{}");
    put("topics/any-topic/subscriptions/t", "{}");
    let mut attack = Attack::default();
    for number in 0..ATTACKERS * weight.min(5) as u64 {
        let mut web = Attacker::new(Random::new(seed + 2 * number), attack.counter());
        let address = broker.websocket;
        attack.repeat(move || web.live(address, Attacker::web));
        let mut http = Attacker::new(Random::new(seed + 2 * number + 1), attack.counter());
        let address = broker.http;
        attack.repeat(move || http.live(address, Attacker::http));
        let mut amqp = Attacker::new(Random::new(seed + (1 << 15) + number), attack.counter());
        let address = broker.amqp;
        attack.repeat(move || amqp.live(address, Attacker::amqp));
    }
    attack
}

struct Attacker {
    random: Random,
    sent: Arc<AtomicU64>,
    held: VecDeque<TcpStream>,
}

impl Attacker {
    fn new(random: Random, sent: Arc<AtomicU64>) -> Self {
        Self { random, sent, held: VecDeque::new() }
    }

    /// One connection, which stays open for a while.
    fn live(
        &mut self,
        address: SocketAddr,
        life: fn(&mut Self, SocketAddr) -> std::io::Result<TcpStream>,
    ) {
        if let Ok(stream) = life(self, address) {
            self.held.push_back(stream);
        }
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
        }
    }

    fn web(&mut self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let mut socket = WebSocket::open(address)?;
        let reads = self.random.one_in(2);
        for link in 1..=6 {
            let path = if link % 2 == 0 { self.queue() } else { self.subscription() };
            let role = if link < 3 { "sender" } else { "receiver" };
            let path = if role == "sender" && link == 1 { TOPIC } else { path };
            let attach = json!({ "link": link, "path": path, "role": role, "credit": 5_000 });
            socket.send(&json!({ "requests": [{ "id": link, "attach": attach }] }))?;
        }
        let mut id = 10;
        for _ in 0..1 + self.random.below(WRITES_MAX) {
            let count = self.count();
            let same = self.random.one_in(2).then(|| self.operation());
            let mut frame = r#"{"seen":0,"requests":["#.to_owned();
            for number in 0..count {
                let (name, body) = same.clone().unwrap_or_else(|| self.operation());
                id += 1;
                let comma = if number == 0 { "" } else { "," };
                write!(frame, "{comma}{}", json!({ "id": id, name: body })).unwrap();
                if frame.len() > WRITE_BYTES {
                    break;
                }
            }
            frame.push_str("]}");
            hand_in(&mut socket.stream, &masked(0x81, frame.as_bytes()), reads)?;
        }
        Ok(socket.stream)
    }

    fn http(&mut self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let mut stream = connect(address)?;
        let reads = self.random.one_in(2);
        for _ in 0..1 + self.random.below(WRITES_MAX) {
            let mut bytes = Vec::new();
            for _ in 0..1 + self.count() / 40 {
                let (method, target, body) = self.request();
                bytes.extend_from_slice(&request(method, &target, &body));
                if bytes.len() > WRITE_BYTES {
                    break;
                }
            }
            hand_in(&mut stream, &bytes, reads)?;
        }
        Ok(stream)
    }

    /// Frames of connections that began as they should, or not even that.
    fn amqp(&mut self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let reads = self.random.one_in(2);
        let (mut script, mut stream) = match self.random.one_in(8) {
            true => (Script::of_nothing(), connect(address)?),
            false => {
                let window = [0, 1, WINDOW, u32::MAX][self.random.below(4)];
                Script::begin(open(address, window)?)?
            }
        };
        let mut bytes = script.links(&mut self.random);
        for _ in 0..1 + self.random.below(WRITES_MAX) {
            let count = self.count();
            let same = self.random.one_in(4).then(|| script.next(&mut self.random));
            for _ in 0..count {
                let said = same.clone().unwrap_or_else(|| script.next(&mut self.random));
                let (frames, messages) = said;
                self.sent.fetch_add(messages, Ordering::Relaxed);
                bytes.extend_from_slice(&frames);
                if bytes.len() > WRITE_BYTES {
                    break;
                }
            }
            hand_in(&mut stream, &bytes, reads)?;
            bytes.clear();
        }
        Ok(stream)
    }

    /// How many at once: mostly few, sometimes as many as may be, or more.
    fn count(&mut self) -> usize {
        match self.random.below(8) {
            0 => self.random.below(20_000),
            1 | 2 => self.random.below(1_000),
            _ => 1 + self.random.below(8),
        }
    }

    fn queue(&mut self) -> &'static str {
        self.random.of(&QUEUES)
    }

    fn subscription(&mut self) -> &'static str {
        self.random.of(&SUBSCRIPTIONS)
    }

    fn entity(&mut self) -> &'static str {
        if self.random.one_in(2) { self.queue() } else { self.subscription() }
    }

    fn link(&mut self) -> usize {
        self.random.below(8)
    }

    /// Small, sometimes large; with what is kept beside it.
    fn message(&mut self) -> Json {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let bytes = match self.random.below(200) {
            0 => 900_000,
            1..8 => 30_000,
            _ => self.random.below(40),
        };
        let mut message = json!({ "body": "x".repeat(bytes) });
        let one = |random: &mut Random| format!("{}", random.below(1 << 40));
        if self.random.one_in(3) {
            message["sessionId"] = one(&mut self.random).into();
        }
        if self.random.one_in(3) {
            message["messageId"] = one(&mut self.random).into();
        }
        if self.random.one_in(10) {
            message["scheduledEnqueueTimeUtc"] = "2100-01-01T00:00:00Z".into();
        }
        if self.random.one_in(10) {
            message["applicationProperties"] = json!({ "p": "a".repeat(self.random.below(3_000)) });
        }
        message
    }

    fn messages(&mut self) -> Vec<Json> {
        if self.random.one_in(20) {
            let message = self.message();
            let bytes = message.to_string().len();
            let count = (WRITE_BYTES / bytes).min(5_000);
            self.sent.fetch_add(count as u64, Ordering::Relaxed);
            return vec![message; count];
        }
        (0..self.random.below(4)).map(|_| self.message()).collect()
    }

    fn rule(&mut self) -> Json {
        let sql = match self.random.below(3) {
            0 => format!("p LIKE '%{}b%'", "a".repeat(self.random.below(900))),
            1 => "p = 1 OR ".repeat(self.random.below(60)) + "q = 2",
            _ => "1 = 1".to_owned(),
        };
        let name = format!("r{}", self.random.below(40));
        json!({ "name": name, "filter": { "type": "sql", "sql": sql } })
    }

    fn numbers(&mut self) -> Vec<usize> {
        let count = if self.random.one_in(20) { 4_096 } else { self.random.below(4) };
        (0..count).map(|_| 1 + self.random.below(2_000)).collect()
    }

    /// A request over WebSocket: its name and what it has.
    fn operation(&mut self) -> (&'static str, Json) {
        let ranges = |numbers: Vec<usize>| -> Vec<[usize; 2]> {
            numbers.into_iter().map(|number| [number, number]).collect()
        };
        let link = self.link();
        let count = 1 + self.random.below(5_000);
        let decision = self.random.of(&["complete", "abandon", "defer", "deadLetter", "release"]);
        let transaction = self.random.below(40);
        match self.random.below(44) {
            0 => ("attach", json!({ "link": link, "path": self.entity(), "role": "receiver" })),
            1 => ("detach", json!({ "link": link, "release": self.random.one_in(2) })),
            2 => ("credit", json!({ "link": link, "upTo": count })),
            3 => ("drain", json!({ "link": link })),
            4..7 => ("send", json!({ "link": link, "messages": self.messages() })),
            7 => ("sendBatch", json!({ "link": link, "messages": self.messages() })),
            8 => ("cancelScheduled", json!({ "link": link, "sequenceNumbers": self.numbers() })),
            9 | 10 => {
                let wait = self.random.below(3);
                ("receive", json!({ "link": link, "maxCount": count, "waitSeconds": wait }))
            }
            11 => ("withdraw", json!({ "request": 10 + self.random.below(5_000) })),
            12 => ("receiveDeferred", json!({ "link": link, "sequenceNumbers": self.numbers() })),
            13 | 14 => {
                let ranges = ranges(self.numbers());
                ("settle", json!({ "link": link, "decision": decision, "ranges": ranges }))
            }
            15 => ("renew", json!({ "link": link, "ranges": ranges(self.numbers()) })),
            16 | 17 => ("peek", json!({ "link": link, "from": 0, "maxCount": count })),
            18 => ("deleteBatch", json!({ "link": link, "maxCount": count })),
            19 => ("purge", json!({ "link": link })),
            20 => ("createQueue", self.new_queue()),
            21 => ("getQueue", json!({ "path": self.queue() })),
            22 => {
                let properties = json!({ "maxDeliveryCount": count });
                ("updateQueue", json!({ "path": self.queue(), "properties": properties }))
            }
            23 => ("deleteQueue", json!({ "path": format!("any-{}", self.random.below(400)) })),
            24 => ("listQueues", json!({ "top": self.random.below(200) })),
            25 => ("heartbeat", json!({})),
            26 => {
                let accept = json!({ "link": 20 + self.random.below(50), "path": "any-session" });
                ("acceptSession", accept)
            }
            27 => ("setSessionState", json!({ "link": 20 + link, "state": "s".repeat(count) })),
            28 => ("getSessionState", json!({ "link": 20 + link })),
            29 => ("listSessions", json!({ "path": "any-session", "top": 100 })),
            30 => ("deleteUnlocked", json!({ "path": "any-session", "maxCount": count })),
            31 => ("createTopic", json!({ "path": TOPIC })),
            32 => {
                let name = format!("u{}", self.random.below(30));
                ("createSubscription", json!({ "topic": TOPIC, "name": name }))
            }
            33 => ("listSubscriptions", json!({ "path": TOPIC })),
            34 => ("createRule", json!({ "path": self.subscription(), "rule": self.rule() })),
            35 => ("listRules", json!({ "path": self.subscription() })),
            36 => {
                let message = json!({ "body": "x", "applicationProperties": { "p": "aaa" } });
                ("explain", json!({ "path": self.subscription(), "message": message }))
            }
            37 => ("beginTransaction", json!({})),
            38 => {
                let send = json!({ "link": link, "messages": self.messages() });
                ("sendIn", json!({ "transaction": transaction, "send": send }))
            }
            39 => ("commit", json!({ "transaction": transaction })),
            40 => ("rollBack", json!({ "transaction": transaction })),
            41 => ("listPolicies", json!({ "path": self.queue() })),
            42 => ("listTopics", json!({ "top": 100 })),
            _ => ("peekSession", json!({ "link": link, "sessionId": "1", "maxCount": count })),
        }
    }

    fn new_queue(&mut self) -> Json {
        let properties = match self.random.below(3) {
            0 => json!({ "requiresSession": true }),
            1 => json!({ "requiresDuplicateDetection": true }),
            _ => json!({}),
        };
        match self.random.below(4) {
            0 => json!({ "path": QUEUES[0] }),
            1 => json!({ "path": QUEUES[1], "properties": { "requiresSession": true } }),
            2 => json!({ "path": QUEUES[2], "properties": { "requiresDuplicateDetection": true } }),
            _ => {
                let path = format!("any-{}", self.random.below(400));
                json!({ "path": path, "properties": properties })
            }
        }
    }

    /// A request over HTTP: method, target and body.
    fn request(&mut self) -> (&'static str, String, String) {
        let queue = self.queue();
        let api = format!("/$api/v1/queues/{queue}");
        let count = 1 + self.random.below(5_000);
        let lock = "00000000-0000-0001-0000-000000000001";
        match self.random.below(20) {
            0 => {
                let new = self.new_queue();
                let path = new["path"].as_str().unwrap_or_default();
                let body = new.get("properties").map_or("{}".to_owned(), Json::to_string);
                ("PUT", format!("/$api/v1/queues/{path}"), body)
            }
            1 => ("GET", api, String::new()),
            2 => ("PATCH", api, json!({ "maxDeliveryCount": count }).to_string()),
            3 => {
                let path = format!("/$api/v1/queues/any-{}", self.random.below(400));
                ("DELETE", path, String::new())
            }
            4 | 5 => {
                self.sent.fetch_add(1, Ordering::Relaxed);
                ("POST", format!("/{queue}/messages"), "x".repeat(20 * count))
            }
            6 => ("POST", format!("{api}/messages"), self.message().to_string()),
            7 => {
                let batch = json!({ "messages": self.messages() });
                ("POST", format!("{api}/messages/batch"), batch.to_string())
            }
            8 | 9 => ("POST", format!("/{queue}/messages/head?timeout=0"), String::new()),
            10 => ("DELETE", format!("/{queue}/messages/head?timeout=1"), String::new()),
            11 => {
                let receive = json!({ "maxCount": count.min(4_096), "waitSeconds": 1 });
                ("POST", format!("{api}/messages/receive"), receive.to_string())
            }
            12 => ("GET", format!("{api}/messages?count={}", count.min(4_096)), String::new()),
            13 => ("POST", format!("{api}/messages/delete-batch"), "{}".to_owned()),
            14 => ("POST", format!("{api}/messages/purge"), "{}".to_owned()),
            15 => ("POST", format!("{api}/locks/{lock}/complete"), "{}".to_owned()),
            16 => ("GET", "/$api/v1/queues?top=100".to_owned(), String::new()),
            17 => ("GET", format!("{api}/sessions"), String::new()),
            18 => {
                let target = format!("/$api/v1/topics/{TOPIC}/messages");
                ("POST", target, self.message().to_string())
            }
            _ => ("GET", "/metrics".to_owned(), String::new()),
        }
    }
}

/// Writes it all, and reads meanwhile or not.
fn hand_in(stream: &mut TcpStream, bytes: &[u8], reads: bool) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    let mut answers = vec![0; 64 << 10];
    for part in bytes.chunks(256 << 10) {
        while reads && stream.read(&mut answers).is_ok_and(|read| read > 0) {}
        stream.write_all(part)?;
    }
    Ok(())
}

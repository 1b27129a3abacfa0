//! Random frames over AMQP. Most are legal, so that the broker executes them, with existing, absent
//! and extreme values. Some are illegal.

use std::collections::HashSet;
use std::io;
use std::net::TcpStream;
use std::sync::LazyLock;

use bytes::Bytes;
use peeklock_amqp::codec::list::{List, write_list};
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::Protocol;
use peeklock_amqp::message::{BATCH_FORMAT, Declare, Discharge};
use peeklock_amqp::performative::{
    Attach, Begin, Close, DeliveryTag, Detach, Disposition, End, Flow, Performative, Role,
    SenderSettleMode, Transfer,
};
use peeklock_amqp::state::{DeliveryState, Modified, Outcome, Received, Rejected, Transactional};
use peeklock_amqp_testing::client::{Frames, Outgoing, Session, link, request};
use peeklock_amqp_testing::exercise::operations;
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::time::Timestamp;

use super::super::links::{Amqp, log_in};
use super::super::random::Random;
use super::any_values::{FULL, QUEUES, SUBSCRIPTIONS, TOPIC, changes};

/// Links of every connection, in the order of their handles. Senders come first.
const SENDERS: u32 = 3;
const RECEIVERS: u32 = 4;
const COORDINATOR: u32 = 7;
const REQUESTS: u32 = 8;
const TOKENS: u32 = 10;
/// Transactions declared at the start.
const TRANSACTIONS: usize = 3;
/// Range of link handles.
const HANDLES: usize = 16;
/// Range of channels.
const CHANNELS: usize = 4;

/// Operations of a management node, and one that does not exist.
static OPERATIONS: LazyLock<Vec<String>> =
    LazyLock::new(|| operations().chain(["com.microsoft:none-of-them".to_owned()]).collect());

/// The frames that one connection sends.
pub struct Script {
    frames: Frames,
    session: Session,
    /// Delivery number of the message whose last part is still to be sent.
    begun: Option<u32>,
    /// Names of declared transactions.
    transactions: Vec<Bytes>,
}

impl Script {
    /// Starts on a connection with a session, and declares transactions.
    pub fn begin(client: Amqp) -> io::Result<(Self, TcpStream)> {
        let mut client = client;
        client.attach(&link::coordinator("c", COORDINATOR))?;
        let declare = declaration(&Declare::default());
        for _ in 0..TRANSACTIONS {
            client.send(COORDINATOR, 0, &declare)?;
        }
        let mut transactions = Vec::new();
        while transactions.len() < TRANSACTIONS {
            let (Performative::Disposition(answer), _) = client.hear()? else { continue };
            let Some(DeliveryState::Outcome(Outcome::Declared(declared))) = answer.state else {
                return Err(io::Error::other("not declared"));
            };
            transactions.push(declared.txn_id);
        }
        let script =
            Self { frames: Frames::default(), session: client.session, begun: None, transactions };
        Ok((script, client.stream))
    }

    /// Starts on a connection on which nothing was sent.
    pub fn of_nothing() -> Self {
        let (frames, session) = (Frames::default(), Session::new(0));
        Self { frames, session, begun: None, transactions: vec![Bytes::new()] }
    }

    /// Starts with a login, an open and a session without waiting for answers. Returns all those
    /// bytes.
    pub fn of_one() -> (Self, Vec<u8>) {
        let mut script = Self::of_nothing();
        log_in(&mut script.frames);
        script.frames.say_header(Protocol::Amqp);
        script.frames.say(0, &Session::open("client"), &[]);
        script.frames.say(0, &Session::begin(), &[]);
        let bytes = script.taken();
        (script, bytes)
    }

    /// Attaches all links of a connection except the coordinator.
    pub fn links(&mut self, random: &mut Random) -> Vec<u8> {
        for handle in 0..SENDERS {
            let address = [TOPIC, queue(random), queue(random)][handle as usize];
            self.say(&link::sender(&format!("s{handle}"), handle, address));
        }
        for handle in SENDERS..SENDERS + RECEIVERS {
            let attach = receiver(random, handle);
            self.say(&attach);
        }
        let managed = format!("{}/$management", entity(random));
        for (handle, address) in [(REQUESTS, &*managed), (TOKENS, "$cbs")] {
            self.say(&link::sender("requests", handle, address));
            self.say(&link::receiver("replies", handle + 1, address));
            self.say(&self.session.credit(handle + 1, 0, 1_000));
        }
        self.taken()
    }

    /// Draws the next frames.
    pub fn next(&mut self, random: &mut Random) -> Vec<u8> {
        match random.below(40) {
            0..8 => {
                let message = message(random);
                self.transfer(random, 0, message.encode().as_bytes());
            }
            8 => self.batch(random),
            9 | 10 => self.part(random),
            11..17 => self.credit(random),
            17..22 => self.settle(random),
            22 => {
                let handle = handle(random);
                let attach = match random.one_in(2) {
                    true => link::sender("another", handle, entity(random)),
                    false => receiver(random, handle),
                };
                self.say(&attach);
            }
            23 | 24 => {
                let closed = !random.one_in(4);
                self.say(&Detach { handle: handle(random), closed, error: error(random) });
            }
            25..31 => self.ask(random),
            31 => self.declare(&Declare::default()),
            32 | 33 => {
                let fail = random.one_in(2);
                self.declare(&Discharge { txn_id: self.transaction(random), fail });
            }
            34 => {
                let mut body = vec![0x00, 0x53, 0x77];
                Value::String("t".repeat(random.below(4_000))).encode_to(&mut body);
                self.send(TOKENS, 0, true, None, &body);
            }
            35 => {
                let channel = u16::try_from(random.below(CHANNELS)).unwrap();
                let begin = Begin { incoming_window: number(random), ..Session::begin() };
                self.frames.say(channel, &begin, &[]);
            }
            36 => {
                let channel = 1 + u16::try_from(random.below(CHANNELS)).unwrap();
                self.frames.say(channel, &End { error: error(random) }, &[]);
            }
            37 => return vec![0, 0, 0, 8, 2, 0, 0, 0],
            38 => self.say(&Flow { echo: random.one_in(2), ..self.session.flow() }),
            _ if random.one_in(8) => return self.illegal(random),
            _ => self.say(&Flow { incoming_window: number(random), ..self.session.flow() }),
        }
        self.taken()
    }

    fn taken(&mut self) -> Vec<u8> {
        self.frames.output.split().to_vec()
    }

    fn say<L: List>(&mut self, body: &L) {
        self.frames.say(self.session.channel(), body, &[]);
    }

    fn send(
        &mut self,
        handle: u32,
        format: u32,
        settled: bool,
        state: Option<&DeliveryState>,
        message: &[u8],
    ) {
        let outgoing = Outgoing { handle, format, settled, state, message };
        self.session.transfer(&mut self.frames, &outgoing);
    }

    /// Sends a message, usually on a sender's link.
    fn transfer(&mut self, random: &mut Random, format: u32, message: &[u8]) {
        let handle = match random.one_in(20) {
            true => handle(random),
            false => u32::try_from(random.below(SENDERS as usize)).unwrap(),
        };
        let state = random.one_in(6).then(|| self.within(random, None));
        self.send(handle, format, random.one_in(3), state.as_ref(), message);
    }

    /// Sends several messages as one, as a batch or with only the format of a batch.
    fn batch(&mut self, random: &mut Random) {
        let one = message(random).encode().as_bytes().clone();
        let count = random.below(1 + (900_000 / (one.len() + 8)).min(4_000));
        let mut batch = Vec::new();
        for _ in 0..count {
            batch.extend_from_slice(&[0x00, 0x53, 0x75]);
            Value::Binary(one.clone()).encode_to(&mut batch);
        }
        if random.one_in(10) {
            batch.truncate(random.below(1 + batch.len()));
        }
        self.transfer(random, BATCH_FORMAT, &batch);
    }

    /// Sends a part of a message: its first, a middle one, its last, or an aborted one.
    fn part(&mut self, random: &mut Random) {
        let handle = self.begun.take().filter(|_| !random.one_in(10));
        let is_first = handle.is_none();
        let handle =
            handle.unwrap_or_else(|| u32::try_from(random.below(SENDERS as usize)).unwrap());
        let more = random.one_in(2);
        self.begun = more.then_some(handle);
        let id = is_first.then(|| self.session.next_delivery_id());
        let transfer = Transfer {
            handle,
            delivery_id: id,
            delivery_tag: id.and_then(|id| DeliveryTag::new(&id.to_be_bytes())),
            message_format: id.map(|_| 0),
            settled: random.one_in(2).then_some(random.one_in(2)),
            more,
            aborted: random.one_in(10),
            resume: random.one_in(50),
            ..Transfer::default()
        };
        let payload = vec![b'x'; random.below(60_000)];
        self.frames.say(self.session.channel(), &transfer, &payload);
    }

    /// Grants more or less credit, with random flags.
    fn credit(&mut self, random: &mut Random) {
        let handle = match random.one_in(10) {
            true => handle(random),
            false => SENDERS + u32::try_from(random.below(RECEIVERS as usize)).unwrap(),
        };
        let delivery_count = u32::try_from(random.below(200)).unwrap();
        let flow = Flow {
            drain: random.one_in(3),
            echo: random.one_in(10),
            available: random.one_in(10).then(|| number(random)),
            ..self.session.credit(handle, delivery_count, number(random))
        };
        self.say(&flow);
    }

    /// Settles deliveries that exist or not, with a random outcome.
    fn settle(&mut self, random: &mut Random) {
        let first = u32::try_from(random.below(300)).unwrap();
        let last = random.one_in(3).then(|| match random.below(10) {
            0 => number(random),
            1 => first + u32::try_from(random.below(8_192)).unwrap(),
            _ => first + u32::try_from(random.below(20)).unwrap(),
        });
        let state = match random.below(12) {
            0 => None,
            1 => Some(DeliveryState::Received(Received::default())),
            2 | 3 => {
                let outcome = outcome(random);
                Some(self.within(random, Some(outcome)))
            }
            _ => Some(DeliveryState::Outcome(outcome(random))),
        };
        let role = if random.one_in(20) { Role::Sender } else { Role::Receiver };
        let settled = random.one_in(3);
        self.say(&Disposition { role, first, last, settled, state, batchable: random.one_in(2) });
    }

    /// Sends a request to a management node.
    fn ask(&mut self, random: &mut Random) {
        let operation = OPERATIONS[random.below(OPERATIONS.len())].as_str();
        let count = 1 + random.below(4_000);
        let numbers: Vec<i64> =
            (0..random.below(6)).map(|_| i64::try_from(random.below(2_000)).unwrap()).collect();
        let tokens: Vec<u128> = numbers.iter().map(|number| number.unsigned_abs().into()).collect();
        let int = |number: usize| request::value(Value::I32(i32::try_from(number).unwrap()));
        let text = |text: &str| request::value(text);
        let mut entries = vec![
            ("message-count", int(count)),
            ("top", int(count)),
            ("skip", int(random.below(4))),
            ("from-sequence-number", request::value(Value::I64(0))),
            ("sequence-numbers", request::longs(&numbers)),
            ("receiver-settle-mode", request::value(Value::U32(u32::from(random.one_in(2))))),
            ("lock-tokens", request::uuids(&tokens)),
            ("last-updated-time", request::value(Value::Timestamp(0))),
            ("rule-name", text(&format!("r{}", random.below(40)))),
            ("rule-description", rule(random)),
        ];
        let decision = random.of(&["completed", "abandoned", "defered", "suspended", "unlocked"]);
        entries.push(("disposition-status", text(decision)));
        if random.one_in(2) {
            entries.push(("session-id", text(&random.below(4).to_string())));
            let state = vec![b's'; random.below(2_000)];
            entries.push(("session-state", request::value(Value::Binary(state.into()))));
        }
        if operation.ends_with("schedule-message") {
            let bytes = message(random).encode().as_bytes().clone();
            let one = request::map(&[("message", request::value(Value::Binary(bytes)))]);
            entries.push(("messages", request::list(&vec![one; random.below(4)])));
        }
        entries.retain(|_| !random.one_in(12));
        let body = match random.one_in(20) {
            true => request::value(Value::Null),
            false => request::map(&entries),
        };
        let content = request::request(7, "client", (operation, &[]), &body);
        let state = random.one_in(6).then(|| self.within(random, None));
        self.send(REQUESTS, 0, random.one_in(2), state.as_ref(), content.as_bytes());
    }

    /// Sends a request to the coordinator.
    fn declare<L: List>(&mut self, body: &L) {
        self.send(COORDINATOR, 0, false, None, &declaration(body));
    }

    /// Name of a declared transaction, or an unknown name.
    fn transaction(&self, random: &mut Random) -> Bytes {
        if random.one_in(10) {
            return vec![0; random.below(40)].into();
        }
        self.transactions[random.below(self.transactions.len())].clone()
    }

    fn within(&self, random: &mut Random, outcome: Option<Outcome>) -> DeliveryState {
        let txn_id = self.transaction(random);
        DeliveryState::Transactional(Box::new(Transactional { txn_id, outcome }))
    }

    /// Frames that no client may send.
    fn illegal(&mut self, random: &mut Random) -> Vec<u8> {
        let noise: Vec<u8> =
            (0..random.below(200)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        match random.below(8) {
            0 => self.say(&Session::open("again")),
            1 => self.say(&Close { error: error(random) }),
            2 => self.frames.say(
                u16::try_from(number(random) % 65_536).unwrap(),
                &self.session.flow(),
                &[],
            ),
            3 => self.frames.say(0, &Session::begin(), &noise),
            4 => self.send(number(random), number(random), false, None, &noise),
            5 => {
                let transfer = Transfer { handle: 0, delivery_id: Some(0), ..Transfer::default() };
                self.frames.say(0, &transfer, &noise);
            }
            6 => self.frames.say_sasl(&End { error: None }),
            _ => return noise,
        }
        self.taken()
    }
}

fn queue(random: &mut Random) -> &'static str {
    random.of(&QUEUES)
}

fn entity(random: &mut Random) -> &'static str {
    if random.one_in(2) { queue(random) } else { random.of(&SUBSCRIPTIONS) }
}

fn handle(random: &mut Random) -> u32 {
    u32::try_from(random.below(HANDLES)).unwrap()
}

/// A small number, sometimes any.
fn number(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => u32::MAX - u32::try_from(random.below(3)).unwrap(),
        1 => u32::try_from(random.below(1 << 20)).unwrap(),
        _ => u32::try_from(random.below(100)).unwrap(),
    }
}

/// A receiver in either mode, for a named session or the next one, or for peeking only.
fn receiver(random: &mut Random, handle: u32) -> Attach {
    let suffix = random.of(&["", "", "", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue"]);
    let looks = random.one_in(8);
    let address = if looks { FULL.to_owned() } else { format!("{}{suffix}", entity(random)) };
    let mut attach = link::receiver(&format!("r{handle}"), handle, &address);
    if random.one_in(3) {
        attach.snd_settle_mode = Some(SenderSettleMode::Settled);
    }
    let raw = |value: Value| Raw::encoded(|bytes| value.encode_to(bytes));
    if looks && let Some(source) = &mut attach.source {
        source.distribution_mode = Some("copy".into());
    } else if random.one_in(3)
        && let Some(source) = &mut attach.source
    {
        let name = match random.one_in(2) {
            true => Value::Null,
            false => Value::String(random.below(1_000).to_string()),
        };
        source.filter = Some(Map::of_symbols([("com.microsoft:session-filter", raw(name))]));
        let wait = Value::U32(u32::try_from(random.below(2_000)).unwrap());
        attach.properties = Some(Map::of_symbols([("com.microsoft:timeout", raw(wait))]));
    } else if random.one_in(8)
        && let Some(source) = &mut attach.source
    {
        source.distribution_mode = Some("copy".into());
    }
    attach
}

/// A small message, sometimes a large one, with random properties that the broker indexes.
fn message(random: &mut Random) -> Message {
    let bytes = match random.below(200) {
        0 => 900_000,
        1..8 => 30_000,
        _ => random.below(40),
    };
    let one = |random: &mut Random| random.below(1 << 40).to_string();
    let mut message = Message::new("x".repeat(bytes));
    if random.one_in(3) {
        message = message.with_session_id(one(random));
    }
    if random.one_in(3) {
        message = message.with_message_id(one(random));
    }
    if random.one_in(10) {
        let at = Timestamp::parse("2100-01-01T00:00:00Z").unwrap();
        message = message.with_scheduled_enqueue_time(at);
    }
    if random.one_in(10) {
        message = message.with_application_property("p", "a".repeat(random.below(3_000)));
    }
    message.with_application_property("q", 1_i64)
}

/// A rule, sometimes with a slow pattern.
fn rule(random: &mut Random) -> Vec<u8> {
    let sql = match random.below(3) {
        0 => format!("p LIKE '%{}b%'", "a".repeat(random.below(900))),
        1 => "p = 1 OR ".repeat(random.below(60)) + "q = 2",
        _ => "1 = 1".to_owned(),
    };
    request::map(&[("sql-filter", request::map(&[("expression", request::value(sql))]))])
}

fn outcome(random: &mut Random) -> Outcome {
    match random.below(6) {
        0 => Outcome::Released,
        1 => Outcome::Modified(Modified {
            delivery_failed: random.one_in(2).then_some(true),
            undeliverable_here: random.one_in(2).then_some(true),
            message_annotations: random.one_in(2).then(|| any_changes(random)),
        }),
        2 => Outcome::Rejected(Rejected { error: error(random) }),
        _ => Outcome::Accepted,
    }
}

fn error(random: &mut Random) -> Option<AmqpError> {
    let text = "e".repeat(random.below(200));
    let with_info = random.one_in(4).then(|| any_changes(random));
    let error = AmqpError::new("com.microsoft:dead-letter", text);
    let error = with_info.into_iter().fold(error, AmqpError::with_info);
    random.one_in(3).then_some(error)
}

/// A few properties, or as many as fit into a frame.
fn any_changes(random: &mut Random) -> Map {
    match random.below(8) {
        0 => changes(20_000, false),
        1 => changes(6_000, true),
        count => changes(count, random.one_in(2)),
    }
}

/// A request to the coordinator, encoded as a message.
fn declaration<L: List>(body: &L) -> Vec<u8> {
    let mut message = vec![0x00, 0x53, 0x77];
    write_list(&mut message, body);
    message
}

/// The script draws every performative and every operation of a management node.
#[test]
fn every_performative_is_drawn() {
    let mut random = Random::new(7);
    let (mut script, _) = Script::of_one();
    let mut frames = Frames::default();
    let (mut seen, mut asked) = ([false; 9], HashSet::new());
    frames.input.extend_from_slice(&script.links(&mut random));
    for _ in 0..20_000 {
        while let Ok(Some((_, performative, payload))) = frames.hear() {
            seen[place(&performative)] = true;
            let content = Content::parse(payload).ok();
            let properties = content.iter().flat_map(|content| content.application_properties());
            asked.extend(properties.filter_map(|(name, value)| match value {
                Value::String(text) if name == "operation" => Some(text),
                _ => None,
            }));
        }
        // Bytes that are not a frame make the remaining bytes unreadable.
        frames.input.clear();
        frames.input.extend_from_slice(&script.next(&mut random));
    }
    assert_eq!(seen, [true; 9]);
    for operation in operations() {
        assert!(asked.contains(&operation), "{operation}");
    }
}

fn place(performative: &Performative) -> usize {
    match performative {
        Performative::Open(_) => 0,
        Performative::Begin(_) => 1,
        Performative::Attach(_) => 2,
        Performative::Flow(_) => 3,
        Performative::Transfer(_) => 4,
        Performative::Disposition(_) => 5,
        Performative::Detach(_) => 6,
        Performative::End(_) => 7,
        Performative::Close(_) => 8,
    }
}

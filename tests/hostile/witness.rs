//! Well-behaved clients, one per transport. They measure how long each operation takes, and check
//! that no acknowledged message is lost.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peeklock_amqp::performative::{Disposition, Performative, Role};
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_amqp_testing::client::Parts;
use peeklock_core::message::{Content, Message};
use serde_json::{Value as Json, json};

use super::amqp::{WINDOW, open, receiver, sender};
use super::broker::Broker;
use super::links::Amqp;
use super::wire::{WebSocket, ask};

/// Demands of the clients.
#[derive(Clone, Copy)]
pub struct Wants {
    /// Rounds of each client.
    pub rounds: u32,
    /// Bytes of each message. A connection has 16 KiB without a reservation.
    pub body_bytes: usize,
    /// Each operation must be complete within this time, including refused attempts.
    pub served_within: Duration,
}

impl Wants {
    /// Demands of the short round: every operation ends, even on a busy machine.
    pub const USUAL: Self =
        Self { rounds: 20, body_bytes: 100, served_within: Duration::from_secs(60) };
    /// Demands of the long round: every operation ends within half the time for which a slow peer
    /// may hold room.
    pub const STRICT: Self =
        Self { rounds: 200, body_bytes: 100_000, served_within: Duration::from_secs(15) };
}

/// An operation, from the first attempt to its end.
pub struct Took {
    pub time: Duration,
    pub begun: Instant,
    /// Name of the operation.
    what: &'static str,
    /// Name of the transport.
    pub over: &'static str,
    /// Refusals of earlier attempts, one each.
    refusals: Vec<String>,
}

impl fmt::Display for Took {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "{:?} to {} over {}", self.time, self.what, self.over)?;
        match self.refusals.as_slice() {
            [] => Ok(()),
            [.., last] => write!(text, ", refused {} times, at last: {last}", self.refusals.len()),
        }
    }
}

/// Pause before a refused operation is retried or a connection is reopened.
const PAUSE: Duration = Duration::from_millis(100);

/// A client that sends and receives. It receives under lock and completes, or with
/// receive-and-delete.
trait Client {
    fn send(&mut self, body: &str) -> io::Result<()>;
    /// Receives and removes a message. Returns its body.
    fn take(&mut self) -> io::Result<Option<String>>;
}

/// Transports, one for each client.
pub const TRANSPORTS: [&str; 3] = ["http", "websocket", "amqp"];

/// Creates the queues of the clients before the attack.
pub fn prepare(broker: &Broker) {
    for name in TRANSPORTS {
        let target = format!("/$api/v1/queues/witness-{name}");
        assert_eq!(ask(broker.http, "PUT", &target, "{}").unwrap().status, 201);
    }
}

/// Runs the rounds of each transport's client. Returns the duration of each operation.
pub fn all(broker: &Broker, wants: Wants) -> Vec<Took> {
    let mut took = Vec::new();
    let [http, websocket, amqp] = TRANSPORTS;
    make_rounds(http, wants, &|| Ok(Http { address: broker.http, takes: 0 }), &mut took);
    make_rounds(websocket, wants, &|| Web::open(broker.websocket), &mut took);
    make_rounds(amqp, wants, &|| Links::open(broker.amqp), &mut took);
    took
}

fn make_rounds<C: Client>(
    name: &'static str,
    wants: Wants,
    open: &dyn Fn() -> io::Result<C>,
    took: &mut Vec<Took>,
) {
    let rest = "x".repeat(wants.body_bytes);
    let within = wants.served_within;
    let mut client = again(name, open, Instant::now(), within);
    for round in 0..wants.rounds {
        let body = format!("{name} {round} {rest}");
        // A message without an acknowledgement may be stored nevertheless. It is taken with the
        // others.
        attempt(("send", name), &mut client, open, within, took, |client| client.send(&body));
        loop {
            let taken = attempt(("take", name), &mut client, open, within, took, C::take);
            let text =
                taken.unwrap_or_else(|| panic!("`{name} {round}` was acknowledged and is gone"));
            if text == body {
                break;
            }
        }
    }
    while attempt(("take", name), &mut client, open, within, took, C::take).is_some() {}
}

fn again<C>(name: &str, open: &dyn Fn() -> io::Result<C>, since: Instant, within: Duration) -> C {
    loop {
        match open() {
            Ok(client) => return client,
            Err(error) if since.elapsed() > within => {
                panic!("no connection over {name} within {within:?}: {error}")
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn attempt<C: Client, T>(
    (what, name): (&'static str, &'static str),
    client: &mut C,
    open: &dyn Fn() -> io::Result<C>,
    within: Duration,
    took: &mut Vec<Took>,
    mut operation: impl FnMut(&mut C) -> io::Result<T>,
) -> T {
    let (begun, mut refusals) = (Instant::now(), Vec::new());
    loop {
        let result = operation(client);
        if begun.elapsed() > within {
            panic!("not served over {name} within {within:?}: {:?}", result.err());
        }
        match result {
            Ok(value) => {
                took.push(Took { time: begun.elapsed(), begun, what, over: name, refusals });
                return value;
            }
            Err(refusal) => refusals.push(refusal.to_string()),
        }
        std::thread::sleep(PAUSE);
        *client = again(name, open, begun, within);
    }
}

/// A client with one connection for each request.
struct Http {
    address: SocketAddr,
    takes: u32,
}

impl Client for Http {
    fn send(&mut self, body: &str) -> io::Result<()> {
        match ask(self.address, "POST", "/witness-http/messages", body)?.status {
            201 => Ok(()),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }

    fn take(&mut self) -> io::Result<Option<String>> {
        self.takes += 1;
        let method = if self.takes.is_multiple_of(2) { "DELETE" } else { "POST" };
        let answer = ask(self.address, method, "/witness-http/messages/head?timeout=0", "")?;
        match answer.status {
            204 => return Ok(None),
            200 => return Ok(Some(String::from_utf8_lossy(&answer.body).into_owned())),
            201 => {}
            status => return Err(io::Error::other(format!("status {status}"))),
        }
        let lock = answer.header("location").unwrap_or_default();
        // The scheme is https with TLS.
        let lock = lock.split_once("://localhost").map_or(lock, |(_, path)| path).to_owned();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let begun = Instant::now();
        while begun.elapsed() < Wants::STRICT.served_within {
            // If the answer to an earlier attempt was lost, the message is already completed.
            let settled = ask(self.address, "DELETE", &lock, "").map(|answer| answer.status);
            if matches!(settled, Ok(200 | 404 | 410)) {
                return Ok(Some(text));
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::other("the message cannot be completed"))
    }
}

/// A WebSocket connection with a sender and a receiver.
struct Web {
    socket: WebSocket,
    next: u64,
}

impl Web {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let mut client = Self { socket: WebSocket::open(address)?, next: 10 };
        for (link, role) in [(1, "sender"), (2, "receiver")] {
            let attach = json!({ "link": link, "path": "witness-websocket", "role": role });
            let answer = client.ask("attach", &attach)?;
            if answer.get("error").is_some() {
                return Err(io::Error::other(answer.to_string()));
            }
        }
        Ok(client)
    }

    fn ask(&mut self, operation: &str, body: &Json) -> io::Result<Json> {
        self.next += 1;
        self.socket.ask(self.next, operation, body)
    }
}

impl Client for Web {
    fn send(&mut self, body: &str) -> io::Result<()> {
        let answer = self.ask("send", &json!({ "link": 1, "messages": [{ "body": body }] }))?;
        let is_done = answer.get("accepted").is_some() && answer.get("failed").is_none();
        if is_done { Ok(()) } else { Err(io::Error::other(answer.to_string())) }
    }

    fn take(&mut self) -> io::Result<Option<String>> {
        let receive = json!({ "link": 2, "maxCount": 1, "waitSeconds": 0.0 });
        let answer = self.ask("receive", &receive)?;
        let Some(messages) = answer["received"]["messages"].as_array() else {
            return Err(io::Error::other(answer.to_string()));
        };
        let Some(message) = messages.first() else { return Ok(None) };
        let text = message["body"].as_str().unwrap_or_default().to_owned();
        let tokens = [&message["lockToken"]];
        let settle = json!({ "link": 2, "decision": "complete", "lockTokens": tokens });
        let answer = self.ask("settle", &settle)?;
        if answer.get("error").is_some() {
            return Err(io::Error::other(answer.to_string()));
        }
        Ok(Some(text))
    }
}

/// An AMQP connection with a sender and a receiver.
struct Links {
    amqp: Amqp,
    delivered: u32,
}

impl Links {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let mut amqp = open(address, WINDOW)?;
        amqp.attach(&sender(0, "witness-amqp"))?;
        amqp.attach(&receiver(1, "witness-amqp"))?;
        Ok(Self { amqp, delivered: 0 })
    }

    /// Waits until this delivery is settled as accepted.
    fn accepted(&mut self, by: Role, id: u32) -> io::Result<()> {
        loop {
            match self.amqp.hear()?.0 {
                Performative::Disposition(it) if it.role == by && it.first == id => {
                    let accepted = Some(DeliveryState::Outcome(Outcome::Accepted));
                    if it.settled && it.state == accepted {
                        return Ok(());
                    }
                    return Err(io::Error::other(format!("{it:?}")));
                }
                ended @ (Performative::Detach(_)
                | Performative::End(_)
                | Performative::Close(_)) => {
                    return Err(io::Error::other(format!("{ended:?}")));
                }
                _ => {}
            }
        }
    }
}

impl Client for Links {
    fn send(&mut self, body: &str) -> io::Result<()> {
        let message = Message::new(body.to_owned()).encode();
        let id = self.amqp.send(0, 0, message.as_bytes())?;
        self.accepted(Role::Receiver, id)
    }

    fn take(&mut self) -> io::Result<Option<String>> {
        self.amqp.drain(1, self.delivered, 1)?;
        let mut parts = Parts::default();
        let (first, message) = loop {
            match self.amqp.hear()? {
                (Performative::Transfer(transfer), payload) => {
                    if let Some(whole) = parts.push(transfer, payload) {
                        break whole;
                    }
                }
                // The queue was empty, and the drain has used up the credit.
                (Performative::Flow(flow), _)
                    if flow.handle == Some(1)
                        && flow.delivery_count == Some(self.delivered.wrapping_add(1)) =>
                {
                    self.delivered = self.delivered.wrapping_add(1);
                    return Ok(None);
                }
                (
                    ended @ (Performative::Detach(_)
                    | Performative::End(_)
                    | Performative::Close(_)),
                    _,
                ) => return Err(io::Error::other(format!("{ended:?}"))),
                _ => {}
            }
        };
        self.delivered = self.delivered.wrapping_add(1);
        let id = first.delivery_id.ok_or(io::ErrorKind::InvalidData)?;
        let message = Content::parse(message).and_then(|content| content.decode());
        let message = message.map_err(|error| io::Error::other(format!("{error:?}")))?;
        let text = String::from_utf8_lossy(message.body.as_bytes()).into_owned();
        self.amqp.say(&Disposition {
            role: Role::Receiver,
            first: id,
            last: None,
            settled: false,
            state: Some(DeliveryState::Outcome(Outcome::Accepted)),
            batchable: false,
        })?;
        self.accepted(Role::Sender, id)?;
        Ok(Some(text))
    }
}

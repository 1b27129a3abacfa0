//! Well-behaved clients, one a transport: what they are served, and that nothing acknowledged is lost.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::broker::Broker;
use super::wire::{WebSocket, ask};

/// Rounds of each client.
const ROUNDS: u32 = 20;
/// How often one that is told to come back does, or one that was closed connects again.
const ATTEMPTS: u32 = 200;

/// How long it waits before.
const PAUSE: Duration = Duration::from_millis(100);

/// A client that sends, receives under lock and completes.
trait Client {
    fn send(&mut self, body: &str) -> io::Result<()>;
    /// The body of a message, which is completed.
    fn take(&mut self) -> io::Result<Option<String>>;
}

/// Each transport's client makes its rounds.
pub fn all(broker: &Broker) {
    rounds("http", &|| Http::open(broker.http));
    rounds("websocket", &|| Web::open(broker.websocket));
}

fn rounds<C: Client>(name: &str, open: &dyn Fn() -> io::Result<C>) {
    let mut client = again(name, open);
    for round in 0..ROUNDS {
        let body = format!("{name} {round}");
        // What was not acknowledged may be there nevertheless, and is taken with the rest.
        attempt(name, &mut client, open, |client| client.send(&body));
        loop {
            let taken = attempt(name, &mut client, open, C::take);
            let text =
                taken.unwrap_or_else(|| panic!("`{body}` was acknowledged and is not there"));
            if text == body {
                break;
            }
        }
    }
    while attempt(name, &mut client, open, C::take).is_some() {}
}

fn again<C>(name: &str, open: &dyn Fn() -> io::Result<C>) -> C {
    let opened = (0..ATTEMPTS).find_map(|_| {
        let opened = open();
        if opened.is_err() {
            std::thread::sleep(PAUSE);
        }
        opened.ok()
    });
    opened.unwrap_or_else(|| panic!("no connection over {name}"))
}

fn attempt<C: Client, T>(
    name: &str,
    client: &mut C,
    open: &dyn Fn() -> io::Result<C>,
    mut operation: impl FnMut(&mut C) -> io::Result<T>,
) -> T {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match operation(client) {
            Ok(value) => return value,
            Err(error) => last = Some(error),
        }
        std::thread::sleep(PAUSE);
        *client = again(name, open);
    }
    panic!("not served over {name}: {last:?}");
}

/// A request a connection.
struct Http(SocketAddr);

impl Http {
    fn open(address: SocketAddr) -> io::Result<Self> {
        match ask(address, "PUT", "/$api/v1/queues/witness-http", "{}")?.status {
            201 | 409 => Ok(Self(address)),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }
}

impl Client for Http {
    fn send(&mut self, body: &str) -> io::Result<()> {
        match ask(self.0, "POST", "/witness-http/messages", body)?.status {
            201 => Ok(()),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }

    fn take(&mut self) -> io::Result<Option<String>> {
        let answer = ask(self.0, "POST", "/witness-http/messages/head?timeout=0", "")?;
        match answer.status {
            204 => return Ok(None),
            201 => {}
            status => return Err(io::Error::other(format!("status {status}"))),
        }
        let lock = answer.header("location").unwrap_or_default();
        let lock = lock.strip_prefix("http://localhost").unwrap_or(lock).to_owned();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        for _ in 0..ATTEMPTS {
            // One whose answer was lost is completed already.
            let settled = ask(self.0, "DELETE", &lock, "").map(|answer| answer.status);
            if matches!(settled, Ok(200 | 404 | 410)) {
                return Ok(Some(text));
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::other("the message cannot be completed"))
    }
}

/// One connection with a sender and a receiver.
struct Web {
    socket: WebSocket,
    next: u64,
}

impl Web {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let mut client = Self { socket: WebSocket::open(address)?, next: 10 };
        client.ask("createQueue", &json!({ "path": "witness-websocket" }))?;
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

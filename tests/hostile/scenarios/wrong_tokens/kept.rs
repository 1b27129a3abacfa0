//! Wrong tokens on connections that stay open: one `authenticate` after another over WebSocket, one
//! token after another at `$cbs` over AMQP, each as soon as the previous one is answered. Each
//! token is a new text, of which the broker remembers nothing.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use peeklock_core::message::{Body, Message, MessageId, Value};
use serde_json::json;

use super::wrong;
use crate::amqp::{WINDOW, credit, encoded, open, part, receiver, sender};
use crate::attacker::Attack;
use crate::broker::Broker;
use crate::wire::{WebSocket, masked};

/// Connections for each transport. An answer is delayed for at most a second (SEC-26), so each
/// connection tries at least once a second.
const COUNT: usize = 16;
/// Interval between checks for answers.
const LOOK: Duration = Duration::from_millis(5);

/// How clients of a transport open a connection, and the bytes of an attempt.
struct Way {
    address: SocketAddr,
    open: fn(SocketAddr) -> io::Result<TcpStream>,
    attempt: fn(u32) -> Vec<u8>,
}

/// A connection and the number of its attempts.
struct Kept {
    stream: TcpStream,
    count: u32,
}

pub fn add(attack: &mut Attack, broker: &Broker) {
    let websocket = Way { address: broker.websocket, open: open_websocket, attempt: authenticate };
    let amqp = Way { address: broker.amqp, open: open_amqp, attempt: put_token };
    for way in [websocket, amqp] {
        let mut clients: Vec<Kept> = Vec::new();
        attack.repeat(move || {
            clients.retain_mut(|client| client.try_again(&way).is_ok());
            // One connection at a time: a closed one reconnects like any client.
            if clients.len() < COUNT
                && let Ok(client) = Kept::open(&way)
            {
                clients.push(client);
            }
            std::thread::sleep(LOOK);
        });
    }
}

impl Kept {
    fn open(way: &Way) -> io::Result<Self> {
        let stream = (way.open)(way.address)?;
        stream.set_nonblocking(true)?;
        let mut client = Self { stream, count: 0 };
        client.attempt(way)?;
        Ok(client)
    }

    /// Tries again if an answer has arrived. Fails when the connection has ended.
    fn try_again(&mut self, way: &Way) -> io::Result<()> {
        let mut is_answered = false;
        let mut said = [0; 4 << 10];
        loop {
            match self.stream.read(&mut said) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => is_answered = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if is_answered { self.attempt(way) } else { Ok(()) }
    }

    fn attempt(&mut self, way: &Way) -> io::Result<()> {
        self.stream.write_all(&(way.attempt)(self.count))?;
        self.count += 1;
        Ok(())
    }
}

fn open_websocket(address: SocketAddr) -> io::Result<TcpStream> {
    // The welcome does not depend on the token. The token is judged when a request needs a right.
    let socket = WebSocket::open_with(address, &json!({ "token": wrong(u32::MAX) }))?;
    Ok(socket.stream)
}

fn authenticate(number: u32) -> Vec<u8> {
    let request = json!({ "id": 2 + number, "authenticate": { "token": wrong(number) } });
    masked(0x81, json!({ "requests": [request] }).to_string().as_bytes())
}

fn open_amqp(address: SocketAddr) -> io::Result<TcpStream> {
    let mut client = open(address, WINDOW)?;
    client.attach(&sender(1, "$cbs"))?;
    client.attach(&receiver(2, "$cbs"))?;
    client.say(&credit(2, WINDOW, WINDOW))?;
    Ok(client.stream)
}

fn put_token(number: u32) -> Vec<u8> {
    let mut body = vec![0x00, 0x53, 0x77];
    Value::String(wrong(number)).encode_to(&mut body);
    let property = |name: &str, value: &str| (name.to_owned(), Value::String(value.to_owned()));
    let request = Message {
        message_id: Some(MessageId::Ulong(number.into())),
        body: Body::Value(body.into()),
        application_properties: vec![
            property("operation", "put-token"),
            property("type", "servicebus.windows.net:sastoken"),
            property("name", "amqp://localhost/attacked"),
        ],
        ..Message::default()
    };
    encoded(0, &part(1, Some(number), false), request.encode().as_bytes())
}

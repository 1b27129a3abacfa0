//! Wrong tokens and passwords, up to ten thousand a second in the long round, each on a new
//! connection. Half of the clients disconnect immediately. The others wait for the answer, which
//! the broker delays (SEC-26), if the attacker has room for open connections. In addition, some
//! clients keep their connections and present one wrong token after another.

mod kept;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use peeklock_amqp::frame::Protocol;
use peeklock_amqp::sasl::{Init, mechanism};
use peeklock_amqp_testing::client::Frames;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::connect;

const THREADS: u32 = 2;
/// Attempts per second.
const USUAL_COUNT: u32 = 1_000;
const LONG_COUNT: u32 = 10_000;
/// Maximum of connections of each thread that wait for an answer. The oldest is closed to make
/// room, answered or not.
const WAITING_COUNT: usize = 200;
/// Duration of the longest round.
const LASTING: Duration = Duration::from_secs(60);

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let count = if weight > 1 { LONG_COUNT } else { USUAL_COUNT };
    let pause = Duration::from_secs(1) * THREADS / count;
    let mut attack = Attack::default();
    if weight >= 10 {
        attack.last(LASTING);
    }
    for _ in 0..THREADS {
        let ways = [(broker.http, token()), (broker.amqp, password())];
        let mut next = Instant::now();
        let mut number = 0;
        let mut waiting = VecDeque::new();
        attack.repeat(move || {
            let (address, said) = &ways[number % ways.len()];
            let waits = (number / ways.len()).is_multiple_of(2);
            number += 1;
            if let Some(stream) = try_it(*address, said).filter(|_| waits) {
                waiting.push_back(stream);
            }
            leave_answered(&mut waiting);
            next += pause;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        });
    }
    kept::add(&mut attack, broker);
    attack
}

fn try_it(address: SocketAddr, said: &[u8]) -> Option<TcpStream> {
    let mut stream = connect(address).ok()?;
    stream.write_all(said).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Closes answered connections, the oldest first, and connections over the maximum. Answers are
/// delayed for about the same time, so they mostly arrive in order.
fn leave_answered(waiting: &mut VecDeque<TcpStream>) {
    while let Some(oldest) = waiting.front_mut() {
        if !is_closed(oldest) && waiting.len() <= WAITING_COUNT {
            return;
        }
        waiting.pop_front();
    }
}

/// Whether the broker has answered: it then closes the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut said = [0; 1 << 10];
    loop {
        match stream.read(&mut said) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// A token of an existing policy with a wrong signature, different for each number.
fn wrong(number: u32) -> String {
    let signature = "bm90IGEgc2lnbmF0dXJlIG9mIGFueWJvZHkgYXQgYWxsISE%3D";
    let expiry = 4_102_444_800 + u64::from(number);
    format!(
        "SharedAccessSignature sr=http%3A%2F%2Flocalhost%2F&sig={signature}&se={expiry}&skn=RootManageSharedAccessKey"
    )
}

/// A request with such a token.
fn token() -> Vec<u8> {
    let token = wrong(0);
    let head = format!(
        "GET /$api/v1/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {token}\r\n\r\n"
    );
    head.into_bytes()
}

/// A login with the name of a policy and a wrong key.
fn password() -> Vec<u8> {
    let mut frames = Frames::default();
    frames.say_header(Protocol::Sasl);
    frames.say_sasl(&Init {
        mechanism: mechanism::PLAIN.into(),
        initial_response: Some("\0RootManageSharedAccessKey\0bm90IHRoZSBrZXk=".into()),
        ..Init::default()
    });
    frames.output.to_vec()
}

//! Tokens and passwords that are wrong, ten thousand a second in the long round, each on a connection of its own that
//! does not wait for the answer.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peeklock_amqp::client::Frames;
use peeklock_amqp::frame::header::Protocol;
use peeklock_amqp::sasl::{Init, mechanism};

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::connect;

const THREADS: u32 = 2;
/// In a second.
const USUAL_COUNT: u32 = 1_000;
const LONG_COUNT: u32 = 10_000;
/// The longest round goes on for so long.
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
        attack.repeat(move || {
            let (address, said) = &ways[number % ways.len()];
            number += 1;
            try_it(*address, said);
            next += pause;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        });
    }
    attack
}

fn try_it(address: SocketAddr, said: &[u8]) {
    if let Ok(mut stream) = connect(address) {
        stream.write_all(said).ok();
    }
}

/// A request with a token of a policy that there is, and a signature that is not its.
fn token() -> Vec<u8> {
    let signature = "bm90IGEgc2lnbmF0dXJlIG9mIGFueWJvZHkgYXQgYWxsISE%3D";
    let token = format!(
        "SharedAccessSignature sr=http%3A%2F%2Flocalhost%2F&sig={signature}&se=4102444800&skn=RootManageSharedAccessKey"
    );
    let head = format!(
        "GET /$api/v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n"
    );
    head.into_bytes()
}

/// A login with the name of a policy and a password that is not its key.
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

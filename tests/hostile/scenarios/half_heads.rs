//! More connections than are allowed whose second request begins and does not end, and which
//! reconnect as soon as they are closed.

use std::io::Write as _;
use std::net::TcpStream;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::{connect, read_answer, request};

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let mut attack = Attack::default();
    for _ in 0..400 * weight.min(2) {
        attack.hold(half(broker.http));
    }
    for _ in 0..2 {
        let address = broker.http;
        attack.repeat(move || drop(half(address)));
    }
    attack
}

fn half(address: std::net::SocketAddr) -> Option<TcpStream> {
    let mut stream = connect(address).ok()?;
    // A connection that is not accepted must wait, too.
    stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).ok()?;
    stream.write_all(&request("GET", "/livez", "")).ok()?;
    read_answer(&mut stream).ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHos").ok()?;
    Some(stream)
}

//! More AMQP connections than are allowed, which begin and are never opened, and which reconnect as
//! soon as they are closed.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::super::amqp::login;
use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::connect;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let mut attack = Attack::default();
    for number in 0..400 * weight.min(2) {
        attack.hold(half(broker.amqp, number));
    }
    for number in 0..2 {
        let address = broker.amqp;
        attack.repeat(move || {
            let half = half(address, number);
            std::thread::sleep(Duration::from_millis(10));
            drop(half);
        });
    }
    attack
}

/// Sends nothing, half a header, half an upgrade, or a login without an open.
fn half(address: SocketAddr, number: usize) -> Option<TcpStream> {
    let mut stream = connect(address).ok()?;
    let login = login();
    let said: &[u8] = match number % 4 {
        0 => &[],
        1 => &login[..5],
        2 => b"GET /$servicebus/websocket HTTP/1.1\r\nHos",
        _ => &login,
    };
    stream.write_all(said).ok()?;
    Some(stream)
}

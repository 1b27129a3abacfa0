//! Messages of WebSocket that lack their end, with AMQP in them: more than the room for all of them.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{connect, head_of, read_answer};

/// As large as a message may be.
const MESSAGE: usize = 256 << 10;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    let mut attack = Attack::default();
    for _ in 0..100 * weight.min(2) {
        if let Ok(mut stream) = upgraded(broker.amqp) {
            stream.write_all(&head_of(0x82, MESSAGE)).ok();
            flood(&mut stream, &vec![b'x'; MESSAGE - 1], 1);
            attack.hold(stream);
        }
    }
    attack
}

fn upgraded(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = connect(address)?;
    stream.write_all(
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
          Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
          Sec-WebSocket-Protocol: amqp\r\n\r\n",
    )?;
    match read_answer(&mut stream)?.status {
        101 => Ok(stream),
        status => Err(std::io::Error::other(format!("status {status}"))),
    }
}

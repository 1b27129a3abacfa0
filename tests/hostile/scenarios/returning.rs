//! Everything but the end of something large, over each transport, by clients that reconnect as
//! soon as they are closed. Together they always need more than the room.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::super::amqp::{WINDOW, encoded, open, part, sender};
use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::wire::{WebSocket, connect, head_of};
use super::queue;

/// Clients of each transport: with a megabyte each they exceed its room.
const CLIENTS: usize = 20;
const BYTES: usize = 1_000_000;
/// A client that was not closed after this time starts again.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let mut attack = Attack::default();
    let kinds = [(body as Half, broker.http), (frame, broker.websocket), (transfers, broker.amqp)];
    for (half, address) in kinds {
        for _ in 0..CLIENTS * weight.min(2) {
            let bytes = vec![b'x'; BYTES];
            attack.repeat(move || {
                if let Ok(mut stream) = half(address, &bytes) {
                    stream.set_read_timeout(Some(PATIENCE)).ok();
                    while stream.read(&mut [0; 16 << 10]).is_ok_and(|read| read > 0) {}
                } else {
                    std::thread::sleep(PATIENCE / 100);
                }
            });
        }
    }
    attack
}

type Half = fn(SocketAddr, &[u8]) -> std::io::Result<TcpStream>;

fn body(address: SocketAddr, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = connect(address)?;
    let length = bytes.len() + 1;
    let head = format!(
        "POST /attacked/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(bytes)?;
    Ok(stream)
}

fn frame(address: SocketAddr, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = WebSocket::open(address)?.stream;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&head_of(0x81, bytes.len() + 1))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

fn transfers(address: SocketAddr, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let mut client = open(address, WINDOW)?;
    client.attach(&sender(0, "attacked"))?;
    client.stream.set_write_timeout(Some(PATIENCE))?;
    let mut first = Some(0);
    for piece in bytes.chunks(60_000) {
        client.stream.write_all(&encoded(0, &part(0, first.take(), true), piece))?;
    }
    Ok(client.stream)
}

//! Frames that attackers send over AMQP, legal or not, as bytes.

use std::io;
use std::net::SocketAddr;

use peeklock_amqp::performative::{Attach, Begin, DeliveryTag, Flow, Performative, Transfer};
use peeklock_amqp_testing::client::{Frames, link};

use super::links::{self, Amqp};
use super::wire::connect;

/// Frames that a client accepts before it extends its window.
pub const WINDOW: u32 = 1_000;

/// Opens a connection with a session whose incoming window is `incoming_window` frames.
pub fn open(address: SocketAddr, incoming_window: u32) -> io::Result<Amqp> {
    Amqp::open(connect(address)?, incoming_window)
}

/// Bytes of a login, up to and including the client's SASL credentials.
pub fn login() -> Vec<u8> {
    let mut frames = Frames::default();
    links::log_in(&mut frames);
    frames.output.to_vec()
}

/// Encodes a frame around `body`.
pub fn frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len() + 8).unwrap().to_be_bytes().to_vec();
    frame.extend([2, kind]);
    frame.extend(channel.to_be_bytes());
    frame.extend(body);
    frame
}

/// Encodes a frame with a performative and its payload.
pub fn encoded(channel: u16, performative: &Performative, payload: &[u8]) -> Vec<u8> {
    let mut frames = Frames::default();
    frames.say_any(channel, performative, payload);
    frames.output.to_vec()
}

/// Begins a session with this incoming window, in frames.
pub fn begin(incoming_window: u32) -> Performative {
    let begin = Begin { incoming_window, outgoing_window: WINDOW, ..Begin::default() };
    Performative::Begin(Box::new(begin))
}

/// Attaches a link on which this client sends to `address`.
pub fn sender(handle: u32, address: &str) -> Attach {
    link::sender(&format!("s{handle}"), handle, address)
}

/// Attaches a link on which this client receives from `address` under lock.
pub fn receiver(handle: u32, address: &str) -> Attach {
    link::receiver(&format!("r{handle}"), handle, address)
}

/// Wraps an attach, which is sent even if the broker will refuse it.
pub fn attach(attach: Attach) -> Performative {
    Performative::Attach(Box::new(attach))
}

/// Transfer of one part of a delivery. The first part carries the delivery number.
pub fn part(handle: u32, delivery: Option<u32>, more: bool) -> Performative {
    Performative::Transfer(Transfer {
        handle,
        delivery_id: delivery,
        delivery_tag: delivery.and_then(|id| DeliveryTag::new(&id.to_be_bytes())),
        message_format: delivery.map(|_| 0),
        settled: Some(false),
        more,
        ..Transfer::default()
    })
}

/// Grants `link_credit` messages on a link and an incoming window of `incoming_window` frames.
pub fn credit(handle: u32, link_credit: u32, incoming_window: u32) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window,
        outgoing_window: WINDOW,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(link_credit),
        ..Flow::default()
    }
}

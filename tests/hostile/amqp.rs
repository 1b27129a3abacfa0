//! As much of AMQP as attackers and witnesses need, in blocking reads and writes.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use bytes::{Bytes, BytesMut};
use peeklock_amqp::frame::Frame;
use peeklock_amqp::performative::{
    Attach, Begin, DeliveryTag, Flow, Open, Performative, ReceiverSettleMode, Role,
    SenderSettleMode, Transfer,
};
use peeklock_amqp::terminus::{Source, Target};

use super::wire::connect;

const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";
const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";
/// `sasl-init` with the mechanism ANONYMOUS.
const INIT: &[u8] = b"\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS";
/// How much of a message is put into a frame.
const PART_BYTES: usize = 60_000;
/// Frames that a client takes before it says so again.
pub const WINDOW: u32 = 1_000;

/// A connection with a session on channel 0.
pub struct Amqp {
    pub stream: TcpStream,
    heard: BytesMut,
    /// Deliveries and frames of them that were sent, and frames that came.
    deliveries: u32,
    sent: u32,
    came: u32,
}

/// The bytes of a login, up to where the client has said who it is.
pub fn login() -> Vec<u8> {
    [SASL, &frame(1, 0, INIT)].concat()
}

/// The bytes of a frame.
pub fn frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len() + 8).unwrap().to_be_bytes().to_vec();
    frame.extend([2, kind]);
    frame.extend(channel.to_be_bytes());
    frame.extend(body);
    frame
}

/// The bytes of a frame that says this, with what stands behind it.
pub fn said(channel: u16, performative: &Performative, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    performative.write(&mut body);
    body.extend_from_slice(payload);
    frame(0, channel, &body)
}

/// What begins a session that takes so many frames.
pub fn begin(incoming_window: u32) -> Performative {
    let begin = Begin { incoming_window, outgoing_window: WINDOW, ..Begin::default() };
    Performative::Begin(Box::new(begin))
}

/// What attaches a link on which this client sends to an address.
pub fn sender(handle: u32, address: &str) -> Performative {
    Performative::Attach(Box::new(Attach {
        name: format!("s{handle}").into(),
        handle,
        role: Role::Sender,
        source: Some(Source::at("client")),
        target: Some(Target::at(address)),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }))
}

/// What attaches a link on which it receives from one under lock.
pub fn receiver(handle: u32, address: &str) -> Performative {
    Performative::Attach(Box::new(Attach {
        name: format!("r{handle}").into(),
        handle,
        role: Role::Receiver,
        snd_settle_mode: Some(SenderSettleMode::Unsettled),
        rcv_settle_mode: Some(ReceiverSettleMode::Second),
        source: Some(Source::at(address)),
        target: Some(Target::at("client")),
        ..Attach::default()
    }))
}

/// A part of a delivery; the first has its number.
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

/// Takes so many messages, and so many frames.
pub fn credit(handle: u32, link_credit: u32, incoming_window: u32) -> Performative {
    Performative::Flow(Flow {
        next_incoming_id: Some(0),
        incoming_window,
        outgoing_window: WINDOW,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(link_credit),
        ..Flow::default()
    })
}

impl Amqp {
    /// A connection with a session that takes so many frames.
    pub fn open(address: SocketAddr, incoming_window: u32) -> io::Result<Self> {
        let stream = connect(address)?;
        let (heard, deliveries, sent, came) = (BytesMut::new(), 0, 0, 0);
        let mut client = Self { stream, heard, deliveries, sent, came };
        client.stream.write_all(&login())?;
        client.header(SASL)?;
        // What is offered, and how it ended.
        client.body()?;
        let outcome = client.body()?;
        if outcome.get(..3) != Some(&[0x00, 0x53, 0x44]) || outcome.last() != Some(&0) {
            return Err(io::Error::other("not let in"));
        }
        client.stream.write_all(AMQP)?;
        let open = Open { container_id: "client".into(), ..Open::default() };
        client.say(&Performative::Open(Box::new(open)))?;
        client.say(&begin(incoming_window))?;
        client.header(AMQP)?;
        loop {
            if let (Performative::Begin(begun), _) = client.hear()? {
                client.came = begun.next_outgoing_id;
                return Ok(client);
            }
        }
    }

    /// Attaches a link, and waits for the answer.
    pub fn attach(&mut self, attach: &Performative) -> io::Result<()> {
        self.say(attach)?;
        loop {
            match self.hear()? {
                (Performative::Attach(answer), _) => {
                    let is_there = answer.source.is_some() && answer.target.is_some();
                    return if is_there { Ok(()) } else { Err(io::Error::other("refused")) };
                }
                (Performative::Detach(_) | Performative::End(_) | Performative::Close(_), _) => {
                    return Err(io::Error::other("refused"));
                }
                _ => {}
            }
        }
    }

    pub fn say(&mut self, performative: &Performative) -> io::Result<()> {
        self.stream.write_all(&said(0, performative, &[]))
    }

    /// What is said next; empty frames are left out.
    pub fn hear(&mut self) -> io::Result<(Performative, Bytes)> {
        loop {
            let body = self.body()?;
            if body.is_empty() {
                continue;
            }
            let heard = Performative::read(&body).map_err(io::Error::other)?;
            if matches!(heard.0, Performative::Transfer(_)) {
                self.came = self.came.wrapping_add(1);
            }
            return Ok(heard);
        }
    }

    /// Sends bytes as one delivery; returns its number.
    pub fn send(&mut self, handle: u32, bytes: &[u8]) -> io::Result<u32> {
        let id = self.deliveries;
        self.deliveries += 1;
        let mut parts = bytes.chunks(PART_BYTES).peekable();
        let mut first = Some(id);
        while let Some(piece) = parts.next() {
            let part = part(handle, first.take(), parts.peek().is_some());
            self.stream.write_all(&said(0, &part, piece))?;
            self.sent += 1;
        }
        Ok(id)
    }

    /// Asks for one message if it is there, where so many were delivered before.
    pub fn ask_for_one(&mut self, handle: u32, delivery_count: u32) -> io::Result<()> {
        self.say(&Performative::Flow(Flow {
            next_incoming_id: Some(self.came),
            incoming_window: WINDOW,
            next_outgoing_id: self.sent,
            outgoing_window: WINDOW,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(1),
            drain: true,
            ..Flow::default()
        }))
    }

    fn header(&mut self, expected: &[u8]) -> io::Result<()> {
        while self.heard.len() < expected.len() {
            self.read()?;
        }
        if self.heard.split_to(expected.len()) == expected {
            return Ok(());
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn body(&mut self) -> io::Result<Bytes> {
        loop {
            let frame = Frame::split(&mut self.heard, u32::MAX).map_err(io::Error::other)?;
            if let Some(frame) = frame {
                return Ok(frame.body);
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut more = [0; 16 << 10];
        match self.stream.read(&mut more)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.heard.extend_from_slice(&more[..read]);
                Ok(())
            }
        }
    }
}

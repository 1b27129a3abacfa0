//! An AMQP client with blocking reads and writes: a connection with a session on channel 0.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use bytes::Bytes;
use peeklock_amqp::codec::list::List;
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::Protocol;
use peeklock_amqp::performative::{Attach, Begin, Flow, Performative};
use peeklock_amqp::sasl::{Init, mechanism};
use peeklock_amqp_testing::client::{Frames, Outgoing, Session};

/// A connection with a session.
pub struct Amqp {
    pub stream: TcpStream,
    frames: Frames,
    pub session: Session,
}

/// Logs in anonymously.
pub fn log_in(frames: &mut Frames) {
    frames.say_header(Protocol::Sasl);
    frames.say_sasl(&Init { mechanism: mechanism::ANONYMOUS.into(), ..Init::default() });
}

/// The bytes that open a connection, for a client that waits for no answer.
#[allow(dead_code, reason = "of what is shared each test uses a part")]
pub fn opened() -> Vec<u8> {
    let mut frames = Frames::default();
    log_in(&mut frames);
    frames.say_header(Protocol::Amqp);
    frames.say(0, &Session::open("client"), &[]);
    frames.output.to_vec()
}

impl Amqp {
    /// Logs in and begins a session with this incoming window, in frames.
    ///
    /// # Errors
    /// If the broker refuses the client.
    pub fn open(stream: TcpStream, incoming_window: u32) -> io::Result<Self> {
        let (frames, session) = (Frames::default(), Session::new(0));
        let mut client = Self { stream, frames, session };
        log_in(&mut client.frames);
        client.write()?;
        client.header(Protocol::Sasl)?;
        // The mechanisms of the broker, and the outcome of the login.
        client.body()?;
        let outcome = client.body()?;
        if outcome.get(..3) != Some(&[0x00, 0x53, 0x44]) || outcome.last() != Some(&0) {
            return Err(io::Error::other("not let in"));
        }
        client.frames.say_header(Protocol::Amqp);
        client.frames.say(0, &Session::open("client"), &[]);
        client.say(&Begin { incoming_window, ..Session::begin() })?;
        client.header(Protocol::Amqp)?;
        let mut opened = None;
        loop {
            match client.hear()?.0 {
                Performative::Open(open) => opened = Some(open),
                Performative::Begin(begun) => {
                    client.session.begun(&opened.unwrap_or_default(), &begun);
                    return Ok(client);
                }
                _ => {}
            }
        }
    }

    /// Attaches a link, and waits for the answer.
    ///
    /// # Errors
    /// If the link is refused.
    pub fn attach(&mut self, attach: &Attach) -> io::Result<()> {
        self.say(attach)?;
        loop {
            match self.hear()?.0 {
                Performative::Attach(answer)
                    if answer.source.is_some() && answer.target.is_some() =>
                {
                    return Ok(());
                }
                Performative::Detach(detach) => return Err(refused(detach.error)),
                Performative::End(end) => return Err(refused(end.error)),
                Performative::Close(close) => return Err(refused(close.error)),
                _ => {}
            }
        }
    }

    pub fn say<L: List>(&mut self, body: &L) -> io::Result<()> {
        self.frames.say(0, body, &[]);
        self.write()
    }

    /// Returns the next performative and its payload. Empty frames are skipped.
    pub fn hear(&mut self) -> io::Result<(Performative, Bytes)> {
        let (_, performative, payload) = self.hear_any()?;
        Ok((performative, payload))
    }

    /// Returns the next performative with its channel, for connections with further sessions.
    pub fn hear_any(&mut self) -> io::Result<(u16, Performative, Bytes)> {
        loop {
            if let Some(heard) = self.frames.hear().map_err(io::Error::other)? {
                if heard.0 == self.session.channel() {
                    self.session.heard(&heard.1);
                }
                return Ok(heard);
            }
            self.read()?;
        }
    }

    /// Sends bytes as one delivery. Returns its number.
    pub fn send(&mut self, handle: u32, format: u32, message: &[u8]) -> io::Result<u32> {
        let outgoing = Outgoing { handle, format, settled: false, state: None, message };
        let id = self.session.transfer(&mut self.frames, &outgoing);
        self.write()?;
        Ok(id)
    }

    /// Drains up to `credit` messages on a link with this delivery count.
    pub fn drain(&mut self, handle: u32, delivery_count: u32, credit: u32) -> io::Result<()> {
        let flow = Flow { drain: true, ..self.session.credit(handle, delivery_count, credit) };
        self.say(&flow)
    }

    fn header(&mut self, expected: Protocol) -> io::Result<()> {
        loop {
            if let Some(header) = self.frames.hear_header() {
                let is_expected = Protocol::read(header) == Some(expected);
                return if is_expected { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
            self.read()?;
        }
    }

    fn body(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(frame) = self.frames.hear_frame().map_err(io::Error::other)? {
                return Ok(frame.body);
            }
            self.read()?;
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let bytes = self.frames.output.split();
        self.stream.write_all(&bytes)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut more = [0; 16 << 10];
        match self.stream.read(&mut more)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.frames.input.extend_from_slice(&more[..read]);
                Ok(())
            }
        }
    }
}

fn refused(error: Option<AmqpError>) -> io::Error {
    match error {
        Some(error) => io::Error::other(error),
        None => io::Error::other("refused without a reason"),
    }
}

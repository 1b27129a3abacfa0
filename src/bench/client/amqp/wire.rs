//! The socket: frames both ways. Many are written at once, and what came is taken apart without copies.

use std::io::ErrorKind;

use bytes::{Buf as _, Bytes, BytesMut};
use peeklock_amqp::codec::list::{List, write_list};
use peeklock_amqp::frame::Frame;
use peeklock_amqp::frame::header::HEADER_BYTES;
use peeklock_amqp::performative::Performative;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::AmqpFault;

/// The largest frame that is taken: it has room for the largest body that a load may have, and what the broker
/// puts before it.
pub(super) const FRAME_BYTES_MAX: u32 = 1 << 20;
/// What is read at once.
const READ_BYTES: usize = 64 << 10;
/// When so much waits to be written, nothing more is added.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// A socket with frames.
pub(super) struct Wire {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
}

impl Wire {
    pub(super) async fn connect(address: &str) -> Result<Self, AmqpFault> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: BytesMut::new(), output: BytesMut::new() })
    }

    /// Adds bytes that are no frame.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Adds a frame to what is to be written, on the channel of the one session.
    pub(super) fn frame<L: List>(&mut self, body: &L, payload: &[u8]) {
        let start = self.output.len();
        // The size is known when the frame is there; its data begin behind these eight bytes.
        self.output.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0]);
        write_list(&mut self.output, body);
        self.output.extend_from_slice(payload);
        let size = u32::try_from(self.output.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = self.output.get_mut(start..start + 4) {
            place.copy_from_slice(&size.to_be_bytes());
        }
    }

    /// Whether so much waits to be written that no message is added.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES_MAX
    }

    /// A header that came.
    pub(super) fn header(&mut self) -> Option<[u8; HEADER_BYTES]> {
        let header = *self.input.first_chunk()?;
        self.input.advance(HEADER_BYTES);
        Some(header)
    }

    /// The next frame that came whole; empty ones are passed over.
    pub(super) fn take(&mut self) -> Result<Option<(Performative, Bytes)>, AmqpFault> {
        loop {
            let Some(frame) = Frame::split(&mut self.input, FRAME_BYTES_MAX)? else {
                return Ok(None);
            };
            if !frame.body.is_empty() {
                return Ok(Some(Performative::read(&frame.body)?));
            }
        }
    }

    /// Returns when something was read or written. Nothing is lost if it is given up.
    pub(super) async fn turn(&mut self) -> Result<(), AmqpFault> {
        loop {
            let wrote = self.write()?;
            // Also while there is something to write: a broker that cannot write does not read.
            if self.read()? || wrote {
                return Ok(());
            }
            let interest = match self.output.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            self.stream.ready(interest).await?;
        }
    }

    fn write(&mut self) -> Result<bool, AmqpFault> {
        if self.output.is_empty() {
            return Ok(false);
        }
        match self.stream.try_write(&self.output) {
            Ok(count) => {
                self.output.advance(count);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&mut self) -> Result<bool, AmqpFault> {
        self.input.reserve(READ_BYTES);
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => Err(AmqpFault::Closed),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives back memory that is not in use.
    pub(super) fn rest(&mut self) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }
}

//! Frames both ways. Many are written at once, and what came is taken apart without copies.

use bytes::{Buf as _, Bytes, BytesMut};

use peeklock_amqp::codec::list::{List, append_list};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::{Frame, Kind};
use peeklock_amqp::frame::{HEADER_BYTES, Protocol};
use peeklock_amqp::performative::Performative;

/// The largest frame that is taken: it has room for a message of usual size, and what the broker puts before it.
pub const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Bytes that came, and bytes that are to be written.
#[derive(Debug, Default)]
pub struct Frames {
    /// What came and was not heard yet.
    pub input: BytesMut,
    /// What is to be written.
    pub output: BytesMut,
}

impl Frames {
    /// Adds the header of a protocol.
    pub fn say_header(&mut self, protocol: Protocol) {
        self.output.extend_from_slice(&protocol.header());
    }

    /// Adds a frame.
    pub fn say<L: List>(&mut self, channel: u16, body: &L, payload: &[u8]) {
        self.frame(Kind::Amqp, channel, |output| {
            append_list(output, body);
            output.extend_from_slice(payload);
        });
    }

    /// Adds a frame that says who this is.
    pub fn say_sasl<L: List>(&mut self, body: &L) {
        self.frame(Kind::Sasl, 0, |output| append_list(output, body));
    }

    /// Adds a frame of what is any performative.
    pub fn say_any(&mut self, channel: u16, performative: &Performative, payload: &[u8]) {
        self.frame(Kind::Amqp, channel, |output| {
            performative.write(output);
            output.extend_from_slice(payload);
        });
    }

    fn frame(&mut self, kind: Kind, channel: u16, write: impl FnOnce(&mut BytesMut)) {
        let start = self.output.len();
        let kind = match kind {
            Kind::Amqp => 0,
            Kind::Sasl => 1,
        };
        let [high, low] = channel.to_be_bytes();
        // The size is known when the frame is there; its data begin behind these eight bytes.
        self.output.extend_from_slice(&[0, 0, 0, 0, 2, kind, high, low]);
        write(&mut self.output);
        let size = u32::try_from(self.output.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = self.output.get_mut(start..start + 4) {
            place.copy_from_slice(&size.to_be_bytes());
        }
    }

    /// A header that came; none if not all of it has.
    pub fn hear_header(&mut self) -> Option<[u8; HEADER_BYTES]> {
        let header = *self.input.first_chunk()?;
        self.input.advance(HEADER_BYTES);
        Some(header)
    }

    /// The next frame that came whole, also an empty one.
    ///
    /// # Errors
    /// When there can be no frame.
    pub fn hear_frame(&mut self) -> Result<Option<Frame>, AmqpError> {
        Frame::split(&mut self.input, FRAME_BYTES_MAX)
    }

    /// What the next frame that came whole says, with its channel and what stands behind it; empty ones are
    /// passed over.
    ///
    /// # Errors
    /// When it says nothing that can be read.
    pub fn hear(&mut self) -> Result<Option<(u16, Performative, Bytes)>, AmqpError> {
        loop {
            let Some(frame) = self.hear_frame()? else { return Ok(None) };
            if !frame.body.is_empty() {
                let (performative, payload) = Performative::read(&frame.body)?;
                return Ok(Some((frame.channel, performative, payload)));
            }
        }
    }

    /// Gives back memory that is not in use.
    pub fn rest(&mut self) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }
}

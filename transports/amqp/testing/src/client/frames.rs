//! Frames in both directions. Many frames are written at once, and received frames are split
//! without copies.

use bytes::{Buf as _, Bytes, BytesMut};

use peeklock_amqp::codec::list::{List, append_list};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::{Frame, FrameType};
use peeklock_amqp::frame::{HEADER_BYTES, Protocol};
use peeklock_amqp::performative::Performative;

/// Maximum size of a frame: room for a message of usual size and the fields that the broker adds.
pub const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Received bytes, and bytes to be written.
#[derive(Debug, Default)]
pub struct Frames {
    /// Received bytes that are not read yet.
    pub input: BytesMut,
    /// Bytes to be written.
    pub output: BytesMut,
}

impl Frames {
    /// Appends the header of a protocol.
    pub fn say_header(&mut self, protocol: Protocol) {
        self.output.extend_from_slice(&protocol.header());
    }

    /// Appends a frame.
    pub fn say<L: List>(&mut self, channel: u16, body: &L, payload: &[u8]) {
        self.frame(FrameType::Amqp, channel, |output| {
            append_list(output, body);
            output.extend_from_slice(payload);
        });
    }

    /// Appends a SASL frame.
    pub fn say_sasl<L: List>(&mut self, body: &L) {
        self.frame(FrameType::Sasl, 0, |output| append_list(output, body));
    }

    /// Appends a frame with any performative.
    pub fn say_any(&mut self, channel: u16, performative: &Performative, payload: &[u8]) {
        self.frame(FrameType::Amqp, channel, |output| {
            performative.write(output);
            output.extend_from_slice(payload);
        });
    }

    fn frame(&mut self, kind: FrameType, channel: u16, write: impl FnOnce(&mut BytesMut)) {
        let start = self.output.len();
        let kind = match kind {
            FrameType::Amqp => 0,
            FrameType::Sasl => 1,
        };
        let [high, low] = channel.to_be_bytes();
        // The size is known only after the frame is written; its body begins after these eight
        // bytes.
        self.output.extend_from_slice(&[0, 0, 0, 0, 2, kind, high, low]);
        write(&mut self.output);
        let size = u32::try_from(self.output.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = self.output.get_mut(start..start + 4) {
            place.copy_from_slice(&size.to_be_bytes());
        }
    }

    /// Reads a protocol header; none if it is incomplete.
    pub fn hear_header(&mut self) -> Option<[u8; HEADER_BYTES]> {
        let header = *self.input.first_chunk()?;
        self.input.advance(HEADER_BYTES);
        Some(header)
    }

    /// Reads the next complete frame, even an empty one.
    ///
    /// # Errors
    /// For bytes that cannot begin a frame.
    pub fn hear_frame(&mut self) -> Result<Option<Frame>, AmqpError> {
        Frame::split(&mut self.input, FRAME_BYTES_MAX)
    }

    /// Reads the performative of the next complete frame, with its channel and payload; skips empty
    /// frames.
    ///
    /// # Errors
    /// For a body that is not a performative.
    pub fn hear(&mut self) -> Result<Option<(u16, Performative, Bytes)>, AmqpError> {
        loop {
            let Some(frame) = self.hear_frame()? else { return Ok(None) };
            if !frame.body.is_empty() {
                let (performative, payload) = Performative::read(&frame.body)?;
                return Ok(Some((frame.channel, performative, payload)));
            }
        }
    }

    /// Frees unused memory of empty buffers.
    pub fn rest(&mut self) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }
}

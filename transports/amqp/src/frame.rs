//! Frames (AMQP 2.3): reading them from received bytes, and writing them.
//!
//! [`Protocol`] is the header before all frames. [`Frame::split`] takes one frame off the received
//! bytes. [`Output`] collects the bytes to be written. Payloads are not copied: a received payload
//! is a part of the received bytes, and a large sent payload stays a piece of its own between the
//! bytes of the frames.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use peeklock_words::amqp::write::Sink;

use crate::codec::list::{List, append_list};
use crate::error::AmqpError;

/// Length of the frame header in bytes: size, offset of the data, type, channel.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Smallest maximum frame size that a peer may have (AMQP 2.4.1).
pub const FRAME_BYTES_MIN: u32 = 512;

/// Type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameType {
    /// AMQP itself.
    Amqp,
    /// SASL: authentication.
    Sasl,
}

/// One received frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Type of the frame.
    pub kind: FrameType,
    /// Channel; without meaning in SASL.
    pub channel: u16,
    /// All bytes after the header.
    pub body: Bytes,
}

impl Frame {
    /// Takes the first frame off `input` without copying; `None` if it is not complete. A size
    /// above `bytes_max` is refused before the frame has arrived.
    ///
    /// # Errors
    /// Fails if the bytes cannot be a frame of at most `bytes_max` bytes.
    pub fn split(input: &mut BytesMut, bytes_max: u32) -> Result<Option<Self>, AmqpError> {
        let Some(&[a, b, c, d, offset, kind, high, low]) = input.first_chunk() else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([a, b, c, d]);
        if size > bytes_max {
            return Err(AmqpError::framing(format!(
                "frame has {size} bytes, at most {bytes_max} are allowed"
            )));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let offset = usize::from(offset) * 4;
        if size < FRAME_HEADER_BYTES || offset < FRAME_HEADER_BYTES || offset > size {
            return Err(AmqpError::framing(format!(
                "frame of {size} bytes has its data at byte {offset}"
            )));
        }
        let kind = match kind {
            0 => FrameType::Amqp,
            1 => FrameType::Sasl,
            other => return Err(AmqpError::framing(format!("frame is of unknown type {other}"))),
        };
        if input.len() < size {
            return Ok(None);
        }
        let body = input.split_to(size).freeze().slice(offset..);
        Ok(Some(Self { kind, channel: u16::from_be_bytes([high, low]), body }))
    }
}

/// Length of a protocol header in bytes.
pub const HEADER_BYTES: usize = 8;

/// Protocol that a header announces (AMQP 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// AMQP itself.
    Amqp,
    /// SASL: authentication.
    Sasl,
}

impl Protocol {
    /// Reads a header. TLS within the connection (id 2) and other versions are not offered and
    /// return `None`.
    #[must_use]
    pub const fn read(header: [u8; HEADER_BYTES]) -> Option<Self> {
        match header {
            [b'A', b'M', b'Q', b'P', 0, 1, 0, 0] => Some(Self::Amqp),
            [b'A', b'M', b'Q', b'P', 3, 1, 0, 0] => Some(Self::Sasl),
            _ => None,
        }
    }

    /// Returns the header that announces this protocol.
    #[must_use]
    pub const fn header(self) -> [u8; HEADER_BYTES] {
        match self {
            Self::Amqp => [b'A', b'M', b'Q', b'P', 0, 1, 0, 0],
            Self::Sasl => [b'A', b'M', b'Q', b'P', 3, 1, 0, 0],
        }
    }
}

/// Payloads up to this size are copied after their frame; a separate piece would cost more.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// Size at which copied bytes become a piece. This limits the bytes that move when the buffer
/// grows, and the buffer that stays allocated while nothing waits to be written.
const TAIL_BYTES: usize = 16 << 10;

/// Bytes to be written, in order. Implements [`Buf`], so that all pieces can be written together
/// and are never joined.
#[derive(Debug, Default)]
pub struct Output {
    pieces: VecDeque<Bytes>,
    /// Bytes after the pieces.
    tail: BytesMut,
    bytes: usize,
}

impl Output {
    /// Appends bytes that are not a frame: a protocol header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.tail.put(bytes);
        self.bytes += bytes.len();
    }

    /// Appends a frame without a body, which only keeps the connection alive.
    pub(crate) fn empty_frame(&mut self) {
        let start = self.start(FrameType::Amqp, 0);
        self.end(start, 0);
    }

    /// Appends a frame, unless it has more than `bytes_max` bytes.
    ///
    /// # Errors
    /// Returns the number of bytes above `bytes_max`.
    pub(crate) fn frame<L: List>(
        &mut self,
        kind: FrameType,
        channel: u16,
        body: &L,
        bytes_max: usize,
    ) -> Result<(), usize> {
        let start = self.start(kind, channel);
        append_list(&mut self.tail, body);
        let beyond = (self.tail.len() - start).saturating_sub(bytes_max);
        if beyond > 0 {
            self.tail.truncate(start);
            return Err(beyond);
        }
        self.end(start, 0);
        self.seal();
        Ok(())
    }

    /// Appends a frame with a payload of `payload_bytes` bytes. Large pieces of the payload are not
    /// copied.
    pub(crate) fn frame_with<L: List>(
        &mut self,
        channel: u16,
        body: &L,
        payload: impl IntoIterator<Item = Bytes>,
        payload_bytes: usize,
    ) {
        let start = self.start(FrameType::Amqp, channel);
        append_list(&mut self.tail, body);
        self.end(start, payload_bytes);
        for piece in payload {
            if piece.len() <= COPIED_BYTES_MAX {
                self.tail.put(&piece);
                continue;
            }
            let before = self.tail.split().freeze();
            self.pieces.extend((!before.is_empty()).then_some(before));
            self.pieces.push_back(piece);
        }
        self.seal();
    }

    /// Begins a frame without its size and returns its position in the tail.
    fn start(&mut self, kind: FrameType, channel: u16) -> usize {
        let start = self.tail.len();
        let kind = match kind {
            FrameType::Amqp => 0,
            FrameType::Sasl => 1,
        };
        let [high, low] = channel.to_be_bytes();
        self.tail.put(&[0, 0, 0, 0, 2, kind, high, low]);
        start
    }

    /// Completes a frame by writing its size. `more_bytes` of its payload follow.
    fn end(&mut self, start: usize, more_bytes: usize) {
        let size = self.tail.len() - start + more_bytes;
        self.bytes += size;
        if let Some(place) = self.tail.get_mut(start..start + 4) {
            // Frames are cut to the maximum frame size of the peer, which has 32 bits.
            place.copy_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
        }
    }

    fn seal(&mut self) {
        if self.tail.len() >= TAIL_BYTES {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&self.tail[..], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        let pieces = self.pieces.iter().map(|piece| &piece[..]).chain(tail);
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(piece) = self.pieces.front_mut() {
            if count < piece.len() {
                return piece.advance(count);
            }
            count -= piece.len();
            self.pieces.pop_front();
        }
        self.tail.advance(count);
    }
}

//! What is to be sent: frames one behind the other, with large payloads beside them.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use peeklock_words::amqp::write::Sink;

use super::Kind;
use crate::codec::list::{List, append_list};

/// Payloads below this are copied behind their frame; a piece of its own would cost more.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// When there is so much of what was copied, it is a piece: more is not moved when there is no room for more, and no
/// more is kept while nothing is to be written.
const TAIL_BYTES: usize = 16 << 10;

/// Bytes to be written, in order. It is a [`Buf`], so that pieces are written together and never
/// joined.
#[derive(Debug, Default)]
pub struct Output {
    pieces: VecDeque<Bytes>,
    /// What stands behind the pieces.
    tail: BytesMut,
    bytes: usize,
}

impl Output {
    /// Appends bytes that are no frame: a header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.tail.put(bytes);
        self.bytes += bytes.len();
    }

    /// Appends a frame without a body, which only shows that somebody is there.
    pub(crate) fn empty_frame(&mut self) {
        let start = self.start(Kind::Amqp, 0);
        self.end(start, 0);
    }

    /// Appends a frame, unless it has more bytes than that.
    ///
    /// # Errors
    /// How many more it has.
    pub(crate) fn frame<L: List>(
        &mut self,
        kind: Kind,
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

    /// Appends a frame with a payload of so many bytes, of which nothing large is copied.
    pub(crate) fn frame_with<L: List>(
        &mut self,
        channel: u16,
        body: &L,
        payload: impl IntoIterator<Item = Bytes>,
        payload_bytes: usize,
    ) {
        let start = self.start(Kind::Amqp, channel);
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

    /// Begins a frame, whose size is not known; where it begins.
    fn start(&mut self, kind: Kind, channel: u16) -> usize {
        let start = self.tail.len();
        let kind = match kind {
            Kind::Amqp => 0,
            Kind::Sasl => 1,
        };
        let [high, low] = channel.to_be_bytes();
        self.tail.put(&[0, 0, 0, 0, 2, kind, high, low]);
        start
    }

    /// All of a frame is there but for so many bytes: its size is known.
    fn end(&mut self, start: usize, more_bytes: usize) {
        let size = self.tail.len() - start + more_bytes;
        self.bytes += size;
        if let Some(place) = self.tail.get_mut(start..start + 4) {
            // Frames are cut to what the peer takes, which is 32 bits.
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

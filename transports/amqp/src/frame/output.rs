//! What is to be sent: frames one behind the other, with large payloads beside them.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use peeklock_words::amqp::write::Sink;

use super::{FRAME_HEADER_BYTES, Kind};
use crate::codec::list::{List, list_bytes, write_list};

/// Payloads below this are copied behind their frame; a piece of its own would cost more.
const COPIED_BYTES_MAX: usize = 1 << 10;

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
        self.start(Kind::Amqp, 0, 0);
    }

    /// Appends a frame.
    pub(crate) fn frame<L: List>(&mut self, kind: Kind, channel: u16, body: &L) {
        self.start(kind, channel, list_bytes(body));
        write_list(&mut self.tail, body);
    }

    /// Appends a frame with a payload, of which nothing large is copied.
    pub(crate) fn frame_with<'a, L: List>(
        &mut self,
        channel: u16,
        body: &L,
        payload: impl Iterator<Item = Bytes> + Clone + 'a,
    ) {
        let payload_bytes: usize = payload.clone().map(|piece| piece.len()).sum();
        self.start(Kind::Amqp, channel, list_bytes(body) + payload_bytes);
        write_list(&mut self.tail, body);
        for piece in payload {
            if piece.len() <= COPIED_BYTES_MAX {
                self.tail.put(&piece);
                continue;
            }
            let before = self.tail.split().freeze();
            self.pieces.extend((!before.is_empty()).then_some(before));
            self.pieces.push_back(piece);
        }
    }

    fn start(&mut self, kind: Kind, channel: u16, body_bytes: usize) {
        let size = FRAME_HEADER_BYTES + body_bytes;
        self.bytes += size;
        // Frames are cut to what the peer takes, which is 32 bits.
        self.tail.put(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
        let kind = match kind {
            Kind::Amqp => 0,
            Kind::Sasl => 1,
        };
        let [high, low] = channel.to_be_bytes();
        self.tail.put(&[2, kind, high, low]);
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

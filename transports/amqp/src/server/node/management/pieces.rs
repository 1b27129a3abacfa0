//! Encoded values with large parts in separate pieces, so that contents of messages are not copied
//! into replies.

use bytes::Bytes;
use peeklock_words::amqp::code;
use peeklock_words::amqp::write::{self, Compound, Sink};

/// Bytes in consecutive pieces.
#[derive(Debug, Default)]
pub(in crate::server) struct Pieces {
    whole: Vec<Bytes>,
    /// Bytes after the pieces.
    tail: Vec<u8>,
    whole_bytes: usize,
}

impl Pieces {
    /// Number of bytes.
    pub(super) const fn len(&self) -> usize {
        self.whole_bytes + self.tail.len()
    }

    /// Adds bytes without copying them.
    fn push(&mut self, piece: Bytes) {
        self.flush();
        self.whole_bytes += piece.len();
        self.whole.push(piece);
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.whole_bytes += tail.len();
            self.whole.push(tail.into());
        }
    }

    fn extend(&mut self, other: Self) {
        for piece in other.into_pieces() {
            self.push(piece);
        }
    }

    /// Returns all pieces.
    pub(super) fn into_pieces(mut self) -> Vec<Bytes> {
        self.flush();
        self.whole
    }

    /// Adds bytes as a single value of type binary.
    pub(super) fn binary(&mut self, pieces: Vec<Bytes>) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        match u8::try_from(length) {
            Ok(length) => self.put(&[code::BINARY8, length]),
            Err(_) => {
                self.put_byte(code::BINARY32);
                self.put(&write::length32(length));
            }
        }
        for piece in pieces {
            self.push(piece);
        }
    }

    /// Adds a list of `count` items.
    pub(super) fn list(&mut self, items: Self, count: usize) {
        write::compound(self, Compound::List, items.len(), count);
        self.extend(items);
    }

    /// Adds a map of `count` keys and values.
    pub(super) fn map(&mut self, items: Self, count: usize) {
        write::compound(self, Compound::Map, items.len(), count);
        self.extend(items);
    }

    /// Adds an array of values of a fixed width; an empty array has a constructor too (AMQP-15).
    pub(super) fn array<const N: usize>(
        &mut self,
        constructor: u8,
        elements: impl ExactSizeIterator<Item = [u8; N]>,
    ) {
        let count = elements.len();
        self.put_byte(code::ARRAY32);
        self.put(&write::length32(count * N + 5));
        self.put(&write::length32(count));
        self.put_byte(constructor);
        for element in elements {
            self.put(&element);
        }
    }

    /// Adds an array of strings.
    pub(super) fn strings<'a>(&mut self, strings: impl Iterator<Item = &'a str>) {
        let (mut elements, mut count) = (vec![code::STRING32], 0);
        for string in strings {
            elements.put(&write::length32(string.len()));
            elements.put(string.as_bytes());
            count += 1;
        }
        self.put_byte(code::ARRAY32);
        self.put(&write::length32(elements.len() + 4));
        self.put(&write::length32(count));
        self.put(&elements);
    }
}

impl Sink for Pieces {
    fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }
}

//! A message that comes in parts.

use bytes::{Bytes, BytesMut};

/// What is joined with more room than this left over is copied into just as much as it needs, if that is little.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// Above this, room that was never written to costs no memory.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// The parts of a message, joined as they come, so that it is in memory once. How large it may get is the link's
/// to say: the connection gives no more parts of one that is too large (AMQP-43).
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// The only part, as long as there is one.
    first: Bytes,
    joined: BytesMut,
}

impl Assembly {
    /// The next part.
    pub fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = part;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&part);
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole; a single part is not copied.
    #[must_use]
    pub fn join(self) -> Bytes {
        if self.joined.is_empty() {
            return self.first;
        }
        let spare = self.joined.capacity() - self.joined.len();
        if spare > SPARE_BYTES_MAX && self.joined.len() <= COPIED_BYTES_MAX {
            return Bytes::copy_from_slice(&self.joined);
        }
        self.joined.freeze()
    }
}

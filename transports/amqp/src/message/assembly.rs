//! A message that comes in parts.

use bytes::{Bytes, BytesMut};

/// The parts of a message, joined once when all have come. How large it may get is the link's to say: the
/// connection gives no more parts of one that is too large (AMQP-43).
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    parts: Vec<Bytes>,
    bytes: usize,
}

impl Assembly {
    /// The next part.
    pub fn push(&mut self, part: Bytes) {
        self.bytes += part.len();
        self.parts.extend((!part.is_empty()).then_some(part));
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The whole; a single part is not copied.
    #[must_use]
    pub fn join(mut self) -> Bytes {
        if self.parts.len() <= 1 {
            return self.parts.pop().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.bytes);
        for part in self.parts {
            whole.extend_from_slice(&part);
        }
        whole.freeze()
    }
}

//! Keys without their space, compared as numbers instead of bytes. The memory store and the
//! index of a log use them as keys.

use crate::{KEY_BYTES_MAX, Key, SPACE_BYTES};

const TAIL_BYTES: usize = KEY_BYTES_MAX - SPACE_BYTES;
const TAIL_WORDS: usize = TAIL_BYTES / 8;

/// A key without its space, as big-endian words, which keep the order of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tail {
    words: [u64; TAIL_WORDS],
    /// Number of bytes. It distinguishes a key from one that continues with zeros.
    length: u8,
}

impl Tail {
    /// The tail of a key; `None` if the key is too long or has no complete space.
    #[must_use]
    pub fn of(key: &[u8]) -> Option<Self> {
        let tail = key.get(SPACE_BYTES..)?;
        let mut bytes = [0; TAIL_BYTES];
        bytes.get_mut(..tail.len())?.copy_from_slice(tail);
        let mut words = [0; TAIL_WORDS];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*eight);
        }
        Some(Self { words, length: u8::try_from(tail.len()).ok()? })
    }

    /// The key with this tail in `space`.
    #[must_use]
    pub fn key(&self, space: u64) -> Key {
        let key =
            self.words.iter().fold(Key::of_space(space), |key, word| key.then(&word.to_be_bytes()));
        key.cut(SPACE_BYTES + usize::from(self.length))
    }

    /// Whether the tail begins with `prefix`.
    #[must_use]
    pub fn starts_with(&self, prefix: &[u8]) -> bool {
        self.key(0).as_bytes().get(SPACE_BYTES..).is_some_and(|tail| tail.starts_with(prefix))
    }
}

/// The space at the start of a key.
#[must_use]
pub fn space_of(key: &[u8]) -> u64 {
    let mut space = [0; SPACE_BYTES];
    for (to, from) in space.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(space)
}

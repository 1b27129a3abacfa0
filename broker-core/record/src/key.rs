//! Keys: bytes in the order in which a store keeps them.

use std::fmt;

/// How many bytes at the head of a key name its space.
pub const SPACE_BYTES: usize = 8;

/// The longest key a store must take, in bytes.
pub const KEY_BYTES_MAX: usize = 40;

/// A key of at most [`KEY_BYTES_MAX`] bytes, compared as bytes. Starts with its space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    length: u8,
    bytes: [u8; KEY_BYTES_MAX],
}

impl Key {
    /// A key of one space, continued by [`Key::then`].
    #[must_use]
    pub fn of_space(space: u64) -> Self {
        let mut key = Self { length: 0, bytes: [0; KEY_BYTES_MAX] };
        key.push(&space.to_be_bytes());
        key
    }

    /// A copy of the bytes of a key; `None` if there are too many.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Self { length: u8::try_from(bytes.len()).ok()?, bytes: [0; KEY_BYTES_MAX] };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// The key with more bytes at its end; what does not fit is a mistake of the caller and dropped.
    #[must_use]
    pub fn then(mut self, more: &[u8]) -> Self {
        self.push(more);
        self
    }

    fn push(&mut self, more: &[u8]) {
        let start = usize::from(self.length);
        debug_assert!(start + more.len() <= KEY_BYTES_MAX, "key too long");
        if let Some(place) = self.bytes.get_mut(start..start + more.len()) {
            place.copy_from_slice(more);
            self.length += u8::try_from(more.len()).unwrap_or(0);
        }
    }

    /// The key cut to so many bytes.
    #[must_use]
    pub fn cut(self, length: usize) -> Self {
        Self::from_bytes(self.as_bytes().get(..length).unwrap_or(self.as_bytes())).unwrap_or(self)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

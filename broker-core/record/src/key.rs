//! Keys of records: bytes, in the order in which a store keeps them. The machine makes them, and
//! stores scan ranges of keys.

use std::fmt;

/// Number of bytes at the start of a key that name its space.
pub const SPACE_BYTES: usize = 8;

/// Maximum length in bytes of a key that a store must accept.
pub const KEY_BYTES_MAX: usize = 40;

/// A key of at most [`KEY_BYTES_MAX`] bytes, compared as bytes. It starts with its space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    length: u8,
    bytes: [u8; KEY_BYTES_MAX],
}

impl Key {
    /// Returns a key with only its space, to be continued by [`Key::then`].
    #[must_use]
    pub fn of_space(space: u64) -> Self {
        let mut key = Self { length: 0, bytes: [0; KEY_BYTES_MAX] };
        key.push(&space.to_be_bytes());
        key
    }

    /// Copies a key from its bytes; returns `None` if there are more than [`KEY_BYTES_MAX`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Self { length: u8::try_from(bytes.len()).ok()?, bytes: [0; KEY_BYTES_MAX] };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// Appends bytes. If the key would exceed [`KEY_BYTES_MAX`], which is an error of the caller,
    /// they are dropped; debug builds panic.
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

    /// Returns the first `length` bytes of the key.
    #[must_use]
    pub fn cut(self, length: usize) -> Self {
        Self::from_bytes(self.as_bytes().get(..length).unwrap_or(self.as_bytes())).unwrap_or(self)
    }

    /// The bytes of the key.
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

//! Records of a scan, which the caller takes in slices. A caller that restores machines from them
//! can yield in between.

use async_trait::async_trait;

use crate::StoreError;

/// Bytes of keys and values that callers usually take at a time: about a millisecond of work.
pub const SLICE_BYTES: usize = 64 << 10;

/// The records under a prefix, ascending by key. [`Store::scan`](crate::Store::scan) returns them.
#[async_trait]
pub trait Records: Send {
    /// Replaces the contents of `slice` with the next records: at least one, then further ones up
    /// to about `bytes` bytes of keys and values; none at the end. May wait for the medium. After
    /// [`StoreError::Unavailable`], a repeated call returns the records of the failed one.
    async fn next(&mut self, bytes: usize, slice: &mut RecordSlice) -> Result<(), StoreError>;
}

impl dyn Records + '_ {
    /// Passes the key and value of each record to `visit`.
    ///
    /// # Errors
    /// If the records cannot be read.
    pub async fn for_each(
        &mut self,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        let mut slice = RecordSlice::default();
        loop {
            self.next(SLICE_BYTES, &mut slice).await?;
            if slice.is_empty() {
                return Ok(());
            }
            slice.iter().for_each(|(key, value)| visit(key, value));
        }
    }
}

/// Keys and values in one buffer, which is used again for the next slice.
#[derive(Debug, Default)]
pub struct RecordSlice {
    buffer: Vec<u8>,
    /// Ends of each key and of its value in the buffer.
    ends: Vec<(usize, usize)>,
}

impl RecordSlice {
    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.ends.clear();
    }

    /// Adds a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.buffer.extend_from_slice(key);
        let key_end = self.buffer.len();
        self.buffer.extend_from_slice(value);
        self.ends.push((key_end, self.buffer.len()));
    }

    /// Number of bytes of all keys and values.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether records for `bytes` bytes have been added; one record is always added.
    #[must_use]
    pub const fn is_full(&self, bytes: usize) -> bool {
        !self.is_empty() && self.buffer.len() >= bytes
    }

    /// The keys and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).filter_map(|(start, (key_end, end))| {
            Some((self.buffer.get(start..*key_end)?, self.buffer.get(*key_end..*end)?))
        })
    }
}

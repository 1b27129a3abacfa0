//! Batches of records in one flat buffer: keys and values are written once and read in place.
//! Machines fill a batch, the shell submits it, and the store applies it.

use bytes::Bytes;

use crate::Key;

/// Records that are stored together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    buffer: Vec<u8>,
    heads: Vec<Head>,
    contents: Vec<Bytes>,
    content_bytes: u64,
    reserved: u64,
    synced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    start: u32,
    key_length: u8,
    /// Length of the value, or of the second key.
    rest_length: u32,
    /// Index of the content, or number of the shard.
    content: u32,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Put,
    PutWithContent,
    PutKeepContent,
    PutContentOf,
    Delete,
    DeleteIn,
    DeletePrefix,
}

/// A record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its whole new value.
        value: &'a [u8],
        /// Its content.
        content: ContentOp<'a>,
    },
    /// Removes a key of the shard of the batch, its value and its reference to a content.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Removes a key as [`Record::Delete`] does, in a space that may belong to another shard: a
    /// transfer removes a message at its source.
    DeleteIn {
        /// Number of the shard to which the space of the key belongs.
        shard: u16,
        /// The key.
        key: &'a [u8],
    },
    /// Removes all keys that begin with a prefix of at least a whole space.
    DeletePrefix {
        /// The prefix.
        prefix: &'a [u8],
    },
}

/// Content of a record that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentOp<'a> {
    /// No content.
    None,
    /// New content.
    New(&'a Bytes),
    /// The existing content of the key.
    Keep,
    /// The content of another key at this point of the batch, shared with it.
    Of(&'a [u8]),
}

// Its methods are called for each record from other crates, hence `inline`.
impl Batch {
    /// Sets a key to the value that `write` appends.
    pub fn put(&mut self, key: &Key, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(Kind::Put, key, 0, write);
    }

    /// Sets a key to a value and new content.
    #[inline]
    pub fn put_with_content(
        &mut self,
        key: &Key,
        content: Bytes,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.content_bytes += content.len() as u64;
        let index = u32::try_from(self.contents.len()).unwrap_or(u32::MAX);
        self.contents.push(content);
        self.push(Kind::PutWithContent, key, index, write);
    }

    /// Sets the value of a key and leaves its content.
    pub fn put_keep_content(&mut self, key: &Key, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(Kind::PutKeepContent, key, 0, write);
    }

    /// Sets a key to a value and to the content of `source`.
    pub fn put_content_of(&mut self, key: &Key, source: &Key, write: impl FnOnce(&mut Vec<u8>)) {
        let index = u32::try_from(self.contents.len()).unwrap_or(u32::MAX);
        self.contents.push(Bytes::copy_from_slice(source.as_bytes()));
        self.push(Kind::PutContentOf, key, index, write);
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &Key) {
        self.push(Kind::Delete, key, 0, |_| {});
    }

    /// Removes a key in a space of a shard, possibly of another one than the shard of the batch.
    pub fn delete_in(&mut self, shard: u16, key: &Key) {
        self.push(Kind::DeleteIn, key, u32::from(shard), |_| {});
    }

    /// Removes every key that begins with `prefix`.
    pub fn delete_prefix(&mut self, prefix: &Key) {
        self.push(Kind::DeletePrefix, prefix, 0, |_| {});
    }

    #[inline]
    fn push(&mut self, kind: Kind, key: &Key, content: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(key.as_bytes());
        let value_start = self.buffer.len();
        write(&mut self.buffer);
        self.heads.push(Head {
            kind,
            start: u32::try_from(start).unwrap_or(u32::MAX),
            key_length: u8::try_from(value_start - start).unwrap_or(u8::MAX),
            rest_length: u32::try_from(self.buffer.len() - value_start).unwrap_or(u32::MAX),
            content,
        });
    }

    /// Iterates over the records in the order in which they were added.
    #[inline]
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.heads.iter().filter_map(|head| self.record(head))
    }

    #[inline]
    fn record(&self, head: &Head) -> Option<Record<'_>> {
        let start = head.start as usize;
        let middle = start + usize::from(head.key_length);
        let key = self.buffer.get(start..middle)?;
        let value = self.buffer.get(middle..middle + head.rest_length as usize)?;
        let content = || self.contents.get(head.content as usize);
        Some(match head.kind {
            Kind::Put => Record::Put { key, value, content: ContentOp::None },
            Kind::PutWithContent => Record::Put { key, value, content: ContentOp::New(content()?) },
            Kind::PutKeepContent => Record::Put { key, value, content: ContentOp::Keep },
            Kind::PutContentOf => {
                Record::Put { key, value, content: ContentOp::Of(content()?.as_ref()) }
            }
            Kind::Delete => Record::Delete { key },
            Kind::DeleteIn => {
                Record::DeleteIn { shard: u16::try_from(head.content).unwrap_or(u16::MAX), key }
            }
            Kind::DeletePrefix => Record::DeletePrefix { prefix: key },
        })
    }

    /// Whether a record has a new content or refers to the content of another key.
    #[must_use]
    pub const fn has_contents(&self) -> bool {
        !self.contents.is_empty()
    }

    /// Number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether the batch is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes of keys, values and new contents.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.buffer.len() as u64 + self.content_bytes
    }

    /// Requires a sync, because an answer waits for the batch. Without it the store may delay the
    /// sync.
    pub const fn require_sync(&mut self) {
        self.synced = true;
    }

    /// Whether an answer waits for this batch.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.synced
    }

    /// Adds `bytes` to the reservation that the store releases when this batch completes.
    pub const fn carry_reservation(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    /// Subtracts `bytes` from the reservation.
    pub const fn drop_reservation(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Returns the same records without the reservation, for a store that submits to another store.
    #[must_use]
    pub fn without_reservation(&self) -> Self {
        Self { reserved: 0, ..self.clone() }
    }

    /// Bytes reserved for this batch.
    #[must_use]
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }
}

//! The places of a key's record and content, and the changes of a log.

use std::sync::Arc;

use peeklock_record::Key;

use crate::LogPosition;

const NO_CONTENT: u32 = u32::MAX;
const LARGE: u32 = 1 << 31;
/// Marks a content that is not large, and belongs to the record although it is not behind it.
const APART: u32 = 1 << 30;

const _: () = assert!(crate::PART_BYTES < APART as usize, "lengths of other contents have no mark");

/// The positions of a key's record and content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// The record.
    pub record: LogPosition,
    /// The content, with its checksum. For a large content, the payload of the first part.
    pub content: LogPosition,
    /// Length of the content, with [`LARGE`] or [`APART`].
    content_bytes: u32,
    /// Length of the record without an embedded content.
    pub record_bytes: u32,
}

const _: () = assert!(size_of::<IndexEntry>() == 24, "every message has one");

/// The position of a content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentAt {
    /// Its checksum and bytes. For a large content, the payload of the first part.
    pub place: LogPosition,
    /// Number of bytes.
    pub length: u32,
    /// Whether it is in parts.
    pub is_large: bool,
}

/// The places of the part payloads of a large content.
pub type PartPositions = Arc<[LogPosition]>;

impl IndexEntry {
    /// The entry of a record with `record_bytes` bytes, without an embedded content.
    #[must_use]
    pub fn new(record: LogPosition, record_bytes: u32, content: Option<ContentAt>) -> Self {
        let content_bytes = content.map_or(NO_CONTENT, |content| {
            content.length | if content.is_large { LARGE } else { 0 }
        });
        let content = content.map(|content| content.place).unwrap_or_default();
        Self { record, content, content_bytes, record_bytes }
    }

    /// Length of the content, if there is one.
    #[must_use]
    pub const fn content_length(&self) -> Option<u32> {
        match self.content_bytes {
            NO_CONTENT => None,
            large if large & LARGE != 0 => Some(large & !LARGE),
            other => Some(other & !APART),
        }
    }

    /// Whether the content is in parts.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        self.content_bytes != NO_CONTENT && self.content_bytes & LARGE != 0
    }

    /// The position of the content, if there is one.
    #[must_use]
    pub fn content_at(&self) -> Option<ContentAt> {
        let length = self.content_length()?;
        Some(ContentAt { place: self.content, length, is_large: self.is_large() })
    }

    /// The entry of a record whose content belongs to it, but lies in another place.
    #[must_use]
    pub const fn with_content_apart(mut self) -> Self {
        if self.content_bytes & LARGE == 0 {
            self.content_bytes |= APART;
        }
        self
    }

    /// Whether the content belongs to the record: it is embedded, or apart.
    #[must_use]
    pub fn holds_content(&self) -> bool {
        if self.content_bytes & (LARGE | APART) == APART {
            return true;
        }
        let LogPosition { segment, offset } = self.record;
        let embedded = LogPosition { segment, offset: offset.saturating_add(self.record_bytes) };
        self.content_length().is_some() && !self.is_large() && self.content == embedded
    }
}

/// A change of the log, to apply to the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// The key has a new record. Its content is new, or belongs to another record.
    Put {
        /// The key.
        key: Key,
        /// The places of its record and content.
        entry: IndexEntry,
        /// Whether no other record has the content.
        content_is_new: bool,
    },
    /// The key is removed.
    Delete {
        /// The key.
        key: Key,
    },
    /// All keys with this prefix are removed.
    DeletePrefix {
        /// The prefix.
        prefix: Key,
    },
}

impl Op {
    /// Whether the change affects the key.
    #[must_use]
    pub fn concerns(&self, key: &Key) -> bool {
        match self {
            Self::Put { key: other, .. } | Self::Delete { key: other } => other == key,
            Self::DeletePrefix { prefix } => key.as_bytes().starts_with(prefix.as_bytes()),
        }
    }
}

//! References to stored content, pinned until they are dropped.
//!
//! Deliveries carry references, not bytes: the connection loads the content when its socket has
//! room (DESIGN D8). The content stays readable even if the message is removed in the meantime.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::StoreError;

/// Content that may have to be read first. Stores that keep contents on disk, or on another machine,
/// implement it.
///
/// The caller has room for the bytes before it loads them, so a store needs no bound on the bytes
/// of all loads. It does need a bound on time, since only the store can end its request to the
/// medium: each load ends within a limit of the store, if necessary with
/// [`StoreError::Unavailable`]. Any other error means that the content is lost: callers count the
/// delivery of the message as failed. A load may be dropped, repeated, and run next to others.
#[async_trait]
pub trait StoredContent: Send + Sync {
    /// Length in bytes, known without reading the content. A caller of `load` must have room for
    /// it.
    fn length(&self) -> u64;

    /// The bytes, or the error of reading them, if either is known without waiting. `None` if the
    /// content must be loaded.
    fn cached(&self) -> Option<Result<Bytes, StoreError>> {
        None
    }

    /// Loads the bytes. Transports call it outside the broker's arbiters; it may wait for the disk.
    async fn load(&self) -> Result<Bytes, StoreError>;

    /// Loads at most `length` bytes from byte `from` on; fewer at the end of the content. A store
    /// may read more, in units that it can check, but the result holds no other bytes in memory.
    async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
        let content = self.load().await?;
        let range = range_within(content.len(), from, length);
        Ok(Bytes::copy_from_slice(content.get(range).unwrap_or_default()))
    }
}

/// Returns the part of `0..length_of_content` that `length` bytes from byte `from` on cover.
pub(crate) fn range_within(length_of_content: usize, from: u64, length: u64) -> Range<usize> {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(length_of_content);
    place(from)..place(from.saturating_add(length))
}

/// A content whose load has failed.
struct FailedContent {
    length: u64,
    error: StoreError,
}

#[async_trait]
impl StoredContent for FailedContent {
    fn length(&self) -> u64 {
        self.length
    }

    fn cached(&self) -> Option<Result<Bytes, StoreError>> {
        Some(Err(self.error.clone()))
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        Err(self.error.clone())
    }
}

/// A pinned reference to the content or to an overlay of a message.
#[derive(Clone)]
pub enum ContentRef {
    /// The bytes are in memory.
    Loaded(Bytes),
    /// The bytes are in the store.
    Stored(Arc<dyn StoredContent>),
}

impl ContentRef {
    /// Length in bytes, loaded or not.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Loaded(bytes) => bytes.len() as u64,
            Self::Stored(stored) => stored.length(),
        }
    }

    /// The bytes, if they are in memory.
    #[must_use]
    pub const fn loaded(&self) -> Option<&Bytes> {
        match self {
            Self::Loaded(bytes) => Some(bytes),
            Self::Stored(_) => None,
        }
    }

    /// The bytes, read from the store if necessary. May wait for the disk.
    ///
    /// # Errors
    /// If the store cannot read them.
    pub async fn load(&self) -> Result<Bytes, StoreError> {
        match self {
            Self::Loaded(bytes) => Ok(bytes.clone()),
            Self::Stored(stored) => stored.load().await,
        }
    }

    /// A reference to a content of `length` bytes whose load has failed. It returns the error
    /// without waiting.
    #[must_use]
    pub fn failed(length: u64, error: StoreError) -> Self {
        Self::Stored(Arc::new(FailedContent { length, error }))
    }

    /// The error of the content, if it is known without waiting.
    #[must_use]
    pub fn known_error(&self) -> Option<StoreError> {
        match self {
            Self::Loaded(_) => None,
            Self::Stored(stored) => stored.cached().and_then(Result::err),
        }
    }

    /// At most `length` bytes from byte `from` on; fewer at the end of the content. May wait for
    /// the disk.
    ///
    /// # Errors
    /// If the store cannot read them.
    pub async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
        match self {
            Self::Loaded(bytes) => Ok(bytes.slice(range_within(bytes.len(), from, length))),
            Self::Stored(stored) => stored.load_range(from, length).await,
        }
    }
}

impl fmt::Debug for ContentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded(bytes) => write!(f, "Loaded({} bytes)", bytes.len()),
            Self::Stored(_) => f.write_str("Stored"),
        }
    }
}

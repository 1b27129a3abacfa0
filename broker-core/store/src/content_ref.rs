//! A reference to stored content, pinned until it is dropped.
//!
//! Deliveries carry references, not bytes: the connection loads the content when its socket has room
//! (DESIGN D8). What a reference points to stays readable although the message may be gone by then.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::StoreError;

/// Content that must be fetched before it can be used; implemented by stores that keep it on disk.
#[async_trait]
pub trait StoredContent: Send + Sync {
    /// How many bytes it has, known without reading any: who loads it has room for so many first.
    fn length(&self) -> u64;

    /// The bytes, or why they cannot be read, if that can be told without waiting for anything; a store that
    /// cannot tell says nothing, and is asked to load them.
    fn at_hand(&self) -> Option<Result<Bytes, StoreError>> {
        None
    }

    /// Loads the bytes. Called by transports, outside the broker's arbiters; may wait for the disk.
    async fn load(&self) -> Result<Bytes, StoreError>;
}

/// A pinned reference to the content or to an overlay of one message.
#[derive(Clone)]
pub enum ContentRef {
    /// The bytes are at hand.
    Loaded(Bytes),
    /// The bytes are in the store.
    Stored(Arc<dyn StoredContent>),
}

impl ContentRef {
    /// How many bytes it has, at hand or not.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Loaded(bytes) => bytes.len() as u64,
            Self::Stored(stored) => stored.length(),
        }
    }

    /// The bytes, if they are at hand.
    #[must_use]
    pub const fn loaded(&self) -> Option<&Bytes> {
        match self {
            Self::Loaded(bytes) => Some(bytes),
            Self::Stored(_) => None,
        }
    }

    /// The bytes, fetched from the store where needed.
    ///
    /// # Errors
    /// When the store cannot read them.
    pub async fn load(&self) -> Result<Bytes, StoreError> {
        match self {
            Self::Loaded(bytes) => Ok(bytes.clone()),
            Self::Stored(stored) => stored.load().await,
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

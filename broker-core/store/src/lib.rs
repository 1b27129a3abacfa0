//! The store contract: bytes, order, atomicity; no meaning (DESIGN D11). (Data path, step 4.)
//!
//! A store keeps records under byte keys, each with an optional content, and knows no meaning: of the other
//! crates it has seen `peeklock-record` alone, which says what keys, records and batches are.
//!
//! Absent on purpose: a second method to write. Everything enters by [`Store::submit`].

pub mod content_ref;
pub mod journal;
pub mod memory;
mod shortage;
mod tail;
// For tests of this workspace and of extensions.
#[cfg(feature = "testing")]
pub mod testing;

use std::fmt;
use std::sync::Arc;

pub use content_ref::{ContentRef, StoredContent};
pub use journal::{Journal, JournalConfig};
pub use memory::MemoryStore;
pub use peeklock_record::{Batch, ContentOp, KEY_BYTES_MAX, Key, Record, Reserved, SPACE_BYTES};
pub use shortage::Shortage;

/// Why a store could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The write failed; nothing of the batch is stored, and the shard takes no further batch.
    #[error("store failed: {0}")]
    Failed(Arc<str>),
    /// Whether the batch is stored is not known. The shard waits until the same id is submitted again.
    #[error("outcome of the append is unknown")]
    Unknown,
    /// The writer no longer owns the shard; nothing was stored (fencing).
    #[error("append refused: epoch {held} has ended, the shard is at {current}")]
    Fenced {
        /// The epoch the batch carried.
        held: u64,
        /// The epoch of the shard.
        current: u64,
    },
    /// Stored bytes are not what was written.
    #[error("stored data is damaged: {0}")]
    Damaged(Arc<str>),
    /// The content was dropped; only a reference that was not pinned can meet this.
    #[error("the content no longer exists")]
    Gone,
}

/// Names one of the independent sequences of a store. Their number is fixed when the store is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard(pub u16);

/// Proof of ownership of a shard; raised by every [`Store::acquire`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fence {
    /// The shard.
    pub shard: Shard,
    /// The epoch under which it is owned.
    pub epoch: u64,
}

/// Names a batch of a shard; grows by one from batch to batch, so that a retry is recognised and
/// nothing lands out of order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchId(pub u64);

/// Is called, once, when a refused reservation may succeed. Must not block.
pub type Waker = Box<dyn FnOnce() + Send>;

/// Is called exactly once with the outcome of a batch, on any thread. Must not block.
pub type Completion = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Is called, at most once, when a store can do its work no more. Must not block.
pub type Watcher = Box<dyn FnOnce(&StoreError) + Send>;

/// A batch on its way into the store.
pub struct Submission {
    /// Its place in the shard's order.
    pub id: BatchId,
    /// Ownership of every shard it touches, the one that orders it first.
    pub fences: Vec<Fence>,
    /// The records; all of them are stored, or none. Shared with the submitter, who keeps them until
    /// the outcome is known.
    pub batch: Arc<Batch>,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submission({:?}, {} records)", self.id, self.batch.len())
    }
}

/// Is shown every record of a scan: key and value. Contents are fetched by [`Store::pin`].
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// Where a broker keeps what it has acknowledged.
///
/// Implementations must pass the suite of `testing::store_conformance`. All methods are called from
/// arbiter threads and must not wait for the medium, except `acquire`, `scan` and `close`.
///
/// ```
/// # mod peeklock { pub use peeklock_store as store; }
/// use std::sync::Arc;
///
/// use peeklock::store::{Batch, Key, MemoryStore, Shard, Store, Submission};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(1, u64::MAX);
/// let (fence, id) = store.acquire(Shard(0))?;
/// let space = Key::of_space(7);
/// let mut batch = Batch::default();
/// batch.put(&space.then(b"a"), |value| value.extend_from_slice(b"kept"));
/// let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
/// store.submit(submission, Box::new(|outcome| assert!(outcome.is_ok())));
///
/// let mut found = Vec::new();
/// store.scan(space.as_bytes(), &mut |_, value| found.push(value.to_vec()))?;
/// assert_eq!(found, [b"kept"]);
///
/// // Who takes the shard over ends what the one before would still write.
/// store.acquire(Shard(0))?;
/// let late = Submission { id, fences: vec![fence], batch: Arc::default() };
/// store.submit(late, Box::new(|outcome| assert!(outcome.is_err())));
/// # Ok(())
/// # }
/// ```
pub trait Store: Send + Sync {
    /// A name for logs and errors.
    fn name(&self) -> &'static str;

    /// Whether what it keeps outlives the process.
    fn is_durable(&self) -> bool;

    /// How many shards it has; at least one, fixed at creation.
    fn shard_count(&self) -> u16;

    /// Takes over a shard: raises its epoch, so that submissions of a past owner are fenced.
    /// Returns the fence and the id of the first batch of this owner. May wait for the medium.
    ///
    /// # Errors
    /// When the shard cannot be owned.
    fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError>;

    /// Sets `bytes` aside for a later batch, or says why it cannot. What was granted is given back
    /// by [`Batch::reserved`] when the batch completes with any outcome but an unknown one, or when
    /// its shard is acquired anew before that; without a batch by [`Store::unreserve`]. `waker` is
    /// asked for a waker only when the answer is a refusal.
    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved;

    /// Gives back a reservation that no batch will carry.
    fn unreserve(&self, shard: Shard, bytes: u64);

    /// Appends a batch. Atomic over all spaces and shards; batches of one shard complete in the
    /// order of their ids, and a failed one fails all later ones. Submitting an id again repeats the
    /// answer if the batch is stored, and stores it if not.
    fn submit(&self, submission: Submission, completion: Completion);

    /// A reference to the content of each key, pinned: it stays readable after the record is gone.
    /// A key without content gives `None`.
    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>);

    /// The same for who has to wait before he may load them: a reference to what is on a medium holds none of it in
    /// memory, although it may be at hand. A store that has everything in memory pins as ever.
    fn pin_apart(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        self.pin(keys, contents);
    }

    /// Shows every record whose key begins with `prefix`, which names at least a whole space, ascending
    /// by key, as of the last completed batch. May wait for the medium.
    ///
    /// # Errors
    /// When the records cannot be read.
    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<(), StoreError>;

    /// A store with what is completed in this one, of which each goes its own way from here on; none if that is not
    /// to be had without copying everything. Atomic as a batch is.
    fn fork(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// How many bytes are on its medium now, if it knows: of a log all that was not given back yet. For gauges.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// Why a message of so many bytes would be refused for want of room now, if it would be (QUO-05). For errors,
    /// probes and gauges.
    fn shortage(&self, bytes: u64) -> Option<Shortage> {
        let _ = bytes;
        None
    }

    /// Wants to be told if the store comes to its end, also while nobody asks anything of it; told at
    /// once if it has. Stores that can always be owned again have no end and ignore it.
    fn watch(&self, watcher: Watcher) {
        drop(watcher);
    }

    /// Makes everything completed so far final and ends the store. May wait for the medium.
    ///
    /// # Errors
    /// When what is pending cannot be written.
    fn close(&self) -> Result<(), StoreError>;
}

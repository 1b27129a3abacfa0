//! The store contract: bytes, order and atomicity (DESIGN D11). The broker's shells write and read
//! through it: step 4 of the data path in ARCHITECTURE.md.
//!
//! A store keeps records under byte keys, each with an optional content, and does not interpret
//! them. It depends only on `peeklock-record`, which defines keys, records and batches, and on
//! `peeklock-store-log`, the index and encoding of a log.
//! [`Store::submit`] is the only way to write.
//!
//! Modules in reading order:
//!
//! - [`content_ref`], [`records`], [`registry`], [`shortage`](Shortage): parts of the contract
//! - [`memory`]: the store without a disk, the simplest implementation
//! - [`journal`]: the durable store

pub mod content_ref;
pub mod journal;
pub mod memory;
pub mod records;
pub mod registry;
mod shortage;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
pub use content_ref::{ContentRef, StoredContent};
pub use journal::{Journal, JournalConfig};
pub use memory::MemoryStore;
pub use peeklock_record::{Batch, ContentOp, KEY_BYTES_MAX, Key, Record, Reserved, SPACE_BYTES};
pub use records::{RecordSlice, Records, SLICE_BYTES};
pub use registry::Registry;
pub use shortage::Shortage;

/// Errors of a store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The write failed; nothing of the batch is stored, and the shard takes no further batch.
    #[error("store failed: {0}")]
    Failed(Arc<str>),
    /// It is unknown whether the batch is stored. The shard waits until the same id is submitted
    /// again.
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
    /// The medium did not answer within the time limit of the store, or cannot work at present.
    /// Nothing is damaged: a later call may succeed.
    #[error("the store is not available: {0}")]
    Unavailable(Arc<str>),
    /// Stored bytes differ from the written ones.
    #[error("stored data is damaged: {0}")]
    Damaged(Arc<str>),
    /// The content was dropped. Only an unpinned reference can meet this.
    #[error("the content no longer exists")]
    Gone,
}

impl StoreError {
    /// Whether a later call may succeed although this one has failed.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Names an independent sequence of a store. The number of shards is fixed when the store is
/// created. A space belongs to one shard, whose batches alone write it; others may remove keys from
/// it with [`Record::DeleteIn`]. Two spaces have the records of the whole store and belong to no
/// shard: 0, and 2^63. Their records have no contents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard(pub u16);

/// Proof of ownership of a shard. Every [`Store::acquire`] raises the epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fence {
    /// The shard.
    pub shard: Shard,
    /// The epoch of the ownership.
    pub epoch: u64,
}

/// Names a batch of a shard. Ids grow by one from batch to batch, so that the store recognises a
/// retry and stores batches in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchId(pub u64);

/// Called once when a refused reservation may succeed. Must not block.
pub type Waker = Box<dyn FnOnce() + Send>;

/// Called exactly once with the outcome of a batch, on any thread. Must not block.
pub type Completion = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Called at most once, when a store has failed permanently. Must not block.
pub type Watcher = Box<dyn FnOnce(&StoreError) + Send>;

/// A key and its expected value; `None` if no record is expected.
pub type Expectation = (Key, Option<Bytes>);

/// A batch on its way into the store.
pub struct Submission {
    /// Its position in the shard's order.
    pub id: BatchId,
    /// Ownership of every shard that the batch touches. The first one orders the batch.
    pub fences: Vec<Fence>,
    /// The records, of which all or none are stored. Shared with the submitter, which keeps them
    /// until the outcome is known.
    pub batch: Arc<Batch>,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submission({:?}, {} records)", self.id, self.batch.len())
    }
}

/// Storage of the data that a broker has acknowledged.
///
/// Implementations must pass the suite `store_conformance` of the crate `peeklock-store-testing`.
/// All methods are called from arbiter threads. Only asynchronous ones, `commit_here`, and `close`,
/// which has a thread of its own, may wait for the medium. No runtime is assumed: a future may be
/// polled on any thread. Each asynchronous call ends within a time limit of the store; if the medium
/// does not answer, with [`StoreError::Unavailable`], and then the broker repeats it. So such an
/// error is no reason to give up a shard, an entity or a message.
///
/// ```
/// # mod peeklock { pub use peeklock_store as store; }
/// use std::sync::Arc;
///
/// use peeklock::store::{Batch, Key, MemoryStore, Shard, Store, Submission};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(1, u64::MAX);
/// let (fence, id) = store.acquire(Shard(0)).await?;
/// let space = Key::of_space(7);
/// let mut batch = Batch::default();
/// batch.put(&space.then(b"a"), |value| value.extend_from_slice(b"kept"));
/// let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
/// store.submit(submission, Box::new(|outcome| assert!(outcome.is_ok())));
///
/// let mut found = Vec::new();
/// store.scan(&space).for_each(|_, value| found.push(value.to_vec())).await?;
/// assert_eq!(found, [b"kept"]);
///
/// // A new owner of the shard ends all writes of the previous one.
/// store.acquire(Shard(0)).await?;
/// let late = Submission { id, fences: vec![fence], batch: Arc::default() };
/// store.submit(late, Box::new(|outcome| assert!(outcome.is_err())));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Store: Send + Sync {
    /// A name for logs and errors.
    fn name(&self) -> &'static str;

    /// Whether the data outlives the process.
    fn is_durable(&self) -> bool;

    /// Number of shards; at least one, fixed at creation.
    fn shard_count(&self) -> u16;

    /// Takes over a shard: raises its epoch, so that submissions of the previous owner are fenced.
    /// Returns the fence and the id of the first batch of this owner. May wait for the medium. A
    /// store with a [registry](Store::registry) does this for the broker that owns its shards only.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another broker owns the shard. Others if it cannot be owned. After
    /// `Unavailable` the epoch may have been raised, and batches of the previous owner may still be
    /// stored.
    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError>;

    /// Reserves `bytes` for a later batch, or returns the reason for a refusal. The batch that uses
    /// the reservation names it ([`Batch::reserved`]). The reservation ends when that batch
    /// completes with a known outcome, or when the shard is acquired again before that. Without a
    /// batch, [`Store::unreserve`] ends it. A store that refuses calls `waker` to create a waker,
    /// and wakes it when there may be room again.
    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved;

    /// Ends a reservation that no batch will carry.
    fn unreserve(&self, shard: Shard, bytes: u64);

    /// Appends a batch. Atomic over all spaces and shards. Batches of a shard complete in the order
    /// of their ids, and a failed batch fails all later ones. A repeated id repeats the outcome if
    /// the batch is stored, and otherwise stores it. A store on a network repeats a batch itself. If
    /// it gives up, it completes with `Unavailable`: the batch may be stored, the shard takes no
    /// further one, and its owner acquires it again.
    fn submit(&self, submission: Submission, completion: Completion);

    /// Calls `submit` once, which submits one batch, and completes it on this thread if the store
    /// has no other work. Saves the change to a thread of the store and back, but waits for the
    /// medium. Returns whether the batch is completed; if not, it is submitted as usual.
    fn commit_here(&self, submit: &mut dyn FnMut()) -> bool {
        submit();
        false
    }

    /// Stores a batch if each key has the expected value, or is absent where none is expected.
    /// Returns whether it did. Durable and atomic, also against other brokers on the same store. All
    /// keys are in spaces that belong to no shard, and batches of shards leave them alone. Records
    /// have no contents.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another broker owns the shards. Others if the store has failed:
    /// the batch may be stored nevertheless, so the caller reads its keys.
    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError>;

    /// Appends to `contents` a pinned reference to the content of each key. It stays readable after
    /// the record is removed. A key without content gives `None`.
    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>);

    /// Like [`Store::pin`], for a caller that must wait before it may load the contents. A
    /// reference to content on a medium then holds no memory, even if the content is cached. A
    /// store in memory pins as usual.
    fn pin_unloaded(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        self.pin(keys, contents);
    }

    /// Returns every record whose key begins with `prefix`, ascending by key. The prefix must
    /// contain a whole space. Each slice is as of the last batch that completed before it was read.
    /// [`Store::pin`] returns contents.
    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_>;

    /// Returns for each key whether its record exists, as of the last completed batch of any shard.
    /// [`Store::pin`] of a record that the owner of another shard has removed may still find it for
    /// a while; this method does not.
    ///
    /// # Errors
    /// If the store cannot find out: it has failed, or the shard was lost.
    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError>;

    /// Whether [`ContentOp::Of`] may name a record in a space of another shard. If not, the contents
    /// of transferred messages are stored again at their destination.
    fn shares_contents(&self) -> bool {
        true
    }

    /// A second store with the completed data of this one; later changes of either do not affect
    /// the other. Atomic like a batch. `None` if the store would have to copy everything.
    fn fork(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// The registry that says which of several brokers owns the shards. A store without one has one
    /// broker.
    fn registry(&self) -> Option<Arc<dyn Registry>> {
        None
    }

    /// Number of bytes on the medium, if known. A log counts all segments that are not released.
    /// For gauges.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// The reason why a message of `bytes` bytes would be refused now for lack of room (QUO-05);
    /// `None` if it would be accepted. For errors, probes and gauges.
    fn shortage(&self, bytes: u64) -> Option<Shortage> {
        let _ = bytes;
        None
    }

    /// Registers a watcher for a permanent failure, which it receives even without any request to
    /// the store, and immediately if the store has failed already. A store that cannot fail
    /// permanently ignores it.
    fn watch(&self, watcher: Watcher) {
        drop(watcher);
    }

    /// Makes all completed batches final and closes the store. May wait for the medium.
    ///
    /// # Errors
    /// If pending data cannot be written.
    fn close(&self) -> Result<(), StoreError>;
}

//! A shard as the process knows it: its index, its leaves, and the way to its writer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_record::Key;
use peeklock_store::{BatchId, Completion, Fence, StoreError, Submission};
use peeklock_store_log::{IndexEntry, LogPosition, LogSegment as _, LogSizes};
use tokio::sync::{mpsc, oneshot};

use crate::leaf::{LeafIndex, Leaves};

/// Work for the writer of a shard, in order.
pub enum Job {
    Submit(Submission, Completion),
    Acquire(oneshot::Sender<Result<(Fence, BatchId), StoreError>>),
    Move(Vec<MovedContent>, oneshot::Sender<()>),
    /// All earlier jobs are done when the answer comes.
    Flush(oneshot::Sender<()>),
}

/// A content to write again with its records, or records whose content stays.
pub struct MovedContent {
    pub content: Option<bytes::Bytes>,
    pub users: Vec<MovedRecord>,
}

/// A record to write again, if its key still has the entry.
pub struct MovedRecord {
    pub key: Key,
    pub expected: IndexEntry,
    pub value: Vec<u8>,
}

/// Keys that a batch of another shard has removed, until the log of this shard states it.
pub struct Removed {
    pub by_shard: u16,
    pub by_id: u64,
    pub keys: Vec<Key>,
}

/// A shard.
pub struct ShardLog {
    pub number: u16,
    pub index: Arc<LeafIndex>,
    pub leaves: Arc<Leaves>,
    pub jobs: mpsc::UnboundedSender<Job>,
    /// The epoch of the owner in this process.
    pub epoch: AtomicU64,
    /// Keys that others have removed, not in the log yet.
    removed: Mutex<Vec<Removed>>,
    /// Empty leaf tables.
    free: Mutex<VecDeque<i32>>,
    /// Number of tables, free or not.
    pub table_count: AtomicU64,
    /// Whether a task writes old records again or empties leaves.
    pub is_cleaning: AtomicBool,
}

impl ShardLog {
    pub fn new(number: u16, jobs: mpsc::UnboundedSender<Job>) -> Self {
        let leaves = Arc::new(Leaves::default());
        Self {
            number,
            index: Arc::new(LeafIndex::new(Arc::clone(&leaves))),
            leaves,
            jobs,
            epoch: AtomicU64::new(0),
            removed: Mutex::default(),
            free: Mutex::default(),
            table_count: AtomicU64::new(0),
            is_cleaning: AtomicBool::new(false),
        }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub fn add_removed(&self, removed: Removed) {
        lock(&self.removed).push(removed);
    }

    pub fn take_removed(&self) -> Vec<Removed> {
        std::mem::take(&mut *lock(&self.removed))
    }

    pub fn add_free(&self, slot: i32) {
        lock(&self.free).push_back(slot);
    }

    pub fn take_free(&self) -> Option<i32> {
        lock(&self.free).pop_front()
    }

    /// The sizes that decide about cleaning.
    pub fn sizes(&self, segment_bytes: u64, is_tight: bool) -> LogSizes {
        let leaves = self.leaves.all();
        let sealed = leaves.iter().filter(|leaf| leaf.is_sealed());
        LogSizes {
            segment_bytes,
            segment_count: leaves.len() as u64,
            written: leaves.iter().map(|leaf| leaf.end()).sum(),
            sealed: sealed.map(|leaf| leaf.end()).sum(),
            used: self.index.used_bytes(),
            is_tight,
        }
    }

    /// Ends uses of the leaves of parts.
    pub fn end_uses(&self, places: impl IntoIterator<Item = LogPosition>) {
        for place in places {
            if let Some(leaf) = self.leaves.get(place.segment) {
                leaf.end_use();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

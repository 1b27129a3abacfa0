//! A shard as the process knows it: its index, its leaves, and the way to its writer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use peeklock_record::Key;
use peeklock_store::{BatchId, Completion, Fence, StoreError, Submission};
use peeklock_store_log::{IndexEntry, LogPosition, LogSegment as _, LogSizes, Op};
use tokio::sync::{mpsc, oneshot};

use crate::leaf::{LeafIndex, Leaves, SLOTS_PER_SHARD};
use crate::room::Room;
use crate::row::META_BYTES;

/// Maximum number of jobs that wait for the writer of a shard. A batch over it is refused.
pub const JOBS_MAX: usize = 64 << 10;
/// Number of tables that stay for settlements and for records that are written again.
const SLOTS_RESERVED: i32 = 64;
/// Number of removed keys from which on the log of an idle shard states them.
const REMOVED_MAX: usize = 4_096;

/// Work for the writer of a shard, in order.
pub enum Job {
    Submit(Submission, Pending),
    Acquire(oneshot::Sender<Result<(Fence, BatchId), StoreError>>),
    Move(Vec<MovedContent>, oneshot::Sender<()>),
    /// Appends a row, which proves that the shard is owned and that no acknowledged row is missing.
    Mark,
    /// All earlier jobs are done when the answer comes.
    Flush(oneshot::Sender<()>),
}

/// The completion of a batch, with its reservation. It is called exactly once: without an outcome,
/// when it is dropped.
pub struct Pending {
    completion: Option<Completion>,
    reserved: u64,
    room: Arc<Room>,
}

impl Pending {
    pub fn new(completion: Completion, reserved: u64, room: &Arc<Room>) -> Self {
        Self { completion: Some(completion), reserved, room: Arc::clone(room) }
    }

    /// Keeps the reservation: it was returned before.
    pub const fn keep_reservation(&mut self) {
        self.reserved = 0;
    }

    /// Returns the reservation, and calls the completion.
    pub fn end(mut self, result: Result<(), StoreError>) {
        self.complete(result);
    }

    fn complete(&mut self, result: Result<(), StoreError>) {
        let Some(completion) = self.completion.take() else { return };
        self.room.give_back(self.reserved);
        completion(result);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.complete(Err(closed()));
    }
}

/// The error of a batch whose outcome the store no longer learns.
pub fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed; the batch may be stored".into())
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

/// The last stored row of a log.
#[derive(Clone, Copy)]
pub struct Tail {
    /// Its table.
    pub slot: i32,
    pub id: i64,
    /// Its head without records, whose checksum covers all of the head.
    pub meta: [u8; META_BYTES],
}

/// A shard.
pub struct ShardLog {
    pub number: u16,
    /// Changed only by [`Self::apply`] and [`Self::remove`].
    pub index: Arc<LeafIndex>,
    pub leaves: Arc<Leaves>,
    pub jobs: mpsc::Sender<Job>,
    /// The epoch that the last acquisition returned.
    fence: AtomicU64,
    /// The epoch in the database. The writer raises it when an outcome is unknown.
    epoch: AtomicU64,
    /// Keys that others have removed, not in the log yet. The lock is held while the index changes,
    /// so that an append that was made earlier brings no removed key back.
    removed: Mutex<Vec<Removed>>,
    tail: Mutex<Option<Tail>>,
    /// Empty leaf tables.
    free: Mutex<VecDeque<i32>>,
    /// Number of tables, free or not.
    table_count: AtomicI32,
    /// Whether a task writes old records again or empties leaves.
    pub is_cleaning: AtomicBool,
    /// Reason why the shard serves nothing any more.
    fault: OnceLock<StoreError>,
}

impl ShardLog {
    pub fn new(number: u16, jobs: mpsc::Sender<Job>) -> Self {
        let leaves = Arc::new(Leaves::default());
        Self {
            number,
            index: Arc::new(LeafIndex::new(Arc::clone(&leaves))),
            leaves,
            jobs,
            fence: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            removed: Mutex::default(),
            tail: Mutex::default(),
            free: Mutex::default(),
            table_count: AtomicI32::new(0),
            is_cleaning: AtomicBool::new(false),
            fault: OnceLock::new(),
        }
    }

    pub fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    pub fn set_fence(&self, fence: u64) {
        self.fence.store(fence, Ordering::Release);
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    pub fn fault(&self) -> Option<&StoreError> {
        self.fault.get()
    }

    /// Closes the shard permanently. Returns whether it was open.
    pub fn set_fault(&self, error: StoreError) -> bool {
        self.fault.set(error).is_ok()
    }

    pub fn check(&self) -> Result<(), StoreError> {
        self.fault().cloned().map_or(Ok(()), Err)
    }

    pub fn tail(&self) -> Option<Tail> {
        *lock(&self.tail)
    }

    pub fn set_tail(&self, tail: Option<Tail>) {
        *lock(&self.tail) = tail;
    }

    /// Applies a stored append to the index. Keys that others have removed since the append was
    /// made stay removed: their removals follow it in the log.
    pub fn apply(&self, ops: &[Op]) {
        let removed = lock(&self.removed);
        self.index.apply(ops);
        for later in removed.iter() {
            self.index.apply(&deletions(&later.keys));
        }
    }

    /// Removes keys that a stored batch of another shard removes. Returns whether the log of this
    /// shard should state the removals soon.
    pub fn remove(&self, gone: Removed) -> bool {
        let mut removed = lock(&self.removed);
        self.index.apply(&deletions(&gone.keys));
        removed.push(gone);
        removed.iter().map(|one| one.keys.len()).sum::<usize>() > REMOVED_MAX
    }

    /// Takes the removals for an append, which begins with them.
    pub fn take_removed(&self) -> Vec<Removed> {
        std::mem::take(&mut *lock(&self.removed))
    }

    /// Whether a key has a record, as of the last completed batch of any shard.
    pub fn has(&self, key: &Key) -> bool {
        let _unchanged = lock(&self.removed);
        self.index.get(key.as_bytes()).is_some()
    }

    /// Appends a page of entries, as of the last completed batch of any shard.
    pub fn page(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
        page: &mut Vec<(Key, IndexEntry)>,
    ) {
        let _unchanged = lock(&self.removed);
        self.index.page(prefix.as_bytes(), after, limit, page);
    }

    pub fn add_free(&self, slot: i32) {
        lock(&self.free).push_back(slot);
    }

    pub fn take_free(&self) -> Option<i32> {
        lock(&self.free).pop_front()
    }

    /// Counts a table that exists.
    pub fn note_table(&self, slot: i32) {
        self.table_count.fetch_max(slot % SLOTS_PER_SHARD + 1, Ordering::AcqRel);
    }

    /// The number of a table that does not exist yet; `None` if the shard has the maximum.
    pub fn new_slot(&self) -> Option<i32> {
        let next = |count: i32| (count < SLOTS_PER_SHARD).then_some(count + 1);
        let place =
            self.table_count.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(i32::from(self.number) * SLOTS_PER_SHARD + place)
    }

    /// Whether hardly any tables are left for further leaves.
    pub fn is_short_of_tables(&self) -> bool {
        lock(&self.free).is_empty()
            && self.table_count.load(Ordering::Acquire) > SLOTS_PER_SHARD - SLOTS_RESERVED
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

fn deletions(keys: &[Key]) -> Vec<Op> {
    keys.iter().map(|key| Op::Delete { key: *key }).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_never_numbered_twice() {
        let shard = ShardLog::new(2, mpsc::channel(1).0);
        shard.note_table(2 * SLOTS_PER_SHARD + 9);
        let first = 2 * SLOTS_PER_SHARD;
        for place in 10..SLOTS_PER_SHARD {
            assert_eq!(shard.is_short_of_tables(), place > SLOTS_PER_SHARD - SLOTS_RESERVED);
            assert_eq!(shard.new_slot(), Some(first + place));
        }
        assert_eq!((shard.new_slot(), shard.new_slot()), (None, None));
        assert!(shard.is_short_of_tables());
        shard.add_free(first + 3);
        assert!(!shard.is_short_of_tables());
        assert_eq!(shard.take_free(), Some(first + 3));
    }

    /// A batch is completed exactly once, also if its writer ends without an outcome.
    #[test]
    fn dropped_batch_is_completed_and_returns_its_room() {
        let room = Arc::new(Room::new(Vec::new(), 100));
        let full = || room.shortage(50).is_some();
        for ends in [false, true] {
            room.reserve(80, &|| Box::new(|| {}));
            assert!(full());
            let (sender, receiver) = std::sync::mpsc::channel();
            let completion = Box::new(move |result| sender.send(result).unwrap());
            let pending = Pending::new(completion, 80, &room);
            if ends {
                pending.end(Ok(()));
            } else {
                drop(pending);
            }
            let result = receiver.recv().unwrap();
            assert_eq!(result.is_ok(), ends);
            assert!(result.err().is_none_or(|error| error.is_unavailable()));
            assert!(receiver.recv().is_err(), "it is called once");
            assert!(!full());
        }
    }
}

//! The memory store: maps that end with the process. Its order and answers are the same as in a
//! durable store, so that a broker behaves the same on both.

mod space;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use self::space::{Changed, Entry, Space};
use super::{
    Batch, BatchId, Completion, ContentOp, Expectation, Fence, Key, Record, RecordSlice, Records,
    Reserved, SPACE_BYTES, Shard, Shortage, Store, StoreError, Submission, Waker,
};
use crate::content_ref::ContentRef;
use peeklock_record::space_of;

/// Number of records of dropped spaces that a submission frees, in addition to twice the number of
/// its own records. So spaces are freed faster than they are filled.
const REAPED_PER_SUBMISSION: usize = 1_024;
/// Maximum number of wakers. A caller refused beyond it gets no waker: later requests wake it, or
/// it retries.
const WAITING_MAX: usize = 1_024;

/// A store without a medium.
pub struct MemoryStore {
    shards: Vec<Mutex<ShardState>>,
    spaces: Vec<Mutex<Spaces>>,
    /// Held while an amendment is compared and stored.
    amending: Mutex<()>,
    capacity_bytes: u64,
    reserved_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    /// Number of dropped entries that are not freed yet, over all shards.
    dropped_count: AtomicUsize,
    /// Whether the log reported that new messages are refused.
    is_short: AtomicBool,
}

#[derive(Default)]
struct ShardState {
    epoch: u64,
    last: u64,
}

#[derive(Default)]
struct Spaces {
    /// A fork shares a space until one of both changes it.
    live: BTreeMap<u64, Arc<Space>>,
    /// Dropped spaces and parts of spaces. They are freed in slices, so that no submission waits
    /// for a million records.
    dropped: VecDeque<Arc<Space>>,
}

impl MemoryStore {
    /// A store that uses at most `capacity_bytes` of memory for records and contents.
    #[must_use]
    pub fn new(shard_count: u16, capacity_bytes: u64) -> Self {
        let count = usize::from(shard_count.max(1));
        Self {
            shards: (0..count).map(|_| Mutex::default()).collect(),
            spaces: (0..count).map(|_| Mutex::default()).collect(),
            amending: Mutex::default(),
            capacity_bytes,
            reserved_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            waiting: Mutex::default(),
            dropped_count: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
        }
    }

    /// A store with the completed records of this one: the copy for [`Store::fork`].
    #[must_use]
    pub fn forked(&self) -> Self {
        let _no_amendment = lock(&self.amending);
        // No batch is applied while all shards are locked.
        let _shards: Vec<_> = self.shards.iter().map(lock).collect();
        let spaces = self.spaces.iter().map(|spaces| {
            let live = lock(spaces).live.clone();
            Mutex::new(Spaces { live, dropped: VecDeque::new() })
        });
        Self {
            shards: self.shards.iter().map(|_| Mutex::default()).collect(),
            spaces: spaces.collect(),
            amending: Mutex::default(),
            capacity_bytes: self.capacity_bytes,
            reserved_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(self.stored_bytes.load(Ordering::Relaxed)),
            waiting: Mutex::default(),
            dropped_count: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
        }
    }

    fn spaces_of(&self, space: u64) -> MutexGuard<'_, Spaces> {
        let count = self.spaces.len() as u64;
        let index = usize::try_from(space % count.max(1)).unwrap_or(0);
        lock(self.spaces.get(index).unwrap_or_else(|| unreachable!("index is below the count")))
    }

    fn shard(&self, shard: Shard) -> Option<MutexGuard<'_, ShardState>> {
        self.shards.get(usize::from(shard.0)).map(lock)
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for waker in waiting {
            waker();
        }
    }

    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.wake_waiting();
        }
    }

    /// Logs, once, that new messages are refused (QUO-05).
    #[cold]
    fn report_shortage(&self, bytes: u64) {
        if !self.is_short.swap(true, Ordering::Relaxed)
            && let Some(shortage) = self.shortage(bytes)
        {
            let remedy = shortage.remedy();
            tracing::warn!(
                "new messages are refused, everything else continues: {shortage}; {remedy}"
            );
        }
    }

    /// Logs that new messages are accepted again, once an eighth of the store is free.
    #[cold]
    fn report_room(&self) {
        if self.shortage(self.capacity_bytes / 8).is_none()
            && self.is_short.swap(false, Ordering::Relaxed)
        {
            tracing::info!("the store has space again; new messages are accepted");
        }
    }

    fn carry_out(&self, batch: &Batch) {
        let mut added = 0u64;
        let mut freed = 0u64;
        // Consecutive records of a batch usually share a space, so its guard is kept.
        let mut held: Option<(u64, MutexGuard<'_, Spaces>)> = None;
        for record in batch.records() {
            let (Record::Put { key, .. }
            | Record::Delete { key }
            | Record::DeleteIn { key, .. }
            | Record::DeletePrefix { prefix: key }) = record;
            let space = space_of(key);
            let content = match record {
                Record::Put { content: ContentOp::Of(source), .. } => {
                    held = None;
                    self.content(source)
                }
                _ => None,
            };
            let guard = match &mut held {
                Some((number, guard)) if *number == space => guard,
                _ => {
                    held = None;
                    &mut held.insert((space, self.spaces_of(space))).1
                }
            };
            let dropped = guard.dropped.len();
            let changed = guard.carry_out(space, &record, content);
            self.dropped_count.fetch_add(guard.dropped.len() - dropped, Ordering::Relaxed);
            added += changed.added;
            freed += changed.freed;
        }
        drop(held);
        self.reap(REAPED_PER_SUBMISSION + 2 * batch.len());
        self.stored_bytes.fetch_add(added, Ordering::Relaxed);
        self.stored_bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Frees up to `count` records of dropped spaces, in any shard.
    fn reap(&self, mut count: usize) {
        for spaces in &self.spaces {
            if count == 0 || self.dropped_count.load(Ordering::Relaxed) == 0 {
                return;
            }
            let mut spaces = lock(spaces);
            let before = spaces.dropped.len();
            count = spaces.reap(count);
            self.dropped_count.fetch_sub(before - spaces.dropped.len(), Ordering::Relaxed);
        }
    }

    fn content(&self, key: &[u8]) -> Option<Bytes> {
        let guard = self.spaces_of(space_of(key));
        guard.live.get(&space_of(key))?.get(key)?.content.clone()
    }
}

impl Spaces {
    /// Applies a record and returns the bytes that it added and freed.
    fn carry_out(&mut self, space: u64, record: &Record<'_>, content: Option<Bytes>) -> Changed {
        match *record {
            Record::Put { key, value, content: op } => {
                let content = match op {
                    // A copy, so that the frame from which the content came is not kept in memory.
                    ContentOp::New(bytes) => Some(Bytes::copy_from_slice(bytes)),
                    ContentOp::None | ContentOp::Of(_) | ContentOp::Keep => content,
                };
                let entry = Entry { value: value.into(), content };
                let records = Arc::make_mut(self.live.entry(space).or_default());
                records.put(key, entry, matches!(op, ContentOp::Keep))
            }
            Record::Delete { key } | Record::DeleteIn { key, .. } => {
                let records = self.live.get_mut(&space);
                let freed = records.map_or(0, |records| Arc::make_mut(records).remove(key));
                Changed { added: 0, freed }
            }
            Record::DeletePrefix { prefix } if prefix.len() <= SPACE_BYTES => {
                let Some(records) = self.live.remove(&space) else { return Changed::default() };
                let freed = records.bytes();
                self.dropped.push_back(records);
                Changed { added: 0, freed }
            }
            Record::DeletePrefix { prefix } => {
                let Some(records) = self.live.get_mut(&space) else { return Changed::default() };
                let (freed, dropped) = Arc::make_mut(records).remove_prefix(prefix);
                self.dropped.extend(dropped.map(Arc::new));
                Changed { added: 0, freed }
            }
        }
    }

    /// Frees up to `count` records and returns the part of `count` that is left for other shards.
    fn reap(&mut self, mut count: usize) -> usize {
        while count > 0 {
            let Some(space) = self.dropped.front_mut() else { break };
            // The last owner of a shared space frees it.
            let Some(records) = Arc::get_mut(space) else {
                self.dropped.pop_front();
                continue;
            };
            while count > 0 && records.pop() {
                count -= 1;
            }
            if count > 0 {
                self.dropped.pop_front();
            }
        }
        count
    }
}

/// The records under a prefix that follow the last one read.
struct Scan<'s> {
    store: &'s MemoryStore,
    prefix: Key,
    last: Option<Key>,
}

#[async_trait]
impl Records for Scan<'_> {
    async fn next(&mut self, bytes: usize, slice: &mut RecordSlice) -> Result<(), StoreError> {
        slice.clear();
        let prefix = self.prefix.as_bytes();
        let space = space_of(prefix);
        let guard = self.store.spaces_of(space);
        let Some(records) = guard.live.get(&space) else { return Ok(()) };
        let after = self.last;
        records.visit(prefix, after.as_ref().map(Key::as_bytes), &mut |tail, entry| {
            let key = tail.key(space);
            slice.push(key.as_bytes(), &entry.value);
            self.last = Some(key);
            !slice.is_full(bytes)
        });
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        u16::try_from(self.shards.len()).unwrap_or(u16::MAX)
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        let Some(mut state) = self.shard(shard) else {
            return Err(StoreError::Failed(format!("no shard {}", shard.0).into()));
        };
        state.epoch += 1;
        Ok((Fence { shard, epoch: state.epoch }, BatchId(state.last + 1)))
    }

    fn reserve(&self, _shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        let reserved = self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.stored_bytes.load(Ordering::Relaxed).saturating_add(reserved) <= self.capacity_bytes
        {
            if self.is_short.load(Ordering::Relaxed) {
                self.report_room();
            }
            return Reserved::Granted;
        }
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.report_shortage(bytes);
        let mut waiting = lock(&self.waiting);
        if waiting.len() < WAITING_MAX {
            waiting.push(waker());
        }
        Reserved::Full
    }

    fn unreserve(&self, _shard: Shard, bytes: u64) {
        self.give_back(bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        let mut repeated = false;
        let result = (|| {
            let mut order = None;
            for fence in &submission.fences {
                let Some(state) = self.shard(fence.shard) else {
                    return Err(StoreError::Failed("no such shard".into()));
                };
                if state.epoch != fence.epoch {
                    return Err(StoreError::Fenced { held: fence.epoch, current: state.epoch });
                }
                order.get_or_insert(*fence);
            }
            let Some((fence, mut state)) =
                order.and_then(|fence| Some((fence, self.shard(fence.shard)?)))
            else {
                return Err(StoreError::Failed("a batch needs the fence of its shard".into()));
            };
            // The shard may have been acquired again. Ids of a past epoch have no meaning in this
            // one.
            if state.epoch != fence.epoch {
                return Err(StoreError::Fenced { held: fence.epoch, current: state.epoch });
            }
            if submission.id.0 <= state.last {
                repeated = true;
                return Ok(());
            }
            if submission.id.0 != state.last + 1 {
                return Err(StoreError::Failed("batch out of order".into()));
            }
            self.carry_out(&submission.batch);
            state.last = submission.id.0;
            Ok(())
        })();
        if !repeated {
            self.give_back(submission.batch.reserved());
        }
        completion(result);
    }

    fn commit_here(&self, submit: &mut dyn FnMut()) -> bool {
        submit();
        true
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        if batch.has_contents() {
            return Err(StoreError::Failed("an amendment has no contents".into()));
        }
        let _others_wait = lock(&self.amending);
        let is_as_expected = |(key, value): &Expectation| {
            let space = space_of(key.as_bytes());
            let guard = self.spaces_of(space);
            let stored = guard.live.get(&space).and_then(|records| records.get(key.as_bytes()));
            stored.map(|entry| &*entry.value) == value.as_deref()
        };
        let is_expected = expected.iter().all(is_as_expected);
        if is_expected {
            self.carry_out(&batch);
        }
        Ok(is_expected)
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let mut held: Option<(u64, MutexGuard<'_, Spaces>)> = None;
        for key in keys {
            let space = space_of(key.as_bytes());
            let guard = match &mut held {
                Some((number, guard)) if *number == space => guard,
                _ => {
                    held = None;
                    &mut held.insert((space, self.spaces_of(space))).1
                }
            };
            let content = guard
                .live
                .get(&space)
                .and_then(|records| records.get(key.as_bytes()))
                .and_then(|entry| entry.content.clone());
            contents.push(content.map(ContentRef::Loaded));
        }
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        Box::new(Scan { store: self, prefix: *prefix, last: None })
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        let exists = |key: &Key| {
            let space = space_of(key.as_bytes());
            let guard = self.spaces_of(space);
            guard.live.get(&space).is_some_and(|records| records.get(key.as_bytes()).is_some())
        };
        Ok(keys.iter().map(exists).collect())
    }

    fn shortage(&self, bytes: u64) -> Option<Shortage> {
        let stored_bytes = self.stored_bytes.load(Ordering::Relaxed);
        let taken = stored_bytes.saturating_add(self.reserved_bytes.load(Ordering::Relaxed));
        let capacity_bytes = self.capacity_bytes;
        (taken.saturating_add(bytes) > capacity_bytes)
            .then_some(Shortage::Memory { stored_bytes, capacity_bytes })
    }

    fn stored_bytes(&self) -> Option<u64> {
        Some(self.stored_bytes.load(Ordering::Relaxed))
    }

    fn fork(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.forked()))
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The index: the keys of a log, and the positions of their values and contents. The whole index is
//! in memory. The writer of the log applies groups to it; pins, scans and cleaning read it.
//!
//! A record costs an [`IndexEntry`] of 24 bytes, and its share of a map. Keys that end in one byte
//! and an 8-byte number, as keys of messages do, are kept 64 to a node, and the number is not
//! stored.
//!
//! The index also keeps the account of the log: the number of records and contents of each segment
//! that are in use, and the total bytes of these. A content that several keys share counts once.

mod account;
mod space;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_record::{Key, SPACE_BYTES, space_of};

use crate::{ContentAt, IndexEntry, LogPosition, LogSegment, Op, PartPositions, Segments};
use account::{Account, SegmentCache};
use space::Space;

/// Number of locks, over which spaces are distributed.
const LOCKS: u64 = 16;

/// Number of operations after which the lock is released for others.
const OPS_PER_LOCK: usize = 1_024;

/// A content, with references that keep its segments.
pub struct Pinned<S> {
    /// Its place.
    pub content: ContentAt,
    /// The segment of the content, or of its first part.
    pub segment: Arc<S>,
    /// The parts of a large content.
    pub parts: Option<Vec<(LogPosition, Arc<S>)>>,
}

/// The keys of a log.
pub struct Index<S> {
    locks: Vec<Mutex<Spaces>>,
    contents: Mutex<Contents>,
    segments: Arc<Segments<S>>,
    used_bytes: AtomicU64,
    dropped_count: AtomicU64,
}

#[derive(Default)]
struct Spaces {
    live: BTreeMap<u64, Space>,
    /// Dropped spaces, whose records are removed in slices.
    dropped: VecDeque<(u64, Space)>,
}

/// Facts about contents that entries do not have.
#[derive(Default)]
struct Contents {
    /// Contents with more than one key, and the number of keys.
    shared: HashMap<LogPosition, u32>,
    /// Large contents by the place of their first part.
    large: HashMap<LogPosition, PartPositions>,
}

impl<S: LogSegment> Index<S> {
    /// An index without keys.
    #[must_use]
    pub fn new(segments: Arc<Segments<S>>) -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            contents: Mutex::default(),
            segments,
            used_bytes: AtomicU64::new(0),
            dropped_count: AtomicU64::new(0),
        }
    }

    /// Bytes of the records and contents in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Acquire)
    }

    fn spaces(&self, space: u64) -> MutexGuard<'_, Spaces> {
        let index = usize::try_from(space % LOCKS).unwrap_or(0);
        lock(self.locks.get(index).unwrap_or_else(|| unreachable!("index is below the count")))
    }

    /// The entry of a key.
    pub fn get(&self, key: &[u8]) -> Option<IndexEntry> {
        self.spaces(space_of(key)).live.get(&space_of(key))?.get(key)
    }

    /// The contents of these keys, in order, each with its segments. They stay readable even if the
    /// keys are removed.
    pub fn pin(&self, keys: &[Key], pinned: &mut Vec<Option<Pinned<S>>>) {
        let mut segments = SegmentCache::new(&self.segments);
        let mut held: Option<(u64, MutexGuard<'_, Spaces>)> = None;
        for key in keys {
            let space = space_of(key.as_bytes());
            let guard = match &mut held {
                Some((number, guard)) if *number == space => guard,
                _ => {
                    held = None;
                    &mut held.insert((space, self.spaces(space))).1
                }
            };
            let entry = guard.live.get(&space).and_then(|found| found.get(key.as_bytes()));
            pinned.push(entry.as_ref().and_then(IndexEntry::content_at).and_then(|content| {
                let parts = if content.is_large { Some(self.parts(content.place)?) } else { None };
                let segment = Arc::clone(segments.get(content.place.segment)?);
                Some(Pinned { content, segment, parts })
            }));
        }
    }

    /// The parts of a large content, each with its segment.
    pub fn parts(&self, place: LogPosition) -> Option<Vec<(LogPosition, Arc<S>)>> {
        let parts = lock(&self.contents).large.get(&place).map(Arc::clone)?;
        parts.iter().map(|part| Some((*part, self.segments.get(part.segment)?))).collect()
    }

    /// The places of the parts of a large content.
    pub fn part_places(&self, place: LogPosition) -> Option<PartPositions> {
        lock(&self.contents).large.get(&place).map(Arc::clone)
    }

    /// Whether more than one key refers to a content.
    pub fn is_shared(&self, place: LogPosition) -> bool {
        lock(&self.contents).shared.contains_key(&place)
    }

    /// Adds the parts of a new large content. The caller must do this before the operation that
    /// refers to it.
    pub fn add_large(&self, parts: PartPositions) {
        if let Some(first) = parts.first().copied() {
            lock(&self.contents).large.insert(first, parts);
        }
    }

    /// Applies changes of the log, in order.
    pub fn apply(&self, ops: &[Op]) {
        let mut account = Account::new(self);
        let mut held: Option<(u64, MutexGuard<'_, Spaces>)> = None;
        for (number, op) in ops.iter().enumerate() {
            if number % OPS_PER_LOCK == 0 {
                held = None;
            }
            let (Op::Put { key, .. } | Op::Delete { key } | Op::DeletePrefix { prefix: key }) = op;
            let space = space_of(key.as_bytes());
            let guard = match &mut held {
                Some((number, guard)) if *number == space => guard,
                _ => {
                    held = None;
                    &mut held.insert((space, self.spaces(space))).1
                }
            };
            match op {
                Op::Put { key, entry, content_is_new } => {
                    let old = guard.live.entry(space).or_default().insert(key.as_bytes(), *entry);
                    account.put(entry, *content_is_new, old.as_ref());
                }
                Op::Delete { key } => {
                    if let Some(found) = guard.live.get_mut(&space)
                        && let Some(old) = found.remove(key.as_bytes())
                    {
                        account.gone(&old);
                    }
                }
                Op::DeletePrefix { prefix } if prefix.as_bytes().len() <= SPACE_BYTES => {
                    if let Some(dropped) = guard.live.remove(&space) {
                        self.dropped_count.fetch_add(1, Ordering::AcqRel);
                        guard.dropped.push_back((space, dropped));
                    }
                }
                Op::DeletePrefix { prefix } => {
                    if let Some(found) = guard.live.get_mut(&space) {
                        let dropped =
                            found.remove_prefix(prefix.as_bytes(), &mut |old| account.gone(&old));
                        if let Some(dropped) = dropped {
                            self.dropped_count.fetch_add(1, Ordering::AcqRel);
                            guard.dropped.push_back((space, dropped));
                        }
                    }
                }
            }
        }
    }

    /// Removes up to `count` records of dropped spaces. Returns whether more are left.
    pub fn reap(&self, mut count: usize) -> bool {
        if self.dropped_count.load(Ordering::Acquire) == 0 {
            return false;
        }
        for spaces in &self.locks {
            let mut account = Account::new(self);
            let mut spaces = lock(spaces);
            while let Some((_, dropped)) = spaces.dropped.front_mut() {
                while count > 0 && dropped.pop(&mut |old| account.gone(&old)) {
                    count -= 1;
                }
                if count == 0 {
                    return true;
                }
                spaces.dropped.pop_front();
                self.dropped_count.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.dropped_count.load(Ordering::Acquire) > 0
    }

    /// Appends the entries with a prefix after the key `after`, ascending by key, until `page` has
    /// `limit` entries.
    pub fn page(
        &self,
        prefix: &[u8],
        after: Option<&Key>,
        limit: usize,
        page: &mut Vec<(Key, IndexEntry)>,
    ) {
        let space = space_of(prefix);
        if let Some(found) = self.spaces(space).live.get(&space) {
            found.visit(space, prefix, after, &mut |key, entry| {
                page.push((key, *entry));
                page.len() < limit
            });
        }
    }

    /// Searches up to `limit` entries for users of a segment. Returns the position to
    /// continue from, or `None` at the end.
    pub fn sweep(
        &self,
        segment: u32,
        from: SweepCursor,
        limit: usize,
        found: &mut Vec<(Key, IndexEntry)>,
    ) -> Option<SweepCursor> {
        let SweepCursor { lock: index, space, after } = from;
        let spaces = lock(self.locks.get(index)?);
        let mut seen = 0;
        let mut after = after;
        for (space, records) in spaces.live.range(space..) {
            let mut last = None;
            let prefix = Key::of_space(*space);
            records.visit(*space, prefix.as_bytes(), after.as_ref(), &mut |key, entry| {
                if self.needs(entry, segment) {
                    found.push((key, *entry));
                }
                seen += 1;
                last = Some(key);
                seen < limit
            });
            if seen >= limit {
                return Some(SweepCursor { lock: index, space: *space, after: last });
            }
            after = None;
        }
        (index + 1 < self.locks.len()).then_some(SweepCursor {
            lock: index + 1,
            space: 0,
            after: None,
        })
    }

    fn needs(&self, entry: &IndexEntry, segment: u32) -> bool {
        if entry.record.segment == segment {
            return true;
        }
        if !entry.is_large() {
            return entry.content_length().is_some() && entry.content.segment == segment;
        }
        let contents = lock(&self.contents);
        let parts = contents.large.get(&entry.content);
        parts.is_some_and(|parts| parts.iter().any(|part| part.segment == segment))
    }

    /// Counts the users of shared contents, after the whole log was read into an index in which
    /// every put counted as new content.
    fn count_shared(&self) {
        // A shared content has at least one record that refers to it without embedding it.
        let mut users: HashMap<LogPosition, u32> = HashMap::new();
        self.each(&mut |_, entry| {
            if entry.content_length().is_some() && !entry.holds_content() {
                users.insert(entry.content, 0);
            }
        });
        if users.is_empty() {
            return;
        }
        self.each(&mut |_, entry| {
            if entry.content_length().is_some()
                && let Some(count) = users.get_mut(&entry.content)
            {
                *count += 1;
            }
        });
        users.retain(|_, count| *count > 1);
        lock(&self.contents).shared = users;
    }

    /// Passes every entry to `visit`.
    pub fn each(&self, visit: &mut dyn FnMut(Key, &IndexEntry)) {
        for spaces in &self.locks {
            for (space, records) in &lock(spaces).live {
                let prefix = Key::of_space(*space);
                records.visit(*space, prefix.as_bytes(), None, &mut |key, entry| {
                    visit(key, entry);
                    true
                });
            }
        }
    }

    /// Counts the records and contents in use for every segment, after the whole log was read.
    /// Returns the number of a missing segment as an error.
    pub fn open_account(&self) -> Result<(), u32> {
        self.count_shared();
        let mut missing = None;
        let mut account = Account::new(self);
        let mut counted: HashMap<LogPosition, ()> = HashMap::new();
        let shared = std::mem::take(&mut lock(&self.contents).shared);
        self.each(&mut |_, entry| {
            if account.record(entry).is_none() {
                missing = Some(entry.record.segment);
            }
            let is_first =
                !shared.contains_key(&entry.content) || counted.insert(entry.content, ()).is_none();
            if let Some(content) = entry.content_at().filter(|_| is_first)
                && account.content(&content).is_none()
            {
                missing = Some(entry.content.segment);
            }
        });
        drop(account);
        let mut contents = lock(&self.contents);
        contents.shared = shared;
        let used = &mut HashMap::new();
        drop(contents);
        self.each(&mut |_, entry| {
            if entry.is_large() {
                used.insert(entry.content, ());
            }
        });
        lock(&self.contents).large.retain(|place, _| used.contains_key(place));
        missing.map_or(Ok(()), Err)
    }

    /// As [`Self::apply`], without counting, while the log is read.
    pub fn replay(&self, ops: &[Op]) {
        for op in ops {
            let (Op::Put { key, .. } | Op::Delete { key } | Op::DeletePrefix { prefix: key }) = op;
            let space = space_of(key.as_bytes());
            let mut spaces = self.spaces(space);
            match op {
                Op::Put { key, entry, .. } => {
                    spaces.live.entry(space).or_default().insert(key.as_bytes(), *entry);
                }
                Op::Delete { key } => {
                    if let Some(found) = spaces.live.get_mut(&space) {
                        found.remove(key.as_bytes());
                    }
                }
                Op::DeletePrefix { prefix } if prefix.as_bytes().len() <= SPACE_BYTES => {
                    spaces.live.remove(&space);
                }
                Op::DeletePrefix { prefix } => {
                    if let Some(found) = spaces.live.get_mut(&space) {
                        found.remove_prefix(prefix.as_bytes(), &mut |_| {});
                    }
                }
            }
        }
    }
}

/// Position of a sweep.
#[derive(Clone, Copy, Default, Debug)]
pub struct SweepCursor {
    lock: usize,
    space: u64,
    after: Option<Key>,
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

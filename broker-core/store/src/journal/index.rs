//! The index: the keys of the journal, and the positions of their values and contents in the log.
//! The whole index is in memory. The committer applies groups to it; pins, scans and the keeper
//! read it.
//!
//! A record costs an [`IndexEntry`] of 24 bytes, and its share of a map. Keys that end in one byte
//! and an 8-byte number, as keys of messages do, are kept 64 to a node, and the number is not
//! stored.
//!
//! The index also keeps the account of the log: the number of records and contents of each segment
//! that are in use, and the total bytes of these. A content that several keys share counts once.

mod space;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::format::{CONTENT_HEAD, LogPosition};
use super::segment::{Segment, Segments};
use crate::tail::space_of;
use crate::{Key, SPACE_BYTES};
use space::Space;

/// Number of locks, over which spaces are distributed.
const LOCKS: u64 = 16;

/// Number of operations after which the lock is released for others.
const OPS_PER_LOCK: usize = 1_024;

const NO_CONTENT: u32 = u32::MAX;
const LARGE: u32 = 1 << 31;

/// The positions of a key's record and content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexEntry {
    /// The record.
    pub(super) record: LogPosition,
    /// The content, with its checksum. For a large content, the payload of the first part.
    pub(super) content: LogPosition,
    /// Length of the content; the highest bit marks a large one.
    content_bytes: u32,
    /// Length of the record without an embedded content.
    pub(super) record_bytes: u32,
}

const _: () = assert!(size_of::<IndexEntry>() == 24, "every message has one");

/// The position of a content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ContentAt {
    pub(super) place: LogPosition,
    pub(super) length: u32,
    pub(super) is_large: bool,
}

impl IndexEntry {
    pub(super) fn new(record: LogPosition, record_bytes: u32, content: Option<ContentAt>) -> Self {
        let content_bytes = content.map_or(NO_CONTENT, |content| {
            content.length | if content.is_large { LARGE } else { 0 }
        });
        let content = content.map(|content| content.place).unwrap_or_default();
        Self { record, content, content_bytes, record_bytes }
    }

    pub(super) const fn content_length(&self) -> Option<u32> {
        if self.content_bytes == NO_CONTENT { None } else { Some(self.content_bytes & !LARGE) }
    }

    pub(super) const fn is_large(&self) -> bool {
        self.content_bytes != NO_CONTENT && self.content_bytes & LARGE != 0
    }

    pub(super) fn content_at(&self) -> Option<ContentAt> {
        let length = self.content_length()?;
        Some(ContentAt { place: self.content, length, is_large: self.is_large() })
    }

    /// Whether the content is embedded in the record.
    pub(super) fn holds_content(&self) -> bool {
        let LogPosition { segment, offset } = self.record;
        let embedded = LogPosition { segment, offset: offset.saturating_add(self.record_bytes) };
        self.content_length().is_some() && !self.is_large() && self.content == embedded
    }
}

/// A change of the log, to apply to the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// The key has a new record. Its content is new, or belongs to another record.
    Put { key: Key, entry: IndexEntry, content_is_new: bool },
    /// The key is removed.
    Delete { key: Key },
    /// All keys with this prefix are removed.
    DeletePrefix { prefix: Key },
}

impl Op {
    /// Whether the change affects the key.
    pub(super) fn concerns(&self, key: &Key) -> bool {
        match self {
            Self::Put { key: other, .. } | Self::Delete { key: other } => other == key,
            Self::DeletePrefix { prefix } => key.as_bytes().starts_with(prefix.as_bytes()),
        }
    }
}

/// A content, with references that keep its segments.
pub(super) struct Pinned {
    pub(super) content: ContentAt,
    pub(super) segment: Arc<Segment>,
    /// The parts of a large content.
    pub(super) parts: Option<Vec<(LogPosition, Arc<Segment>)>>,
}

/// The places of the part payloads of a large content.
pub(super) type PartPositions = Arc<[LogPosition]>;

/// The keys of the journal.
pub(super) struct Index {
    locks: Vec<Mutex<Spaces>>,
    contents: Mutex<Contents>,
    segments: Arc<Segments>,
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

impl Index {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            contents: Mutex::default(),
            segments,
            used_bytes: AtomicU64::new(0),
            dropped_count: AtomicU64::new(0),
        }
    }

    /// Bytes of the records and contents in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Acquire)
    }

    fn spaces(&self, space: u64) -> MutexGuard<'_, Spaces> {
        let index = usize::try_from(space % LOCKS).unwrap_or(0);
        lock(self.locks.get(index).unwrap_or_else(|| unreachable!("index is below the count")))
    }

    /// The entry of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<IndexEntry> {
        self.spaces(space_of(key)).live.get(&space_of(key))?.get(key)
    }

    /// The contents of these keys, in order, each with its segments. They stay readable even if the
    /// keys are removed.
    pub(super) fn pin(&self, keys: &[Key], pinned: &mut Vec<Option<Pinned>>) {
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
    pub(super) fn parts(&self, place: LogPosition) -> Option<Vec<(LogPosition, Arc<Segment>)>> {
        let parts = lock(&self.contents).large.get(&place).map(Arc::clone)?;
        parts.iter().map(|part| Some((*part, self.segments.get(part.segment)?))).collect()
    }

    /// The places of the parts of a large content.
    pub(super) fn part_places(&self, place: LogPosition) -> Option<PartPositions> {
        lock(&self.contents).large.get(&place).map(Arc::clone)
    }

    /// Whether more than one key refers to a content.
    pub(super) fn is_shared(&self, place: LogPosition) -> bool {
        lock(&self.contents).shared.contains_key(&place)
    }

    /// Adds the parts of a new large content. The caller must do this before the operation that
    /// refers to it.
    pub(super) fn add_large(&self, parts: PartPositions) {
        if let Some(first) = parts.first().copied() {
            lock(&self.contents).large.insert(first, parts);
        }
    }

    /// Applies changes of the log, in order.
    pub(super) fn apply(&self, ops: &[Op]) {
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
    pub(super) fn reap(&self, mut count: usize) -> bool {
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
    pub(super) fn page(
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
    pub(super) fn sweep(
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
    pub(super) fn count_shared(&self) {
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
    pub(super) fn each(&self, visit: &mut dyn FnMut(Key, &IndexEntry)) {
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
    pub(super) fn open_account(&self) -> Result<(), u32> {
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

    /// As [`Index::apply`], without counting, while the log is read.
    pub(super) fn replay(&self, ops: &[Op]) {
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
pub(super) struct SweepCursor {
    lock: usize,
    space: u64,
    after: Option<Key>,
}

/// Keeps the account while entries change.
struct Account<'a> {
    index: &'a Index,
    segments: SegmentCache<'a>,
    added: u64,
    freed: u64,
}

impl<'a> Account<'a> {
    fn new(index: &'a Index) -> Self {
        Self { index, segments: SegmentCache::new(&index.segments), added: 0, freed: 0 }
    }

    /// Counts a record as in use.
    fn record(&mut self, entry: &IndexEntry) -> Option<()> {
        self.added += u64::from(entry.record_bytes);
        self.segments.get(entry.record.segment)?.add_use();
        Some(())
    }

    /// Counts a content as in use, which was not in use before.
    fn content(&mut self, content: &ContentAt) -> Option<()> {
        self.added += CONTENT_HEAD as u64 + u64::from(content.length);
        if !content.is_large {
            self.segments.get(content.place.segment)?.add_use();
            return Some(());
        }
        let parts = lock(&self.index.contents).large.get(&content.place).map(Arc::clone)?;
        for part in parts.iter() {
            self.segments.get(part.segment)?.add_use();
        }
        Some(())
    }

    fn put(&mut self, entry: &IndexEntry, is_new: bool, old: Option<&IndexEntry>) {
        debug_assert!(
            self.segments.get(entry.record.segment).is_none_or(|segment| !segment.is_sealed()),
            "the index judged the content of a sealed segment without this record"
        );
        self.record(entry);
        let content = entry.content_at();
        let kept = old.and_then(IndexEntry::content_at).filter(|_| !is_new);
        let is_kept = content.is_some() && kept == content;
        if let Some(content) = content.filter(|_| !is_kept) {
            if is_new {
                self.content(&content);
            } else {
                let mut contents = lock(&self.index.contents);
                *contents.shared.entry(content.place).or_insert(1) += 1;
            }
        }
        if let Some(old) = old {
            self.freed += u64::from(old.record_bytes);
            if let Some(segment) = self.segments.get(old.record.segment) {
                segment.end_use();
            }
            if let Some(content) = old.content_at().filter(|_| !is_kept) {
                self.drop_content(&content);
            }
        }
    }

    fn gone(&mut self, old: &IndexEntry) {
        self.freed += u64::from(old.record_bytes);
        if let Some(segment) = self.segments.get(old.record.segment) {
            segment.end_use();
        }
        if let Some(content) = old.content_at() {
            self.drop_content(&content);
        }
    }

    fn drop_content(&mut self, content: &ContentAt) {
        let mut contents = lock(&self.index.contents);
        if let Some(count) = contents.shared.get_mut(&content.place) {
            *count -= 1;
            if *count <= 1 {
                contents.shared.remove(&content.place);
            }
            return;
        }
        self.freed += CONTENT_HEAD as u64 + u64::from(content.length);
        if !content.is_large {
            drop(contents);
            if let Some(segment) = self.segments.get(content.place.segment) {
                segment.end_use();
            }
            return;
        }
        let parts = contents.large.remove(&content.place);
        drop(contents);
        for part in parts.iter().flat_map(|parts| parts.iter()) {
            if let Some(segment) = self.segments.get(part.segment) {
                segment.end_use();
            }
        }
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        self.index.used_bytes.fetch_add(self.added, Ordering::AcqRel);
        self.index.used_bytes.fetch_sub(self.freed, Ordering::AcqRel);
    }
}

/// Remembers the last two segments: most look-ups are for these two.
struct SegmentCache<'a> {
    segments: &'a Segments,
    last: [Option<Arc<Segment>>; 2],
    next: usize,
}

impl<'a> SegmentCache<'a> {
    const fn new(segments: &'a Segments) -> Self {
        Self { segments, last: [None, None], next: 0 }
    }

    fn get(&mut self, number: u32) -> Option<&Arc<Segment>> {
        let is_it = |one: &Option<Arc<Segment>>| {
            one.as_ref().is_some_and(|segment| segment.number() == number)
        };
        let place = match self.last.iter().position(is_it) {
            Some(place) => place,
            None => {
                let place = self.next;
                self.next = 1 - self.next;
                *self.last.get_mut(place)? = Some(self.segments.get(number)?);
                place
            }
        };
        self.last.get(place)?.as_ref()
    }
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The segments of a log, and the number of their records in use. Stores add their own facts about
//! a segment, such as its file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// A segment of a store.
pub trait LogSegment: Send + Sync {
    /// Its part that all stores share.
    fn state(&self) -> &SegmentState;

    /// Its number; one more than its predecessor's.
    fn number(&self) -> u32 {
        self.state().number
    }

    /// End of its records; no position at or after it is part of the log.
    fn end(&self) -> u64 {
        self.state().end.load(Ordering::Acquire)
    }

    /// Sets the end.
    fn set_end(&self, end: u64) {
        self.state().end.store(end, Ordering::Release);
    }

    /// Whether nothing more is appended.
    fn is_sealed(&self) -> bool {
        self.state().sealed.load(Ordering::Acquire)
    }

    /// Ends the segment: nothing more is appended.
    fn seal(&self) {
        self.state().sealed.store(true, Ordering::Release);
    }

    /// Number of records and contents in use.
    fn uses(&self) -> u64 {
        self.state().uses.load(Ordering::Acquire)
    }

    /// Counts a record or content as in use. The segment stays while it has one.
    fn add_use(&self) {
        self.state().uses.fetch_add(1, Ordering::AcqRel);
    }

    /// Reverses one [`Self::add_use`].
    fn end_use(&self) {
        self.state().uses.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The part of a segment that all stores share.
#[derive(Debug)]
pub struct SegmentState {
    number: u32,
    end: AtomicU64,
    sealed: AtomicBool,
    uses: AtomicU64,
}

impl SegmentState {
    /// The state of a segment without records in use.
    #[must_use]
    pub const fn new(number: u32, end: u64) -> Self {
        let (sealed, uses) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { number, end: AtomicU64::new(end), sealed, uses }
    }
}

/// All existing segments, by number.
#[derive(Debug)]
pub struct Segments<S> {
    map: RwLock<BTreeMap<u32, Arc<S>>>,
}

impl<S> Default for Segments<S> {
    fn default() -> Self {
        Self { map: RwLock::default() }
    }
}

impl<S: LogSegment> Segments<S> {
    /// The segment with this number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<Arc<S>> {
        self.read().get(&number).map(Arc::clone)
    }

    /// Adds a segment.
    pub fn insert(&self, segment: Arc<S>) {
        let number = segment.number();
        self.map.write().unwrap_or_else(PoisonError::into_inner).insert(number, segment);
    }

    /// Removes a segment.
    pub fn remove(&self, number: u32) -> Option<Arc<S>> {
        self.map.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// The oldest segment.
    #[must_use]
    pub fn oldest(&self) -> Option<Arc<S>> {
        self.read().first_key_value().map(|(_, segment)| Arc::clone(segment))
    }

    /// All segments, ascending by number.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<S>> {
        self.read().values().map(Arc::clone).collect()
    }

    /// Number of segments.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u32, Arc<S>>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }
}

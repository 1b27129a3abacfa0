//! Room: the bytes that the journal can still accept, and the callers that wait for more (DESIGN
//! D11).
//!
//! Sends reserve room before they are applied. They are refused as Busy while many bytes are not
//! stored yet, and as Full when the journal has reached its capacity or the disk its minimum of
//! free space. Settlements and expiry reserve nothing. They use the minimum of free space, which
//! keeps segments free for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::segment::Index;
use crate::{Reserved, Shortage, Waker};

/// Maximum bytes that are reserved and not stored yet, in all shards together. It is more than
/// twice the size of the largest message: a large message fits as soon as less than half of these
/// bytes are reserved, even if small messages keep coming.
pub(super) const BUSY_BYTES: u64 = 256 << 20;
/// Maximum number of wakers. A caller refused beyond it must retry.
const WAITING_MAX: usize = 1_024;

/// The account of reservations.
pub(super) struct Room {
    index: Arc<Index>,
    /// Directory of the journal, for errors.
    directory: Option<Arc<str>>,
    capacity_bytes: u64,
    free_bytes_min: u64,
    reserved: AtomicU64,
    /// Free bytes of the disk at the last check, with the bytes that segments have allocated and
    /// not used.
    free: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Room {
    pub(super) fn new(
        index: Arc<Index>,
        directory: Option<Arc<str>>,
        capacity_bytes: u64,
        free_bytes_min: u64,
    ) -> Self {
        Self {
            index,
            directory,
            capacity_bytes,
            free_bytes_min,
            reserved: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn reserve(&self, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        let before = self.reserved.fetch_add(bytes, Ordering::AcqRel);
        let refusal = self.refusal(before, bytes);
        let Some(refusal) = refusal else { return Reserved::Granted };
        self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        let mut waiting = self.waiting();
        // Room may have been freed before this caller was on the list, and then no waker would be
        // called.
        let before = self.reserved.fetch_add(bytes, Ordering::AcqRel);
        if self.refusal(before, bytes).is_none() {
            return Reserved::Granted;
        }
        self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        if waiting.len() < WAITING_MAX {
            waiting.push(waker());
        }
        refusal
    }

    fn refusal(&self, before: u64, bytes: u64) -> Option<Reserved> {
        let wanted = before.saturating_add(bytes);
        if self.index.used_bytes().saturating_add(wanted) > self.capacity_bytes
            || self.free.load(Ordering::Acquire) < self.free_bytes_min.saturating_add(wanted)
        {
            return Some(Reserved::Full);
        }
        // A single larger reservation passes if there is no other.
        (before > 0 && wanted > BUSY_BYTES).then_some(Reserved::Busy)
    }

    pub(super) fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            let before = self.reserved.fetch_sub(bytes, Ordering::AcqRel);
            debug_assert!(before >= bytes, "more space is returned than was granted");
            self.wake();
        }
    }

    /// Records the free bytes of the disk.
    pub(super) fn set_free(&self, bytes: u64) {
        let before = self.free.swap(bytes, Ordering::AcqRel);
        if bytes > before {
            self.wake();
        }
    }

    /// The reason why a message of `bytes` bytes would be refused now, if it would be.
    pub(super) fn shortage(&self, bytes: u64) -> Option<Shortage> {
        let wanted = self.reserved.load(Ordering::Acquire).saturating_add(bytes);
        let (free_bytes, free_bytes_min) = (self.free.load(Ordering::Acquire), self.free_bytes_min);
        let (stored_bytes, capacity_bytes) = (self.index.used_bytes(), self.capacity_bytes);
        let directory = self.directory.clone();
        if free_bytes < free_bytes_min.saturating_add(wanted) {
            return Some(Shortage::Disk { directory, free_bytes, free_bytes_min });
        }
        (stored_bytes.saturating_add(wanted) > capacity_bytes).then_some(Shortage::Capacity {
            directory,
            stored_bytes,
            capacity_bytes,
        })
    }

    /// Bytes of the disk that must stay free.
    pub(super) const fn free_bytes_min(&self) -> u64 {
        self.free_bytes_min
    }

    /// Whether space is so short that reclaiming garbage is worth more work than usual.
    pub(super) fn is_tight(&self) -> bool {
        let wanted = self.reserved.load(Ordering::Acquire);
        self.free.load(Ordering::Acquire) < self.free_bytes_min.saturating_add(wanted)
            || self.index.used_bytes().saturating_add(wanted) > self.capacity_bytes
    }

    /// Calls all wakers; refused callers try again.
    pub(super) fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        for waker in waiting {
            waker();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

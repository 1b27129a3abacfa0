//! Room: the bytes that the journal can still accept, and the callers that wait for more (DESIGN
//! D11).
//!
//! Sends reserve room before they are applied. They are refused as Busy while many bytes are not
//! stored yet, and as Full when the journal has reached its capacity or the disk its minimum of
//! free space. Settlements and expiry reserve nothing. They use the minimum of free space, which
//! keeps segments free for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_store_log::Reservations;

use super::segment::Index;
use crate::{Reserved, Shortage, Waker};

/// The account of reservations.
pub(super) struct Room {
    index: Arc<Index>,
    /// Directory of the journal, for errors.
    directory: Option<Arc<str>>,
    capacity_bytes: u64,
    free_bytes_min: u64,
    reservations: Reservations,
    /// Free bytes of the disk at the last check, with the bytes that segments have allocated and
    /// not used.
    free: AtomicU64,
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
            reservations: Reservations::default(),
            free: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn reserve(&self, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.reservations.reserve(bytes, waker, |wanted| self.is_full(wanted))
    }

    fn is_full(&self, wanted: u64) -> bool {
        self.index.used_bytes().saturating_add(wanted) > self.capacity_bytes
            || self.free.load(Ordering::Acquire) < self.free_bytes_min.saturating_add(wanted)
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.reservations.give_back(bytes);
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
        let wanted = self.reservations.bytes().saturating_add(bytes);
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
        self.is_full(self.reservations.bytes())
    }

    /// Calls all wakers; refused callers try again.
    pub(super) fn wake(&self) {
        self.reservations.wake();
    }
}

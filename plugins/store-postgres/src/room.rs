//! Room: the bytes that the store accepts, and the callers that wait for more.
//!
//! Sends reserve room before they are applied. They are refused as Busy while many bytes are not
//! stored yet, such as during an outage, and as Full above the capacity or while the disk of the
//! database is full (CLU-11). Settlements and expiry reserve nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_store::{Reserved, Shortage, Waker};

use crate::leaf::LeafIndex;

/// Maximum bytes that are reserved and not stored yet, in all shards together.
pub const UNSTORED_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of wakers. A caller refused beyond it must retry.
const WAITING_MAX: usize = 1_024;

/// The account of reservations.
pub struct Room {
    indexes: Vec<Arc<LeafIndex>>,
    capacity_bytes: u64,
    reserved: AtomicU64,
    /// Whether the database reported that its disk is full.
    disk_is_full: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Room {
    pub fn new(indexes: Vec<Arc<LeafIndex>>, capacity_bytes: u64) -> Self {
        Self {
            indexes,
            capacity_bytes,
            reserved: AtomicU64::new(0),
            disk_is_full: AtomicBool::new(false),
            waiting: Mutex::default(),
        }
    }

    /// Bytes of all records and contents in use.
    pub fn used_bytes(&self) -> u64 {
        self.indexes.iter().map(|index| index.used_bytes()).sum()
    }

    /// Whether space is so short that reclaiming garbage is worth more work than usual.
    pub fn is_tight(&self) -> bool {
        self.disk_is_full.load(Ordering::Acquire)
    }

    pub fn reserve(&self, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        if self.try_reserve(bytes).is_none() {
            return Reserved::Granted;
        }
        let mut waiting = self.waiting();
        // Room may have been freed before this caller was on the list, and then no waker would be
        // called.
        let Some(refusal) = self.try_reserve(bytes) else { return Reserved::Granted };
        if waiting.len() < WAITING_MAX {
            waiting.push(waker());
        }
        refusal
    }

    fn try_reserve(&self, bytes: u64) -> Option<Reserved> {
        let before = self.reserved.fetch_add(bytes, Ordering::AcqRel);
        let wanted = before.saturating_add(bytes);
        let refusal = if self.disk_is_full.load(Ordering::Acquire)
            || self.used_bytes().saturating_add(wanted) > self.capacity_bytes
        {
            Some(Reserved::Full)
        } else {
            // A single larger reservation passes if there is no other.
            (before > 0 && wanted > UNSTORED_BYTES_MAX).then_some(Reserved::Busy)
        };
        if refusal.is_some() {
            self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        }
        refusal
    }

    pub fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            let before = self.reserved.fetch_sub(bytes, Ordering::AcqRel);
            debug_assert!(before >= bytes, "more space is returned than was granted");
        }
        self.wake();
    }

    /// Records whether the disk of the database is full.
    pub fn set_disk_full(&self, is_full: bool) {
        if self.disk_is_full.swap(is_full, Ordering::AcqRel) == is_full {
            return;
        }
        if is_full {
            tracing::warn!(
                "new messages are refused, everything else continues: the disk of the database is \
                 full; free space on it"
            );
        } else {
            tracing::info!("the database has space again; new messages are accepted");
            self.wake();
        }
    }

    /// The reason why a message of `bytes` bytes would be refused now, if it would be.
    pub fn shortage(&self, bytes: u64) -> Option<Shortage> {
        if self.disk_is_full.load(Ordering::Acquire) {
            return Some(Shortage::DatabaseDisk);
        }
        let wanted = self.reserved.load(Ordering::Acquire).saturating_add(bytes);
        let (stored_bytes, capacity_bytes) = (self.used_bytes(), self.capacity_bytes);
        (stored_bytes.saturating_add(wanted) > capacity_bytes)
            .then_some(Shortage::Database { stored_bytes, capacity_bytes })
    }

    /// Calls all wakers; refused callers try again.
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        for waker in waiting {
            waker();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

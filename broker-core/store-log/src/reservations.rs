//! Reservations of bytes that are not stored yet, and the callers that wait for more.
//!
//! A store decides when it is full. Until then, reservations are limited together, so that batches
//! do not pile up in memory, for example during an outage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use peeklock_record::Reserved;

/// Called once when a refused reservation may succeed. Must not block.
type Waker = Box<dyn FnOnce() + Send>;

/// Maximum bytes that are reserved and not stored yet, in all shards together. It is more than
/// twice the size of the largest message: a large message fits as soon as less than half of these
/// bytes are reserved, even if small messages keep coming.
pub const UNSTORED_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of wakers. A caller refused beyond it must retry.
const WAITING_MAX: usize = 1_024;

/// The reservations of a store.
#[derive(Default)]
pub struct Reservations {
    bytes: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Reservations {
    /// Bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Reserves bytes, or says why not. A refused caller makes a waker, which is called when there
    /// may be room again. `is_full` gets all bytes that would be reserved.
    pub fn reserve(
        &self,
        bytes: u64,
        waker: &dyn Fn() -> Waker,
        is_full: impl Fn(u64) -> bool,
    ) -> Reserved {
        if self.try_reserve(bytes, &is_full).is_none() {
            return Reserved::Granted;
        }
        let mut waiting = self.waiting();
        // Room may have been freed before this caller was on the list, and then no waker would be
        // called.
        let Some(refusal) = self.try_reserve(bytes, &is_full) else { return Reserved::Granted };
        if waiting.len() < WAITING_MAX {
            waiting.push(waker());
        }
        refusal
    }

    fn try_reserve(&self, bytes: u64, is_full: &impl Fn(u64) -> bool) -> Option<Reserved> {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let wanted = before.saturating_add(bytes);
        let refusal = if is_full(wanted) {
            Some(Reserved::Full)
        } else {
            // A single larger reservation passes if there is no other.
            (before > 0 && wanted > UNSTORED_BYTES_MAX).then_some(Reserved::Busy)
        };
        if refusal.is_some() {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        refusal
    }

    /// Ends a reservation.
    pub fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            debug_assert!(before >= bytes, "more space is returned than was granted");
            self.wake();
        }
    }

    /// Calls all wakers; refused callers try again.
    pub fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        for waker in waiting {
            waker();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

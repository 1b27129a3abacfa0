//! Free bytes of a pool, and bytes of a share: counted without a lock while no request waits.
//!
//! A waiter first marks the pool as short, and then looks whether there is enough. A release first adds its bytes, and
//! then looks whether the pool is short. One of the two sees the other, so no request waits for free bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Bytes of a pool that no share holds.
#[derive(Debug)]
pub(super) struct Free {
    bytes: AtomicU64,
    /// Whether a request waits, or an evicted share has not released its bytes yet: then the order
    /// decides.
    is_short: AtomicBool,
}

impl Free {
    pub(super) const fn new(bytes: u64) -> Self {
        Self { bytes: AtomicU64::new(bytes), is_short: AtomicBool::new(false) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(SeqCst)
    }

    pub(super) fn mark_short(&self, is_short: bool) {
        self.is_short.store(is_short, SeqCst);
    }

    /// Takes bytes, if there are enough and the pool is not short.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        !self.is_short() && self.take(bytes)
    }

    /// Takes bytes for the first in order, if there are enough.
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.bytes.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(bytes)).is_ok()
    }

    /// Adds released bytes. Returns whether the pool is short, so that they must be handed on.
    pub(super) fn release(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, SeqCst);
        self.is_short()
    }
}

/// Bytes that one share holds.
#[derive(Debug, Default)]
pub(super) struct Holding(AtomicU64);

impl Holding {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(SeqCst)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, SeqCst);
    }

    pub(super) fn subtract(&self, bytes: u64) {
        // There are always enough; if there were not, no bytes may come out of nothing.
        let _before = self.0.fetch_update(SeqCst, SeqCst, |held| Some(held.saturating_sub(bytes)));
    }

    pub(super) fn take_all(&self) -> u64 {
        self.0.swap(0, SeqCst)
    }
}

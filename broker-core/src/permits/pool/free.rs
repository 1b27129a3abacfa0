//! What is free, and what one holds: counted without a lock, as long as nobody waits.
//!
//! Who begins to wait says first that room is short and looks then whether there is enough; who gives back does so first
//! and looks then whether room is short. One of the two sees the other, so nobody waits for what is free.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// What of a pool nobody has.
#[derive(Debug)]
pub(super) struct Free {
    bytes: AtomicU64,
    /// Whether somebody waits, or has been told to yield and has not done it yet: then the order decides.
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

    pub(super) fn say_short(&self, is_short: bool) {
        self.is_short.store(is_short, SeqCst);
    }

    /// Takes so much, if it is there and room is not short.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        !self.is_short() && self.take(bytes)
    }

    /// Takes so much if it is there, for who is first.
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.bytes.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(bytes)).is_ok()
    }

    /// Takes it back; whether room is short, and it is to be handed on.
    pub(super) fn give(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, SeqCst);
        self.is_short()
    }
}

/// What is held at one place.
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
        // There is always so much; if there were not, room must not grow out of nothing.
        let _before = self.0.fetch_update(SeqCst, SeqCst, |held| Some(held.saturating_sub(bytes)));
    }

    pub(super) fn take_all(&self) -> u64 {
        self.0.swap(0, SeqCst)
    }
}

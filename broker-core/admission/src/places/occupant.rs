//! A connection as the others at its listener see it: whether it may be evicted, and whether it
//! was. `idle.rs` and `crowd.rs` choose among occupants. A connection is evicted at most once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A connection with a place. It gives its place to one other connection at most. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Occupant(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Time of its latest request, in milliseconds of the crowd.
    last_request_ms: AtomicU64,
    /// Whether it has shown a key that is good.
    shows_key: AtomicBool,
    /// Whether its place was given to another.
    is_claimed: AtomicBool,
    /// Whether it must end for that.
    is_evicted: AtomicBool,
    /// The task to wake when it is evicted.
    waker: Mutex<Option<Waker>>,
}

impl Occupant {
    pub(super) fn asking_at(ms: u64) -> Self {
        let occupant = Self::default();
        occupant.set_asked_at(ms);
        occupant
    }

    /// Gives its place to another connection, without a notice to it. False if another has the place already.
    #[must_use]
    pub fn claim(&self) -> bool {
        !self.0.is_claimed.swap(true, Ordering::Relaxed)
    }

    /// Whether its place was given to another connection, so that it has to end.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.0.is_claimed.load(Ordering::Relaxed)
    }

    /// Evicts it. False if another has its place already.
    pub(super) fn evict(&self) -> bool {
        if !self.claim() {
            return false;
        }
        self.0.is_evicted.store(true, Ordering::Relaxed);
        self.wake();
        true
    }

    pub(super) fn wake(&self) {
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when it is evicted. Wakes the task that polled last.
    pub fn poll_evicted(&self, context: &Context<'_>) -> Poll<()> {
        // First, so that an eviction from now on wakes it.
        let mut waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        match self.0.is_evicted.load(Ordering::Relaxed) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Whether it can be evicted for a client with a key.
    pub(super) fn may_go(&self) -> bool {
        !self.shows_key() && !self.is_claimed()
    }

    pub(super) fn last_request_ms(&self) -> u64 {
        self.0.last_request_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_asked_at(&self, ms: u64) {
        self.0.last_request_ms.store(ms, Ordering::Relaxed);
    }

    pub(super) fn shows_key(&self) -> bool {
        self.0.shows_key.load(Ordering::Relaxed)
    }

    /// Records whether it has shown a good key. Returns whether that was so before.
    pub(super) fn set_shows_key(&self, is_good: bool) -> bool {
        self.0.shows_key.swap(is_good, Ordering::Relaxed)
    }
}

//! Guard of a transfer: when all guards of a source are dropped, its messages can no longer be
//! changed by a transfer.
//!
//! ```text
//!   list ──► waits in the inlet ──claim──► staged, submitted ──► stored or failed ─────────► guard
//!                 │                                                                        dropped
//!                 └── the source has ended meanwhile: refused, it will never be applied
//! ```
//!
//! A claimed list depends only on the store, never on another entity. So waiting for it ends, even
//! if entities forward in a circle and all of them have failed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Admission;
use crate::command::Outcome;
use crate::error::Rejection;
use crate::request::{Outlet, Released};

/// Counts the claimed lists that a source has sent since it was last opened. A source that is
/// opened again gets a new count.
#[derive(Default)]
pub struct TransferClaims {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    claimed: usize,
    when_clear: Option<Box<dyn FnOnce() + Send>>,
}

/// End of a list, when no part is on its way any more; `None` if the destination gave no answer.
pub type TransferEnd = Option<Result<Vec<Admission>, Rejection>>;

/// Callback for the end of a list. Called once, on any thread; must not block.
pub type EndCallback = Box<dyn FnOnce(TransferEnd) + Send>;

/// Right to take one list over. It travels with the list.
#[derive(Clone)]
pub struct TransferClaim {
    claims: Arc<TransferClaims>,
    answer_slot: Arc<AnswerSlot>,
}

/// Held from the moment a destination takes a list over until its batch is stored or has
/// permanently failed.
pub struct TransferGuard {
    claims: Arc<TransferClaims>,
    _answer_slot: Arc<AnswerSlot>,
}

/// Slot of the answer. Calls back when its last reference is dropped: the request, the answer that
/// waits for its commit, and the guard.
struct AnswerSlot {
    answer: Mutex<TransferEnd>,
    ended: Mutex<Option<EndCallback>>,
}

impl TransferClaims {
    /// Opens the claim on a list.
    #[must_use]
    pub fn open(self: &Arc<Self>, ended: EndCallback) -> TransferClaim {
        let answer_slot = AnswerSlot { answer: Mutex::new(None), ended: Mutex::new(Some(ended)) };
        TransferClaim { claims: Arc::clone(self), answer_slot: Arc::new(answer_slot) }
    }

    /// Ends the source: its lists can no longer be claimed. Calls back once when every guard is
    /// dropped, at once if there is none.
    pub fn close(&self, when_clear: Box<dyn FnOnce() + Send>) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        if state.claimed > 0 {
            state.when_clear = Some(when_clear);
            return;
        }
        drop(state);
        when_clear();
    }
}

impl TransferClaim {
    /// Claims the list for the destination that applies it now; `None` if its source has ended.
    #[must_use]
    pub fn take_guard(&self) -> Option<TransferGuard> {
        let mut state = lock(&self.claims.state);
        if state.is_closed {
            return None;
        }
        state.claimed += 1;
        drop(state);
        Some(TransferGuard {
            claims: Arc::clone(&self.claims),
            _answer_slot: Arc::clone(&self.answer_slot),
        })
    }

    /// Outlet for the answer.
    #[must_use]
    pub fn outlet(&self) -> Arc<dyn Outlet> {
        Arc::clone(&self.answer_slot) as Arc<dyn Outlet>
    }
}

impl fmt::Debug for TransferClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransferClaim")
    }
}

impl Drop for TransferGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.claims.state);
        state.claimed = state.claimed.saturating_sub(1);
        let when_clear = if state.claimed == 0 { state.when_clear.take() } else { None };
        drop(state);
        if let Some(when_clear) = when_clear {
            when_clear();
        }
    }
}

impl Outlet for AnswerSlot {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            if let Released::Answer { result, .. } = item {
                let answer = result.map(|outcome| match outcome {
                    Outcome::Admitted(admissions) => admissions,
                    _ => Vec::new(),
                });
                lock(&self.answer).get_or_insert(answer);
            }
        }
    }
}

impl Drop for AnswerSlot {
    fn drop(&mut self) {
        let answer = lock(&self.answer).take();
        let ended = lock(&self.ended).take();
        if let Some(ended) = ended {
            ended(answer);
        }
    }
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counter() -> (Arc<AtomicUsize>, impl Fn() + Clone + Send + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        (count, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// FND-03: a source that ends waits for claimed lists, and no list can be claimed afterwards.
    #[test]
    fn a_closed_source_is_clear_when_the_last_guard_is_back() {
        let claims = Arc::new(TransferClaims::default());
        let (first, second) = (claims.open(Box::new(|_| {})), claims.open(Box::new(|_| {})));
        let guard = first.take_guard().unwrap();
        let (clear, call) = counter();
        claims.close(Box::new(call));
        assert_eq!(clear.load(Ordering::Relaxed), 0);
        assert!(second.take_guard().is_none());
        drop(guard);
        assert_eq!(clear.load(Ordering::Relaxed), 1);
    }

    /// FND-03: the end of a list is reported after its answer and its guard, not before.
    #[test]
    fn a_list_ends_with_its_last_holder() {
        let claims = Arc::new(TransferClaims::default());
        let (ended, call) = counter();
        let claim = claims.open(Box::new(move |end| {
            assert!(matches!(end, Some(Ok(admissions)) if admissions.is_empty()));
            call();
        }));
        let guard = claim.take_guard().unwrap();
        let result = Ok(Outcome::Admitted(Vec::new()));
        claim.outlet().release(vec![Released::Answer { correlation: 0, result }]);
        drop(claim);
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(guard);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }
}

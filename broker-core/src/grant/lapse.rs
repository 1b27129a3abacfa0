//! Ends in time what was granted for a time (SEC-15). One timer for a whole broker, armed at the earliest end
//! of a grant under which something is open; an epoch that is raised wakes it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::entitlement::Entitlement;
use crate::clock::Clock;
use crate::contract::epoch::Bell;
use crate::time::Timestamp;

/// The grants of a broker that can end while something is open under them. Bounded by what is open.
#[derive(Default)]
pub struct Lapses {
    pub(crate) bell: Arc<Bell>,
    keys: AtomicU64,
    registered: Mutex<Registered>,
}

#[derive(Default)]
struct Registered {
    all: HashMap<u64, (Option<Timestamp>, Weak<Entitlement>)>,
    by_end: BTreeSet<(Timestamp, u64)>,
}

impl Registered {
    fn remove(&mut self, key: u64) {
        if let Some((Some(until), _)) = self.all.remove(&key) {
            self.by_end.remove(&(until, key));
        }
    }
}

impl Lapses {
    pub(super) fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after the end of a grant.
    pub(super) fn register(&self, held: &Arc<Entitlement>) {
        let mut registered = self.lock();
        // Read under the lock: whoever registers last has seen the newest grant.
        let until = held.end();
        registered.remove(held.key);
        registered.all.insert(held.key, (until, Arc::downgrade(held)));
        if let Some(until) = until {
            registered.by_end.insert((until, held.key));
        }
        let is_first = registered.by_end.first().is_some_and(|(_, key)| *key == held.key);
        drop(registered);
        if is_first {
            self.bell.knock();
        }
        // Its epoch may have been raised before it was there to be found.
        if let Some(reason) = held.withdrawal() {
            held.close(&reason);
        }
    }

    pub(super) fn forget(&self, key: u64) {
        self.lock().remove(key);
    }

    /// Ends what is over, and goes on until the broker ends.
    pub(crate) async fn run(&self, clock: &dyn Clock) {
        let mut seen = 0;
        loop {
            let count = self.bell.count();
            if count != seen {
                seen = count;
                self.end_what_was_withdrawn();
            }
            let next = self.end_what_has_expired(clock.now());
            match next {
                Some(until) => tokio::select! {
                    () = self.bell.rung() => {}
                    () = clock.sleep_until(until) => {}
                },
                None => self.bell.rung().await,
            }
        }
    }

    /// Ends what rested on an epoch that was raised.
    fn end_what_was_withdrawn(&self) {
        // Looked at without the lock, which the last one that lets go of a grant takes.
        let all: Vec<Arc<Entitlement>> =
            self.lock().all.values().filter_map(|(_, held)| held.upgrade()).collect();
        for held in all {
            if let Some(reason) = held.withdrawal() {
                held.close(&reason);
            }
        }
    }

    /// Ends what was granted up to now; returns when the next one ends.
    fn end_what_has_expired(&self, now: Timestamp) -> Option<Timestamp> {
        loop {
            let mut registered = self.lock();
            let (until, key) = *registered.by_end.first()?;
            if until > now {
                return Some(until);
            }
            let held = registered.all.get(&key).and_then(|(_, held)| held.upgrade());
            registered.remove(key);
            drop(registered);
            if let Some(held) = held
                && let Some(reason) = held.lapse(|| now)
            {
                held.close(&reason);
            }
        }
    }
}

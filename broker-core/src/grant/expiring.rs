//! Ends expired and withdrawn grants (SEC-15). One timer for a broker, armed at the earliest end of
//! a grant with open links or calls. A raised epoch wakes it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::entitlement::Entitlement;
use crate::clock::Clock;
use crate::contract::epoch::EpochNotifier;
use crate::time::Timestamp;

/// Grants of a broker that can end while links or calls are open under them. Bounded by the number
/// of open ones.
#[derive(Default)]
pub struct ExpiringGrants {
    pub(crate) notifier: Arc<EpochNotifier>,
    keys: AtomicU64,
    registered: Mutex<RegisteredGrants>,
}

#[derive(Default)]
struct RegisteredGrants {
    all: HashMap<u64, (Option<Timestamp>, Weak<Entitlement>)>,
    by_end: BTreeSet<(Timestamp, u64)>,
}

impl RegisteredGrants {
    fn remove(&mut self, key: u64) {
        if let Some((Some(until), _)) = self.all.remove(&key) {
            self.by_end.remove(&(until, key));
        }
    }
}

impl ExpiringGrants {
    pub(super) fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, RegisteredGrants> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the end of a grant.
    pub(super) fn register(&self, entitlement: &Arc<Entitlement>) {
        let mut registered = self.lock();
        // Read under the lock, so that the last registration uses the newest grant.
        let until = entitlement.end();
        registered.remove(entitlement.key);
        registered.all.insert(entitlement.key, (until, Arc::downgrade(entitlement)));
        if let Some(until) = until {
            registered.by_end.insert((until, entitlement.key));
        }
        let is_first = registered.by_end.first().is_some_and(|(_, key)| *key == entitlement.key);
        drop(registered);
        if is_first {
            self.notifier.wake();
        }
        // Its epoch may have been raised before the registration was visible.
        if let Some(reason) = entitlement.withdrawal() {
            entitlement.close(&reason);
        }
    }

    pub(super) fn forget(&self, key: u64) {
        self.lock().remove(key);
    }

    /// Ends grants when they are over. Runs until the broker ends.
    pub(crate) async fn run(&self, clock: &dyn Clock) {
        let mut seen = 0;
        loop {
            let count = self.notifier.count();
            if count != seen {
                seen = count;
                self.end_withdrawn();
            }
            let next = self.end_expired(clock.now());
            match next {
                Some(until) => tokio::select! {
                    () = self.notifier.notified() => {}
                    () = clock.sleep_until(until) => {}
                },
                None => self.notifier.notified().await,
            }
        }
    }

    /// Ends grants whose epoch was raised.
    fn end_withdrawn(&self) {
        // Checked without the lock, which dropping the last reference to a grant takes.
        let all: Vec<Arc<Entitlement>> =
            self.lock().all.values().filter_map(|(_, entitlement)| entitlement.upgrade()).collect();
        for entitlement in all {
            if let Some(reason) = entitlement.withdrawal() {
                entitlement.close(&reason);
            }
        }
    }

    /// Ends grants that have expired by `now`; returns the earliest end of the others.
    fn end_expired(&self, now: Timestamp) -> Option<Timestamp> {
        loop {
            let mut registered = self.lock();
            let (until, key) = *registered.by_end.first()?;
            if until > now {
                return Some(until);
            }
            let entitlement =
                registered.all.get(&key).and_then(|(_, entitlement)| entitlement.upgrade());
            registered.remove(key);
            drop(registered);
            if let Some(entitlement) = entitlement
                && let Some(reason) = entitlement.end_reason(|| now)
            {
                entitlement.close(&reason);
            }
        }
    }
}

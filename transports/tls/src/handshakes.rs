//! Limit on concurrent handshakes, of TLS or of the protocol inside it. Beyond the limit the oldest
//! handshake is ended. A genuine client completes its handshake in a few round trips, so incomplete
//! handshakes of attackers become the oldest soon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All current handshakes, by age.
pub struct Handshakes {
    count_max: usize,
    active: Mutex<Active>,
}

#[derive(Default)]
struct Active {
    next: u64,
    by_age: BTreeMap<u64, Arc<Notify>>,
}

/// A place for one handshake, until dropped.
pub struct Handshake {
    all: Arc<Handshakes>,
    key: u64,
    eviction: Arc<Notify>,
}

impl Handshakes {
    /// Creates a limit of `count_max` handshakes, at least 1.
    #[must_use]
    pub fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self { count_max: count_max.max(1), active: Mutex::default() })
    }

    /// Registers a new handshake. Beyond the limit, the oldest is notified to end.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Handshake {
        let eviction = Arc::new(Notify::new());
        let mut active = self.lock();
        while active.by_age.len() >= self.count_max {
            let Some((_, oldest)) = active.by_age.pop_first() else { break };
            oldest.notify_one();
        }
        let key = active.next;
        active.next += 1;
        active.by_age.insert(key, Arc::clone(&eviction));
        drop(active);
        Handshake { all: Arc::clone(self), key, eviction }
    }

    /// Notifies the oldest handshake, if any, to end.
    pub fn make_room(&self) {
        let oldest = self.lock().by_age.pop_first();
        if let Some((_, oldest)) = oldest {
            oldest.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Active> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handshake {
    /// Waits until another handshake needs the place.
    pub async fn needed(&self) {
        self.eviction.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.lock().by_age.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_needed(place: &Handshake) -> bool {
        pin!(place.needed()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// TLS-03: beyond the limit the oldest handshake ends, and no younger one.
    #[test]
    fn the_oldest_makes_room() {
        let handshakes = Handshakes::new(2);
        let (first, second) = (handshakes.enter(), handshakes.enter());
        assert!(!is_needed(&first) && !is_needed(&second));
        let third = handshakes.enter();
        assert!(is_needed(&first) && !is_needed(&second) && !is_needed(&third));
        drop(second);
        let fourth = handshakes.enter();
        assert!(!is_needed(&third) && !is_needed(&fourth), "one had ended");
        drop((first, third, fourth));
        assert!(handshakes.lock().by_age.is_empty());
    }
}

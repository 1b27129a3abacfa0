//! Idle connections: nothing would be lost with them. When all places are taken, the longest idle connection is evicted
//! for a newcomer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use super::occupant::Occupant;
use crate::pace::GRACE;

/// The idle connections of a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    order: Arc<Mutex<Order>>,
    /// Whether connections go that have been idle only for a moment, if no other can go.
    evicts_recent: bool,
}

#[derive(Debug, Default)]
struct Order {
    next: u64,
    /// Idle connections, in the order in which they became idle.
    idle: BTreeMap<u64, (Instant, Occupant)>,
    /// Connections that wait for a message, in the order in which they began to wait.
    waiting: BTreeMap<u64, Occupant>,
}

/// A connection that can be evicted. Dropping it ends that.
#[derive(Debug)]
pub struct Idling {
    all: Idle,
    key: u64,
    occupant: Occupant,
}

impl Idle {
    pub(super) fn of_requests() -> Self {
        Self { evicts_recent: true, ..Self::default() }
    }

    /// Records that a connection is idle.
    pub(super) fn enter(&self, occupant: &Occupant) -> Idling {
        self.enter_at(occupant, Instant::now())
    }

    pub(super) fn enter_at(&self, occupant: &Occupant, since: Instant) -> Idling {
        self.insert(occupant, |order, key| {
            order.idle.insert(key, (since, occupant.clone()));
        })
    }

    /// Records that a connection waits for a message.
    pub(super) fn enter_waiting(&self, occupant: &Occupant) -> Idling {
        self.insert(occupant, |order, key| {
            order.waiting.insert(key, occupant.clone());
        })
    }

    fn insert(&self, occupant: &Occupant, insert: impl FnOnce(&mut Order, u64)) -> Idling {
        let mut order = self.lock();
        let key = order.next;
        order.next += 1;
        insert(&mut order, key);
        drop(order);
        Idling { all: self.clone(), key, occupant: occupant.clone() }
    }

    /// Evicts the connection that has been idle longest, or has waited longest for a message. One that was idle only
    /// for a moment stays if it can: its request may be on its way. False if there is none.
    pub(super) fn evict(&self) -> bool {
        self.evict_at(Instant::now())
    }

    fn evict_at(&self, now: Instant) -> bool {
        let mut order = self.lock();
        order.evict_idle(|since| now.saturating_duration_since(since) >= GRACE)
            || order.evict_waiting()
            || (self.evicts_recent && order.evict_idle(|_| true))
    }

    /// Wakes the tasks of all idle connections.
    pub(super) fn wake_all(&self) {
        for (_, occupant) in self.lock().idle.values() {
            occupant.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    fn evict_idle(&mut self, may_go: impl Fn(Instant) -> bool) -> bool {
        while let Some(first) = self.idle.first_entry() {
            let (since, occupant) = first.get();
            // One whose place was given to another otherwise goes already.
            if !may_go(*since) && !occupant.is_claimed() {
                return false;
            }
            let (_, occupant) = first.remove();
            if occupant.evict() {
                return true;
            }
        }
        false
    }

    fn evict_waiting(&mut self) -> bool {
        while let Some((_, occupant)) = self.waiting.pop_first() {
            if occupant.evict() {
                return true;
            }
        }
        false
    }

    /// Removes a connection. Returns whether it was there.
    fn remove(&mut self, key: u64) -> bool {
        self.idle.remove(&key).is_some() || self.waiting.remove(&key).is_some()
    }
}

impl Idling {
    /// Ends the idle time. False if its place was given to another meanwhile, so that it has to end all the same.
    #[must_use]
    pub fn wake(self) -> bool {
        let was_there = self.all.lock().remove(self.key);
        was_there && !self.occupant.is_claimed()
    }

    /// Ready when it is evicted.
    pub fn poll_evicted(&self, context: &Context<'_>) -> Poll<()> {
        self.occupant.poll_evicted(context)
    }
}

impl Drop for Idling {
    fn drop(&mut self) {
        self.all.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use super::*;

    /// The connection that has been idle longest is evicted, each once, and none that was idle for a moment or is busy again.
    #[test]
    fn the_longest_idle_connection_is_evicted() {
        let context = Context::from_waker(Waker::noop());
        let (idle, start) = (Idle::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let [first, busy, third, late] =
            [0, 1, 2, 400].map(|ms| idle.enter_at(&Occupant::default(), at(ms)));
        assert!(!idle.evict_at(at(200)), "all have just become idle");
        assert!(busy.wake());
        assert!(idle.evict_at(at(500)));
        assert!(first.poll_evicted(&context).is_ready());
        assert!(!first.wake(), "another has its place");
        assert!(third.poll_evicted(&context).is_pending());
        assert!(idle.evict_at(at(500)));
        assert!(third.poll_evicted(&context).is_ready());
        assert!(!idle.evict_at(at(500)), "the last was idle for a moment");
        assert!(idle.evict_at(at(700)));
        assert!(late.poll_evicted(&context).is_ready());
        assert!(!idle.evict_at(at(9_000)), "there is none");
    }

    /// A connection that waits for a message is evicted, oldest first: after idle ones, and before connections that were idle only
    /// for a moment, which go where connections carry requests.
    #[test]
    fn a_waiting_connection_is_evicted_after_idle_ones() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (idle, evicts_recent) in [(Idle::default(), false), (Idle::of_requests(), true)] {
            let occupants: [Occupant; 5] = Default::default();
            let [oldest, first, second, new, busy] = &occupants;
            let _idling = [idle.enter_at(oldest, at(0)), idle.enter_at(new, at(499))];
            let _waiting = [first, second].map(|occupant| idle.enter_waiting(occupant));
            drop(idle.enter_waiting(busy));
            for expected in [oldest, first, second] {
                assert!(!expected.is_claimed());
                assert!(idle.evict_at(at(500)));
                assert!(expected.is_claimed());
            }
            assert_eq!(idle.evict_at(at(500)), evicts_recent);
            assert_eq!((new.is_claimed(), busy.is_claimed()), (evicts_recent, false));
            assert!(idle.lock().waiting.is_empty());
        }
    }

    /// Idle connections are woken to notice a stop, and keep their places.
    #[test]
    fn idle_connections_are_woken() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let idle = Idle::default();
        let idling = [(); 2].map(|()| idle.enter(&Occupant::default()));
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        for one in &idling {
            assert!(one.poll_evicted(&Context::from_waker(&waker)).is_pending());
        }
        idle.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(idling.into_iter().all(Idling::wake));
    }
}

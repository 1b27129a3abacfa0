//! Connections that nobody would miss: they are open and ask for nothing. When all places are taken, the one that has been
//! idle longest makes room for one that comes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use peeklock_core::permits::GRACE;
use tokio::sync::oneshot;

use crate::crowd::Seen;

/// The connections of a listener that are idle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idle(Arc<Mutex<Order>>);

#[derive(Debug, Default)]
struct Order {
    next: u64,
    /// In the order in which they became idle.
    by_age: BTreeMap<u64, One>,
}

#[derive(Debug)]
struct One {
    since: Instant,
    seen: Arc<Seen>,
    tell: oneshot::Sender<()>,
}

/// One that is idle, until this is dropped.
#[derive(Debug)]
pub struct Idling {
    all: Idle,
    key: u64,
    seen: Arc<Seen>,
    told: oneshot::Receiver<()>,
}

impl Idle {
    /// One is idle from now on.
    pub(crate) fn enter(&self, seen: Arc<Seen>) -> Idling {
        self.enter_at(seen, Instant::now())
    }

    pub(crate) fn enter_at(&self, seen: Arc<Seen>, since: Instant) -> Idling {
        let (tell, told) = oneshot::channel();
        let mut order = self.lock();
        let key = order.next;
        order.next += 1;
        order.by_age.insert(key, One { since, seen: Arc::clone(&seen), tell });
        Idling { all: self.clone(), key, seen, told }
    }

    /// Has the one that has been idle longest make room; false if there is none. One that was idle for a moment only
    /// stays: what it asks may be on its way.
    pub(crate) fn make_room(&self) -> bool {
        self.make_room_at(Instant::now())
    }

    fn make_room_at(&self, now: Instant) -> bool {
        let mut order = self.lock();
        while let Some(first) = order.by_age.first_entry() {
            let is_new = now.saturating_duration_since(first.get().since) < GRACE;
            // One that was told otherwise goes already, and somebody has its place.
            if is_new && !first.get().seen.is_told() {
                return false;
            }
            let One { seen, tell, .. } = first.remove();
            if seen.tell() && tell.send(()).is_ok() {
                return true;
            }
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idling {
    /// It has something to do again. False if its place was given to somebody meanwhile, so that it has to go all the same.
    #[must_use]
    pub fn wake(self) -> bool {
        let waiting = self.all.lock().by_age.remove(&self.key);
        waiting.is_some() && !self.seen.is_told()
    }

    /// Ready when its place is needed.
    pub fn poll_needed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.told).poll(context).map(drop)
    }
}

impl Drop for Idling {
    fn drop(&mut self) {
        self.all.lock().by_age.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    /// Who has been idle longest is told, each once, and nobody who was idle for a moment, or is busy again.
    #[test]
    fn who_is_idle_longest_makes_room() {
        let mut context = Context::from_waker(Waker::noop());
        let (idle, start) = (Idle::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let [mut first, busy, mut third, mut late] =
            [0, 1, 2, 400].map(|ms| idle.enter_at(Arc::default(), at(ms)));
        assert!(!idle.make_room_at(at(200)), "all have just become idle");
        assert!(busy.wake());
        assert!(idle.make_room_at(at(500)));
        assert!(first.poll_needed(&mut context).is_ready());
        assert!(!first.wake(), "somebody has its place");
        assert!(third.poll_needed(&mut context).is_pending());
        assert!(idle.make_room_at(at(500)));
        assert!(third.poll_needed(&mut context).is_ready());
        assert!(!idle.make_room_at(at(500)), "the last was idle for a moment");
        assert!(idle.make_room_at(at(700)));
        assert!(late.poll_needed(&mut context).is_ready());
        assert!(!idle.make_room_at(at(9_000)), "there is none");
    }
}

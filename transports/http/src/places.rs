//! Who is connected. Beyond the bound the connection that was idle longest makes room, and if none is, the receive that
//! has waited longest for a message.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::task::AtomicWaker;
use peeklock_core::permits::GRACE;

/// In place of an instant, for one that is not so.
const NEVER: u64 = 0;

/// The connections of a listener.
pub(crate) struct Places {
    count_max: usize,
    start: Instant,
    next: AtomicU64,
    seats: Mutex<HashMap<u64, Arc<Occupied>>>,
}

/// One connection as others see it.
pub(crate) struct Occupied {
    start: Instant,
    /// Microseconds from the start of the listener, plus one, since when it waits for a request; or `NEVER`.
    idle_since: AtomicU64,
    /// The same for a receive that waits for a message.
    receives_since: AtomicU64,
    is_told: AtomicBool,
    waker: AtomicWaker,
}

/// A receive that waits for a message, until this is dropped. It has taken nothing, so that it can end at any time.
pub(crate) struct Receiving<'a>(&'a Occupied);

/// A connection's place, until this is dropped.
pub(crate) struct ConnectionPlace {
    places: Arc<Places>,
    key: u64,
    own: Arc<Occupied>,
    is_beyond: bool,
}

impl Places {
    /// Places for so many.
    pub(crate) fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self {
            count_max,
            start: Instant::now(),
            next: AtomicU64::new(0),
            seats: Mutex::default(),
        })
    }

    /// A place for a connection that waits for its first request.
    pub(crate) fn enter(self: &Arc<Self>) -> ConnectionPlace {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(Occupied::new(self.start));
        let mut seats = self.lock();
        let has_room = self.has_room(&seats, own.now());
        if has_room {
            seats.insert(key, Arc::clone(&own));
        }
        drop(seats);
        ConnectionPlace { places: Arc::clone(self), key, own, is_beyond: !has_room }
    }

    /// Whether there is a place for one more, or one makes room for it.
    fn has_room(&self, seats: &HashMap<u64, Arc<Occupied>>, now: u64) -> bool {
        seats.len() < self.count_max || tell_one(seats, now)
    }

    /// Has everybody look whether there is something to do: the listener is being stopped.
    pub(crate) fn wake_all(&self) {
        for occupied in self.lock().values() {
            occupied.waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Occupied>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has one make room; none if all are busy.
fn tell_one(seats: &HashMap<u64, Arc<Occupied>>, now: u64) -> bool {
    let first = seats
        .values()
        .filter(|occupied| !occupied.is_told.load(Ordering::Relaxed))
        .filter_map(|occupied| Some((occupied.turn(now)?, occupied)))
        .min_by_key(|(turn, _)| *turn);
    let Some((_, occupied)) = first else { return false };
    occupied.is_told.store(true, Ordering::Relaxed);
    occupied.waker.wake();
    true
}

impl Occupied {
    fn new(start: Instant) -> Self {
        let own = Self {
            start,
            idle_since: AtomicU64::new(NEVER),
            receives_since: AtomicU64::new(NEVER),
            is_told: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        };
        own.idle_since.store(own.now(), Ordering::Relaxed);
        own
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// When it makes room, the least first: who is idle, then who waits for a message, and only then who was
    /// idle for a moment, whose request may be on its way.
    fn turn(&self, now: u64) -> Option<(u8, u64)> {
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        let receives_since = self.receives_since.load(Ordering::Relaxed);
        let moment = u64::try_from(GRACE.as_micros()).unwrap_or(u64::MAX);
        match (idle_since, receives_since) {
            (NEVER, NEVER) => None,
            (NEVER, since) => Some((1, since)),
            (since, _) if now.saturating_sub(since) >= moment => Some((0, since)),
            (since, _) => Some((2, since)),
        }
    }

    /// A receive begins to wait.
    pub(crate) fn receives(&self) -> Receiving<'_> {
        self.receives_since.store(self.now(), Ordering::Relaxed);
        Receiving(self)
    }

    /// Whether it was told to make room.
    pub(crate) fn was_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    fn poll_told(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.was_told()
    }
}

impl Receiving<'_> {
    /// Waits until its place is needed. In the task of its connection, which is the one that is woken.
    pub(crate) async fn told(&self) {
        poll_fn(|context| if self.0.poll_told(context) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.receives_since.store(NEVER, Ordering::Relaxed);
    }
}

impl ConnectionPlace {
    /// As others see it.
    pub(crate) fn occupied(&self) -> Arc<Occupied> {
        Arc::clone(&self.own)
    }

    /// Whether there is none for it.
    pub(crate) const fn is_beyond(&self) -> bool {
        self.is_beyond
    }

    /// Looks again for a place where there was none: another connection may have ended meanwhile. Whether there is one.
    pub(crate) fn seek(&mut self) -> bool {
        if self.is_beyond {
            let mut seats = self.places.lock();
            if self.places.has_room(&seats, self.own.now()) {
                seats.insert(self.key, Arc::clone(&self.own));
                self.is_beyond = false;
            }
        }
        !self.is_beyond
    }

    /// A request is here.
    pub(crate) fn is_busy(&self) {
        self.own.idle_since.store(NEVER, Ordering::Relaxed);
    }

    /// It waits for a request.
    pub(crate) fn is_idle(&self) {
        self.own.idle_since.store(self.own.now(), Ordering::Relaxed);
    }

    /// It ends: nobody has to make room for it any more.
    pub(crate) fn leave(&self) {
        self.places.lock().remove(&self.key);
    }

    /// Whether its place is needed; who waits is woken when it is.
    pub(crate) fn is_told(&self, context: &Context<'_>) -> bool {
        self.own.poll_told(context)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// The connection that was idle longest makes room, and none that is busy.
    #[test]
    fn who_is_idle_longest_makes_room() {
        let context = Context::from_waker(Waker::noop());
        let places = Places::new(2);
        let (first, second) = (places.enter(), places.enter());
        first.is_busy();
        let third = places.enter();
        assert!(!third.is_beyond());
        assert!(second.is_told(&context) && !first.is_told(&context));
        third.is_busy();
        let mut fourth = places.enter();
        assert!(fourth.is_beyond(), "the second is told already, the others are busy");
        assert!(!fourth.seek());
        drop(second);
        assert!(!fourth.seek(), "the first and the third are there and busy");
        drop(fourth);
        first.is_idle();
        drop(third);
        assert!(!places.enter().is_beyond() && !first.is_told(&context), "there is room");
    }

    /// Who waits for a message makes room, oldest first, after those that are idle and before those that have just come.
    #[test]
    fn who_waits_for_a_message_makes_room() {
        let places = Places::new(4);
        let seats: Vec<ConnectionPlace> = (0..4).map(|_| places.enter()).collect();
        let [idle, new, first, second] = seats.as_slice() else { panic!() };
        let receiving = [first, second].map(|place| {
            place.is_busy();
            place.own.receives()
        });
        let at = |place: &ConnectionPlace, since: u64| {
            place.own.idle_since.store(since, Ordering::Relaxed)
        };
        let now = 10_000_000;
        // The two may have begun within one microsecond.
        for (place, since) in [(first, 1), (second, 2)] {
            place.own.receives_since.store(since, Ordering::Relaxed);
        }
        at(idle, now / 2);
        at(new, now - 1);
        let seats = places.lock();
        for expected in [idle, first, second, new] {
            assert!(!expected.own.was_told());
            assert!(tell_one(&seats, now));
            assert!(expected.own.was_told());
        }
        assert!(!tell_one(&seats, now));
        drop(seats);
        drop(receiving);
        assert_eq!(first.own.turn(now), None, "it is busy again");
    }
}

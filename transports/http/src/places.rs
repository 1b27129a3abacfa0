//! Who is connected. Beyond the bound the connection that was idle longest makes room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Instant;

use futures_util::task::AtomicWaker;

/// In place of an instant, for one that is busy.
const BUSY: u64 = 0;

/// The connections of a listener.
pub(crate) struct Places {
    count_max: usize,
    start: Instant,
    next: AtomicU64,
    seats: Mutex<HashMap<u64, Arc<Occupied>>>,
}

/// One connection as others see it.
struct Occupied {
    /// Microseconds from the start of the listener, plus one, since when it waits for a request; or `BUSY`.
    idle_since: AtomicU64,
    is_told: AtomicBool,
    waker: AtomicWaker,
}

/// A connection's place, until this is dropped.
pub(crate) struct Place {
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
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(Occupied {
            idle_since: AtomicU64::new(self.now()),
            is_told: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let mut seats = self.lock();
        let is_full = seats.len() >= self.count_max;
        let makes_room = is_full && tell_longest_idle(&seats);
        seats.insert(key, Arc::clone(&own));
        drop(seats);
        Place { places: Arc::clone(self), key, own, is_beyond: is_full && !makes_room }
    }

    /// Has everybody look whether there is something to do: the listener is being stopped.
    pub(crate) fn wake_all(&self) {
        for occupied in self.lock().values() {
            occupied.waker.wake();
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Occupied>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the connection end that was idle longest; none if all are busy.
fn tell_longest_idle(seats: &HashMap<u64, Arc<Occupied>>) -> bool {
    let longest = seats
        .values()
        .filter(|occupied| !occupied.is_told.load(Ordering::Relaxed))
        .filter_map(|occupied| match occupied.idle_since.load(Ordering::Relaxed) {
            BUSY => None,
            since => Some((since, occupied)),
        })
        .min_by_key(|(since, _)| *since);
    let Some((_, occupied)) = longest else { return false };
    occupied.is_told.store(true, Ordering::Relaxed);
    occupied.waker.wake();
    true
}

impl Place {
    /// Whether there was none any more when it came.
    pub(crate) const fn is_beyond(&self) -> bool {
        self.is_beyond
    }

    /// A request is here.
    pub(crate) fn is_busy(&self) {
        self.own.idle_since.store(BUSY, Ordering::Relaxed);
    }

    /// It waits for a request.
    pub(crate) fn is_idle(&self) {
        self.own.idle_since.store(self.places.now(), Ordering::Relaxed);
    }

    /// It ends: nobody has to make room for it any more.
    pub(crate) fn leave(&self) {
        self.places.lock().remove(&self.key);
    }

    /// Whether its place is needed; who waits is woken when it is.
    pub(crate) fn is_told(&self, context: &Context<'_>) -> bool {
        self.own.waker.register(context.waker());
        self.own.is_told.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
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
        assert!(places.enter().is_beyond(), "the second is told already, the others are busy");
        drop(second);
        first.is_idle();
        drop(third);
        assert!(!places.enter().is_beyond() && !first.is_told(&context), "there is room");
    }
}

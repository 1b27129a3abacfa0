//! Places of connections at a listener (QUO-01).
//!
//! A client of AMQP or WebSocket shows its identity only on its connection. So a socket is accepted before it has a place: in
//! addition to the places there are [spare sockets](spare_sockets), on which clients show their identity. Every client with a
//! key is heard, even if others hold all places, and gets the place of a client without a key.
//!
//! ```text
//!  socket ─► begin_opening: a spare socket ─► shows who it is ─► take: free? idle? crowd? ─► Place, until it is dropped
//!              the oldest is evicted beyond the bound                └─ none: refused, or waits
//! ```
//!
//! HTTP has places of [requests](Places::of_requests): its connections show nothing before they have a place, and one
//! that waits for its next request, or for a message, can go at any time.

mod crowd;
mod idle;
mod occupant;
mod standing;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::crowd::Crowd;
use self::idle::Idle;
use crate::openings::{Opening, Openings};
use crate::pace::GRACE;

pub use self::crowd::{Member, network};
pub use self::idle::Idling;
pub use self::occupant::Occupant;
pub use self::standing::ConnectionPlace;

/// Sockets of a listener with this number of places; further ones wait in the system.
#[must_use]
pub const fn sockets(connection_count_max: usize) -> usize {
    connection_count_max.saturating_add(spare_sockets(connection_count_max))
}

/// Sockets in addition to the places, for clients that have not shown their identity, wait for a place, or are refused one:
/// the number of places again, but at most 256 and at least 16.
#[must_use]
pub const fn spare_sockets(connection_count_max: usize) -> usize {
    match connection_count_max {
        0..16 => 16,
        16..256 => connection_count_max,
        _ => 256,
    }
}

/// The places of a listener. Clones are the same ones.
#[derive(Clone)]
pub struct Places(Arc<Shared>);

struct Shared {
    count_max: usize,
    taken: Mutex<usize>,
    /// Notified when a place becomes free.
    freed: Notify,
    /// Connections without a place.
    openings: Arc<Openings>,
    idle: Idle,
    crowd: Crowd,
}

/// One place. Dropping it releases the place.
pub struct Place(Arc<Shared>);

/// A connection that wants a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newcomer {
    /// The authorizer does not know it, or has not been asked.
    Stranger,
    /// The authorizer knows the client at this address: by its credentials, or because anonymous
    /// clients have access.
    Known(Option<SocketAddr>),
    /// It has presented credentials such as a key, where other clients may hold places without any.
    ByKey,
}

impl Places {
    /// Places of connections that show their identity.
    #[must_use]
    pub fn new(count_max: usize) -> Self {
        Self::with(count_max, Idle::default())
    }

    /// Places of connections that carry requests. If none else can go, one goes that has been idle only for a moment.
    #[must_use]
    pub fn of_requests(count_max: usize) -> Self {
        Self::with(count_max, Idle::of_requests())
    }

    fn with(count_max: usize, idle: Idle) -> Self {
        Self(Arc::new(Shared {
            count_max,
            taken: Mutex::default(),
            freed: Notify::new(),
            openings: Openings::new(spare_sockets(count_max)),
            idle,
            crowd: Crowd::default(),
        }))
    }

    /// Counts a connection without a place, until the opening is dropped. Evicts the oldest opening if there are more than
    /// spare sockets.
    #[must_use]
    pub fn begin_opening(&self) -> Opening {
        self.0.openings.begin()
    }

    /// Evicts the oldest connection without a place, for a socket that waits to be accepted.
    pub fn evict_oldest_opening(&self) {
        self.0.openings.evict_oldest();
    }

    /// Whether a further connection needs the place of another.
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self.0.taken() >= self.0.count_max
    }

    /// Takes a free place.
    #[must_use]
    pub fn try_take(&self) -> Option<Place> {
        let mut taken = self.0.taken();
        if *taken >= self.0.count_max {
            return None;
        }
        *taken += 1;
        drop(taken);
        Some(Place(Arc::clone(&self.0)))
    }

    /// Takes a free place, or evicts a connection and takes its place; `None` if no connection can go. An evicted
    /// connection keeps its place until it has ended, so for that time there is one more.
    ///
    /// For a stranger only an idle connection goes: all others keep their places. For a known client also a connection of
    /// the address with most connections goes; for one with a key also any connection without a key, and no other.
    #[must_use]
    pub fn take_or_evict(&self, newcomer: Newcomer) -> Option<Place> {
        self.take_or_evict_with(newcomer, || None)
    }

    /// The same, where a place that is released for a newcomer that is no stranger goes before evictions.
    #[must_use]
    pub fn take_or_evict_with(
        &self,
        newcomer: Newcomer,
        released: impl FnOnce() -> Option<Place>,
    ) -> Option<Place> {
        let place = self.try_take().or_else(|| match newcomer {
            Newcomer::Stranger => None,
            Newcomer::Known(_) | Newcomer::ByKey => released(),
        });
        if place.is_some() {
            return place;
        }
        let Shared { idle, crowd, .. } = &*self.0;
        let is_evicted = idle.evict()
            || match newcomer {
                Newcomer::Stranger => false,
                Newcomer::Known(peer) => crowd.evict_for(peer),
                Newcomer::ByKey => crowd.evict_for_key(),
            };
        is_evicted.then(|| {
            *self.0.taken() += 1;
            Place(Arc::clone(&self.0))
        })
    }

    /// Waits for a place, free or by eviction.
    pub async fn wait(self, newcomer: Newcomer) -> Place {
        loop {
            if let Some(place) = self.take_or_evict(newcomer) {
                return place;
            }
            tokio::select! {
                () = self.0.freed.notified() => {}
                // By then a connection may be idle that was not.
                () = tokio::time::sleep(GRACE) => {}
            }
        }
    }

    /// Records that a connection with a place is idle: nothing would be lost with it.
    #[must_use]
    pub fn idle(&self, occupant: &Occupant) -> Idling {
        self.0.idle.enter(occupant)
    }

    /// Records that a connection with a place waits for a message and has taken nothing. It goes after idle ones.
    #[must_use]
    pub fn wait_for_message(&self, occupant: &Occupant) -> Idling {
        self.0.idle.enter_waiting(occupant)
    }

    /// Wakes the tasks of all idle connections, so that they notice a stop.
    pub fn wake_idle(&self) {
        self.0.idle.wake_all();
    }

    /// Counts a connection with a place in its network; `None` for one without an address.
    #[must_use]
    pub fn join(&self, peer: Option<SocketAddr>) -> Option<Member> {
        self.0.crowd.join(peer)
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.0.taken();
        *taken = taken.saturating_sub(1);
        drop(taken);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Instant;

    use super::*;

    const HERE: Newcomer = Newcomer::Known(None);

    /// QUO-01, SEC-16: the number of places is bounded; a client with a key gets the place of another, busy or not, and
    /// no other; a stranger gets none.
    #[test]
    fn a_client_with_a_key_gets_the_place_of_one_without() {
        let context = Context::from_waker(Waker::noop());
        let places = Places::new(2);
        let peer = "10.0.0.1:1".parse().ok();
        let (_first, _second) = (places.try_take().unwrap(), places.take_or_evict(HERE).unwrap());
        assert!(places.is_full() && places.try_take().is_none());
        let (by_key, stranger) = (places.join(peer).unwrap(), places.join(peer).unwrap());
        by_key.shows_key(true);
        assert!(places.take_or_evict(Newcomer::Stranger).is_none());
        assert!(places.take_or_evict(Newcomer::ByKey).is_some());
        assert!(stranger.poll_evicted(&context).is_ready());
        assert!(places.take_or_evict(Newcomer::ByKey).is_none(), "it has a key too");
        assert!(by_key.poll_evicted(&context).is_pending());
        by_key.shows_key(false);
        assert!(places.take_or_evict(Newcomer::ByKey).is_some(), "its key is not good any more");
        assert!(by_key.poll_evicted(&context).is_ready());
    }

    /// QUO-01: a connection that was evicted as idle, or because it had no key, is not evicted again.
    #[test]
    fn a_connection_is_evicted_once() {
        let context = Context::from_waker(Waker::noop());
        let places = Places::new(2);
        let peer = "10.0.0.1:1".parse().ok();
        let (_first, _second) = (places.try_take().unwrap(), places.try_take().unwrap());
        let (silent, busy) = (places.join(peer).unwrap(), places.join(peer).unwrap());
        let since = Instant::now().checked_sub(2 * GRACE).unwrap();
        let idling = places.0.idle.enter_at(&silent.occupant(), since);
        assert!(places.take_or_evict(Newcomer::ByKey).is_some());
        assert!(idling.poll_evicted(&context).is_ready() && silent.is_evicted());
        assert!(places.take_or_evict(Newcomer::ByKey).is_some());
        assert!(busy.poll_evicted(&context).is_ready(), "it is the only one that can go");
        let _idling = places.0.idle.enter_at(&busy.occupant(), since);
        assert!(places.take_or_evict(Newcomer::ByKey).is_none(), "both were evicted");
        assert!(!busy.occupant().claim());
    }

    /// QUO-01: a released place goes to a known client, and to no stranger; an evicted connection counts until it has ended.
    #[test]
    fn a_released_place_is_handed_on() {
        let places = Places::new(1);
        let mut lost = places.try_take();
        assert!(places.take_or_evict_with(Newcomer::Stranger, || lost.take()).is_none());
        let next = places.take_or_evict_with(HERE, || lost.take()).unwrap();
        assert!(lost.is_none() && places.is_full());
        drop(next);
        assert!(!places.is_full());
    }

    /// QUO-01: a waiter gets the next free place.
    #[tokio::test]
    async fn a_waiter_gets_the_next_place() {
        let mut context = Context::from_waker(Waker::noop());
        let places = Places::new(1);
        let first = places.try_take().unwrap();
        let mut waiting = pin!(places.clone().wait(Newcomer::ByKey));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }

    /// QUO-01: the oldest connection without a place goes when there are more than spare sockets, and when a further one
    /// waits for a socket.
    #[test]
    fn the_oldest_without_a_place_is_evicted() {
        let places = Places::new(1);
        let openings: Vec<Opening> =
            (0..spare_sockets(1)).map(|_| places.begin_opening()).collect();
        let is_evicted = |opening: &Opening| {
            pin!(opening.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!openings.iter().any(is_evicted));
        let _next = places.begin_opening();
        assert!(is_evicted(&openings[0]) && !is_evicted(&openings[1]));
        places.evict_oldest_opening();
        assert!(is_evicted(&openings[1]) && !is_evicted(&openings[2]));
    }
}

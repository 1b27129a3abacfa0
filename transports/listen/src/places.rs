//! Places, where clients say who they are on their connections only. A socket is accepted before it has a place: beside the
//! places there are [spare sockets](crate::spare_sockets), on which a client says who it is. So whoever has a key is heard,
//! whoever holds the places, and gets one of who has shown none.
//!
//! ```text
//!  socket ─► arrive: on a spare one ─► says who it is ─► enter: free? idle? crowd? ─► Place, until it is dropped
//!              the oldest goes when there are too many                 └─ none: refused, or waits
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::permits::GRACE;
use peeklock_tls::{Handshake, Handshakes};
use tokio::sync::Notify;

use crate::accept::spare_sockets;
use crate::crowd::{Crowd, Member};
use crate::idle::{Idle, Idling};

/// The places of a listener. Clones are the same ones.
#[derive(Clone)]
pub struct Places(Arc<Shared>);

struct Shared {
    count_max: usize,
    taken: Mutex<usize>,
    /// Told when one becomes free.
    freed: Notify,
    /// Who is here and has no place.
    arriving: Arc<Handshakes>,
    idle: Idle,
    crowd: Crowd,
}

/// One of them, until this is dropped.
pub struct Place(Arc<Shared>);

/// Who wants a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newcomer {
    /// Nobody that the authorizer knows, or has been asked about.
    Stranger,
    /// Somebody it knows, from there, whether he has shown something or everybody is let in.
    Known(Option<SocketAddr>),
    /// Somebody who has shown what not everybody has, such as a key, where others may hold places who have not.
    ByKey,
}

impl Places {
    /// So many.
    #[must_use]
    pub fn new(count_max: usize) -> Self {
        Self(Arc::new(Shared {
            count_max,
            taken: Mutex::default(),
            freed: Notify::new(),
            arriving: Handshakes::new(spare_sockets(count_max)),
            idle: Idle::default(),
            crowd: Crowd::default(),
        }))
    }

    /// One is here that has no place yet, until the handshake is dropped. With more than there are spare sockets the oldest
    /// is told to go.
    #[must_use]
    pub fn arrive(&self) -> Handshake {
        self.0.arriving.enter()
    }

    /// A socket waits to be accepted, and there are as many as there may be: of those that have no place the oldest is told
    /// to go.
    pub fn make_room_for_socket(&self) {
        self.0.arriving.make_room();
    }

    /// Whether somebody would have to go for a further one.
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self.0.taken() >= self.0.count_max
    }

    /// A place that nobody has.
    #[must_use]
    pub fn free(&self) -> Option<Place> {
        let mut taken = self.0.taken();
        if *taken >= self.0.count_max {
            return None;
        }
        *taken += 1;
        drop(taken);
        Some(Place(Arc::clone(&self.0)))
    }

    /// A place that nobody has, or that of somebody who goes for this one; none if nobody does. Who goes has its place until
    /// it has gone, so that for so long there is one more.
    ///
    /// For a stranger goes only who is idle: whoever holds something keeps it. For who is known also one of those that come
    /// from where most do; for who has shown a key also one that has not, whatever it holds, and nobody else.
    #[must_use]
    pub fn enter(&self, newcomer: Newcomer) -> Option<Place> {
        self.enter_or(newcomer, || None)
    }

    /// The same, where for who is no stranger somebody gives up his place before anybody else goes.
    #[must_use]
    pub fn enter_or(
        &self,
        newcomer: Newcomer,
        given_up: impl FnOnce() -> Option<Place>,
    ) -> Option<Place> {
        let place = self.free().or_else(|| match newcomer {
            Newcomer::Stranger => None,
            Newcomer::Known(_) | Newcomer::ByKey => given_up(),
        });
        if place.is_some() {
            return place;
        }
        let Shared { idle, crowd, .. } = &*self.0;
        let somebody_goes = idle.make_room()
            || match newcomer {
                Newcomer::Stranger => false,
                Newcomer::Known(peer) => crowd.make_room(peer),
                Newcomer::ByKey => crowd.make_room_for_key(),
            };
        somebody_goes.then(|| {
            *self.0.taken() += 1;
            Place(Arc::clone(&self.0))
        })
    }

    /// A place, as soon as there is one or somebody goes for this one.
    pub async fn wait(self, newcomer: Newcomer) -> Place {
        loop {
            if let Some(place) = self.enter(newcomer) {
                return place;
            }
            tokio::select! {
                () = self.0.freed.notified() => {}
                // By then somebody may be idle who was not.
                () = tokio::time::sleep(GRACE) => {}
            }
        }
    }

    /// One that has a place is idle from now on: nobody would miss it. As the member that it is too it gives its place up
    /// once.
    #[must_use]
    pub fn idle(&self, member: Option<&Member>) -> Idling {
        self.0.idle.enter(member.map(Member::seen).unwrap_or_default())
    }

    /// One that has a place is one of those that come from there; what comes from nowhere is not counted.
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
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Instant;

    use super::*;

    const HERE: Newcomer = Newcomer::Known(None);

    /// QUO-01, SEC-16: there are as many places as there may be; who has shown a key gets that of one who has not, whatever
    /// that one holds, and of nobody else; a stranger gets none.
    #[test]
    fn who_has_shown_a_key_gets_the_place_of_one_who_has_not() {
        let mut context = Context::from_waker(Waker::noop());
        let places = Places::new(2);
        let peer = "10.0.0.1:1".parse().ok();
        let (_first, _second) = (places.free().unwrap(), places.enter(HERE).unwrap());
        assert!(places.is_full() && places.free().is_none());
        let (mut by_key, mut stranger) = (places.join(peer).unwrap(), places.join(peer).unwrap());
        by_key.shows_key(true);
        assert!(places.enter(Newcomer::Stranger).is_none());
        assert!(places.enter(Newcomer::ByKey).is_some());
        assert!(stranger.poll_needed(&mut context).is_ready());
        assert!(places.enter(Newcomer::ByKey).is_none(), "it holds what it holds by a key");
        assert!(by_key.poll_needed(&mut context).is_pending());
        by_key.shows_key(false);
        assert!(places.enter(Newcomer::ByKey).is_some(), "its key is good no more");
        assert!(by_key.poll_needed(&mut context).is_ready());
    }

    /// QUO-01: who was told to go as one that is idle, or as one that shows no key, gives its place up to nobody else.
    #[test]
    fn a_place_is_given_up_once() {
        let mut context = Context::from_waker(Waker::noop());
        let places = Places::new(2);
        let peer = "10.0.0.1:1".parse().ok();
        let (_first, _second) = (places.free().unwrap(), places.free().unwrap());
        let (silent, mut busy) = (places.join(peer).unwrap(), places.join(peer).unwrap());
        let since = Instant::now().checked_sub(2 * GRACE).unwrap();
        let mut idling = places.0.idle.enter_at(silent.seen(), since);
        assert!(places.enter(Newcomer::ByKey).is_some());
        assert!(idling.poll_needed(&mut context).is_ready() && silent.is_told());
        assert!(places.enter(Newcomer::ByKey).is_some());
        assert!(busy.poll_needed(&mut context).is_ready(), "it is the only one that can go");
        let _idling = places.0.idle.enter_at(busy.seen(), since);
        assert!(places.enter(Newcomer::ByKey).is_none(), "both were told");
        assert!(!busy.leaving().tell());
    }

    /// QUO-01: what somebody gives up goes to who is known, and to no stranger; who goes counts until it has gone.
    #[test]
    fn a_place_that_is_given_up_is_handed_on() {
        let places = Places::new(1);
        let mut lost = places.free();
        assert!(places.enter_or(Newcomer::Stranger, || lost.take()).is_none());
        let next = places.enter_or(HERE, || lost.take()).unwrap();
        assert!(lost.is_none() && places.is_full());
        drop(next);
        assert!(!places.is_full());
    }

    /// QUO-01: who waits for a place gets the next that is free.
    #[tokio::test]
    async fn who_waits_gets_the_next_place() {
        let mut context = Context::from_waker(Waker::noop());
        let places = Places::new(1);
        let first = places.free().unwrap();
        let mut waiting = pin!(places.clone().wait(Newcomer::ByKey));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }

    /// QUO-01: of those that have no place yet the oldest goes when there are more than there are sockets for, and when a
    /// further one waits for a socket.
    #[test]
    fn the_oldest_without_a_place_goes() {
        let places = Places::new(1);
        let arriving: Vec<Handshake> = (0..spare_sockets(1)).map(|_| places.arrive()).collect();
        let is_told = |handshake: &Handshake| {
            pin!(handshake.needed()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!arriving.iter().any(is_told));
        let _next = places.arrive();
        assert!(is_told(&arriving[0]) && !is_told(&arriving[1]));
        places.make_room_for_socket();
        assert!(is_told(&arriving[1]) && !is_told(&arriving[2]));
    }
}

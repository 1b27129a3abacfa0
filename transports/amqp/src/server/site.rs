//! State that all connections of one listener share.
//!
//! Every connection has a part of its own of links, sessions and tokens. The SDKs open several of each for one sender or
//! receiver, so a few clients need many, while each connection of thousands needs few. Beyond its own part, up to the
//! limit for each connection, a connection takes from a room that all connections of the listener share, in steps, and
//! only with something good shown: a stranger has its own part.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::Broker;
use peeklock_core::admission::{Budget, Places, Pool};
use peeklock_listen::{Strangers, Tracker};

use super::config::AmqpConfig;
use super::outcomes::Outcomes;

/// One listener: its broker, its settings, its connections.
pub(super) struct Site {
    pub(super) broker: Broker,
    pub(super) config: AmqpConfig,
    /// Places of connections, and those that have none yet.
    pub(super) places: Places,
    /// Who was refused for where it comes from.
    pub(super) strangers: Strangers,
    /// What has not arrived whole.
    pub(super) inbound: Arc<Pool>,
    /// The one content that is large and has not arrived whole, or is not stored.
    pub(super) large_inbound: Arc<Pool>,
    /// The one content that is large and was not sent whole.
    pub(super) large_outbound: Budget,
    pub(super) connections: Tracker,
    /// What became of the last deliveries that were settled when their link was gone.
    pub(super) outcomes: Mutex<Outcomes>,
    /// Links beyond those that each connection has of its own.
    pub(super) links: Arc<SharedLinks>,
}

impl Site {
    pub(super) fn new(broker: Broker, config: AmqpConfig) -> Self {
        Self {
            broker,
            places: Places::new(config.connection_count_max),
            strangers: Strangers::default(),
            inbound: Pool::of_parts(config.inbound_bytes_max),
            large_inbound: Pool::new(1),
            large_outbound: Budget::new(1),
            outcomes: Mutex::new(Outcomes::default()),
            links: Arc::new(SharedLinks::new(config.shared_link_count_max)),
            config,
            connections: Tracker::default(),
        }
    }

    /// What became of the last deliveries that were settled when their link was gone.
    pub(super) fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Links, and tokens, that each connection has of its own.
const OWN_COUNT: usize = 256;
/// Sessions that each connection has of its own.
const OWN_SESSION_COUNT: usize = 1_024;
/// Links, sessions and tokens that are taken from the shared room at once.
const STEP: usize = 64;
/// Bytes of tokens, with the paths that they are for, that each connection has of its own.
const OWN_TOKEN_BYTES: usize = 128 << 10;
/// Bytes of tokens for each link beyond those.
const TOKEN_BYTES: usize = 1 << 10;

/// The room that all connections of a listener share.
#[derive(Debug)]
pub(super) struct SharedLinks {
    left: AtomicUsize,
}

impl SharedLinks {
    /// Room for so many links.
    pub(super) const fn new(count: usize) -> Self {
        Self { left: AtomicUsize::new(count) }
    }

    fn take(&self, count: usize) -> bool {
        let less = |left: usize| left.checked_sub(count);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    fn give_back(&self, count: usize) {
        self.left.fetch_add(count, Ordering::AcqRel);
    }
}

/// What one connection has of it.
#[derive(Debug)]
pub(super) struct Share {
    shared: Arc<SharedLinks>,
    /// Links, and tokens, of its own.
    own_count: usize,
    /// The most that it may take.
    count_max: usize,
    taken: usize,
}

impl Share {
    /// That of a connection that may have so many links in all.
    pub(super) fn new(shared: Arc<SharedLinks>, link_count_max: usize) -> Self {
        let own_count = link_count_max.min(OWN_COUNT);
        Self { shared, own_count, count_max: link_count_max - own_count, taken: 0 }
    }

    /// Links, and tokens, that the connection may have now.
    pub(super) const fn count(&self) -> usize {
        self.own_count + self.taken
    }

    /// Sessions that it may have now.
    pub(super) const fn session_count(&self) -> usize {
        OWN_SESSION_COUNT + self.taken
    }

    /// Bytes of its tokens, with the paths that they are for.
    pub(super) const fn token_bytes(&self) -> usize {
        OWN_TOKEN_BYTES + self.taken * TOKEN_BYTES
    }

    /// Takes a step more. False if the connection has all that it may, or the room is used up.
    pub(super) fn grow(&mut self) -> bool {
        let step = STEP.min(self.count_max - self.taken);
        let is_taken = step > 0 && self.shared.take(step);
        self.taken += if is_taken { step } else { 0 };
        is_taken
    }

    /// Gives back the steps that are not needed for so many links, sessions and bytes of tokens.
    pub(super) fn shrink(&mut self, count: usize, session_count: usize, token_bytes: usize) {
        let beyond = [
            count.saturating_sub(self.own_count),
            session_count.saturating_sub(OWN_SESSION_COUNT),
            token_bytes.saturating_sub(OWN_TOKEN_BYTES).div_ceil(TOKEN_BYTES),
        ];
        let needed = beyond.into_iter().max().unwrap_or(0).next_multiple_of(STEP);
        if needed < self.taken {
            self.shared.give_back(self.taken - needed);
            self.taken = needed;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMQP-27, DESIGN D6: a connection takes steps of the shared room up to what it may have, gives back what it does not
    /// need, and all of it when it ends.
    #[test]
    fn a_share_is_taken_in_steps_and_given_back() {
        let shared = Arc::new(SharedLinks::new(150));
        let left = || shared.left.load(Ordering::Acquire);
        let mut share = Share::new(Arc::clone(&shared), 300);
        assert_eq!(
            (share.count(), share.session_count(), share.token_bytes()),
            (256, 1_024, 128 << 10)
        );
        assert!(share.grow());
        assert_eq!((share.count(), left()), (300, 106));
        assert!(!share.grow(), "it has all that it may");
        let mut other = Share::new(Arc::clone(&shared), 5_000);
        assert!(other.grow());
        assert!(!other.grow(), "the room is used up");
        assert_eq!((other.count(), left()), (320, 42));
        share.shrink(256, 1_025, 0);
        assert_eq!(share.count(), 300);
        share.shrink(256, 1_024, 128 << 10);
        assert_eq!((share.count(), left()), (256, 86));
        other.shrink(0, 0, (128 << 10) + 1);
        assert_eq!(other.count(), 320);
        drop(other);
        assert_eq!(left(), 150);
        let few = Share::new(shared, 4);
        assert_eq!(few.count(), 4);
    }
}

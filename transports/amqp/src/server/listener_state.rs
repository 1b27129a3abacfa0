//! State that all connections of a listener share.
//!
//! Each connection has its own quota of links, sessions and tokens. The SDKs open several links and
//! sessions for each sender or receiver, so a few clients need many, while each of thousands of
//! connections needs few. Above its own quota, up to the limit for a connection, a connection takes
//! from a shared pool in steps. Only a client with valid credentials may do so; a stranger has only
//! its own quota.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::Broker;
use peeklock_core::admission::{Budget, Places, Pool};
use peeklock_listen::{Strangers, Tracker};

use super::config::AmqpConfig;
use super::outcomes::Outcomes;

/// A listener: its broker, its settings and its connections.
pub(super) struct ListenerState {
    pub(super) broker: Broker,
    pub(super) config: AmqpConfig,
    /// Places of connections, and connections without a place.
    pub(super) places: Places,
    /// Clients that were refused because of their address.
    pub(super) strangers: Strangers,
    /// Room for bytes that have not arrived completely.
    pub(super) inbound: Arc<Pool>,
    /// Slot for the single large content that has not arrived completely or is not stored.
    pub(super) large_inbound: Arc<Pool>,
    /// Slot for the single large content that was not sent completely.
    pub(super) large_outbound: Budget,
    pub(super) connections: Tracker,
    /// Outcomes of the most recent deliveries that were settled after their link was detached.
    pub(super) outcomes: Mutex<Outcomes>,
    /// Shared pool of links, above the quota of each connection.
    pub(super) links: Arc<SharedLinks>,
}

impl ListenerState {
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

    /// Locks the outcomes of recent deliveries.
    pub(super) fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of links, and of tokens, in the quota of a connection.
const OWN_COUNT: usize = 256;
/// Number of sessions in the quota of a connection.
const OWN_SESSION_COUNT: usize = 1_024;
/// Number of links, sessions and tokens in a step.
const STEP: usize = 64;
/// Bytes of tokens with their paths in the quota of a connection.
const OWN_TOKEN_BYTES: usize = 128 << 10;
/// Bytes of tokens for each shared link.
const TOKEN_BYTES: usize = 1 << 10;

/// Pool of links that all connections of a listener share.
#[derive(Debug)]
pub(super) struct SharedLinks {
    left: AtomicUsize,
}

impl SharedLinks {
    /// Makes a pool of `count` links.
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

/// Quota of a connection, and its part of the shared pool. The part returns to the pool on drop.
#[derive(Debug)]
pub(super) struct ConnectionQuota {
    shared: Arc<SharedLinks>,
    /// Number of links, and of tokens, in the own quota.
    own_count: usize,
    /// Maximum number of shared links.
    count_max: usize,
    taken: usize,
}

impl ConnectionQuota {
    /// Makes the share of a connection that may have at most `link_count_max` links.
    pub(super) fn new(shared: Arc<SharedLinks>, link_count_max: usize) -> Self {
        let own_count = link_count_max.min(OWN_COUNT);
        Self { shared, own_count, count_max: link_count_max - own_count, taken: 0 }
    }

    /// Current limit of links, and of tokens.
    pub(super) const fn count(&self) -> usize {
        self.own_count + self.taken
    }

    /// Current limit of sessions.
    pub(super) const fn session_count(&self) -> usize {
        OWN_SESSION_COUNT + self.taken
    }

    /// Current limit of the bytes of tokens with their paths.
    pub(super) const fn token_bytes(&self) -> usize {
        OWN_TOKEN_BYTES + self.taken * TOKEN_BYTES
    }

    /// Takes a step from the pool. Returns false if the connection is at its limit or the pool is
    /// empty.
    pub(super) fn grow(&mut self) -> bool {
        let step = STEP.min(self.count_max - self.taken);
        let is_taken = step > 0 && self.shared.take(step);
        self.taken += if is_taken { step } else { 0 };
        is_taken
    }

    /// Returns the steps that this number of links, sessions and token bytes does not need.
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

impl Drop for ConnectionQuota {
    fn drop(&mut self) {
        self.shared.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMQP-27, DESIGN D6: a connection takes steps from the shared pool up to its limit, returns
    /// unneeded ones, and returns all when it ends.
    #[test]
    fn a_share_is_taken_in_steps_and_given_back() {
        let shared = Arc::new(SharedLinks::new(150));
        let left = || shared.left.load(Ordering::Acquire);
        let mut share = ConnectionQuota::new(Arc::clone(&shared), 300);
        assert_eq!(
            (share.count(), share.session_count(), share.token_bytes()),
            (256, 1_024, 128 << 10)
        );
        assert!(share.grow());
        assert_eq!((share.count(), left()), (300, 106));
        assert!(!share.grow(), "it has all that it may");
        let mut other = ConnectionQuota::new(Arc::clone(&shared), 5_000);
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
        let few = ConnectionQuota::new(shared, 4);
        assert_eq!(few.count(), 4);
    }
}

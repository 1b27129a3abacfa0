//! What all connections of one listener share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::Broker;
use peeklock_core::permits::{Budget, Pool};
use peeklock_listen::{Places, Strangers, Tracker};

use super::config::AmqpConfig;
use super::outcomes::Outcomes;
use super::share::SharedLinks;

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

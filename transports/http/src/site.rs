//! State that all requests of a listener share: the broker, the settings, and the pools for input
//! and output. `listener.rs` makes it.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::admission::{Places, Pool};
use peeklock_core::time::Timestamp;
use peeklock_listen::{Strangers, Tracker};
use tokio::sync::Semaphore;

use crate::config::HttpConfig;
use crate::downloads::Downloads;

/// One listener: its broker, its settings, its memory budgets.
pub(crate) struct Site {
    pub(crate) broker: Broker,
    pub(crate) config: HttpConfig,
    pub(crate) started_at: Timestamp,
    /// Budget for received bytes of requests and their decoded values. It is separate from the
    /// broker's budget: an operation holds it while it waits for the broker's, and waiting twice on
    /// the same budget could starve both.
    pub(crate) inbound: Arc<Pool>,
    /// Budget for answers until they are written.
    pub(crate) outbound: Arc<Pool>,
    /// Limits metrics pages to one at a time, since their size is unknown in advance.
    pub(crate) metrics_turn: Arc<Semaphore>,
    /// Addresses of downloads (CON-71).
    pub(crate) downloads: Downloads,
    /// Places of open streams (CON-33).
    pub(crate) streams: Arc<Semaphore>,
    /// Clients that were refused because of their address.
    pub(crate) strangers: Strangers,
    /// Open connections.
    pub(crate) places: Places,
    /// Requests in progress.
    pub(crate) requests: Tracker,
    /// Connections that AMQP has taken over.
    pub(crate) taken_over: Tracker,
}

impl Site {
    pub(crate) fn new(broker: Broker, config: HttpConfig) -> Self {
        Self {
            started_at: broker.now(),
            broker,
            inbound: Pool::of_parts(config.inbound_bytes_max),
            outbound: Pool::new(config.outbound_bytes_max),
            downloads: Downloads::default(),
            metrics_turn: Arc::new(Semaphore::new(1)),
            streams: Arc::new(Semaphore::new(config.stream_count_max)),
            strangers: Strangers::default(),
            places: Places::of_requests(config.connection_count_max.max(1)),
            config,
            requests: Tracker::default(),
            taken_over: Tracker::default(),
        }
    }

    /// Returns the URL scheme of this listener.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.config.tls.is_some() { "https" } else { "http" }
    }

    /// Ends waiting receives and idle connections.
    pub(crate) fn begin_stop(&self, grace: Duration) {
        self.requests.begin_stop(grace);
        self.places.wake_idle();
    }
}

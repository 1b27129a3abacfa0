//! What all requests of one listener share.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::permits::Pool;
use peeklock_listen::{Strangers, Tracker};
use tokio::sync::Semaphore;

use crate::config::HttpConfig;
use crate::places::Places;

/// One listener: its broker, its settings, its room.
pub(crate) struct Site {
    pub(crate) broker: Broker,
    pub(crate) config: HttpConfig,
    /// Requests as far as they are here, and what is made of them. Apart from the broker's budget: an operation
    /// holds it while it waits for the broker's, and two waits on one budget could starve each other.
    pub(crate) inbound: Arc<Pool>,
    /// Answers until they were written.
    pub(crate) outbound: Arc<Pool>,
    /// The turn at the metrics page: one is made at a time, and nobody knows before how large it is.
    pub(crate) metrics_turn: Arc<Semaphore>,
    /// Who was refused for where it comes from.
    pub(crate) strangers: Strangers,
    /// The connections.
    pub(crate) places: Arc<Places>,
    /// The requests that are being served.
    pub(crate) requests: Tracker,
    /// Connections that AMQP has taken over.
    pub(crate) taken_over: Tracker,
}

impl Site {
    pub(crate) fn new(broker: Broker, config: HttpConfig) -> Self {
        Self {
            broker,
            inbound: Pool::of_parts(config.inbound_bytes_max),
            outbound: Pool::new(config.outbound_bytes_max),
            metrics_turn: Arc::new(Semaphore::new(1)),
            strangers: Strangers::default(),
            places: Places::new(config.connection_count_max.max(1)),
            config,
            requests: Tracker::default(),
            taken_over: Tracker::default(),
        }
    }

    /// How URLs of this listener begin.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.config.tls.is_some() { "https" } else { "http" }
    }

    /// Ends the receives that wait, and connections that are idle.
    pub(crate) fn begin_stop(&self, grace: Duration) {
        self.requests.begin_stop(grace);
        self.places.wake_all();
    }
}

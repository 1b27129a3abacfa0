//! What all connections of one listener share.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::permits::{Budget, Pool};
use peeklock_tls::Handshakes;
use tokio::sync::watch;

use super::config::AmqpConfig;

/// Clients that have not opened their connections; of few connections at most half. Beyond, the oldest makes room.
const OPENING_COUNT_MAX: usize = 256;

/// One listener: its broker, its settings, how many connections it has.
pub(super) struct Site {
    pub(super) broker: Broker,
    pub(super) config: AmqpConfig,
    /// Connections that were not opened yet.
    pub(super) handshakes: Arc<Handshakes>,
    /// What has not arrived whole.
    pub(super) inbound: Arc<Pool>,
    /// The one content that is large and has not arrived whole, or is not stored.
    pub(super) large_inbound: Arc<Pool>,
    /// The one content that is large and was not sent whole.
    pub(super) large_outbound: Budget,
    count: watch::Sender<usize>,
    stopping: watch::Sender<Option<Duration>>,
}

/// The place of a connection, until this is dropped.
pub(super) struct Place(Arc<Site>);

impl Site {
    pub(super) fn new(broker: Broker, config: AmqpConfig) -> Self {
        Self {
            broker,
            handshakes: Handshakes::new(OPENING_COUNT_MAX.min(config.connection_count_max / 2)),
            inbound: Pool::of_parts(config.inbound_bytes_max),
            large_inbound: Pool::new(1),
            large_outbound: Budget::new(1),
            config,
            count: watch::Sender::new(0),
            stopping: watch::Sender::new(None),
        }
    }

    /// A place for a connection.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        self.count.send_modify(|count| *count += 1);
        Place(Arc::clone(self))
    }

    /// How many connections there are.
    pub(super) fn connection_count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until there is no connection.
    pub(super) async fn quiet(&self) {
        let mut count = self.count.subscribe();
        // The sender lives as long as this site.
        drop(count.wait_for(|count| *count == 0).await);
    }

    /// Tells all connections to end within this time.
    pub(super) fn begin_stop(&self, grace: Duration) {
        self.stopping.send_replace(Some(grace));
    }

    /// Tells when the listener is being stopped.
    pub(super) fn stopping(&self) -> watch::Receiver<Option<Duration>> {
        self.stopping.subscribe()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

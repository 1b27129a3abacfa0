//! What all requests of one listener share.

use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::permits::Pool;
use tokio::sync::{Semaphore, watch};

use crate::config::HttpConfig;
use crate::places::Places;

/// Explanations of rules that are made at once.
const EXPLAINING_MAX: usize = 2;

/// One listener: its broker, its settings, its room.
pub(crate) struct Site {
    pub(crate) broker: Broker,
    pub(crate) config: HttpConfig,
    /// Requests as far as they are here, and what is made of them. Apart from the broker's budget: an operation
    /// holds it while it waits for the broker's, and two waits on one budget could starve each other.
    pub(crate) inbound: Arc<Pool>,
    /// Answers until they were written.
    pub(crate) outbound: Arc<Pool>,
    /// Rules that are being explained: what comes of it is large, and known only when it is there.
    pub(crate) explaining: Semaphore,
    /// The connections.
    pub(crate) places: Arc<Places>,
    in_progress: watch::Sender<usize>,
    stopping: watch::Sender<bool>,
}

/// A request in progress, until this is dropped.
pub(crate) struct InProgress(Arc<Site>);

impl Site {
    pub(crate) fn new(broker: Broker, config: HttpConfig) -> Self {
        Self {
            broker,
            inbound: Pool::of_parts(config.inbound_bytes_max),
            outbound: Pool::new(config.outbound_bytes_max),
            explaining: Semaphore::new(EXPLAINING_MAX),
            places: Places::new(config.connection_count_max.max(1)),
            config,
            in_progress: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
        }
    }

    /// Counts a request until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> InProgress {
        self.in_progress.send_modify(|count| *count += 1);
        InProgress(Arc::clone(self))
    }

    /// How URLs of this listener begin.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.config.tls.is_some() { "https" } else { "http" }
    }

    /// How many requests are being served.
    pub(crate) fn in_progress(&self) -> usize {
        *self.in_progress.borrow()
    }

    /// Waits until no request is being served.
    pub(crate) async fn quiet(&self) {
        let mut in_progress = self.in_progress.subscribe();
        // The sender lives as long as this site.
        drop(in_progress.wait_for(|count| *count == 0).await);
    }

    /// Ends the receives that wait, and connections that are idle.
    pub(crate) fn begin_stop(&self) {
        self.stopping.send_replace(true);
        self.places.wake_all();
    }

    /// Whether the listener is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the listener is being stopped.
    pub(crate) async fn stop_begun(&self) {
        let mut stopping = self.stopping.subscribe();
        drop(stopping.wait_for(|stopping| *stopping).await);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.send_modify(|count| *count = count.saturating_sub(1));
    }
}

//! Counter of connections or requests that the stop of a listener waits for. Transports track each
//! connection, and the listener starts the stop.

use std::time::Duration;

use tokio::sync::watch;

/// Counts connections or requests that are being served, and signals them to end. Clones share
/// their state.
#[derive(Clone, Debug)]
pub struct Tracker {
    count: watch::Sender<usize>,
    stopping: watch::Sender<Option<Duration>>,
}

/// Guard of a connection or request; dropping it reduces the count.
#[derive(Debug)]
pub struct TrackGuard(watch::Sender<usize>);

impl Default for Tracker {
    fn default() -> Self {
        Self { count: watch::Sender::new(0), stopping: watch::Sender::new(None) }
    }
}

impl Tracker {
    /// Counts one more.
    #[must_use]
    pub fn track(&self) -> TrackGuard {
        self.count.send_modify(|count| *count += 1);
        TrackGuard(self.count.clone())
    }

    /// Number of connections or requests being served.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until the count is zero.
    pub async fn wait_until_idle(&self) {
        let mut count = self.count.subscribe();
        // `self` holds the sender, so waiting does not fail.
        drop(count.wait_for(|count| *count == 0).await);
    }

    /// Asks all connections and requests to end within `grace`.
    pub fn begin_stop(&self, grace: Duration) {
        self.stopping.send_replace(Some(grace));
    }

    /// Whether connections and requests must end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    /// Waits until connections and requests must end; returns the time that they have.
    pub fn stop_begun(&self) -> impl Future<Output = Duration> + Send + use<> {
        let mut stopping = self.stopping.subscribe();
        async move {
            let grace = stopping.wait_for(Option::is_some).await.map(|grace| *grace);
            // The sender lives as long as the listener.
            grace.ok().flatten().unwrap_or_default()
        }
    }
}

impl Drop for TrackGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

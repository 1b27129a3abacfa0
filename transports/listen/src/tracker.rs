//! What is being served, as the stop of a listener sees it.

use std::time::Duration;

use tokio::sync::watch;

/// Counts connections or requests that are being served, and tells them when they are to end. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Tracker {
    count: watch::Sender<usize>,
    stopping: watch::Sender<Option<Duration>>,
}

/// One that is being served, until this is dropped.
#[derive(Debug)]
pub struct Tracked(watch::Sender<usize>);

impl Default for Tracker {
    fn default() -> Self {
        Self { count: watch::Sender::new(0), stopping: watch::Sender::new(None) }
    }
}

impl Tracker {
    /// Counts one more.
    #[must_use]
    pub fn track(&self) -> Tracked {
        self.count.send_modify(|count| *count += 1);
        Tracked(self.count.clone())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until there is none.
    pub async fn quiet(&self) {
        let mut count = self.count.subscribe();
        // The sender is this one's.
        drop(count.wait_for(|count| *count == 0).await);
    }

    /// Tells all of them to end within this time.
    pub fn begin_stop(&self, grace: Duration) {
        self.stopping.send_replace(Some(grace));
    }

    /// Whether they are to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    /// Waits until they are to end, and tells within what time.
    pub fn stop_begun(&self) -> impl Future<Output = Duration> + Send + use<> {
        let mut stopping = self.stopping.subscribe();
        async move {
            let grace = stopping.wait_for(Option::is_some).await.map(|grace| *grace);
            // The sender lives as long as the listener.
            grace.ok().flatten().unwrap_or_default()
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

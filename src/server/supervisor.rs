//! Notifications for the service manager that started this process (sd_notify(3)): it is ready,
//! makes progress, stops, or needs more time. Without a service manager, when `NOTIFY_SOCKET` is
//! not set, nothing is sent.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use peeklock::Broker;
use peeklock::core::StalledTurn;
use tokio::task::AbortHandle;

/// Additional time that is requested during a long operation.
const EXTENSION: Duration = Duration::from_secs(60);
/// Interval between requests for more time.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(15);

/// Requests more time until it is dropped, on its own thread because opening a store blocks.
pub struct TimeExtension {
    /// Dropping the sender ends the thread.
    _end: Option<Sender<()>>,
}

impl TimeExtension {
    /// Reports the operation, and requests time for it.
    pub fn during(activity: &'static str) -> Self {
        if !is_supervised() {
            return Self { _end: None };
        }
        Self::asking(EXTENSION_INTERVAL, move || notify::status(activity, EXTENSION))
    }

    /// Requests time immediately, and again after each `again`.
    fn asking(again: Duration, ask: impl Fn() + Send + 'static) -> Self {
        let (end, ended) = channel();
        let asking = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
            loop {
                ask();
                if ended.recv_timeout(again) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        if let Err(error) = asking {
            tracing::warn!(%error, "cannot ask the service manager for more time");
        }
        Self { _end: Some(end) }
    }
}

/// Reports that clients are served, and from then on that the broker makes progress.
pub fn ready(broker: &Broker) -> Option<Watchdog> {
    if !is_supervised() {
        return None;
    }
    notify::ready("serving");
    let broker = broker.clone();
    Watchdog::start(move || broker.stalled())
}

/// Reports that the process stands by for the broker `owner`, and from then on that it is alive. So
/// the service has started, although it serves no client.
pub fn standing_by(owner: &str) -> Option<Watchdog> {
    if !is_supervised() {
        return None;
    }
    notify::ready(&format!("standing by for {owner}"));
    Watchdog::start(|| None)
}

/// Reports that another broker has taken over, and that this process becomes a standby.
pub fn starting_again() {
    if is_supervised() {
        notify::text("another broker has taken over, starting again as a standby");
    }
}

/// Reports that the process is about to end. The service manager's timeout must exceed the grace
/// for clients.
pub fn stopping() {
    if is_supervised() {
        notify::stopping();
    }
}

/// Reports, until it is dropped, that every arbiter makes progress, if the service manager expects
/// such reports. While one entity occupies an arbiter too long, the reports stop, so that the
/// service manager restarts the process. A slow disk blocks no arbiter, so it does not cause a
/// restart.
pub struct Watchdog(AbortHandle);

impl Watchdog {
    fn start(stalled: impl Fn() -> Option<StalledTurn> + Send + 'static) -> Option<Self> {
        // Three reports within the timeout of the service manager.
        let beat = notify::watchdog_time()? / 3;
        Some(Self::with_interval(beat, stalled, notify::turning))
    }

    /// Sends a report at each beat, unless an arbiter is stalled.
    fn with_interval(
        beat: Duration,
        stalled: impl Fn() -> Option<StalledTurn> + Send + 'static,
        turning: impl Fn() + Send + 'static,
    ) -> Self {
        let task = tokio::spawn(async move {
            let mut beats = tokio::time::interval(beat.max(Duration::from_millis(10)));
            loop {
                beats.tick().await;
                match stalled() {
                    None => turning(),
                    Some(stalled) => {
                        let entity = stalled.path.as_deref().unwrap_or_default();
                        let seconds = stalled.duration.as_seconds_f64();
                        tracing::error!(
                            entity,
                            seconds,
                            "a worker thread makes no progress; withholding the watchdog message \
                             to the service manager"
                        );
                    }
                }
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

#[cfg(unix)]
mod notify {
    use std::time::Duration;

    use sd_notify::NotifyState;

    fn send(state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state) {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }

    pub(super) fn status(activity: &str, more: Duration) {
        let more = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
        // A process that was replaced while it was supervised still has its watchdog.
        send(&[
            NotifyState::Status(activity),
            NotifyState::ExtendTimeoutUsec(more),
            NotifyState::Watchdog,
        ]);
    }

    pub(super) fn ready(activity: &str) {
        send(&[NotifyState::Status(activity), NotifyState::Ready]);
    }

    pub(super) fn text(activity: &str) {
        send(&[NotifyState::Status(activity)]);
    }

    pub(super) fn stopping() {
        send(&[NotifyState::Stopping]);
    }

    pub(super) fn turning() {
        send(&[NotifyState::Watchdog]);
    }

    pub(super) fn watchdog_time() -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }
}

#[cfg(not(unix))]
mod notify {
    use std::time::Duration;

    pub(super) const fn status(_: &str, _: Duration) {}
    pub(super) const fn ready(_: &str) {}
    pub(super) const fn text(_: &str) {}
    pub(super) const fn stopping() {}
    pub(super) const fn turning() {}
    pub(super) const fn watchdog_time() -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use peeklock::time::TimeSpan;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// Time for a long operation is requested repeatedly until the operation ends.
    #[test]
    fn time_is_requested_until_the_guard_is_dropped() {
        let (sender, asked) = channel();
        let ask = move || {
            sender.send(()).ok();
        };
        let patience = TimeExtension::asking(Duration::from_millis(10), ask);
        for _ in 0..3 {
            asked.recv().unwrap();
        }
        drop(patience);
        // The thread ends with the guard.
        while asked.recv().is_ok() {}
    }

    /// While one entity occupies an arbiter, no progress is reported.
    #[tokio::test]
    async fn a_stalled_arbiter_ends_the_beats() {
        let stalled = [false, false, true, true, true, false];
        let (sender, mut events) = unbounded_channel();
        let told = sender.clone();
        let at = AtomicUsize::new(0);
        let stalled = move || {
            sender.send("asked").ok();
            let is_stalled = stalled.get(at.fetch_add(1, Ordering::Relaxed));
            let duration = TimeSpan::from_seconds(2);
            is_stalled.copied().unwrap_or_default().then_some(StalledTurn { path: None, duration })
        };
        let turning = move || {
            told.send("told").ok();
        };
        let watchdog = Watchdog::with_interval(Duration::from_millis(10), stalled, turning);
        for expected in
            ["asked", "told", "asked", "told", "asked", "asked", "asked", "asked", "told", "asked"]
        {
            assert_eq!(events.recv().await, Some(expected));
        }
        drop(watchdog);
        // The task ends with the guard.
        while events.recv().await.is_some() {}
    }
}

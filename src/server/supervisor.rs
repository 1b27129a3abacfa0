//! What the service manager that started this process is told, as sd_notify(3) says: that it is ready, that it turns,
//! that it stops, and that something long needs its time. Without one, which is where `NOTIFY_SOCKET` is not set, nobody
//! is told anything.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use peeklock::Broker;
use peeklock::core::Stalled;
use tokio::task::AbortHandle;

/// How much time is asked for while something long goes on.
const MORE: Duration = Duration::from_secs(60);
/// How often it is asked for.
const AGAIN: Duration = Duration::from_secs(15);

/// Asks for more time as long as this lives, from a thread of its own: opening a store blocks.
pub struct Patience {
    /// When this is gone the thread sees that nobody waits.
    _end: Option<Sender<()>>,
}

impl Patience {
    /// Says what goes on, and asks for the time that it takes.
    pub fn during(what: &'static str) -> Self {
        if !is_supervised() {
            return Self { _end: None };
        }
        Self::asking(AGAIN, move || tell::status(what, MORE))
    }

    /// Asks at once, and again whenever so long has passed.
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

/// Says that clients are served, and from then on that the broker turns.
pub fn ready(broker: &Broker) -> Option<Watchdog> {
    if !is_supervised() {
        return None;
    }
    tell::ready();
    Watchdog::start(broker)
}

/// Says that the process is about to end. How long that may take is for the service manager to say: its time has to be over
/// the grace that clients have.
pub fn stopping() {
    if is_supervised() {
        tell::stopping();
    }
}

/// Says as long as this lives that every arbiter turns, if the service manager wants to be told. One that is at one entity and
/// does not come to an end is not told of, so that the process is started anew; a disk that answers slowly holds up no
/// arbiter, and a broker that waits for it is left alone.
pub struct Watchdog(AbortHandle);

impl Watchdog {
    fn start(broker: &Broker) -> Option<Self> {
        // Thrice in the time after which it would be taken for dead.
        let beat = tell::watchdog_time()? / 3;
        let broker = broker.clone();
        Some(Self::beating(beat, move || broker.stalled(), tell::turning))
    }

    /// Tells at each beat that all turns, unless something is stalled.
    fn beating(
        beat: Duration,
        stalled: impl Fn() -> Option<Stalled> + Send + 'static,
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
                        let seconds = stalled.took.as_seconds_f64();
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
mod tell {
    use std::time::Duration;

    use sd_notify::NotifyState;

    fn tell(state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state) {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }

    pub(super) fn status(what: &str, more: Duration) {
        let more = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
        tell(&[NotifyState::Status(what), NotifyState::ExtendTimeoutUsec(more)]);
    }

    pub(super) fn ready() {
        tell(&[NotifyState::Status("serving"), NotifyState::Ready]);
    }

    pub(super) fn stopping() {
        tell(&[NotifyState::Stopping]);
    }

    pub(super) fn turning() {
        tell(&[NotifyState::Watchdog]);
    }

    pub(super) fn watchdog_time() -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }
}

#[cfg(not(unix))]
mod tell {
    use std::time::Duration;

    pub(super) const fn status(_: &str, _: Duration) {}
    pub(super) const fn ready() {}
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

    /// Time for something long is asked for again and again, as long as it goes on.
    #[test]
    fn time_is_asked_for_until_it_is_over() {
        let (sender, asked) = channel();
        let ask = move || {
            sender.send(()).ok();
        };
        let patience = Patience::asking(Duration::from_millis(10), ask);
        for _ in 0..3 {
            asked.recv().unwrap();
        }
        drop(patience);
        // With it goes who asks.
        while asked.recv().is_ok() {}
    }

    /// As long as an arbiter is at one entity the service manager is not told that the broker turns.
    #[tokio::test]
    async fn a_stalled_arbiter_ends_the_beats() {
        let stalled = [false, false, true, true, true, false];
        let (sender, mut events) = unbounded_channel();
        let told = sender.clone();
        let at = AtomicUsize::new(0);
        let stalled = move || {
            sender.send("asked").ok();
            let is_stalled = stalled.get(at.fetch_add(1, Ordering::Relaxed));
            let took = TimeSpan::from_seconds(2);
            is_stalled.copied().unwrap_or_default().then_some(Stalled { path: None, took })
        };
        let turning = move || {
            told.send("told").ok();
        };
        let watchdog = Watchdog::beating(Duration::from_millis(10), stalled, turning);
        for expected in
            ["asked", "told", "asked", "told", "asked", "asked", "asked", "asked", "told", "asked"]
        {
            assert_eq!(events.recv().await, Some(expected));
        }
        drop(watchdog);
        // With it goes who tells.
        while events.recv().await.is_some() {}
    }
}

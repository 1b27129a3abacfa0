//! Logs requests whose Origin or Host a listener does not know (SEC-23). The operator needs the log
//! to find the setting that lacks a page or a host name, because browsers do not show the reason to
//! their users.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use peeklock_core::contract::browser::RefusedHeader;

/// Minimum interval between log lines, because any client can cause them.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum characters of a logged header.
const CHARS_MAX: usize = 128;

/// Refused requests of one listener.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<LogState>);

#[derive(Debug, Default)]
struct LogState {
    next_at: Option<Instant>,
    untold: u64,
}

impl Strangers {
    /// Logs the refusal of a request from this peer, at most once a second.
    pub fn refused<'a>(
        &self,
        foreign: RefusedHeader,
        peer: Option<SocketAddr>,
        host: Option<&str>,
        mut origins: impl Iterator<Item = Option<&'a str>>,
    ) {
        let Some(untold) = self.take_unlogged(Instant::now()) else { return };
        let cut = |text: &str| text.chars().take(CHARS_MAX).collect::<String>();
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        let host = host.map(cut).unwrap_or_default();
        let origin = origins.next().flatten().map(cut).unwrap_or_default();
        tracing::warn!(peer, host, origin, untold, "a request was refused: {foreign}");
    }

    /// Returns the number of requests that were not logged since the last log line, if a line may
    /// be logged now.
    fn take_unlogged(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next_at.is_some_and(|next_at| now < next_at) {
            state.untold += 1;
            return None;
        }
        state.next_at = Some(now + LOG_INTERVAL);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-23: the first refusal is logged at once, then at most one each second, with the number
    /// of refusals that were not logged.
    #[test]
    fn refusals_are_logged_once_per_second() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(strangers.take_unlogged(at(0)), Some(0));
        for ms in 1..1_000 {
            assert_eq!(strangers.take_unlogged(at(ms)), None);
        }
        assert_eq!(strangers.take_unlogged(at(1_000)), Some(999));
        assert_eq!(strangers.take_unlogged(at(1_999)), None);
        assert_eq!(strangers.take_unlogged(at(9_000)), Some(1));
    }
}

//! Who comes from where a listener does not know (SEC-23): told in the log, since whoever operates the broker has to know
//! which setting a page or a name is missing from, and the browser of whoever uses the page does not say.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use peeklock_core::contract::browser::RefusedHeader;

/// One of them is told in so long: anybody can make more.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What a client says of itself is cut after so many characters.
const CHARS_MAX: usize = 128;

/// Those of one listener.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    next_at: Option<Instant>,
    untold: u64,
}

impl Strangers {
    /// Says that a request of this peer was refused, unless it was said of another a moment ago.
    pub fn refused<'a>(
        &self,
        foreign: RefusedHeader,
        peer: Option<SocketAddr>,
        host: Option<&str>,
        mut origins: impl Iterator<Item = Option<&'a str>>,
    ) {
        let Some(untold) = self.may_tell(Instant::now()) else { return };
        let cut = |text: &str| text.chars().take(CHARS_MAX).collect::<String>();
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        let host = host.map(cut).unwrap_or_default();
        let origin = origins.next().flatten().map(cut).unwrap_or_default();
        tracing::warn!(peer, host, origin, untold, "a request was refused: {foreign}");
    }

    /// Whether one may be told now; with how many were not since the last that was.
    fn may_tell(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.next_at.is_some_and(|next_at| now < next_at) {
            told.untold += 1;
            return None;
        }
        told.next_at = Some(now + TELL_EVERY);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-23: the first one is told at once, and of many one in a second, with how many there were.
    #[test]
    fn strangers_are_told_one_in_a_second() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(strangers.may_tell(at(0)), Some(0));
        for ms in 1..1_000 {
            assert_eq!(strangers.may_tell(at(ms)), None);
        }
        assert_eq!(strangers.may_tell(at(1_000)), Some(999));
        assert_eq!(strangers.may_tell(at(1_999)), None);
        assert_eq!(strangers.may_tell(at(9_000)), Some(1));
    }
}

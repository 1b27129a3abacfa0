//! Limit on log lines that unauthenticated clients can cause. The acceptor asks before each
//! warning.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines in a period. The next line states how many were omitted.
const LINES_MAX: u32 = 10;
/// Length of a period.
const PERIOD: Duration = Duration::from_secs(10);

/// Lines about handshakes.
#[derive(Default)]
pub(crate) struct LineLimit(Mutex<State>);

#[derive(Default)]
struct State {
    since: Option<Instant>,
    written: u32,
    omitted: u64,
}

impl LineLimit {
    /// Returns whether another line may be written, with the number of lines omitted before it.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            (state.since, state.written) = (Some(now), 0);
        }
        if state.written >= LINES_MAX {
            state.omitted += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TLS-03: clients cannot fill the log, and the next line states the number of omitted lines.
    #[test]
    fn lines_have_a_bound() {
        let (lines, begin) = (LineLimit::default(), Instant::now());
        let written = |at| (0..100).filter(|_| lines.admit(at).is_some()).count();
        assert_eq!(written(begin), LINES_MAX as usize);
        assert_eq!(written(begin + PERIOD / 2), 0);
        assert_eq!(lines.admit(begin + PERIOD), Some(190));
        assert_eq!(lines.admit(begin + PERIOD), Some(0));
    }
}

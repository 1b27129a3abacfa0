//! Log of refused callers. Each refusal is counted by its cause, and logged with the caller's
//! identity and address (SEC-22). The number of lines is bounded, so that a caller that tries keys
//! cannot fill the disk: at most [`LINES_MAX`] lines per cause in [`PERIOD`]. The next line reports
//! the number of omitted ones; the counters have the total.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::{BrokerError, Denial};
use crate::telemetry;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of lines of a cause within [`PERIOD`].
const LINES_MAX: u32 = 10;
/// Period of the bound.
const PERIOD: TimeSpan = TimeSpan::from_seconds(10);
/// Maximum number of causes with a bound of their own; further ones share one. Causes are words of
/// this program and its authorizers.
const CAUSES_MAX: usize = 64;
/// Maximum number of characters of a path in a line; paths of existing entities are shorter.
const PATH_CHARS_MAX: usize = 400;

/// Lines of a broker by cause.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<&'static str, LineCount>>);

/// Lines of a cause.
#[derive(Clone, Copy)]
struct LineCount {
    since: Timestamp,
    logged: u32,
    omitted: u64,
}

impl Refusals {
    /// Counts a refusal, and logs it as a warning within the bound, otherwise at debug level.
    pub(crate) fn record(&self, error: &BrokerError) {
        let denial = error.rejection().denial();
        let cause = denial.map_or(Denial::OTHER, |denial| denial.cause);
        telemetry::count_unauthorized(cause);
        let policy = denial.and_then(|denial| denial.policy.as_deref());
        let peer = denial.and_then(|denial| denial.peer).map(tracing::field::display);
        let (tracking_id, detail) = (error.tracking_id(), error.detail());
        let cut = error.entity().char_indices().nth(PATH_CHARS_MAX).map(|(at, _)| at);
        let entity = error.entity().get(..cut.unwrap_or(usize::MAX)).unwrap_or(error.entity());
        match self.admit(cause, error.timestamp()) {
            Some(left_out) => {
                let left_out = (left_out > 0).then_some(left_out);
                tracing::warn!(
                    %tracking_id, entity, cause, policy, peer, detail, left_out, "refused"
                );
            }
            None => {
                tracing::debug!(%tracking_id, entity, cause, policy, peer, detail, "refused");
            }
        }
    }

    /// Returns the number of lines omitted before this one; none if this one must be omitted too.
    pub(crate) fn admit(&self, cause: &'static str, now: Timestamp) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = all.len() < CAUSES_MAX || all.contains_key(cause);
        let lines = all.entry(if is_known { cause } else { Denial::OTHER }).or_insert(LineCount {
            since: now,
            logged: 0,
            omitted: 0,
        });
        // A clock that was set back starts a new period.
        if now < lines.since || now >= lines.since.plus(PERIOD) {
            (lines.since, lines.logged) = (now, 0);
        }
        if lines.logged >= LINES_MAX {
            lines.omitted += 1;
            return None;
        }
        lines.logged += 1;
        Some(std::mem::take(&mut lines.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-22: each cause has a bounded number of lines in a period, and the next line reports the
    /// omitted ones.
    #[test]
    fn lines_of_one_cause_have_a_bound() {
        let refusals = Refusals::default();
        let now = Timestamp::from_unix_ms(1_000_000);
        let admitted =
            |cause, now| (0..1_000).filter(|_| refusals.admit(cause, now).is_some()).count();
        assert_eq!(admitted("signature", now), LINES_MAX as usize);
        assert_eq!(admitted("right", now), LINES_MAX as usize, "another cause");
        let almost = Timestamp::from_ticks(now.plus(PERIOD).ticks() - 1);
        assert_eq!(admitted("signature", almost), 0);
        assert_eq!(refusals.admit("signature", now.plus(PERIOD)), Some(1_990));
        assert_eq!(refusals.admit("signature", now.plus(PERIOD)), Some(0));
        assert_eq!(admitted("signature", now.plus(PERIOD)), LINES_MAX as usize - 2);
        assert_eq!(admitted("signature", now), LINES_MAX as usize, "the clock was set back");
    }

    /// SEC-22: causes beyond the maximum share one bound.
    #[test]
    fn causes_have_a_bound() {
        let refusals = Refusals::default();
        let now = Timestamp::from_unix_ms(1_000_000);
        for number in 0..200 {
            let cause: &'static str = Box::leak(number.to_string().into_boxed_str());
            refusals.admit(cause, now);
        }
        assert!(refusals.0.lock().unwrap().len() <= CAUSES_MAX + 1);
    }
}

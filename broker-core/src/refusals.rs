//! What an operator sees of callers who may not do what they ask: each is counted by its cause, and told in the log with who it
//! was and where he comes from (SEC-22). Somebody who tries keys fills no disk: of one cause so many lines are told in a while, the
//! next one says how many were not, and how many there were is in the counts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::{BrokerError, Denial};
use crate::telemetry;
use crate::time::{TimeSpan, Timestamp};

/// Lines of one cause that are told in a while.
const LINES_MAX: u32 = 10;
/// How long that is.
const WHILE: TimeSpan = TimeSpan::from_seconds(10);
/// Causes that are told apart. They are words of this program and of its authorizers; more than these share one bound.
const CAUSES_MAX: usize = 64;
/// Characters of a path that a line repeats: any that an entity has is shorter.
const PATH_CHARS_MAX: usize = 400;

/// The lines of a broker, by cause.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<&'static str, Lines>>);

/// Lines of one cause.
#[derive(Clone, Copy)]
struct Lines {
    since: Timestamp,
    told: u32,
    left_out: u64,
}

impl Refusals {
    /// Counts one, and tells it unless too many were told already.
    pub(crate) fn tell(&self, error: &BrokerError) {
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

    /// Whether one more line is told, with how many were left out before it.
    fn admit(&self, cause: &'static str, now: Timestamp) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = all.len() < CAUSES_MAX || all.contains_key(cause);
        let lines = all.entry(if is_known { cause } else { Denial::OTHER }).or_insert(Lines {
            since: now,
            told: 0,
            left_out: 0,
        });
        // A clock that was set back begins anew.
        if now < lines.since || now >= lines.since.plus(WHILE) {
            (lines.since, lines.told) = (now, 0);
        }
        if lines.told >= LINES_MAX {
            lines.left_out += 1;
            return None;
        }
        lines.told += 1;
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-22: so many lines of a cause are told in a while, of each cause, and the next says how many were not.
    #[test]
    fn lines_of_one_cause_have_a_bound() {
        let refusals = Refusals::default();
        let now = Timestamp::from_unix_ms(1_000_000);
        let told = |cause, now| (0..1_000).filter(|_| refusals.admit(cause, now).is_some()).count();
        assert_eq!(told("signature", now), LINES_MAX as usize);
        assert_eq!(told("right", now), LINES_MAX as usize, "another cause");
        let almost = Timestamp::from_ticks(now.plus(WHILE).ticks() - 1);
        assert_eq!(told("signature", almost), 0);
        assert_eq!(refusals.admit("signature", now.plus(WHILE)), Some(1_990));
        assert_eq!(refusals.admit("signature", now.plus(WHILE)), Some(0));
        assert_eq!(told("signature", now.plus(WHILE)), LINES_MAX as usize - 2);
        assert_eq!(told("signature", now), LINES_MAX as usize, "the clock was set back");
    }

    /// SEC-22: causes are few; more than may be told apart share one bound.
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

//! What all machines of a broker keep in memory together: counted, so that many entities within their own
//! limits are not too much together (QUO-01).
//!
//! A machine is told how many there may be still, as of the beginning of a step; so a few more than the limit
//! may come in at once, but no more than one command brings on each arbiter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::entity::{Kept, Left};
use crate::limits::Limits;

/// The sums over all machines.
#[derive(Debug, Default)]
pub struct Census {
    messages: AtomicU64,
    sessions: AtomicU64,
    duplicate_ids: AtomicU64,
    delayed: AtomicU64,
    rules: AtomicU64,
    described_bytes: AtomicU64,
    judged_bytes: AtomicU64,
}

/// What one machine has told; taken back when it goes.
#[derive(Debug)]
pub struct Counted {
    census: Arc<Census>,
    kept: Kept,
}

impl Census {
    /// How many more there may be.
    #[must_use]
    pub fn left(&self, limits: &Limits) -> Left {
        let left_of = |max: u64, sum: &AtomicU64| max.saturating_sub(sum.load(Ordering::Relaxed));
        let left = |count_max: usize, count: &AtomicU64| left_of(count_max as u64, count);
        Left {
            messages: left(limits.broker_message_count_max, &self.messages),
            sessions: left(limits.broker_session_count_max, &self.sessions),
            duplicate_ids: left(limits.broker_duplicate_id_count_max, &self.duplicate_ids),
            delayed: left(limits.broker_delayed_count_max, &self.delayed),
            rules: left(limits.broker_rule_count_max, &self.rules),
            described_bytes: left_of(limits.broker_description_bytes_max, &self.described_bytes),
            judged_bytes: left_of(limits.broker_judged_bytes_max, &self.judged_bytes),
        }
    }

    /// The sums.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Kept {
            messages: count(&self.messages),
            sessions: count(&self.sessions),
            duplicate_ids: count(&self.duplicate_ids),
            delayed: count(&self.delayed),
            rules: count(&self.rules),
            described_bytes: count(&self.described_bytes),
            judged_bytes: count(&self.judged_bytes),
        }
    }
}

impl Counted {
    /// A machine that has told nothing yet.
    #[must_use]
    pub fn new(census: Arc<Census>) -> Self {
        Self { census, kept: Kept::default() }
    }

    /// How many more there may be.
    #[must_use]
    pub fn left(&self, limits: &Limits) -> Left {
        self.census.left(limits)
    }

    /// Takes note of what the machine keeps now.
    pub fn note(&mut self, now: Kept) {
        if now == self.kept {
            return;
        }
        let before = std::mem::replace(&mut self.kept, now);
        let sums = &*self.census;
        for (sum, before, now) in [
            (&sums.messages, before.messages, now.messages),
            (&sums.sessions, before.sessions, now.sessions),
            (&sums.duplicate_ids, before.duplicate_ids, now.duplicate_ids),
            (&sums.delayed, before.delayed, now.delayed),
            (&sums.rules, before.rules, now.rules),
            (&sums.described_bytes, before.described_bytes, now.described_bytes),
            (&sums.judged_bytes, before.judged_bytes, now.judged_bytes),
        ] {
            if now != before {
                // The sum of all differences is never below nothing, whatever their order.
                sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.note(Kept::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines come, change and go, and the sums are what those that are there keep.
    #[test]
    fn the_sums_follow_the_machines() {
        let census = Arc::<Census>::default();
        let mut limits = Limits::default();
        limits.broker_session_count_max = 10;
        let kept = |sessions, rules| Kept { sessions, rules, ..Kept::default() };
        let (mut one, mut other) =
            (Counted::new(Arc::clone(&census)), Counted::new(Arc::clone(&census)));
        one.note(kept(3, 1));
        other.note(kept(5, 0));
        assert_eq!((census.kept(), one.left(&limits).sessions), (kept(8, 1), 2));
        one.note(kept(9, 0));
        assert_eq!((census.kept(), one.left(&limits).sessions), (kept(14, 0), 0));
        drop(one);
        assert_eq!(census.kept(), kept(5, 0));
        drop(other);
        assert_eq!(census.kept(), Kept::default());
    }
}

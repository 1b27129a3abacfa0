//! Memory of all machines of a broker, counted so that many entities, each within its limits, do
//! not exceed a total (QUO-01).
//!
//! A machine gets the remaining numbers at the start of a step. The total can therefore exceed a
//! limit by at most the additions of a command on each arbiter, and by the copies of a published
//! message that subscriptions have not yet taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;
use crate::machine::{MemoryUse, RemainingCapacity};

/// Totals of all machines.
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

/// Counts of a machine; subtracted when it is dropped.
#[derive(Debug)]
pub struct MachineCount {
    census: Arc<Census>,
    kept: MemoryUse,
}

impl Census {
    /// Returns the remaining numbers.
    #[must_use]
    pub fn left(&self, limits: &Limits) -> RemainingCapacity {
        let left_of = |max: u64, sum: &AtomicU64| max.saturating_sub(sum.load(Ordering::Relaxed));
        let left = |count_max: usize, count: &AtomicU64| left_of(count_max as u64, count);
        RemainingCapacity {
            messages: left(limits.broker_message_count_max, &self.messages),
            sessions: left(limits.broker_session_count_max, &self.sessions),
            duplicate_ids: left(limits.broker_duplicate_id_count_max, &self.duplicate_ids),
            delayed: left(limits.broker_delayed_count_max, &self.delayed),
            rules: left(limits.broker_rule_count_max, &self.rules),
            described_bytes: left_of(limits.broker_description_bytes_max, &self.described_bytes),
            judged_bytes: left_of(limits.broker_judged_bytes_max, &self.judged_bytes),
        }
    }

    /// Returns the totals.
    #[must_use]
    pub fn kept(&self) -> MemoryUse {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MemoryUse {
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

impl MachineCount {
    /// Creates the counter of a machine, with all counts at zero.
    #[must_use]
    pub fn new(census: Arc<Census>) -> Self {
        Self { census, kept: MemoryUse::default() }
    }

    /// Returns the remaining numbers.
    #[must_use]
    pub fn left(&self, limits: &Limits) -> RemainingCapacity {
        self.census.left(limits)
    }

    /// Records the current counts of the machine.
    pub fn note(&mut self, now: MemoryUse) {
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
                // Wrapping: the sum of all differences is never negative, in any order.
                sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for MachineCount {
    fn drop(&mut self) {
        self.note(MemoryUse::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines are added, change and are dropped; the totals are those of the existing ones.
    #[test]
    fn the_sums_follow_the_machines() {
        let census = Arc::<Census>::default();
        let mut limits = Limits::default();
        limits.broker_session_count_max = 10;
        let kept = |sessions, rules| MemoryUse { sessions, rules, ..MemoryUse::default() };
        let (mut one, mut other) =
            (MachineCount::new(Arc::clone(&census)), MachineCount::new(Arc::clone(&census)));
        one.note(kept(3, 1));
        other.note(kept(5, 0));
        assert_eq!((census.kept(), one.left(&limits).sessions), (kept(8, 1), 2));
        one.note(kept(9, 0));
        assert_eq!((census.kept(), one.left(&limits).sessions), (kept(14, 0), 0));
        drop(one);
        assert_eq!(census.kept(), kept(5, 0));
        drop(other);
        assert_eq!(census.kept(), MemoryUse::default());
    }
}

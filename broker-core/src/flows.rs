//! Counts of messages of an entity since the broker started, and how long they waited and were
//! locked (CON-31).
//!
//! The arbiter of the entity is the only writer, so that an addition is a plain load and store.
//! Series sample the values from another thread.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::change::{DeadLetterCause, Removal};
use crate::telemetry::TurnCounts;
use crate::time::TimeSpan;

/// Number of counts without dead letters.
const OTHER_COUNT: usize = 8;
/// Number of counts.
pub(crate) const FLOW_COUNT: usize = OTHER_COUNT + DeadLetterCause::COUNT;
/// Number of buckets of a histogram.
pub(crate) const BUCKET_COUNT: usize = 64;
/// The last bucket, which has no upper bound.
pub(crate) const LAST_BUCKET: u8 = 63;
const _: () = assert!(LAST_BUCKET as usize + 1 == BUCKET_COUNT);
/// Upper bound of the first bucket. Each further bucket is longer by the square root of 2.
const FIRST_BUCKET: TimeSpan = TimeSpan::from_ticks(1_250);

/// Counts and histograms of an entity.
#[derive(Debug)]
pub(crate) struct Flows {
    counts: [AtomicU64; FLOW_COUNT],
    /// Waits until the first delivery.
    pub(crate) waits: Histogram,
    /// Times under lock.
    pub(crate) locks: Histogram,
    /// Locks that ended by their time.
    locks_expired: AtomicU32,
}

/// Numbers of locks since the broker started; they wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LockCounts {
    /// Locks that ended.
    pub(crate) ended: u32,
    /// Those among them that ended by their time, without settlement or renewal.
    pub(crate) expired: u32,
}

impl LockCounts {
    /// Numbers since an earlier reading.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            ended: self.ended.wrapping_sub(earlier.ended),
            expired: self.expired.wrapping_sub(earlier.expired),
        }
    }
}

/// Counts of durations by bucket; they wrap around.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU32; BUCKET_COUNT]);

/// Values of [`Flows`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowTotals {
    /// Accepted, delivered, completed, failed, expired, forwarded in and out, duplicates, and dead
    /// letters by cause.
    pub(crate) counts: [u64; FLOW_COUNT],
    pub(crate) waits: Buckets,
    pub(crate) locks: Buckets,
}

/// Values of a [`Histogram`].
pub(crate) type Buckets = [u32; BUCKET_COUNT];

/// The 50th, 95th and 99th percentile as numbers of buckets.
pub(crate) type Percentiles = [u8; 3];

impl Default for Flows {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; FLOW_COUNT],
            waits: Histogram::default(),
            locks: Histogram::default(),
            locks_expired: AtomicU32::new(0),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKET_COUNT])
    }
}

impl Default for FlowTotals {
    fn default() -> Self {
        Self { counts: [0; FLOW_COUNT], waits: [0; BUCKET_COUNT], locks: [0; BUCKET_COUNT] }
    }
}

impl Flows {
    /// Adds the counts of a turn, without a part.
    pub(crate) fn add(&self, turn: &TurnCounts, without: &TurnCounts) {
        let counts = self.counts.iter().zip(flows_of(turn).into_iter().zip(flows_of(without)));
        for (sum, (count, without)) in counts {
            let count = count.saturating_sub(without);
            if count > 0 {
                sum.store(sum.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
            }
        }
    }

    /// Counts locks that ended by their time.
    pub(crate) fn note_expired_locks(&self, count: u32) {
        let before = self.locks_expired.load(Ordering::Relaxed);
        self.locks_expired.store(before.wrapping_add(count), Ordering::Relaxed);
    }

    /// Reads how many locks ended.
    pub(crate) fn lock_counts(&self) -> LockCounts {
        let expired = self.locks_expired.load(Ordering::Relaxed);
        let ended = self.locks.buckets().into_iter().fold(0, u32::wrapping_add);
        LockCounts { ended, expired }
    }

    /// Reads how many messages were dead-lettered.
    pub(crate) fn dead_lettered(&self) -> u64 {
        self.counts().iter().skip(OTHER_COUNT).fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Reads the counts.
    pub(crate) fn counts(&self) -> [u64; FLOW_COUNT] {
        std::array::from_fn(|place| {
            self.counts.get(place).map_or(0, |count| count.load(Ordering::Relaxed))
        })
    }
}

impl Histogram {
    /// Counts a duration.
    pub(crate) fn note(&self, span: TimeSpan) {
        if let Some(count) = self.0.get(bucket_of(span)) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Reads the buckets.
    pub(crate) fn buckets(&self) -> Buckets {
        std::array::from_fn(|place| {
            self.0.get(place).map_or(0, |count| count.load(Ordering::Relaxed))
        })
    }
}

fn flows_of(turn: &TurnCounts) -> [u64; FLOW_COUNT] {
    let removed = |reason: Removal| turn.removed.get(reason.place()).copied().unwrap_or_default();
    let dead =
        |cause: DeadLetterCause| turn.dead_lettered.get(cause.place()).copied().unwrap_or_default();
    let mut flows = [0; FLOW_COUNT];
    let others = [
        turn.accepted,
        turn.delivered,
        removed(Removal::Completed) + removed(Removal::Received),
        turn.returned + dead(DeadLetterCause::DeliveryCount),
        removed(Removal::Expired) + dead(DeadLetterCause::Expired),
        turn.arrived,
        removed(Removal::Forwarded),
        turn.duplicates,
    ];
    for (flow, count) in flows.iter_mut().zip(others.into_iter().chain(turn.dead_lettered)) {
        *flow = count;
    }
    flows
}

/// Returns the bucket of a duration. The last one has all longer durations.
pub(crate) fn bucket_of(span: TimeSpan) -> usize {
    let ticks = u64::try_from(span.ticks()).unwrap_or_default();
    let first = FIRST_BUCKET.ticks().unsigned_abs();
    let Some(octave) = (ticks / first).checked_ilog2() else { return 0 };
    // The upper half of an octave begins at the square root of 2.
    let is_upper = u128::from(ticks) * 1_000_000 >= (u128::from(first) << octave) * 1_414_214;
    let bucket = 1 + 2 * octave as usize + usize::from(is_upper);
    bucket.min(LAST_BUCKET as usize)
}

/// Returns the upper bound of a bucket in microseconds.
pub(crate) fn bucket_micros(bucket: u8) -> u64 {
    let first = FIRST_BUCKET.ticks().unsigned_abs() / 10;
    let octave = first << (bucket.min(LAST_BUCKET) / 2);
    if bucket.is_multiple_of(2) { octave } else { octave * 1_414 / 1_000 }
}

/// Returns the percentiles of the durations between two readings; none if there was no duration.
pub(crate) fn percentiles(before: &Buckets, after: &Buckets) -> Option<Percentiles> {
    let between = || before.iter().zip(after).map(|(a, b)| u64::from(b.wrapping_sub(*a)));
    let total: u64 = between().sum();
    if total == 0 {
        return None;
    }
    Some([50, 95, 99].map(|percent| {
        let rank = (total * percent).div_ceil(100);
        let sums = between().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let place = sums.take_while(|sum| *sum < rank).count();
        u8::try_from(place).unwrap_or(u8::MAX)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-31: a percentile is the upper bound of its bucket, at most 1.42 times too long.
    #[test]
    fn bucket_bounds_contain_their_durations() {
        for micros in [0, 1, 124, 125, 176, 177, 250, 999, 1_000_000, 86_400_000_000] {
            let bucket = bucket_of(TimeSpan::from_ticks(micros * 10));
            let bound = bucket_micros(u8::try_from(bucket).unwrap());
            let micros = micros.unsigned_abs();
            assert!(bound + bound / 1_000 >= micros, "{micros} in bucket {bucket} of {bound}");
            assert!(bound <= 125 || bound * 100 <= micros * 142 + 200, "{micros} against {bound}");
        }
        assert_eq!(bucket_of(TimeSpan::from_days(3_000)), usize::from(LAST_BUCKET));
        assert_eq!(bucket_of(TimeSpan::from_ticks(-1)), 0);
    }

    /// CON-31: percentiles of 100 durations, of which one is long.
    #[test]
    fn percentiles_follow_the_ranks() {
        let (before, mut after) = ([7; BUCKET_COUNT], [7; BUCKET_COUNT]);
        assert_eq!(percentiles(&before, &after), None);
        (after[3], after[20], after[40]) = (7 + 94, 7 + 5, 7 + 1);
        assert_eq!(percentiles(&before, &after), Some([3, 20, 20]));
        after[40] = 7 + 2;
        assert_eq!(percentiles(&before, &after), Some([3, 20, 40]));
    }
}

//! Values that the checks remember of an entity until the next check.

use crate::flows::{BUCKET_COUNT, Buckets, Flows, LAST_BUCKET, bucket_of, percentiles};
use crate::time::{TimeSpan, Timestamp};

/// Time after which a number that grew no further counts as steady.
const GROWTH_TIME: TimeSpan = TimeSpan::from_seconds(3_600);
/// Time over which durations are collected.
const TIMES_TIME: TimeSpan = TimeSpan::from_seconds(3_600);
/// Minimum number of durations for a verdict.
const TIMES_COUNT_MIN: u64 = 100;

/// Values of an entity.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) dead_letters: Growth,
    pub(super) backlog: Growth,
    pub(super) times: Times,
    delivered: u64,
    /// Instant of the last check.
    pub(super) checked_at: Timestamp,
}

/// A number that grows from check to check.
#[derive(Debug, Default)]
pub(super) struct Growth {
    last: u64,
    /// Checks that found it larger, since it was smaller last: the first, and the last.
    grew: Option<(Timestamp, Timestamp)>,
}

/// Durations of the last hour or two.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Counts at the start; none for the start of the broker.
    start: Option<Box<[Buckets; 2]>>,
    started_at: Option<Timestamp>,
    /// Percentile in microseconds of the times under lock, if it reaches the lock duration.
    pub(super) long_lock: Option<u64>,
    /// Percentile in microseconds of the waits, if it reaches the time to live.
    pub(super) long_wait: Option<u64>,
}

impl Watched {
    /// Begins with the values of the first check, which no growth led to.
    pub(super) fn starting(dead_letters: u64, active: u64, delivered: u64) -> Self {
        let at = |last| Growth { last, grew: None };
        let (dead_letters, backlog) = (at(dead_letters), at(active));
        Self { dead_letters, backlog, delivered, ..Self::default() }
    }

    /// Whether the next check needs none of these values.
    pub(super) fn is_idle(&self) -> bool {
        let is_empty = |growth: &Growth| growth.last == 0 && growth.grew.is_none();
        is_empty(&self.dead_letters) && is_empty(&self.backlog) && self.times.started_at.is_none()
    }

    /// Sets the number of deliveries since the start; returns whether there was one.
    pub(super) const fn note_delivered(&mut self, delivered: u64) -> bool {
        let is_more = self.delivered != delivered;
        self.delivered = delivered;
        is_more
    }
}

impl Growth {
    /// Takes the value of a check. `is_served` means that somebody takes from it.
    pub(super) fn note(&mut self, value: u64, is_served: bool, now: Timestamp) {
        if is_served || value < self.last {
            self.grew = None;
        } else if value > self.last {
            let (first, _) = self.grew.unwrap_or((now, now));
            self.grew = Some((first, now));
        }
        self.last = value;
    }

    /// Instant since which it grows: at least two checks have found it larger, the last one within
    /// an hour, and none smaller.
    pub(super) fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let (first, last) = self.grew?;
        (first < last && now.since(last) < GROWTH_TIME).then_some(first)
    }
}

impl Times {
    /// Whether it has memory for the start of an hour.
    pub(super) const fn has_start(&self) -> bool {
        self.start.is_some()
    }

    /// Compares the durations with the lock duration and the time to live. Returns whether it took
    /// memory for the start of the next hour, which `has_room` allows.
    pub(super) fn judge(
        &mut self,
        flows: &Flows,
        (lock, life): (TimeSpan, TimeSpan),
        now: Timestamp,
        has_room: bool,
    ) -> bool {
        const NONE: [Buckets; 2] = [[0; BUCKET_COUNT]; 2];
        let ends = [flows.locks.buckets(), flows.waits.buckets()];
        let starts = self.start.as_deref().unwrap_or(&NONE);
        let [locks, waits] = [0, 1].map(|place| starts.get(place).zip(ends.get(place)));
        if let Some((start, end)) = locks.filter(|(start, end)| is_enough(start, end)) {
            self.long_lock = reached(start, end, 2, lock);
        }
        if let Some((start, end)) = waits.filter(|(start, end)| is_enough(start, end)) {
            self.long_wait = reached(start, end, 1, life);
        }
        let started_at = *self.started_at.get_or_insert(now);
        let is_new = self.start.is_none();
        if now.since(started_at) < TIMES_TIME || (is_new && !has_room) {
            return false;
        }
        self.start = Some(Box::new(ends));
        self.started_at = Some(now);
        is_new
    }
}

fn is_enough(start: &Buckets, end: &Buckets) -> bool {
    let counts = start.iter().zip(end).map(|(start, end)| u64::from(end.wrapping_sub(*start)));
    counts.sum::<u64>() >= TIMES_COUNT_MIN
}

/// Returns a percentile in microseconds if it reaches a duration as closely as the buckets show.
fn reached(start: &Buckets, end: &Buckets, place: usize, limit: TimeSpan) -> Option<u64> {
    let bucket = percentiles(start, end)?.get(place).copied()?;
    // The last bucket has no upper bound.
    let limit = bucket_of(limit);
    let is_reached = usize::from(bucket) >= limit && limit < usize::from(LAST_BUCKET);
    is_reached.then(|| crate::flows::bucket_micros(bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_unix_ms(minute * 60_000)
    }

    /// CON-39: a number grows after two larger values, until it is smaller, taken from, or steady
    /// for an hour.
    #[test]
    fn growth_needs_two_larger_values() {
        let mut growth = Growth::default();
        growth.note(1, false, at(1));
        assert_eq!(growth.since(at(1)), None);
        growth.note(1, false, at(2));
        assert_eq!(growth.since(at(2)), None);
        growth.note(2, false, at(3));
        assert_eq!(growth.since(at(3)), Some(at(1)));
        growth.note(2, false, at(62));
        assert_eq!(growth.since(at(62)), Some(at(1)));
        assert_eq!(growth.since(at(63)), None);
        growth.note(3, false, at(64));
        assert_eq!(growth.since(at(64)), Some(at(1)));
        growth.note(2, false, at(65));
        assert_eq!(growth.since(at(65)), None);
        growth.note(3, false, at(66));
        growth.note(4, true, at(67));
        growth.note(5, false, at(68));
        assert_eq!(growth.since(at(68)), None);
    }

    /// CON-39: the p99 of the time under lock against the lock duration, the p95 of the wait
    /// against the time to live, each of at least 100 durations.
    #[test]
    fn times_are_compared_with_their_limits() {
        let (flows, mut times) = (Flows::default(), Times::default());
        let (lock, life) = (TimeSpan::from_seconds(30), TimeSpan::from_seconds(60));
        let note = |count: usize, lock_ms, wait_ms| {
            for _ in 0..count {
                flows.locks.note(TimeSpan::from_ms(lock_ms));
                flows.waits.note(TimeSpan::from_ms(wait_ms));
            }
        };
        note(98, 10, 10);
        note(1, 30_000, 60_000);
        assert!(!times.judge(&flows, (lock, life), at(0), true));
        assert_eq!((times.long_lock, times.long_wait), (None, None), "too few");
        note(1, 30_000, 60_000);
        times.judge(&flows, (lock, life), at(1), true);
        assert!(times.long_lock.is_some_and(|micros| micros >= 30_000_000));
        assert_eq!(times.long_wait, None, "2 of 100 wait long");
        note(5, 10, 60_000);
        times.judge(&flows, (lock, life), at(2), true);
        assert!(times.long_wait.is_some());
        // Longer limits are kept at once; an unlimited one always.
        times.judge(&flows, (TimeSpan::from_seconds(120), TimeSpan::MAX), at(3), true);
        assert_eq!((times.long_lock, times.long_wait), (None, None));
        // The next hour begins, and its few durations do not change the verdict.
        times.judge(&flows, (lock, life), at(4), true);
        assert!(times.judge(&flows, (lock, life), at(61), true), "it takes memory");
        note(50, 10, 10);
        assert!(!times.judge(&flows, (lock, life), at(62), true));
        assert!(times.long_lock.is_some() && times.long_wait.is_some());
        note(50, 10, 10);
        times.judge(&flows, (lock, life), at(63), true);
        assert_eq!((times.long_lock, times.long_wait), (None, None));
    }

    /// CON-39: without room, durations since the start of the broker are compared.
    #[test]
    fn times_without_room_begin_with_the_broker() {
        let (flows, mut times) = (Flows::default(), Times::default());
        let limits = (TimeSpan::from_seconds(30), TimeSpan::MAX);
        assert!(!times.judge(&flows, limits, at(0), false));
        assert!(!times.judge(&flows, limits, at(90), false));
        assert!(times.start.is_none());
    }
}

//! Values that the checks remember of an entity until the next check.

use crate::flows::{BUCKET_COUNT, Buckets, Flows, LAST_BUCKET, LockCounts, bucket_of, percentiles};
use crate::time::{TimeSpan, Timestamp};

/// Time after which a number that grew no further counts as steady.
const GROWTH_TIME: TimeSpan = TimeSpan::from_seconds(3_600);
/// Time over which durations are collected.
const TIMES_TIME: TimeSpan = TimeSpan::from_seconds(3_600);
/// Minimum number of durations for a verdict.
const TIMES_COUNT_MIN: u32 = 100;
/// Time after which a verdict lapses without enough durations for another.
const VERDICT_TIME: TimeSpan = TimeSpan::from_seconds(2 * 3_600);

/// Values of an entity.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) dead_letters: Growth,
    pub(super) backlog: Growth,
    pub(super) times: Times,
    delivered: u64,
    /// The highest difference between the dead letters that came and their present number. It rises
    /// when some are removed.
    removed: Option<i64>,
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

/// Durations of the last hour or two, and the verdicts about them.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Counts of the waits at the start; none for the start of the broker.
    waits_start: Option<Box<Buckets>>,
    locks_start: LockCounts,
    /// Lock duration of these locks.
    lock_duration: Option<TimeSpan>,
    started_at: Option<Timestamp>,
    /// The last locks that were enough, and when.
    locks: Option<(LockCounts, Timestamp)>,
    /// Bucket of the p95 of the last waits that were enough, and when.
    wait: Option<(u8, Timestamp)>,
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

    /// Takes the number of dead letters that came since the start of the broker, and their present
    /// number; returns whether some were removed since the last check.
    pub(super) fn note_dead_lettered(&mut self, came: u64, there: u64) -> bool {
        let removed = came.cast_signed().wrapping_sub(there.cast_signed());
        let before = self.removed;
        self.removed = Some(before.map_or(removed, |before| before.max(removed)));
        before.is_some_and(|before| removed > before)
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
        self.waits_start.is_some()
    }

    /// Takes the durations until now. Returns whether it took memory for the start of the next
    /// hour, which `has_room` allows.
    pub(super) fn judge(
        &mut self,
        flows: &Flows,
        lock_duration: TimeSpan,
        now: Timestamp,
        has_room: bool,
    ) -> bool {
        let (waits, locks) = (flows.waits.buckets(), flows.lock_counts());
        if self.lock_duration.replace(lock_duration).is_some_and(|before| before != lock_duration) {
            // Locks before the change say nothing about it.
            (self.locks_start, self.locks) = (locks, None);
        }
        let ended = locks.since(self.locks_start);
        if ended.ended >= TIMES_COUNT_MIN {
            self.locks = Some((ended, now));
        }
        let start = self.waits_start.as_deref().unwrap_or(&[0; BUCKET_COUNT]);
        let counts = start.iter().zip(&waits).map(|(start, end)| end.wrapping_sub(*start));
        if counts.fold(0, u32::saturating_add) >= TIMES_COUNT_MIN
            && let Some([_, bucket, _]) = percentiles(start, &waits)
        {
            self.wait = Some((bucket, now));
        }
        self.locks.take_if(|(_, at)| now.since(*at) >= VERDICT_TIME);
        self.wait.take_if(|(_, at)| now.since(*at) >= VERDICT_TIME);
        if now.since(*self.started_at.get_or_insert(now)) < TIMES_TIME {
            return false;
        }
        (self.started_at, self.locks_start) = (Some(now), locks);
        let is_new = self.waits_start.is_none();
        if is_new && !has_room {
            return false;
        }
        self.waits_start = Some(Box::new(waits));
        is_new
    }

    /// Returns the last locks if more than one in a hundred expired: p99 of the time since the lock
    /// was taken or renewed reaches the lock duration.
    pub(super) fn expiring_locks(&self) -> Option<LockCounts> {
        let (locks, _) = self.locks?;
        (u64::from(locks.expired) * 100 > u64::from(locks.ended)).then_some(locks)
    }

    /// Returns the bucket of the p95 of the waits unless it is below the bucket of the time to live.
    /// A message that is delivered waited less than its time to live, so nearness is the sign.
    pub(super) fn long_wait(&self, time_to_live: TimeSpan) -> Option<u8> {
        let (bucket, _) = self.wait?;
        let limit = bucket_of(time_to_live);
        // The last bucket has no upper bound.
        (usize::from(bucket) >= limit && limit < usize::from(LAST_BUCKET)).then_some(bucket)
    }
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

    /// CON-39: dead letters are read if more came than are there now, also if their number grows.
    #[test]
    fn removed_dead_letters_are_noticed() {
        let mut watched = Watched::starting(7, 0, 0);
        assert!(!watched.note_dead_lettered(0, 7), "they were there before");
        assert!(!watched.note_dead_lettered(3, 10));
        assert!(watched.note_dead_lettered(8, 14), "five came, one left");
        assert!(!watched.note_dead_lettered(9, 15));
        assert!(!watched.note_dead_lettered(9, 16), "a value that is read later");
        assert!(!watched.note_dead_lettered(10, 16));
    }

    const LOCK: TimeSpan = TimeSpan::from_seconds(30);
    const LIFE: TimeSpan = TimeSpan::from_seconds(60);

    fn note(flows: &Flows, count: usize, lock_ms: i64, wait_ms: i64) {
        for _ in 0..count {
            flows.locks.note(TimeSpan::from_ms(lock_ms));
            flows.waits.note(TimeSpan::from_ms(wait_ms));
        }
    }

    /// CON-39: more than one lock in a hundred that expires, and the p95 of the wait against the
    /// time to live, each of at least 100 durations. A lock that is renewed may last longer.
    #[test]
    fn times_are_compared_with_their_limits() {
        let (flows, mut times) = (Flows::default(), Times::default());
        note(&flows, 98, 300_000, 10);
        note(&flows, 1, 30_000, 60_000);
        flows.note_expired_locks(1);
        assert!(!times.judge(&flows, LOCK, at(0), true));
        assert_eq!((times.expiring_locks(), times.long_wait(LIFE)), (None, None), "too few");
        note(&flows, 1, 30_000, 60_000);
        times.judge(&flows, LOCK, at(1), true);
        assert_eq!(times.expiring_locks(), None, "one of 100");
        assert_eq!(times.long_wait(LIFE), None, "2 of 100 wait long");
        flows.note_expired_locks(1);
        note(&flows, 5, 10, 60_000);
        times.judge(&flows, LOCK, at(2), true);
        assert_eq!(times.expiring_locks(), Some(LockCounts { ended: 105, expired: 2 }));
        assert!(times.long_wait(LIFE).is_some());
        assert_eq!(times.long_wait(TimeSpan::from_seconds(120)), None, "a longer one is kept");
        assert_eq!(times.long_wait(TimeSpan::MAX), None);
        // The next hour begins, and its few durations do not change the verdict.
        assert!(times.judge(&flows, LOCK, at(61), true), "it takes memory");
        note(&flows, 50, 10, 10);
        assert!(!times.judge(&flows, LOCK, at(62), true));
        assert!(times.expiring_locks().is_some() && times.long_wait(LIFE).is_some());
        note(&flows, 50, 10, 10);
        times.judge(&flows, LOCK, at(63), true);
        assert_eq!((times.expiring_locks(), times.long_wait(LIFE)), (None, None));
    }

    /// CON-39: a verdict ends when the lock duration changes, and after two hours with too few
    /// durations for another.
    #[test]
    fn verdicts_end_with_a_repair_or_lapse() {
        let (flows, mut times) = (Flows::default(), Times::default());
        note(&flows, 100, 30_000, 60_000);
        flows.note_expired_locks(100);
        times.judge(&flows, LOCK, at(0), true);
        assert!(times.expiring_locks().is_some());
        times.judge(&flows, LIFE, at(1), true);
        assert_eq!(times.expiring_locks(), None, "a longer lock duration");
        note(&flows, 100, 60_000, 60_000);
        flows.note_expired_locks(2);
        times.judge(&flows, LIFE, at(60), true);
        note(&flows, 99, 10, 10);
        times.judge(&flows, LIFE, at(179), true);
        assert!(times.expiring_locks().is_some() && times.long_wait(LIFE).is_some());
        times.judge(&flows, LIFE, at(180), true);
        assert_eq!((times.expiring_locks(), times.long_wait(LIFE)), (None, None));
    }

    /// CON-39: without room, waits since the start of the broker are compared.
    #[test]
    fn times_without_room_begin_with_the_broker() {
        let (flows, mut times) = (Flows::default(), Times::default());
        assert!(!times.judge(&flows, LOCK, at(0), false));
        assert!(!times.judge(&flows, LOCK, at(90), false));
        assert!(!times.has_start());
    }
}

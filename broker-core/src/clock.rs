//! Clocks. Only this file asks the operating system for the time (FND-06, DESIGN D7). Tests use a
//! manual clock, so that no test sleeps.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use crate::time::{TimeSpan, Timestamp};

/// Returns the time, and wakes at an instant.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the current instant. It is never earlier than a previously returned one.
    fn now(&self) -> Timestamp;

    /// Waits until `now` is at or after the instant.
    async fn sleep_until(&self, at: Timestamp);

    /// Difference from this clock to the clock of the machine, if this one follows it slowly.
    fn offset(&self) -> TimeSpan {
        TimeSpan::ZERO
    }
}

/// System time: wall time at the start plus the boot time elapsed since, including suspended time,
/// so that it never goes backwards. If the wall clock is set forward or back, this clock runs up to
/// a tenth faster or slower until both agree again: for an hour of difference, about ten hours.
pub struct SystemClock {
    started: i64,
    state: Mutex<Slew>,
    latest: AtomicI64,
    /// The time that this clock follows instead of the wall clock.
    database: Option<Arc<DatabaseTime>>,
}

struct Slew {
    /// Ticks to add to the time elapsed since the start.
    base: i64,
    checked_at: i64,
}

/// Interval between two checks of the wall clock.
const CHECK_EVERY: TimeSpan = TimeSpan::from_seconds(1);
/// The clock is corrected by at most this fraction (1/10) of the elapsed time.
const SLEW_DIVISOR: i64 = 10;

impl SystemClock {
    /// Starts a clock with the wall time.
    #[must_use]
    pub fn start() -> Self {
        Self::at(wall_time())
    }

    /// Starts a clock that follows the time of a database instead of the wall clock (CLU-14).
    #[must_use]
    pub fn following(database: Arc<DatabaseTime>) -> Self {
        Self { database: Some(Arc::clone(&database)), ..Self::at(database.now()) }
    }

    fn at(now: Timestamp) -> Self {
        Self {
            started: boot_ticks(),
            state: Mutex::new(Slew { base: now.ticks(), checked_at: 0 }),
            latest: AtomicI64::new(0),
            database: None,
        }
    }

    /// The time that this clock follows.
    fn followed(&self) -> Timestamp {
        self.database.as_ref().map_or_else(wall_time, |database| database.now())
    }

    fn elapsed(&self) -> i64 {
        boot_ticks() - self.started
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        let mut slew = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = elapsed - slew.checked_at;
        if since >= CHECK_EVERY.ticks() {
            slew.checked_at = elapsed;
            let error = self.followed().ticks() - (slew.base + elapsed);
            let most = since / SLEW_DIVISOR;
            slew.base += error.clamp(-most, most);
        }
        let now = slew.base + elapsed;
        drop(slew);
        Timestamp::from_ticks(self.latest.fetch_max(now, Ordering::AcqRel).max(now))
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let now = self.now();
            if now >= at {
                return;
            }
            // At least a millisecond, the resolution of the timer; at most an hour, so that a
            // changed wall clock is noticed.
            let rest = at.since(now).to_std();
            tokio::time::sleep(rest.clamp(Duration::from_millis(1), Duration::from_secs(3_600)))
                .await;
        }
    }

    fn offset(&self) -> TimeSpan {
        self.followed().since(self.now())
    }
}

/// Time since the machine was booted, including suspended time.
#[must_use]
pub fn boot_time() -> TimeSpan {
    TimeSpan::from_ticks(boot_ticks())
}

fn boot_ticks() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.saturating_mul(10_000_000).saturating_add(time.tv_nsec / 100)
}

fn wall_time() -> Timestamp {
    timestamp(SystemTime::now())
}

/// The instant of a wall time.
pub(crate) fn timestamp(wall: SystemTime) -> Timestamp {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_nanos(i128::try_from(since.as_nanos()).unwrap_or(i128::MAX))
}

/// Time of a database that several brokers use (CLU-14): boot time, and what must be added to it.
#[derive(Debug, Default)]
pub struct DatabaseTime(Mutex<Option<NotedTime>>);

#[derive(Clone, Copy, Debug)]
struct NotedTime {
    offset: i64,
    round_trip: TimeSpan,
}

/// Longest time between question and answer for an answer that replaces an earlier one. The time of
/// the database is known to half of it.
const ROUND_TRIP_MAX: TimeSpan = TimeSpan::from_ms(200);

impl DatabaseTime {
    /// Notes an answer of the database with its time, and the boot times of question and answer. A
    /// slow answer counts only while all earlier ones were slower.
    pub fn note(&self, time: Timestamp, asked_at: TimeSpan, answered_at: TimeSpan) {
        let round_trip = TimeSpan::from_ticks(answered_at.ticks().saturating_sub(asked_at.ticks()));
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slowest = noted.map_or(TimeSpan::MAX, |noted| noted.round_trip.max(ROUND_TRIP_MAX));
        if round_trip <= slowest {
            let between = asked_at.plus(round_trip.divided_by(2));
            let offset = time.ticks().saturating_sub(between.ticks());
            *noted = Some(NotedTime { offset, round_trip });
        }
    }

    /// The time of the database now. The start of boot time, if it has never answered.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = noted.map_or(0, |noted| noted.offset);
        Timestamp::from_ticks(offset.saturating_add(boot_ticks()))
    }
}

/// A clock that changes only when a test advances it.
pub struct ManualClock {
    state: Mutex<Manual>,
}

struct Manual {
    now: Timestamp,
    sleepers: Vec<(Timestamp, Waker)>,
}

impl ManualClock {
    /// Creates a clock that shows this instant.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self { state: Mutex::new(Manual { now, sleepers: Vec::new() }) }
    }

    /// Advances the time, and wakes tasks whose instant has come.
    pub fn advance(&self, span: TimeSpan) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = state.now.plus(span);
        let now = state.now;
        let (due, waiting) =
            std::mem::take(&mut state.sleepers).into_iter().partition(|(at, _)| *at <= now);
        state.sleepers = waiting;
        drop(state);
        let due: Vec<(Timestamp, Waker)> = due;
        for (_, waker) in due {
            waker.wake();
        }
    }

    /// Advances the time without waking any task: for tests that choose the order with
    /// [`ManualClock::wake_next`].
    pub fn advance_silently(&self, span: TimeSpan) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = state.now.plus(span);
    }

    /// Wakes one task whose instant has come: the earliest, and among equal ones the first that
    /// waited. Returns whether there was one.
    pub fn wake_next(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.now;
        let sleepers = state.sleepers.iter().enumerate();
        let due = sleepers.filter(|(_, (at, _))| *at <= now).min_by_key(|(_, (at, _))| *at);
        let Some(index) = due.map(|(index, _)| index) else { return false };
        let (_, waker) = state.sleepers.remove(index);
        drop(state);
        waker.wake();
        true
    }

    /// Runs a future while time advances past all waits of at most one second, such as the delay of
    /// a refusal (SEC-26). Longer waits, such as for the end of a lock, stay in force.
    pub async fn while_short_waits_pass<T>(&self, work: impl Future<Output = T>) -> T {
        const LONGEST: TimeSpan = TimeSpan::from_seconds(1);
        const STEP: TimeSpan = TimeSpan::from_ms(100);
        let passing = async {
            loop {
                if self.next_wake().is_some_and(|wake| wake <= self.now().plus(LONGEST)) {
                    self.advance(STEP);
                }
                tokio::task::yield_now().await;
            }
        };
        let (mut work, mut passing) = (pin!(work), pin!(passing));
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                let Poll::<Infallible>::Pending = passing.as_mut().poll(context);
            }
            done
        })
        .await
    }

    /// Earliest instant for which a task waits.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sleepers.iter().map(|(at, _)| *at).min()
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    async fn sleep_until(&self, at: Timestamp) {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.now >= at {
                return Poll::Ready(());
            }
            state.sleepers.retain(|(_, waker)| !waker.will_wake(context.waker()));
            state.sleepers.push((at, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-14: the time of a database is that of the middle of question and answer; a slow answer
    /// does not replace a quick one.
    #[test]
    fn database_time_ignores_slow_answers() {
        let time = DatabaseTime::default();
        let at = |seconds: i64| Timestamp::from_unix_ms(1_800_000_000_000 + seconds * 1_000);
        let now = boot_time();
        let ago = |ms: i64| TimeSpan::from_ticks(now.ticks() - TimeSpan::from_ms(ms).ticks());
        let error = |time: &DatabaseTime, expected: Timestamp| {
            (time.now().ticks() - expected.ticks()).abs() < TimeSpan::from_seconds(30).ticks()
        };
        time.note(at(0), ago(3_000), now);
        assert!(error(&time, at(1)), "the first answer counts");
        time.note(at(500), ago(100), now);
        assert!(error(&time, at(500)));
        time.note(at(900), ago(3_000), now);
        assert!(error(&time, at(500)), "the slow answer is ignored");
        time.note(at(1_000), ago(200), now);
        assert!(error(&time, at(1_000)));
    }

    /// FND-07, FND-09: beyond the last instant, the system time is that instant.
    #[test]
    fn the_year_10000_is_the_last_instant() {
        let wall = UNIX_EPOCH + Duration::from_secs(253_402_300_800);
        for wall in [wall, wall + Duration::from_secs(1 << 40)] {
            assert_eq!(timestamp(wall), Timestamp::NEVER);
            let clock = SystemClock::at(timestamp(wall));
            assert_eq!((clock.now(), clock.now()), (Timestamp::NEVER, Timestamp::NEVER));
        }
    }
}

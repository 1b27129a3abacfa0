//! Clocks. Only this file asks the operating system for the time (FND-06, DESIGN D7). Tests use a
//! manual clock, so that no test sleeps.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// A time that follows another one slowly and never goes back. Its caller has the boot time.
struct Slew {
    /// Ticks to add to the time elapsed since the start.
    base: i64,
    checked_at: i64,
}

impl Slew {
    const fn at(now: Timestamp) -> Self {
        Self { base: now.ticks(), checked_at: 0 }
    }

    /// The ticks of the time when this number of ticks has elapsed since the start.
    fn now(&mut self, elapsed: i64, followed: impl FnOnce() -> Timestamp) -> i64 {
        let since = elapsed - self.checked_at;
        if since >= CHECK_EVERY.ticks() {
            self.checked_at = elapsed;
            let error = followed().ticks() - (self.base + elapsed);
            let most = since / SLEW_DIVISOR;
            self.base += error.clamp(-most, most);
        }
        self.base + elapsed
    }
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

    /// Starts a clock that follows the time of a database instead of the wall clock (CLU-14). It
    /// begins no earlier than the last instant of a past owner (CLU-15).
    #[must_use]
    pub fn following(database: Arc<DatabaseTime>) -> Self {
        Self { database: Some(Arc::clone(&database)), ..Self::at(database.start()) }
    }

    fn at(now: Timestamp) -> Self {
        Self {
            started: boot_ticks(),
            state: Mutex::new(Slew::at(now)),
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
        let now = slew.now(elapsed, || self.followed());
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

/// The wall time of an instant.
pub(crate) fn system_time(instant: Timestamp) -> SystemTime {
    let nanos = u128::try_from(instant.unix_nanos()).unwrap_or(0);
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(0);
    let rest = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    UNIX_EPOCH.checked_add(Duration::new(seconds, rest)).unwrap_or(UNIX_EPOCH)
}

/// Time of a database that several brokers use (CLU-14): boot time, and the ticks to add to it.
#[derive(Debug, Default)]
pub struct DatabaseTime(Mutex<DatabaseAnswers>);

#[derive(Debug, Default)]
struct DatabaseAnswers {
    noted: Option<NotedTime>,
    /// The last instant that a past owner may have given.
    begin_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct NotedTime {
    offset: i64,
    round_trip: TimeSpan,
    answered_at: TimeSpan,
}

/// Longest time between question and answer for an answer that replaces an earlier one. The time of
/// the database is known to half of this span.
const ROUND_TRIP_MAX: TimeSpan = TimeSpan::from_ms(200);
/// The longest time grows by this fraction of the age of the earlier answer, since clocks drift.
const DRIFT_DIVISOR: i64 = 500;

impl DatabaseTime {
    /// Notes an answer of the database with its time, and the boot times of question and answer. A
    /// slow answer counts only if the earlier one was slower or is old.
    pub fn note(&self, time: Timestamp, asked_at: TimeSpan, answered_at: TimeSpan) {
        let between = |from: TimeSpan, to: TimeSpan| to.ticks().saturating_sub(from.ticks()).max(0);
        let round_trip = TimeSpan::from_ticks(between(asked_at, answered_at));
        let mut answers = self.lock();
        let slowest = answers.noted.map_or(TimeSpan::MAX, |noted| {
            let age = TimeSpan::from_ticks(between(noted.answered_at, answered_at));
            noted.round_trip.max(ROUND_TRIP_MAX).plus(age.divided_by(DRIFT_DIVISOR))
        });
        if round_trip <= slowest {
            let middle = asked_at.plus(round_trip.divided_by(2));
            let offset = time.ticks().saturating_sub(middle.ticks());
            answers.noted = Some(NotedTime { offset, round_trip, answered_at });
        }
    }

    /// Has a clock that starts later begin at this instant or after it.
    pub fn begin_at(&self, instant: Timestamp) {
        let mut answers = self.lock();
        answers.begin_at = answers.begin_at.max(instant);
    }

    /// The time of the database now. The start of boot time, if it has never answered.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at(boot_time())
    }

    /// The time of the database at a boot time.
    fn at(&self, boot: TimeSpan) -> Timestamp {
        let offset = self.lock().noted.map_or(0, |noted| noted.offset);
        Timestamp::from_ticks(offset.saturating_add(boot.ticks()))
    }

    /// The instant at which a clock begins that starts now.
    fn start(&self) -> Timestamp {
        self.now().max(self.lock().begin_at)
    }

    fn lock(&self) -> MutexGuard<'_, DatabaseAnswers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    const START: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);
    const RENEW: i64 = 500;

    fn ms(ms: i64) -> TimeSpan {
        TimeSpan::from_ms(ms)
    }

    /// CLU-14: the time of a database is its time between question and answer. A slow answer
    /// does not replace a quick one, unless the quick one is old.
    #[test]
    fn database_time_ignores_slow_answers() {
        let time = DatabaseTime::default();
        time.note(START, ms(0), ms(3_000));
        assert_eq!(time.at(ms(1_500)), START, "the first answer counts");
        time.note(START, ms(9_900), ms(10_000));
        assert_eq!(time.at(ms(9_950)), START);
        time.note(START, ms(17_000), ms(20_000));
        assert_eq!(time.at(ms(9_950)), START, "the slow answer is ignored");
        time.note(START, ms(20_800), ms(21_000));
        assert_eq!(time.at(ms(20_900)), START);
        time.note(START, ms(119_700), ms(120_000));
        assert_eq!(time.at(ms(119_850)), START, "after 99 s, 0.3 s are not slow");
    }

    /// A clock over a database whose time and round trips the test decides.
    struct Stand {
        time: DatabaseTime,
        clock: Slew,
        boot: i64,
        shown: i64,
    }

    impl Stand {
        fn new() -> Self {
            let time = DatabaseTime::default();
            time.note(START, ms(0), ms(0));
            Self { time, clock: Slew::at(START), boot: 0, shown: START.ticks() }
        }

        /// Renews for a time. `database` is the time of the database in milliseconds after the
        /// start, at a boot time; a round trip takes 100 ms, all on one way. Returns the
        /// largest error at the end of any renewal.
        fn run(&mut self, span: i64, database: impl Fn(i64) -> i64) -> i64 {
            let mut worst = 0;
            for boot in (0..span / RENEW).map(|renewal| self.boot + renewal * RENEW) {
                let way = if (boot / RENEW) % 2 == 0 { 100 } else { 0 };
                let answer = START.ticks() + ms(database(boot + way)).ticks();
                self.time.note(Timestamp::from_ticks(answer), ms(boot), ms(boot + 100));
                let now = self.clock.now(ms(boot + 100).ticks(), || self.time.at(ms(boot + 100)));
                assert!(now >= self.shown, "it went back");
                self.shown = now;
                let true_time = START.ticks() + ms(1).ticks() * database(boot + 100);
                worst = worst.max((now - true_time).abs());
            }
            self.boot += span;
            worst / ms(1).ticks()
        }
    }

    /// CLU-14: clocks of brokers whose machines run at other speeds than the database stay within
    /// half of the bound, while round trips take 100 ms.
    #[test]
    fn clock_follows_a_database_of_another_speed() {
        for percent in [95, 99, 100, 101, 105] {
            let mut stand = Stand::new();
            let worst = stand.run(600_000, |boot| boot * percent / 100);
            assert!(worst <= 125, "{worst} ms at {percent} %");
        }
    }

    /// CLU-14, CLU-15: if the time of the database jumps, the clock runs up to a tenth slower or
    /// faster until it agrees, and never goes back.
    #[test]
    fn clock_follows_a_jump_of_the_database_slowly() {
        for jump in [-10_000, 10_000] {
            let mut stand = Stand::new();
            stand.run(10_000, |boot| boot);
            let worst = stand.run(50_000, |boot| boot + jump);
            assert!((9_000..=10_100).contains(&worst), "{worst} ms");
            let worst = stand.run(10_000, |boot| boot + jump);
            assert!((4_000..=6_000).contains(&worst), "{worst} ms after 50 s");
            stand.run(50_000, |boot| boot + jump);
            let worst = stand.run(60_000, |boot| boot + jump);
            assert!(worst <= 125, "{worst} ms in the end");
        }
    }

    /// CLU-15: the clock of a new owner begins with the last instant of the past one, also if the
    /// time of the database is behind it.
    #[test]
    fn clock_of_a_new_owner_begins_after_the_past_one() {
        let time = Arc::new(DatabaseTime::default());
        let now = boot_time();
        time.note(START, now, now);
        let last = START.plus(TimeSpan::from_minutes(10));
        time.begin_at(last);
        time.begin_at(START);
        let clock = SystemClock::following(Arc::clone(&time));
        assert!(clock.now() >= last);
        assert!(time.now() < last, "the database is behind");
    }

    /// FND-07: an instant is the same as a wall time.
    #[test]
    fn instants_survive_the_form_of_wall_times() {
        for instant in [START, START.plus(ms(1)), Timestamp::NEVER] {
            assert_eq!(timestamp(system_time(instant)), instant);
        }
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

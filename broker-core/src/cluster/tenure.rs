//! The time in which a broker may work, as every turn of an arbiter checks it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::clock::boot_time;
use crate::time::TimeSpan;

/// Longest time by which one suspension prolongs locks (CLU-22).
const PROLONGED_MAX: TimeSpan = TimeSpan::from_seconds(60);

/// Time in which a broker may work (CLU-16, CLU-17). Arbiters ask it before each turn, and before
/// they let the results of the turn out: the process may have been stopped between.
pub struct Tenure {
    /// Boot time in ticks at which it ends; `i64::MAX` for a broker that shares its store with
    /// nobody.
    valid_until: AtomicI64,
    /// Sum of all times by which locks are prolonged, in ticks.
    prolonged: AtomicI64,
    has_ended: AtomicBool,
    changed: (Mutex<Option<OnEnd>>, Condvar),
}

/// Called once when a tenure ends for good. Must not block.
pub type OnEnd = Box<dyn FnOnce() + Send>;

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("valid_until", &self.valid_until)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl Tenure {
    /// The tenure of a broker that shares its store with nobody.
    #[must_use]
    pub const fn permanent() -> Self {
        Self::until(TimeSpan::from_ticks(i64::MAX))
    }

    /// A tenure until a boot time.
    #[must_use]
    pub const fn until(valid_until: TimeSpan) -> Self {
        Self {
            valid_until: AtomicI64::new(valid_until.ticks()),
            prolonged: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
            changed: (Mutex::new(None), Condvar::new()),
        }
    }

    /// Whether the broker may work now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let valid_until = self.valid_until.load(Ordering::Acquire);
        // A clock is read only if there is a lease.
        valid_until == i64::MAX || boot_time().ticks() < valid_until
    }

    /// Whether the tenure has ended for good.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Waits while the broker is suspended. Returns whether it may work; `false` means never again.
    pub fn wait(&self) -> bool {
        if self.is_valid() {
            return true;
        }
        let mut guard = self.lock();
        loop {
            if self.is_valid() {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            guard = self.changed.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sum of all times by which locks are prolonged since the start. A shell that knows an earlier
    /// sum prolongs its locks by the difference before it lets time pass.
    #[must_use]
    pub fn prolonged(&self) -> TimeSpan {
        TimeSpan::from_ticks(self.prolonged.load(Ordering::Acquire))
    }

    /// Extends the tenure to a boot time, and prolongs locks by the time of a suspension before it.
    pub fn extend(&self, valid_until: TimeSpan, suspended: TimeSpan) {
        let guard = self.lock();
        if !self.has_ended() {
            let span = suspended.min(PROLONGED_MAX);
            self.prolonged.fetch_add(span.ticks(), Ordering::AcqRel);
            self.valid_until.fetch_max(valid_until.ticks(), Ordering::AcqRel);
        }
        drop(guard);
        self.changed.1.notify_all();
    }

    /// Registers who learns of the end; called at once if the tenure has ended.
    pub fn when_ended(&self, on_end: OnEnd) {
        let mut place = self.lock();
        if !self.has_ended() {
            *place = Some(on_end);
            return;
        }
        drop(place);
        on_end();
    }

    /// Ends the tenure for good: those who wait learn it.
    pub fn end(&self) {
        let mut place = self.lock();
        self.has_ended.store(true, Ordering::Release);
        self.valid_until.store(i64::MIN, Ordering::Release);
        let on_end = place.take();
        drop(place);
        self.changed.1.notify_all();
        if let Some(on_end) = on_end {
            on_end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<OnEnd>> {
        self.changed.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes suspensions on to the locks of one machine.
#[derive(Debug)]
pub struct Prolongation {
    tenure: Arc<Tenure>,
    known: TimeSpan,
}

impl Prolongation {
    /// For a machine whose locks begin now.
    #[must_use]
    pub fn of(tenure: &Arc<Tenure>) -> Self {
        Self { known: tenure.prolonged(), tenure: Arc::clone(tenure) }
    }

    /// The time by which locks must be prolonged since the last call, if there is any.
    pub fn take(&mut self) -> Option<TimeSpan> {
        let prolonged = self.tenure.prolonged();
        let known = std::mem::replace(&mut self.known, prolonged);
        (prolonged > known).then(|| TimeSpan::from_ticks(prolonged.ticks() - known.ticks()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn soon() -> TimeSpan {
        boot_time().plus(TimeSpan::from_minutes(10))
    }

    /// CLU-17: who works on after the end of the tenure waits until it is extended.
    #[test]
    fn a_turn_waits_for_the_next_renewal() {
        let tenure = Arc::new(Tenure::until(TimeSpan::ZERO));
        assert!(!tenure.is_valid());
        let waiting = thread::spawn({
            let tenure = Arc::clone(&tenure);
            move || tenure.wait()
        });
        tenure.extend(soon(), TimeSpan::from_seconds(4));
        assert!(waiting.join().expect("no panic"));
        assert_eq!(tenure.prolonged(), TimeSpan::from_seconds(4));
    }

    /// CLU-18: a tenure that has ended is never extended.
    #[test]
    fn an_ended_tenure_lets_nothing_pass() {
        let tenure = Arc::new(Tenure::until(TimeSpan::ZERO));
        let waiting = thread::spawn({
            let tenure = Arc::clone(&tenure);
            move || tenure.wait()
        });
        tenure.end();
        assert!(!waiting.join().expect("no panic"));
        tenure.extend(soon(), TimeSpan::ZERO);
        assert!(!tenure.is_valid() && !tenure.wait());
    }

    /// CLU-22: each suspension prolongs locks by at most 60 s.
    #[test]
    fn locks_are_prolonged_within_a_bound() {
        let tenure = Tenure::until(TimeSpan::ZERO);
        tenure.extend(soon(), TimeSpan::from_minutes(5));
        tenure.extend(soon(), TimeSpan::from_seconds(7));
        assert_eq!(tenure.prolonged(), TimeSpan::from_seconds(67));
    }
}

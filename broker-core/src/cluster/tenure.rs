//! The time in which a broker may work, as every turn of an arbiter checks it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::clock::boot_time;
use crate::error::Rejection;
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
    state: Mutex<State>,
    /// Threads that wait for a change, and tasks that do.
    threads: Condvar,
    tasks: Notify,
}

#[derive(Default)]
struct State {
    ending: Option<Ending>,
    on_end: Option<OnEnd>,
}

/// Reason for the permanent end of a tenure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Another broker has taken the shards over.
    Lost,
    /// The broker stops.
    Stopped,
    /// The renewals have ended because of a fault of the program.
    Failed,
}

/// Called once when a tenure ends permanently. Must not block.
pub type OnEnd = Box<dyn FnOnce(Ending) + Send>;

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("valid_until", &self.valid_until).finish_non_exhaustive()
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
            state: Mutex::new(State { ending: None, on_end: None }),
            threads: Condvar::new(),
            tasks: Notify::const_new(),
        }
    }

    /// Whether the broker may work now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let valid_until = self.valid_until.load(Ordering::Acquire);
        // A clock is read only if there is a lease.
        valid_until == i64::MAX || boot_time().ticks() < valid_until
    }

    /// Reason for which the tenure has ended permanently, if it has.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.lock().ending
    }

    /// Waits until the tenure has ended permanently.
    pub async fn ended(&self) -> Ending {
        loop {
            let mut changed = pin!(self.tasks.notified());
            changed.as_mut().enable();
            if let Some(ending) = self.ending() {
                return ending;
            }
            changed.await;
        }
    }

    /// Time that is left of the lease, which is zero while the broker may not work; none if it has
    /// no lease.
    #[must_use]
    pub fn left(&self) -> Option<TimeSpan> {
        let valid_until = self.valid_until.load(Ordering::Acquire);
        let left = valid_until.saturating_sub(boot_time().ticks()).max(0);
        (valid_until != i64::MAX).then(|| TimeSpan::from_ticks(left))
    }

    /// Blocks the thread while the broker is suspended. Returns the reason if the tenure has ended.
    ///
    /// # Errors
    /// The broker never works again.
    pub fn wait(&self) -> Result<(), Ending> {
        if self.is_valid() {
            return Ok(());
        }
        let mut state = self.lock();
        loop {
            match state.ending {
                Some(ending) => return Err(ending),
                None if self.is_valid() => return Ok(()),
                None => state = self.threads.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits as [`Self::wait`], without blocking the thread.
    ///
    /// # Errors
    /// The broker never works again.
    pub async fn valid(&self) -> Result<(), Ending> {
        // Nearly always, and always without a lease: no lock is taken.
        if self.is_valid() {
            return Ok(());
        }
        loop {
            let mut changed = pin!(self.tasks.notified());
            changed.as_mut().enable();
            if self.is_valid() {
                return Ok(());
            }
            if let Some(ending) = self.ending() {
                return Err(ending);
            }
            changed.await;
        }
    }

    /// Sum of all times by which locks are prolonged since the start. A shell that knows an earlier
    /// sum prolongs its locks by the difference before it lets time pass.
    #[must_use]
    pub fn prolonged(&self) -> TimeSpan {
        TimeSpan::from_ticks(self.prolonged.load(Ordering::Acquire))
    }

    /// Extends the tenure to a boot time, and prolongs locks by the time of a suspension before it.
    /// Without effect on a tenure that has ended.
    pub fn extend(&self, valid_until: TimeSpan, suspended: TimeSpan) {
        let state = self.lock();
        if state.ending.is_none() {
            let span = suspended.min(PROLONGED_MAX);
            self.prolonged.fetch_add(span.ticks(), Ordering::AcqRel);
            self.valid_until.fetch_max(valid_until.ticks(), Ordering::AcqRel);
        }
        drop(state);
        self.wake();
    }

    /// Sets the function that is called at the end; it is called at once if the tenure has ended.
    pub fn when_ended(&self, on_end: OnEnd) {
        let mut state = self.lock();
        match state.ending {
            Some(ending) => {
                drop(state);
                on_end(ending);
            }
            None => state.on_end = Some(on_end),
        }
    }

    /// Ends the tenure permanently. The first reason counts.
    pub fn end(&self, ending: Ending) {
        let mut state = self.lock();
        if state.ending.is_some() {
            return;
        }
        state.ending = Some(ending);
        self.valid_until.store(i64::MIN, Ordering::Release);
        let on_end = state.on_end.take();
        drop(state);
        self.wake();
        if let Some(on_end) = on_end {
            on_end(ending);
        }
    }

    fn wake(&self) {
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ending {
    /// The refusal of a request that was not carried out.
    #[must_use]
    pub fn refusal(self) -> Rejection {
        match self {
            Self::Lost => {
                Rejection::server_busy("another broker serves this namespace now; connect again")
            }
            Self::Stopped => Rejection::cancelled("the broker is stopping"),
            Self::Failed => Rejection::server_busy("the broker has failed; connect again"),
        }
    }
}

/// Passes suspensions on to the locks of a machine.
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

    /// CLU-17: a thread and a task wait until the tenure is extended.
    #[tokio::test]
    async fn tenure_delays_work_until_it_is_extended() {
        let tenure = Arc::new(Tenure::until(TimeSpan::ZERO));
        assert!(!tenure.is_valid());
        assert_eq!(tenure.left(), Some(TimeSpan::ZERO));
        let waiting = thread::spawn({
            let tenure = Arc::clone(&tenure);
            move || tenure.wait()
        });
        let task = Arc::clone(&tenure);
        let task = tokio::spawn(async move { task.valid().await });
        tokio::task::yield_now().await;
        tenure.extend(soon(), TimeSpan::from_seconds(4));
        assert_eq!(waiting.join().expect("no panic"), Ok(()));
        assert_eq!(task.await.expect("no panic"), Ok(()));
        assert_eq!(tenure.prolonged(), TimeSpan::from_seconds(4));
        let left = tenure.left().expect("it has a lease");
        assert!(left > TimeSpan::from_minutes(9) && left <= TimeSpan::from_minutes(10), "{left:?}");
        assert_eq!(Tenure::permanent().left(), None);
    }

    /// CLU-18: a tenure that has ended is never extended, and its first reason stays.
    #[tokio::test]
    async fn ended_tenure_refuses_work() {
        let tenure = Arc::new(Tenure::until(TimeSpan::ZERO));
        let waiting = thread::spawn({
            let tenure = Arc::clone(&tenure);
            move || tenure.wait()
        });
        tenure.end(Ending::Lost);
        tenure.end(Ending::Stopped);
        assert_eq!(waiting.join().expect("no panic"), Err(Ending::Lost));
        tenure.extend(soon(), TimeSpan::ZERO);
        assert!(!tenure.is_valid());
        assert_eq!((tenure.wait(), tenure.valid().await), (Err(Ending::Lost), Err(Ending::Lost)));
        assert_eq!((tenure.ended().await, tenure.left()), (Ending::Lost, Some(TimeSpan::ZERO)));
        assert_eq!(tenure.prolonged(), TimeSpan::ZERO);
    }

    /// CLU-22: each suspension prolongs locks by at most 60 s.
    #[test]
    fn tenure_prolongs_locks_within_a_bound() {
        let tenure = Tenure::until(TimeSpan::ZERO);
        tenure.extend(soon(), TimeSpan::from_minutes(5));
        tenure.extend(soon(), TimeSpan::from_seconds(7));
        assert_eq!(tenure.prolonged(), TimeSpan::from_seconds(67));
    }
}

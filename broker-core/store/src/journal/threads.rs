//! The threads of a journal: one commits, one writes large groups for it, one runs the keeper.
//! [`Journal::open`](super::Journal::open) starts them, and dropping the journal ends them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::committer::Committer;
use super::group_write::{GroupWriter, WriterThread};
use super::keeper::{Keeper, KeeperProgress};
use super::queue::{CommitterWakeup, JobQueue};
use crate::StoreError;

/// Time without work after which the committer writes a mark.
const QUIET: Duration = Duration::from_secs(1);
/// Interval at which the keeper checks for work without a signal.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The threads, which end when the queue is closed.
pub(super) struct Threads {
    signal: Arc<KeeperSignal>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// The signal that wakes the keeper.
#[derive(Default)]
struct KeeperSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    raised: bool,
    ended: bool,
}

impl Threads {
    pub(super) fn start(
        queue: Arc<JobQueue>,
        mut committer: Committer,
        keeper: Keeper,
    ) -> io::Result<Self> {
        committer.set_writer(GroupWriter::Thread(WriterThread::start(Arc::clone(&queue))?));
        let signal: Arc<KeeperSignal> = Arc::default();
        let commit = {
            let signal = Arc::clone(&signal);
            let thread = std::thread::Builder::new().name("journal-commit".to_owned());
            thread.spawn(move || commit(&queue, committer, &signal))?
        };
        let keep = {
            let signal = Arc::clone(&signal);
            let thread = std::thread::Builder::new().name("journal-keep".to_owned());
            thread.spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| keep(keeper, &signal))).is_err() {
                    // No data is lost; the log grows until the next opening.
                    tracing::error!(
                        "the keeper panicked: disk space of the log is no longer reclaimed"
                    );
                }
            })?
        };
        Ok(Self { signal, handles: Mutex::new(vec![commit, keep]) })
    }

    /// Waits until the threads have ended, which they do when the queue is closed.
    pub(super) fn join(&self) {
        // The lock is held meanwhile, so that a second caller does not return early.
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in handles.drain(..) {
            // The last owner may be a completion on the committer's own thread.
            let is_own = handle.thread().id() == std::thread::current().id();
            if !is_own && handle.join().is_err() {
                tracing::error!("a thread of the journal panicked");
            }
            // The committer has ended, so the keeper has no answer to wait for.
            self.signal.end();
        }
    }
}

/// Drives the committer. If it panics, the journal ends, and all waiting submissions fail.
fn commit(queue: &JobQueue, mut committer: Committer, signal: &KeeperSignal) {
    let driven = catch_unwind(AssertUnwindSafe(|| drive(queue, &mut committer, signal)));
    if driven.is_err() {
        committer.poison(&StoreError::Failed("the committer panicked".into()));
    }
    signal.raise();
}

fn drive(queue: &JobQueue, committer: &mut Committer, signal: &KeeperSignal) {
    let mut unsynced_since: Option<Instant> = None;
    loop {
        let patience = if committer.is_busy() {
            Some(Duration::ZERO)
        } else {
            committer.is_unmarked().then_some(QUIET)
        };
        match queue.take(patience) {
            CommitterWakeup::Jobs(jobs) => committer.turn(jobs),
            CommitterWakeup::Quiet if committer.is_busy() => committer.turn([].into()),
            CommitterWakeup::Quiet => committer.mark(),
            CommitterWakeup::Closed if committer.is_writing_large() => committer.finish_large(),
            CommitterWakeup::Closed => break,
        }
        // Unsynced changes must reach the disk even if more keep arriving.
        unsynced_since =
            committer.is_unsynced().then(|| unsynced_since.unwrap_or_else(Instant::now));
        if unsynced_since.is_some_and(|since| since.elapsed() >= QUIET) {
            committer.mark();
            unsynced_since = None;
        }
        if committer.take_news() {
            signal.raise();
        }
    }
    committer.close();
}

fn keep(mut keeper: Keeper, signal: &KeeperSignal) {
    keep_on(&mut keeper, signal);
    keeper.close();
}

fn keep_on(keeper: &mut Keeper, signal: &KeeperSignal) {
    loop {
        match keeper.step() {
            KeeperProgress::Worked => {
                if signal.has_ended() {
                    return;
                }
            }
            KeeperProgress::Waiting => {
                if signal.wait() == Wakeup::Ended {
                    return;
                }
            }
            KeeperProgress::Idle => match signal.wait() {
                Wakeup::Ended => return,
                Wakeup::News => {}
                Wakeup::Timeout => keeper.check_idle(),
            },
        }
    }
}

#[derive(PartialEq, Eq)]
enum Wakeup {
    News,
    Timeout,
    Ended,
}

impl KeeperSignal {
    fn raise(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).raised = true;
        self.changed.notify_one();
    }

    fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    fn wait(&self) -> Wakeup {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(state, IDLE_CHECK_INTERVAL, |state| !state.raised && !state.ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return Wakeup::Ended;
        }
        if std::mem::take(&mut state.raised) { Wakeup::News } else { Wakeup::Timeout }
    }
}

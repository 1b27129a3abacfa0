//! The threads of a journal: one commits, one writes large groups for it, one runs the keeper.
//! [`Journal::open`](super::Journal::open) starts them, and dropping the journal ends them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::committer::Committer;
use super::group_write::{GroupWriter, WriterThread};
use super::keeper::{Keeper, KeeperProgress};
use super::lead;
use super::queue::{CommitterWakeup, JobQueue};
use crate::StoreError;

/// Time without work after which the committer writes a mark.
const QUIET: Duration = Duration::from_secs(1);
/// Interval at which the keeper checks for work without a signal.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The threads, which end when the queue is closed.
pub(super) struct Threads {
    /// Its thread drives it, or a submitter that leads. `None` when the thread has ended.
    committer: Arc<Mutex<Option<Committer>>>,
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
        let committer = Arc::new(Mutex::new(Some(committer)));
        let commit = {
            let (signal, committer) = (Arc::clone(&signal), Arc::clone(&committer));
            let thread = std::thread::Builder::new().name("journal-commit".to_owned());
            thread.spawn(move || commit(&queue, &committer, &signal))?
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
        Ok(Self { committer, signal, handles: Mutex::new(vec![commit, keep]) })
    }

    /// Calls `submit`, and carries out its job on this thread if the committer has nothing to do.
    /// Returns whether it did.
    pub(super) fn commit_here(&self, queue: &JobQueue, submit: &mut dyn FnMut()) -> bool {
        let mut owned = self.committer.try_lock().ok();
        let Some(committer) = owned.as_deref_mut().and_then(Option::as_mut) else {
            submit();
            return false;
        };
        let is_done = lead::commit_here(queue, committer, submit);
        let has_news = committer.take_news();
        drop(owned);
        if has_news {
            self.signal.raise();
        }
        is_done
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

/// Drives the committer, and drops it with its files. If it panics, the journal ends, and all
/// waiting submissions fail.
fn commit(queue: &JobQueue, committer: &Mutex<Option<Committer>>, signal: &KeeperSignal) {
    let driven = catch_unwind(AssertUnwindSafe(|| drive(queue, committer, signal)));
    let ended = lock(committer).take();
    if driven.is_err()
        && let Some(mut committer) = ended
    {
        committer.poison(&StoreError::Failed("the committer panicked".into()));
    }
    signal.raise();
}

/// Jobs are taken under the lock of the committer, so that jobs of a shard keep their order when a
/// submitter leads in between.
fn drive(queue: &JobQueue, committer: &Mutex<Option<Committer>>, signal: &KeeperSignal) {
    let mut unsynced_since: Option<Instant> = None;
    let mut patience = None;
    loop {
        let wakeup = queue.wait(patience);
        let mut owned = lock(committer);
        let Some(committer) = &mut *owned else { return };
        match wakeup {
            CommitterWakeup::Jobs => committer.turn(queue.take()),
            CommitterWakeup::Quiet if committer.is_busy() => committer.turn([].into()),
            CommitterWakeup::Quiet => committer.mark(),
            CommitterWakeup::Closed if committer.is_writing_large() => committer.finish_large(),
            CommitterWakeup::Closed => {
                committer.close();
                return;
            }
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
        patience = if committer.is_busy() {
            Some(Duration::ZERO)
        } else {
            committer.is_unmarked().then_some(QUIET)
        };
    }
}

/// Locks the committer, also after a panic: the journal ends then.
fn lock(committer: &Mutex<Option<Committer>>) -> MutexGuard<'_, Option<Committer>> {
    committer.lock().unwrap_or_else(PoisonError::into_inner)
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

//! The committer's queue of jobs. Stores and the keeper add jobs, and the committer takes all at
//! a time. The permits and reservations of submitters bound it.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::format::LogPosition;
use crate::{
    Batch, BatchId, Completion, Expectation, Fence, Key, Shard, StoreError, Submission, Watcher,
};
use peeklock_store_log::IndexEntry;

/// A job for the committer.
pub(super) enum CommitJob {
    /// Appends a batch.
    Submit(Submission, Completion),
    /// Raises the epoch of a shard.
    Acquire(Shard, oneshot::Sender<Acquired>),
    /// Appends a batch if keys have expected values.
    Amend(Box<Amendment>),
    /// Writes records again at the end of the log.
    Move(Move, Sender<MoveReply>),
    /// Writes a part of a large content again. Its segment is held until a [`CommitJob::Move`]
    /// names it.
    MovePart(Bytes, Sender<MoveReply>),
    /// Makes everything before it durable, then writes a mark, which states so and names the oldest
    /// segment in use. `None` names the same one as the last mark.
    Mark(Option<u32>, Sender<MoveReply>),
}

/// A batch that is stored if keys have expected values.
pub(super) struct Amendment {
    pub(super) expected: Vec<Expectation>,
    pub(super) batch: Batch,
    pub(super) answer: oneshot::Sender<Result<bool, StoreError>>,
}

/// Result of raising the epoch of a shard.
pub(super) type Acquired = Result<(Fence, BatchId), StoreError>;

/// Records to write again.
pub(super) struct Move {
    pub(super) items: Vec<MoveItem>,
}

/// A content, and the records that refer to it.
pub(super) struct MoveItem {
    pub(super) content: MoveContent,
    pub(super) users: Vec<MovedRecord>,
}

/// A record to write again, if its key still has the expected entry.
pub(super) struct MovedRecord {
    pub(super) key: Key,
    pub(super) expected: IndexEntry,
    pub(super) value: Vec<u8>,
}

/// The content of a record that is written again.
pub(super) enum MoveContent {
    /// The content lies in another segment and stays there, or there is none.
    Stays,
    /// The content is written again with the record.
    New(Bytes),
    /// The parts of the content were written again already.
    Parts { places: Vec<LogPosition>, length: u32 },
}

/// The committer's answer to the keeper.
#[derive(Clone, Copy, Debug)]
pub(super) enum MoveReply {
    /// The records are durable.
    Moved,
    /// The part was written at this place.
    Part(LogPosition),
    /// The mark is durable.
    Marked,
}

/// The queue. Its jobs, its end, and the watchers of its end are under one lock.
#[derive(Default)]
pub(super) struct JobQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<CommitJob>,
    ended: Option<StoreError>,
    closing: bool,
    nudged: bool,
    /// Whether a submitter carries out its own job, so that jobs do not wake the committer.
    is_led: bool,
    /// Whether a submitter has carried out a job since the committer began to wait.
    was_led: bool,
    watchers: Vec<Watcher>,
}

/// The reason why the committer wakes up.
pub(super) enum CommitterWakeup {
    /// There are jobs, or it was nudged.
    Jobs,
    /// No job arrived in time.
    Quiet,
    /// The queue is closed and empty.
    Closed,
}

impl JobQueue {
    /// Adds a job. Returns it with the error if the journal has ended or closed.
    pub(super) fn push(&self, job: CommitJob) -> Result<(), (CommitJob, StoreError)> {
        let mut state = self.lock();
        if let Some(error) = &state.ended {
            return Err((job, error.clone()));
        }
        if state.closing {
            return Err((job, StoreError::Failed("the store is closed".into())));
        }
        let wakes = state.jobs.is_empty() && !state.is_led;
        state.jobs.push_back(job);
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Lets the caller carry out the next job, unless there is one or the journal has ended. The
    /// caller owns the committer, which does not wake up for jobs until the lead is dropped.
    pub(super) fn lead(&self) -> Option<Lead<'_>> {
        let mut state = self.lock();
        if !state.jobs.is_empty() || state.closing || state.ended.is_some() {
            return None;
        }
        state.is_led = true;
        Some(Lead { queue: self, has_led: false })
    }

    /// Wakes the committer, even without a job.
    pub(super) fn nudge(&self) {
        self.lock().nudged = true;
        self.arrived.notify_one();
    }

    /// Takes all jobs. The caller owns the committer: jobs that are taken first are carried out
    /// first.
    pub(super) fn take(&self) -> VecDeque<CommitJob> {
        std::mem::take(&mut self.lock().jobs)
    }

    /// Waits at most `patience` for a job or a nudge, without limit if `None`.
    pub(super) fn wait(&self, patience: Option<Duration>) -> CommitterWakeup {
        let mut state = self.lock();
        loop {
            let is_nudged = std::mem::take(&mut state.nudged) && state.ended.is_none();
            if is_nudged || !state.jobs.is_empty() {
                return CommitterWakeup::Jobs;
            }
            if state.closing || state.ended.is_some() {
                return CommitterWakeup::Closed;
            }
            let waited = match patience {
                None => (self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner), false),
                Some(patience) if patience.is_zero() => return CommitterWakeup::Quiet,
                Some(patience) => {
                    let waited = self.arrived.wait_timeout(state, patience);
                    let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    (state, timeout.timed_out())
                }
            };
            state = waited.0;
            // A job of a submitter that led counts as one, so the wait begins again.
            let was_led = std::mem::take(&mut state.was_led);
            if waited.1 && !was_led && state.jobs.is_empty() && !state.closing && !state.nudged {
                return CommitterWakeup::Quiet;
            }
        }
    }

    /// Ends the journal. Returns the remaining jobs, which will not be done.
    pub(super) fn poison(&self, error: &StoreError) -> VecDeque<CommitJob> {
        let mut state = self.lock();
        let why = state.ended.get_or_insert_with(|| error.clone()).clone();
        let (jobs, watchers) =
            (std::mem::take(&mut state.jobs), std::mem::take(&mut state.watchers));
        drop(state);
        for watcher in watchers {
            watcher(&why);
        }
        jobs
    }

    /// Registers a watcher of the journal's end.
    pub(super) fn watch(&self, watcher: Watcher) {
        let mut state = self.lock();
        match state.ended.clone() {
            Some(error) => {
                drop(state);
                watcher(&error);
            }
            None => state.watchers.push(watcher),
        }
    }

    /// The reason why the journal has ended, if it has.
    pub(super) fn ended(&self) -> Option<StoreError> {
        self.lock().ended.clone()
    }

    /// Accepts no further jobs. Jobs in the queue are still done.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right of a submitter to carry out its own job. Dropping it wakes the committer for jobs that
/// arrived meanwhile.
pub(super) struct Lead<'q> {
    queue: &'q JobQueue,
    has_led: bool,
}

impl Lead<'_> {
    /// Takes the job if it is the only one. Otherwise all are left to the committer.
    pub(super) fn take_only_job(&mut self) -> Option<CommitJob> {
        let mut state = self.queue.lock();
        // If the submission was refused, another owner may have added the only job.
        if state.jobs.len() > 1 || !matches!(state.jobs.front(), Some(CommitJob::Submit(..))) {
            return None;
        }
        let job = state.jobs.pop_front();
        self.has_led = job.is_some();
        job
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_led = false;
        state.was_led |= self.has_led;
        let wakes = !state.jobs.is_empty();
        drop(state);
        if wakes {
            self.queue.arrived.notify_one();
        }
    }
}

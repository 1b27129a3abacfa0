//! Jobs of operators: one deed on a fixed selection of messages, step by step (CON-12 to CON-21).
//!
//! ```text
//!  create ─► Selecting ─► Ready, with preview and digest ─► start ─► Waiting ─► Running ─► Done
//!                                                                                 │  ▲
//!                                                                          Paused ┘  └ resume
//! ```
//!
//! The broker checks rights and records each request (`access/jobs.rs`). A
//! [`JobKeeper`](crate::contract::JobKeeper) keeps the jobs and carries them out.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_model::inspect::{HeadState, HeadStates};
use peeklock_words::search::Where;

use crate::command::{
    ActResult, ActedMessage, BODY_EDIT_BYTES_MAX, BodyEdit, Deed, EDIT_BYTES_MAX, Settlement,
};
use crate::condition::Condition;
use crate::description::EntityKind;
use crate::error::Rejection;
use crate::findings::Head;
use crate::ids::{JobId, SequenceNumber};
use crate::limits::Limits;
use crate::message::{MergePatch, PropertyLimits};
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of messages of a job (CON-12).
pub const JOB_MESSAGE_COUNT_MAX: usize = 100_000;
/// Maximum number of sequence numbers that a request lists (CON-12).
pub const JOB_NUMBER_COUNT_MAX: usize = 10_000;
/// Maximum number of failures that a job keeps; further ones are only counted (CON-19).
pub const JOB_FAILURE_COUNT_MAX: usize = 10_000;
/// Maximum number of failures in a page, so that a page can be the selection of a next job.
pub const JOB_FAILURE_PAGE_MAX: u32 = 10_000;
/// Maximum rate of a job, in messages per second (CON-18).
pub const JOB_RATE_MAX: u32 = 10_000;
/// Rate of a job whose request names none (CON-18).
pub const JOB_RATE_DEFAULT: u32 = 500;
/// Maximum number of jobs that run at a time (CON-21).
pub const RUNNING_JOB_COUNT_MAX: usize = 4;
/// Maximum number of jobs that have not ended, next to the running ones (CON-21).
pub const WAITING_JOB_COUNT_MAX: usize = 32;
/// Maximum number of jobs in a page.
pub const JOB_PAGE_MAX: u32 = 100;
/// Time after the preview within which a job is started (CON-14).
pub const JOB_START_TIME: TimeSpan = TimeSpan::from_minutes(10);
/// Time after the end of a job within which it can be undone (CON-20).
pub const JOB_UNDO_TIME: TimeSpan = TimeSpan::from_days(1);
/// Maximum number of sample messages in a preview (CON-14).
pub const JOB_SAMPLE_COUNT_MAX: usize = 20;
/// Maximum number of dead-letter reasons in a preview; messages with others are not counted there.
pub const JOB_REASON_COUNT_MAX: usize = 20;
/// Maximum bytes of a reason in a preview. A longer one is cut.
pub const JOB_REASON_BYTES_MAX: usize = 128;
/// Maximum bytes of a part of an exported file.
pub const JOB_EXPORT_PART_BYTES_MAX: u64 = 256 << 10;

/// Request for a job on one entity or sub-queue.
#[derive(Clone, PartialEq, Debug)]
pub struct JobDraft {
    /// The messages.
    pub selection: JobSelection,
    /// Change of each message.
    pub deed: Deed,
    /// Whether locks of receivers are broken, uncounted (CON-26).
    pub breaks_locks: bool,
    /// Messages per second, 1 to [`JOB_RATE_MAX`].
    pub rate: u32,
    /// Number of messages after which the job pauses once, to look at the result.
    pub trial: Option<u32>,
}

/// Messages of a job. They are fixed when the job is made (CON-13).
#[derive(Clone, PartialEq, Debug)]
pub enum JobSelection {
    /// These messages, at most [`JOB_NUMBER_COUNT_MAX`].
    Numbers(Vec<SequenceNumber>),
    /// Messages that meet conditions, those with the lowest numbers first.
    Matching {
        /// States of the messages.
        states: HeadStates,
        /// Conditions on the messages.
        conditions: Where,
        /// Maximum number of messages, at most [`JOB_MESSAGE_COUNT_MAX`]; also the default.
        count_max: Option<u32>,
    },
}

/// Digest of a preview. The start of a job presents it, so that the job matches it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobDigest(pub u128);

/// Change of the state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobControl {
    /// Starts the job whose preview has this digest.
    Start(JobDigest),
    /// Pauses the job after its current step.
    Pause,
    /// Continues a paused job.
    Resume,
    /// Ends the job after its current step. Its changes stay.
    Cancel,
    /// Makes and starts a job that undoes a job that has ended (CON-20). The answer is the new job;
    /// a repetition returns it while it works, and when it has put every message back.
    Undo,
}

/// Question about jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobQuery {
    /// Lists jobs on entities that the reader may read, newest first.
    List {
        /// Last job of an earlier page.
        after: Option<JobId>,
        /// Maximum number of jobs, 1 to [`JOB_PAGE_MAX`].
        count_max: u32,
    },
    /// Describes a job.
    One(JobId),
    /// Reads the samples of a job as its deed would store them.
    Samples(JobId),
    /// Lists messages of a job whose deed was not done.
    Failures {
        /// The job.
        job: JobId,
        /// Number of failures before the page.
        skip: u32,
        /// Maximum number of failures, 1 to [`JOB_FAILURE_PAGE_MAX`].
        count_max: u32,
    },
    /// Reads a part of the file that an ended job has exported (CON-22).
    Export {
        /// The job.
        job: JobId,
        /// Position of the first byte.
        from: u64,
        /// Maximum number of bytes, 1 to [`JOB_EXPORT_PART_BYTES_MAX`].
        length: u64,
    },
}

/// A job.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFacts {
    /// Its number.
    pub id: JobId,
    /// Path of its entity or sub-queue.
    pub path: Arc<str>,
    /// Change of each message.
    pub deed: Deed,
    /// Whether locks of receivers are broken.
    pub breaks_locks: bool,
    /// Maximum number of messages per second.
    pub rate: u32,
    /// Number of messages after which the job pauses once.
    pub trial: Option<u32>,
    /// Its state.
    pub state: JobState,
    /// Why the job pauses, waits or has failed.
    pub problem: Option<Box<str>>,
    /// Instant of the request.
    pub created_at: Timestamp,
    /// Instant of the start.
    pub started_at: Option<Timestamp>,
    /// Instant of the end.
    pub ended_at: Option<Timestamp>,
    /// Result of the dry run; none while the messages are selected.
    pub preview: Option<JobPreview>,
    /// Progress.
    pub progress: JobProgress,
    /// Instant until which the ended job can be undone.
    pub undo_until: Option<Timestamp>,
    /// Bytes of the file that the ended job has exported; none if it has none, or none any more.
    pub export_bytes: Option<u64>,
}

/// State of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JobState {
    /// Its messages are being selected. The selection ends with the broker.
    Selecting,
    /// Its preview is ready; it waits for its start.
    Ready,
    /// It is started, and waits for its turn.
    Waiting,
    /// It acts on messages.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// Every message was tried.
    Done,
    /// It was cancelled, or not started in time.
    Cancelled,
    /// It cannot continue.
    Failed,
}

/// Result of a dry run (CON-14).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPreview {
    /// Digest that the start presents.
    pub digest: JobDigest,
    /// Instant until which the job can be started.
    pub until: Timestamp,
    /// Number of messages.
    pub count: u64,
    /// Bytes of the messages.
    pub bytes: u64,
    /// Earliest instant of enqueueing.
    pub oldest_at: Option<Timestamp>,
    /// Latest instant of enqueueing.
    pub newest_at: Option<Timestamp>,
    /// Whether more messages meet the conditions than the job takes.
    pub is_cut: bool,
    /// Whether the job can be undone for [`JOB_UNDO_TIME`] after its end.
    pub can_be_undone: bool,
    /// Number of messages that the deed would leave alone now, by result.
    pub refused: Vec<(ActResult, u64)>,
    /// Number of messages by dead-letter reason, the largest first; none for messages without one.
    pub reasons: Vec<(Option<Box<str>>, u64)>,
    /// The first messages, at most [`JOB_SAMPLE_COUNT_MAX`].
    pub samples: Vec<SequenceNumber>,
}

/// A message of a dry run, as the deed would store it (CON-14).
#[derive(Clone, PartialEq, Debug)]
pub struct JobSample {
    /// The message after the deed, with its present number; one to be deleted as it is now.
    pub head: Head,
    /// The result to expect, if the deed would leave the message alone now.
    pub refused: Option<ActResult>,
}

/// Progress of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobProgress {
    /// Number of messages that were tried; before the preview, that were selected.
    pub tried: u64,
    /// Number of messages whose deed is done.
    pub done: u64,
    /// Number of messages whose deed was not done.
    pub failed: u64,
}

/// Refuses a request for a job that does not exist.
#[must_use]
pub fn unknown_job(job: JobId) -> Rejection {
    Rejection::new(Condition::EntityNotFound, format!("no job has the id {job}"))
}

/// Returns the result of a deed to expect for a message in this state; none if the deed is done.
#[must_use]
pub fn expected_result(
    deed: &Deed,
    state: HeadState,
    is_expired: bool,
    breaks_locks: bool,
) -> Option<ActResult> {
    let is_state_right = match (deed, state) {
        // It reads the message.
        (Deed::Export(_), _) => true,
        (_, HeadState::Transferring) => return Some(ActResult::Busy),
        (_, HeadState::Locked) if !breaks_locks => return Some(ActResult::Locked),
        (Deed::Delete | Deed::PutBack(_), _) => true,
        (Deed::DeadLetter { .. }, state) => state != HeadState::Scheduled,
        (Deed::Undefer, HeadState::Deferred) if is_expired => return Some(ActResult::Expired),
        (Deed::Undefer, state) => matches!(state, HeadState::Deferred | HeadState::Locked),
        (Deed::Reschedule(_), state) => state == HeadState::Scheduled,
        (Deed::Resubmit { .. } | Deed::Move { .. }, HeadState::Delayed) => {
            return Some(ActResult::Busy);
        }
        (Deed::Resubmit { .. } | Deed::Move { .. }, _) if is_expired => {
            return Some(ActResult::Expired);
        }
        (Deed::Resubmit { .. } | Deed::Move { .. }, state) => {
            matches!(state, HeadState::Active | HeadState::Locked)
        }
    };
    (!is_state_right).then_some(ActResult::WrongState)
}

/// Page of jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<JobFacts>,
    /// Number of all jobs that the reader may read.
    pub total: u64,
    /// Position of the next page.
    pub next: Option<JobId>,
}

/// Page of failures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobFailurePage {
    /// The messages with their results, in the order in which they were tried.
    pub failures: Vec<ActedMessage>,
    /// Number of all failures, of which at most [`JOB_FAILURE_COUNT_MAX`] are listed.
    pub total: u64,
    /// Number of failures before the next page.
    pub next: Option<u32>,
}

/// Part of the file that a job has exported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobExportPart {
    /// Bytes of the whole file.
    pub length: u64,
    /// Position of the first byte.
    pub from: u64,
    /// The bytes; empty only at the end of the file.
    pub bytes: Bytes,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Selecting,
        Self::Ready,
        Self::Waiting,
        Self::Running,
        Self::Paused,
        Self::Done,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Whether the job has ended.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Failed)
    }
}

impl JobDraft {
    /// Refuses a draft that no job can carry out.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for a number out of its bounds or a text that is too long;
    /// `InvalidOperation` for a deed that is not possible in such an entity or sub-queue.
    pub fn check(
        &self,
        kind: EntityKind,
        sub_queue: SubQueue,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let range = |name: &str, value: usize, max: usize| match value {
            0 => Err(Rejection::out_of_range(format!("{name} must be 1 to {max}"))),
            _ if value > max => {
                let detail = format!("{name} is {value}; it must be 1 to {max}");
                Err(Rejection::out_of_range(detail))
            }
            _ => Ok(()),
        };
        let wide = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        range("the rate", wide(self.rate), wide(JOB_RATE_MAX))?;
        if let Some(trial) = self.trial {
            range("the number of messages of the trial", wide(trial), JOB_MESSAGE_COUNT_MAX)?;
        }
        match &self.selection {
            JobSelection::Numbers(numbers) => {
                range("the number of listed messages", numbers.len(), JOB_NUMBER_COUNT_MAX)?;
            }
            JobSelection::Matching { count_max: Some(count_max), .. } => {
                range("the number of messages", wide(*count_max), JOB_MESSAGE_COUNT_MAX)?;
            }
            JobSelection::Matching { count_max: None, .. } => {}
        }
        if let Deed::DeadLetter { reason, description } = &self.deed {
            Settlement::dead_letter(reason.as_deref(), description.as_deref(), &[], limits)?;
        }
        if let Some(edit) = self.deed.edit() {
            let (bytes, bytes_max) = (edit.changes.size_bytes(), EDIT_BYTES_MAX);
            if bytes > bytes_max {
                let (bytes, bytes_max) = (u64::from(bytes), u64::from(bytes_max));
                return Err(Rejection::message_size_exceeded("map of changes", bytes, bytes_max));
            }
            edit.changes.check(&PropertyLimits::of(limits))?;
            edit.body.as_ref().map_or(Ok(()), check_body)?;
        }
        let is_main = sub_queue == SubQueue::Main;
        let problem = match (&self.deed, kind) {
            (Deed::PutBack(_), _) => "a job puts messages back only if it undoes another job",
            (Deed::DeadLetter { .. }, _) if !is_main => {
                "a dead letter cannot be dead-lettered again"
            }
            (
                Deed::DeadLetter { .. } | Deed::Undefer | Deed::Resubmit { .. } | Deed::Move { .. },
                EntityKind::Topic,
            ) if is_main => "a topic holds only scheduled messages",
            (Deed::Reschedule(_), kind) if !is_main || kind == EntityKind::Subscription => {
                "it holds no scheduled messages"
            }
            (
                Deed::Delete
                | Deed::DeadLetter { .. }
                | Deed::Undefer
                | Deed::Reschedule(_)
                | Deed::Resubmit { .. }
                | Deed::Move { .. }
                | Deed::Export(_),
                _,
            ) => return Ok(()),
        };
        Err(Rejection::invalid_operation(problem))
    }
}

/// Refuses a new body that no job can make.
///
/// # Errors
/// `MessageSizeExceeded` for more than [`BODY_EDIT_BYTES_MAX`] bytes, `ArgumentError` for a text
/// that is not a merge patch.
pub fn check_body(edit: &BodyEdit) -> Result<(), Rejection> {
    let (bytes, bytes_max) = (edit.as_bytes().len() as u64, u64::from(BODY_EDIT_BYTES_MAX));
    if bytes > bytes_max {
        return Err(Rejection::message_size_exceeded("new body or merge patch", bytes, bytes_max));
    }
    match edit {
        BodyEdit::MergePatch(patch) if MergePatch::parse(patch).is_none() => {
            Err(Rejection::argument(
                "the merge patch is not JSON of at most 128 levels; give a JSON merge patch (RFC \
                 7396) as a string, or a whole new body",
            ))
        }
        BodyEdit::MergePatch(_) | BodyEdit::Whole(_) => Ok(()),
    }
}

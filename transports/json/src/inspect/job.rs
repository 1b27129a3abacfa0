//! Jobs of operators: requests, questions and answers (CON-12 to CON-21).

use peeklock_core::command::Deed;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    HeadStates, JOB_EXPORT_PART_BYTES_MAX, JOB_FAILURE_PAGE_MAX, JOB_NUMBER_COUNT_MAX,
    JOB_PAGE_MAX, JOB_RATE_DEFAULT, JobControl, JobDigest, JobDraft, JobFacts, JobPage, JobPreview,
    JobProgress, JobQuery, JobSelection,
};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::clause::WhereForm;
use super::question::state_names;
use super::{ActResultName, HeadStateName, JobStateName, is_false};
use crate::act::{DeedForm, numbers_up_to};
use crate::text::{Guid, Instant};

/// Maximum number of sequence numbers that are read. The broker refuses more than
/// [`JOB_NUMBER_COUNT_MAX`], with an error of its own.
const NUMBERS_MAX: usize = 2 * JOB_NUMBER_COUNT_MAX;

/// Job on messages of an entity or sub-queue: give `sequenceNumbers`, or `where` with `states` and
/// `count`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobForm {
    /// The messages: 1 to 10,000 sequence numbers.
    #[serde(default, deserialize_with = "numbers", skip_serializing_if = "Option::is_none")]
    pub sequence_numbers: Option<Vec<u64>>,
    /// Conditions that the messages meet; an empty line selects all.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub conditions: Option<WhereForm>,
    /// Only messages in these states; by default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<HeadStateName>,
    /// Maximum number of messages, 1 to 100,000, those with the lowest numbers first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Change of each message.
    pub deed: DeedForm,
    /// Whether locks of receivers are broken, uncounted; by default a locked message is left alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub break_locks: bool,
    /// Messages per second, 1 to 10,000; by default 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Number of messages after which the job pauses once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u32>,
}

/// Start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobStartForm {
    /// `digest` of the preview, so that the job matches it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub digest: Guid,
}

/// Change of the state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobControlForm {
    /// Starts the job.
    Start(JobStartForm),
    /// Pauses the job after its current step.
    Pause {},
    /// Continues a paused job.
    Resume {},
    /// Ends the job after its current step.
    Cancel {},
    /// Undoes a job that has ended.
    Undo {},
}

/// Question about jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum JobQueryForm {
    /// Lists jobs, newest first.
    List {
        /// Position: the `next` of an earlier page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Guid>,
        /// Maximum number of jobs, 1 to 100; by default 100.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    },
    /// Describes a job.
    One {
        /// The job.
        job: Guid,
    },
    /// Reads the samples of a job as its deed would store them.
    Samples {
        /// The job.
        job: Guid,
    },
    /// Lists messages whose deed was not done.
    Failures {
        /// The job.
        job: Guid,
        /// Number of failures before the page.
        #[serde(default)]
        skip: u32,
        /// Maximum number of failures, 1 to 10,000; by default 10,000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    },
    /// Reads a part of the file that an ended job has exported.
    Export {
        /// The job.
        job: Guid,
        /// Position of the first byte; by default 0.
        #[serde(default)]
        from: u64,
        /// Maximum number of bytes, 1 to 262,144; by default 262,144.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
    },
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Id of the job, a GUID.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub job: Guid,
    /// Path of its entity or sub-queue.
    pub path: String,
    /// Its state.
    pub state: JobStateName,
    /// Why the job pauses, waits or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Change of each message.
    pub deed: DeedForm,
    /// Whether locks of receivers are broken.
    #[serde(default, skip_serializing_if = "is_false")]
    pub break_locks: bool,
    /// Maximum number of messages per second.
    pub rate: u32,
    /// Number of messages after which the job pauses once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u32>,
    /// Instant of the request.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub created_at_utc: Instant,
    /// Instant of the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub started_at_utc: Option<Instant>,
    /// Instant of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub ended_at_utc: Option<Instant>,
    /// Instant until which the ended job can be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub undo_until_utc: Option<Instant>,
    /// Bytes of the file that the ended job has exported; absent if there is none, or none any
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_bytes: Option<u64>,
    /// Messages that were tried; until the preview is ready, that were selected.
    pub tried: u64,
    /// Messages whose deed is done.
    pub done: u64,
    /// Messages whose deed was not done.
    pub failed: u64,
    /// Result of the dry run; absent while the messages are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<JobPreviewView>,
    /// Instant of the answer by the clock of the broker; absent in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub now_utc: Option<Instant>,
}

/// Result of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobPreviewView {
    /// Digest that the start presents.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub digest: Guid,
    /// Instant until which the job can be started.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub until_utc: Instant,
    /// Number of messages.
    pub count: u64,
    /// Bytes of the messages.
    pub bytes: u64,
    /// Earliest instant of enqueueing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub oldest_utc: Option<Instant>,
    /// Latest instant of enqueueing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub newest_utc: Option<Instant>,
    /// Whether more messages meet the conditions than the job takes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
    /// Whether the job can be undone for 24 h after its end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undoable: bool,
    /// Messages that the deed would leave alone now, by result.
    pub refused: Vec<RefusedView>,
    /// Messages by dead-letter reason, the largest number first, at most 20.
    pub reasons: Vec<ReasonView>,
    /// Sequence numbers of the first messages, at most 20.
    pub samples: Vec<u64>,
}

/// Number of messages with a result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedView {
    /// Result of the deed.
    pub result: ActResultName,
    /// Number of messages.
    pub count: u64,
}

/// Number of messages with a dead-letter reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReasonView {
    /// The reason; absent for messages without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of messages.
    pub count: u64,
}

/// A page of jobs, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobPageView {
    jobs: Vec<JobView>,
    /// Number of all jobs that you may read.
    total: u64,
    /// Position of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    next: Option<Guid>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

impl JobForm {
    /// Converts to a draft of the core. `now` is the broker's clock.
    ///
    /// # Errors
    /// `ArgumentError` for a selection of both kinds or of none, and for conditions that cannot be
    /// read.
    pub fn to_draft(self, now: Timestamp) -> Result<JobDraft, Rejection> {
        let selection = match (self.sequence_numbers, self.conditions) {
            (Some(numbers), None) if self.states.is_empty() && self.count.is_none() => {
                JobSelection::Numbers(numbers.into_iter().map(SequenceNumber).collect())
            }
            (None, Some(conditions)) => {
                let states: HeadStates = self.states.into_iter().map(Into::into).collect();
                JobSelection::Matching {
                    states: if states.is_empty() { HeadStates::ALL } else { states },
                    conditions: conditions.to_where(now)?,
                    count_max: self.count,
                }
            }
            _ => {
                return Err(Rejection::argument(
                    "give sequenceNumbers, or where with states and count; an empty where selects \
                     all messages",
                ));
            }
        };
        Ok(JobDraft {
            selection,
            deed: self.deed.try_into()?,
            breaks_locks: self.break_locks,
            rate: self.rate.unwrap_or(JOB_RATE_DEFAULT),
            trial: self.trial,
        })
    }
}

impl From<JobDraft> for JobForm {
    fn from(draft: JobDraft) -> Self {
        let (sequence_numbers, conditions, states, count) = match draft.selection {
            JobSelection::Numbers(numbers) => {
                let numbers = numbers.into_iter().map(|sequence| sequence.0).collect();
                (Some(numbers), None, Vec::new(), None)
            }
            JobSelection::Matching { states, conditions, count_max } => {
                let line = WhereForm::Line(conditions.to_string());
                (None, Some(line), state_names(states), count_max)
            }
        };
        Self {
            sequence_numbers,
            conditions,
            states,
            count,
            deed: draft.deed.into(),
            break_locks: draft.breaks_locks,
            rate: Some(draft.rate),
            trial: draft.trial,
        }
    }
}

impl From<JobControlForm> for JobControl {
    fn from(form: JobControlForm) -> Self {
        match form {
            JobControlForm::Start(JobStartForm { digest }) => Self::Start(JobDigest(digest.0)),
            JobControlForm::Pause {} => Self::Pause,
            JobControlForm::Resume {} => Self::Resume,
            JobControlForm::Cancel {} => Self::Cancel,
            JobControlForm::Undo {} => Self::Undo,
        }
    }
}

impl From<JobControl> for JobControlForm {
    fn from(control: JobControl) -> Self {
        match control {
            JobControl::Start(JobDigest(digest)) => {
                Self::Start(JobStartForm { digest: Guid(digest) })
            }
            JobControl::Pause => Self::Pause {},
            JobControl::Resume => Self::Resume {},
            JobControl::Cancel => Self::Cancel {},
            JobControl::Undo => Self::Undo {},
        }
    }
}

impl JobQueryForm {
    pub(super) fn to_query(&self) -> Result<JobQuery, Rejection> {
        let rows = |top: Option<u32>, most: u32| match top.unwrap_or(most) {
            count if (1..=most).contains(&count) => Ok(count),
            count => {
                Err(Rejection::out_of_range(format!("top is {count}; it must be 1 to {most}")))
            }
        };
        Ok(match self {
            Self::List { after, top } => JobQuery::List {
                after: after.map(|Guid(job)| JobId(job)),
                count_max: rows(*top, JOB_PAGE_MAX)?,
            },
            Self::One { job } => JobQuery::One(JobId(job.0)),
            Self::Samples { job } => JobQuery::Samples(JobId(job.0)),
            Self::Failures { job, skip, top } => JobQuery::Failures {
                job: JobId(job.0),
                skip: *skip,
                count_max: rows(*top, JOB_FAILURE_PAGE_MAX)?,
            },
            Self::Export { job, from, length } => {
                let length = length.unwrap_or(JOB_EXPORT_PART_BYTES_MAX);
                if !(1..=JOB_EXPORT_PART_BYTES_MAX).contains(&length) {
                    return Err(Rejection::out_of_range(format!(
                        "length is {length}; it must be 1 to {JOB_EXPORT_PART_BYTES_MAX}"
                    )));
                }
                JobQuery::Export { job: JobId(job.0), from: *from, length }
            }
        })
    }
}

impl From<&JobQuery> for JobQueryForm {
    fn from(query: &JobQuery) -> Self {
        match query {
            JobQuery::List { after, count_max } => {
                Self::List { after: after.map(|job| Guid(job.0)), top: Some(*count_max) }
            }
            JobQuery::One(JobId(job)) => Self::One { job: Guid(*job) },
            JobQuery::Samples(JobId(job)) => Self::Samples { job: Guid(*job) },
            JobQuery::Failures { job, skip, count_max } => {
                Self::Failures { job: Guid(job.0), skip: *skip, top: Some(*count_max) }
            }
            JobQuery::Export { job, from, length } => {
                Self::Export { job: Guid(job.0), from: *from, length: Some(*length) }
            }
        }
    }
}

impl From<JobFacts> for JobView {
    fn from(facts: JobFacts) -> Self {
        Self::new(facts, None)
    }
}

impl JobView {
    pub(super) fn new(facts: JobFacts, at: Option<Timestamp>) -> Self {
        Self {
            job: Guid(facts.id.0),
            path: facts.path.to_string(),
            state: facts.state.into(),
            problem: facts.problem.map(Into::into),
            deed: facts.deed.into(),
            break_locks: facts.breaks_locks,
            rate: facts.rate,
            trial: facts.trial,
            created_at_utc: Instant(facts.created_at),
            started_at_utc: facts.started_at.map(Instant),
            ended_at_utc: facts.ended_at.map(Instant),
            undo_until_utc: facts.undo_until.map(Instant),
            export_bytes: facts.export_bytes,
            tried: facts.progress.tried,
            done: facts.progress.done,
            failed: facts.progress.failed,
            preview: facts.preview.map(Into::into),
            now_utc: at.map(Instant),
        }
    }

    /// The job with the number of bytes of a new body or merge patch, without its text.
    #[must_use]
    pub fn without_body(mut self) -> Self {
        self.deed.leave_body_out();
        self
    }

    pub(super) fn at(&self) -> Timestamp {
        self.now_utc.map_or(Timestamp::NONE, |Instant(at)| at)
    }

    pub(super) fn facts(self) -> Result<JobFacts, Rejection> {
        Ok(JobFacts {
            id: JobId(self.job.0),
            path: self.path.into(),
            deed: Deed::try_from(self.deed)?,
            breaks_locks: self.break_locks,
            rate: self.rate,
            trial: self.trial,
            state: self.state.into(),
            problem: self.problem.map(Into::into),
            created_at: self.created_at_utc.0,
            started_at: self.started_at_utc.map(|Instant(at)| at),
            ended_at: self.ended_at_utc.map(|Instant(at)| at),
            undo_until: self.undo_until_utc.map(|Instant(at)| at),
            export_bytes: self.export_bytes,
            preview: self.preview.map(Into::into),
            progress: JobProgress { tried: self.tried, done: self.done, failed: self.failed },
        })
    }
}

impl From<JobPreview> for JobPreviewView {
    fn from(preview: JobPreview) -> Self {
        let refused = preview.refused.into_iter();
        let reasons = preview.reasons.into_iter();
        Self {
            digest: Guid(preview.digest.0),
            until_utc: Instant(preview.until),
            count: preview.count,
            bytes: preview.bytes,
            oldest_utc: preview.oldest_at.map(Instant),
            newest_utc: preview.newest_at.map(Instant),
            cut: preview.is_cut,
            undoable: preview.can_be_undone,
            refused: refused
                .map(|(result, count)| RefusedView { result: result.into(), count })
                .collect(),
            reasons: reasons
                .map(|(reason, count)| ReasonView { reason: reason.map(Into::into), count })
                .collect(),
            samples: preview.samples.into_iter().map(|sequence| sequence.0).collect(),
        }
    }
}

impl From<JobPreviewView> for JobPreview {
    fn from(view: JobPreviewView) -> Self {
        let (refused, reasons) = (view.refused.into_iter(), view.reasons.into_iter());
        Self {
            digest: JobDigest(view.digest.0),
            until: view.until_utc.0,
            count: view.count,
            bytes: view.bytes,
            oldest_at: view.oldest_utc.map(|Instant(at)| at),
            newest_at: view.newest_utc.map(|Instant(at)| at),
            is_cut: view.cut,
            can_be_undone: view.undoable,
            refused: refused.map(|one| (one.result.into(), one.count)).collect(),
            reasons: reasons.map(|one| (one.reason.map(Into::into), one.count)).collect(),
            samples: view.samples.into_iter().map(SequenceNumber).collect(),
        }
    }
}

impl JobPageView {
    /// The page with the number of bytes of each new body or merge patch, without their texts.
    #[must_use]
    pub fn without_bodies(mut self) -> Self {
        for job in &mut self.jobs {
            job.deed.leave_body_out();
        }
        self
    }

    pub(super) fn new(page: JobPage, at: Timestamp) -> Self {
        let jobs = page.jobs.into_iter().map(|facts| JobView::new(facts, None)).collect();
        let next = page.next.map(|job| Guid(job.0));
        Self { jobs, total: page.total, next, now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<JobPage, Rejection> {
        let jobs = self.jobs.into_iter().map(JobView::facts).collect::<Result<_, _>>()?;
        Ok(JobPage { jobs, total: self.total, next: self.next.map(|Guid(job)| JobId(job)) })
    }
}

fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    numbers_up_to(deserializer, NUMBERS_MAX).map(Some)
}

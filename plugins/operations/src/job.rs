//! A job in memory: its facts, its selection, and the place of its next step. It changes only by
//! lines of its file.

use std::collections::BTreeSet;
use std::sync::Arc;

use peeklock_core::command::{ACT_COUNT_MAX, Act, ActResult, ActedMessage, Deed, JobStep};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, JobId, SequenceNumber};
use peeklock_core::inspect::{
    JOB_FAILURE_COUNT_MAX, JobDraft, JobFacts, JobFailurePage, JobPreview, JobProgress, JobState,
};
use peeklock_core::path::{EntityAddress, PathKey, SubQueue};
use peeklock_core::time::Timestamp;

use crate::preview::digest;
use crate::record::{Lines, MadeRecord, PreviewRecord, Record, StepRecord, code, hex, result};

/// Steps of a job in a second, so that a slow job pauses soon.
const STEPS_PER_SECOND: u32 = 4;
/// End of the name of the file of a job that has not ended.
pub(crate) const LIVE: &str = ".job";
/// End of the name of the file of a job that has ended.
pub(crate) const ENDED: &str = ".ended";

/// Reason of the pause after the trial.
const TRIAL_IS_OVER: &str = "the trial is over; resume or cancel the job";

#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) facts: JobFacts,
    /// The entity that had the path when the messages were selected.
    pub(crate) entity: EntityId,
    /// The selection; empty until the preview, and after the end.
    pub(crate) sequences: Arc<[SequenceNumber]>,
    /// Reason of the first refusal of a step.
    pub(crate) refusal: Option<Box<str>>,
    /// Number of its pauses and resumptions.
    pub(crate) controls: u32,
    /// Number of its steps without a message, since the destination was full.
    pub(crate) waits: u32,
    /// Messages of the next step that are done already: the destination of a message before them
    /// was full, but theirs was not.
    ahead: BTreeSet<SequenceNumber>,
    /// Number of the last step.
    steps: u64,
    /// Bytes that are reserved for its messages, so that it can be undone; 0 if it cannot.
    pub(crate) undo_room: u64,
    /// Bytes of these messages up to its last step, of the messages that it puts back, or of the
    /// file that it exports.
    pub(crate) kept: u64,
    /// Bytes of its file.
    pub(crate) bytes: u64,
    /// Whether its file is without the selection.
    pub(crate) is_compact: bool,
    /// Whether its file cannot be read to its end. It is left as it is.
    pub(crate) is_damaged: bool,
}

impl Job {
    /// Creates a job whose messages are not selected.
    pub(crate) fn new(id: JobId, path: &str, draft: &JobDraft, now: Timestamp) -> Self {
        let JobDraft { deed, breaks_locks, rate, trial, .. } = draft;
        let facts = JobFacts {
            id,
            path: path.into(),
            deed: deed.clone(),
            breaks_locks: *breaks_locks,
            rate: *rate,
            trial: *trial,
            state: JobState::Selecting,
            problem: None,
            created_at: now,
            started_at: None,
            ended_at: None,
            preview: None,
            progress: JobProgress::default(),
            undo_until: None,
            export_bytes: None,
        };
        Self {
            facts,
            entity: EntityId(0),
            sequences: Arc::from([]),
            refusal: None,
            controls: 0,
            waits: 0,
            ahead: BTreeSet::new(),
            steps: 0,
            undo_room: 0,
            kept: 0,
            bytes: 0,
            is_compact: false,
            is_damaged: false,
        }
    }

    /// Reads a job from the lines of its file; none if the first line does not describe it. A job
    /// whose further lines are not as this program writes them has failed.
    pub(crate) fn from_lines(id: JobId, lines: Lines, is_live: bool) -> Option<Self> {
        let mut records = lines.records.into_iter();
        let Some(Record::Made(made)) = records.next() else { return None };
        let made = made.into_made().filter(|made| made.id == id)?;
        let facts = JobFacts {
            id: made.id,
            path: made.path.into(),
            deed: made.deed,
            breaks_locks: made.breaks_locks,
            rate: made.rate,
            trial: made.trial,
            state: if made.started_at.is_some() { JobState::Waiting } else { JobState::Ready },
            problem: None,
            created_at: made.created_at,
            started_at: made.started_at,
            ended_at: None,
            preview: Some(made.preview),
            progress: JobProgress::default(),
            undo_until: None,
            export_bytes: None,
        };
        let (entity, sequences) = (made.entity, made.sequences.into());
        let mut job = Self {
            facts,
            entity,
            sequences,
            refusal: made.refusal,
            controls: 0,
            waits: 0,
            ahead: BTreeSet::new(),
            steps: 0,
            undo_room: made.undo_room,
            kept: made.kept,
            bytes: lines.end,
            is_compact: !is_live,
            is_damaged: false,
        };
        for (index, record) in records.enumerate() {
            if !job.permits(&record) {
                job.fail_to_read(&format!("line {} of its file contradicts the others", index + 2));
                return Some(job);
            }
            job.apply(&record);
        }
        if let Some(line) = lines.unreadable {
            job.fail_to_read(&format!("line {line} of its file cannot be read"));
        } else if is_live && !job.matches_digest() {
            job.fail_to_read("the selection in its file does not match the digest of its preview");
        }
        Some(job)
    }

    /// Whether a line may follow the lines before it.
    fn permits(&self, record: &Record) -> bool {
        let count = match &self.facts.preview {
            Some(preview) if self.is_compact => preview.count,
            _ => self.sequences.len() as u64,
        };
        let fits = |step: &StepRecord| {
            let tried = self.facts.progress.tried.saturating_add(step.tried);
            step.done <= step.tried && tried.saturating_add(step.ahead.len() as u64) <= count
        };
        match record {
            Record::Made(_) => false,
            Record::Step(step) => {
                !self.is_compact && step.number == self.steps.saturating_add(1) && fits(step)
            }
            Record::Steps(step) => self.is_compact && fits(step),
            Record::Started { .. }
            | Record::Paused { .. }
            | Record::Resumed {}
            | Record::Ended { .. } => true,
        }
    }

    fn matches_digest(&self) -> bool {
        let stored = self.facts.preview.as_ref().map(|preview| preview.digest);
        let can_be_undone = self.undo_room > 0;
        stored == Some(digest(&self.facts, self.entity, &self.sequences, can_be_undone))
    }

    /// Ends a job whose file is damaged.
    fn fail_to_read(&mut self, problem: &str) {
        let problem = format!("{problem}; it stays as it is until it is removed or repaired");
        self.facts.state = JobState::Failed;
        self.facts.problem = Some(problem.into());
        (self.facts.ended_at, self.sequences, self.is_damaged) = (None, Arc::from([]), true);
    }

    /// Gives the job its selection. Returns its first line.
    pub(crate) fn select(
        &mut self,
        entity: EntityId,
        sequences: Arc<[SequenceNumber]>,
        preview: JobPreview,
    ) -> Record {
        (self.entity, self.sequences) = (entity, sequences);
        self.facts.progress = JobProgress::default();
        let is_started = self.facts.started_at.is_some();
        self.facts.state = if is_started { JobState::Waiting } else { JobState::Ready };
        let line = self.made(&preview, &self.sequences);
        self.facts.preview = Some(preview);
        line
    }

    fn made(&self, preview: &JobPreview, sequences: &[SequenceNumber]) -> Record {
        let facts = &self.facts;
        Record::Made(Box::new(MadeRecord {
            id: hex(facts.id.0),
            path: facts.path.to_string(),
            entity: self.entity.0,
            deed: (&facts.deed).into(),
            breaks_locks: facts.breaks_locks,
            rate: facts.rate,
            trial: facts.trial,
            created_at: facts.created_at.ticks(),
            preview: PreviewRecord::from(preview),
            started_at: facts.started_at.map(Timestamp::ticks),
            undo_room: self.undo_room,
            kept: self.kept,
            refusal: self.refusal.clone(),
            sequences: sequences.iter().map(|sequence| sequence.0).collect(),
        }))
    }

    /// Applies a line.
    pub(crate) fn apply(&mut self, record: &Record) {
        let facts = &mut self.facts;
        match record {
            Record::Made(_) => {}
            Record::Started { at } => {
                facts.started_at = Some(Timestamp::from_ticks(*at));
                facts.state = JobState::Waiting;
            }
            Record::Step(step) | Record::Steps(step) => {
                let progress = &mut facts.progress;
                let tried = usize::try_from(progress.tried).unwrap_or(usize::MAX);
                let of_step = self.sequences.iter().skip(tried);
                for sequence in of_step.take(usize::try_from(step.tried).unwrap_or(usize::MAX)) {
                    self.ahead.remove(sequence);
                }
                self.ahead.extend(step.ahead.iter().copied().map(SequenceNumber));
                let failed = step.tried.saturating_sub(step.done);
                progress.tried = progress.tried.saturating_add(step.tried);
                progress.done = progress.done.saturating_add(step.done);
                progress.failed = progress.failed.saturating_add(failed);
                self.steps = step.number;
                self.kept = self.kept.max(step.kept);
                facts.problem = step.refusal.clone();
                self.refusal = self.refusal.take().or_else(|| step.refusal.clone());
                if step.tried == 0 {
                    self.waits = self.waits.saturating_add(1);
                }
                let is_end_of_trial = step.tried > 0
                    && facts.trial.is_some_and(|trial| u64::from(trial) == progress.tried);
                if is_end_of_trial && progress.tried < self.sequences.len() as u64 {
                    facts.state = JobState::Paused;
                    facts.problem = Some(TRIAL_IS_OVER.into());
                }
            }
            Record::Paused { problem } => {
                self.controls = self.controls.saturating_add(1);
                facts.state = JobState::Paused;
                facts.problem = problem.as_deref().map(Box::from);
            }
            Record::Resumed {} => {
                self.controls = self.controls.saturating_add(1);
                (facts.state, facts.problem) = (JobState::Waiting, None);
            }
            Record::Ended { at, state, problem } => {
                let ahead = std::mem::take(&mut self.ahead).len() as u64;
                facts.progress.tried = facts.progress.tried.saturating_add(ahead);
                facts.progress.done = facts.progress.done.saturating_add(ahead);
                facts.ended_at = Some(Timestamp::from_ticks(*at));
                facts.state = (*state).into();
                facts.problem = problem.as_deref().map(Box::from);
                let has_file = self.kept > 0 && matches!(facts.deed, Deed::Export(_));
                facts.export_bytes = has_file.then_some(self.kept);
            }
        }
    }

    /// Whether the job exports messages.
    pub(crate) const fn is_export(&self) -> bool {
        matches!(self.facts.deed, Deed::Export(_))
    }

    /// The next message.
    pub(crate) fn next_sequence(&self) -> Option<SequenceNumber> {
        let tried = usize::try_from(self.facts.progress.tried).unwrap_or(usize::MAX);
        self.sequences.get(tried).copied()
    }

    /// The job that this one undoes.
    pub(crate) const fn undone(&self) -> Option<JobId> {
        match &self.facts.deed {
            Deed::PutBack(put_back) => Some(put_back.undone),
            _ => None,
        }
    }

    /// The job whose file of messages this one writes.
    pub(crate) fn export(&self) -> JobId {
        self.undone().unwrap_or(self.facts.id)
    }

    /// Whether it keeps its messages or puts messages back, so that it has to do with a file of
    /// messages.
    pub(crate) const fn has_export(&self) -> bool {
        self.undo_room > 0 || self.undone().is_some()
    }

    /// Whether the job has a file with its selection.
    pub(crate) const fn has_live_file(&self) -> bool {
        self.facts.preview.is_some() && !self.is_compact
    }

    /// Whether the job has ended, but its receipt and its file are as before.
    pub(crate) const fn needs_completion(&self) -> bool {
        self.facts.state.is_end() && self.has_live_file() && !self.is_damaged
    }

    /// Whether the job has not ended, or its end is not complete.
    pub(crate) const fn works(&self) -> bool {
        !self.facts.state.is_end() || self.needs_completion()
    }

    /// The entity and sub-queue on which only one job at a time acts.
    pub(crate) fn place(&self) -> Option<(PathKey, SubQueue)> {
        let address = EntityAddress::parse(&self.facts.path).ok()?;
        Some((address.key(), address.sub_queue))
    }

    /// The next step; none if every message was tried. It depends only on the lines of the file, so
    /// a step that is repeated after a restart has the same messages.
    pub(crate) fn next_step(&self) -> Option<Act> {
        let facts = &self.facts;
        let tried = usize::try_from(facts.progress.tried).unwrap_or(usize::MAX);
        let rest = self.sequences.get(tried..).filter(|rest| !rest.is_empty())?;
        let mut size = (facts.rate / STEPS_PER_SECOND).max(1) as usize;
        if let Some(trial) = facts.trial.map(|trial| trial as usize)
            && trial > tried
        {
            size = size.min(trial - tried);
        }
        let some = rest.get(..size.min(ACT_COUNT_MAX)).unwrap_or(rest);
        Some(Act {
            step: Some(JobStep { job: facts.id, number: self.steps.saturating_add(1) }),
            sequences: some.to_vec(),
            deed: facts.deed.clone(),
            breaks_locks: facts.breaks_locks,
            kept: None,
        })
    }

    /// The line of a step. From the first message on for which the destination has no room, the
    /// messages count as not tried: the next step names them again (CON-17), and does not find messages
    /// which have left. `kept` are the bytes of kept messages, and `problem` is why some stay.
    pub(crate) fn step(
        &self,
        messages: &[ActedMessage],
        kept: u64,
        problem: Option<&str>,
    ) -> Record {
        let is_full = |message: &ActedMessage| message.result == ActResult::DestinationFull;
        let end = messages.iter().position(is_full).unwrap_or(messages.len());
        let (messages, rest) = messages.split_at_checked(end).unwrap_or((messages, &[]));
        let is_done = |message: &&ActedMessage| match message.result {
            ActResult::Done => true,
            ActResult::NotFound => self.ahead.contains(&message.sequence),
            _ => false,
        };
        let failed = messages.iter().filter(|message| !is_done(message));
        let ahead = rest.iter().filter(|message| message.result == ActResult::Done);
        Record::Step(StepRecord {
            number: self.steps.saturating_add(1),
            tried: messages.len() as u64,
            done: messages.iter().filter(is_done).count() as u64,
            failures: failed.map(|failed| (failed.sequence.0, code(failed.result))).collect(),
            ahead: ahead.map(|message| message.sequence.0).collect(),
            refusal: problem.filter(|_| self.refusal.is_none()).map(Box::from),
            kept,
        })
    }

    /// The line of a step that was refused as a whole, and would be again. Its messages stay.
    pub(crate) fn refused_step(&self, sequences: &[SequenceNumber], reason: &str) -> Record {
        let stays = |sequence: &SequenceNumber| (sequence.0, code(ActResult::WrongState));
        Record::Step(StepRecord {
            number: self.steps.saturating_add(1),
            tried: sequences.len() as u64,
            done: 0,
            failures: sequences.iter().map(stays).collect(),
            ahead: Vec::new(),
            refusal: self.refusal.is_none().then(|| reason.into()),
            kept: 0,
        })
    }

    /// Refuses a request in this state.
    pub(crate) fn refuse(&self, request: &str) -> Rejection {
        let facts = &self.facts;
        let state = match facts.state {
            JobState::Selecting => "its messages are being selected",
            JobState::Ready => "it is not started",
            JobState::Waiting | JobState::Running => "it is started",
            JobState::Paused => "it is paused",
            JobState::Done => "it is done",
            JobState::Cancelled => "it is cancelled",
            JobState::Failed => "it has failed",
        };
        Rejection::invalid_operation(format!("job {} cannot be {request}: {state}", facts.id))
    }

    /// The lines of the file of a job that has ended, without the selection. `all` are the lines of
    /// its file before.
    pub(crate) fn ended_lines(&self, all: &[Record]) -> Vec<u8> {
        let Some(preview) = &self.facts.preview else { return Vec::new() };
        let mut bytes = self.made(preview, &[]).line();
        let progress = &self.facts.progress;
        let mut failures = Vec::new();
        for record in all {
            if let Record::Step(step) = record {
                failures.extend(&step.failures);
            }
        }
        failures.truncate(JOB_FAILURE_COUNT_MAX);
        let (number, tried, done) = (self.steps, progress.tried, progress.done);
        let all_steps = StepRecord { number, tried, done, failures, ..StepRecord::default() };
        bytes.extend(Record::Steps(all_steps).line());
        let end = all.iter().rfind(|record| matches!(record, Record::Ended { .. }));
        bytes.extend(end.map(Record::line).unwrap_or_default());
        bytes
    }
}

/// Name of a file of a job.
pub(crate) fn file_name(job: JobId, end: &str) -> String {
    format!("{}{end}", hex(job.0))
}

/// Reads the name of a file of a job, and whether the file has its selection.
pub(crate) fn parse_file_name(name: &str) -> Option<(JobId, bool)> {
    let (stem, is_live) = match name.strip_suffix(LIVE) {
        Some(stem) => (stem, true),
        None => (name.strip_suffix(ENDED)?, false),
    };
    // No other spelling of the id.
    JobId::parse(stem).filter(|id| hex(id.0) == stem).map(|id| (id, is_live))
}

/// A page of the failures in the lines of a job.
pub(crate) fn failure_page(records: &[Record], skip: u32, count_max: u32) -> JobFailurePage {
    let steps = || {
        records.iter().filter_map(|record| match record {
            Record::Step(step) | Record::Steps(step) => Some(step),
            _ => None,
        })
    };
    let failed = steps().map(|step| step.tried.saturating_sub(step.done));
    let total = failed.fold(0, u64::saturating_add);
    let kept = steps().flat_map(|step| &step.failures).take(JOB_FAILURE_COUNT_MAX);
    let acted = kept.filter_map(|(sequence, code)| {
        Some(ActedMessage { sequence: SequenceNumber(*sequence), result: result(*code)? })
    });
    let mut rest = acted.skip(skip as usize);
    let failures: Vec<_> = rest.by_ref().take(count_max as usize).collect();
    let shown = u32::try_from(failures.len()).unwrap_or(u32::MAX);
    let next = rest.next().map(|_| skip.saturating_add(shown));
    JobFailurePage { failures, total, next }
}

//! Undo of jobs (CON-20): the engine keeps messages before a step changes them, and puts them back
//! in the steps of another job.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use peeklock_core::Entity;
use peeklock_core::command::{
    Act, ActedMessage, Command, Deed, JobStep, OperatorCommand, Original, Outcome, PutBack,
    ReceivedMessage,
};
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    Excerpt, HeadFacts, Inquiry, JOB_RATE_DEFAULT, JOB_START_TIME, JobDraft, JobFacts, JobPreview,
    JobSelection, JobState, unknown_job,
};
use peeklock_core::store::StoreError;
use peeklock_core::time::TimeSpan;

use crate::engine::{Engine, wait};
use crate::export::{Contents, Export, MESSAGE_BYTES_MAX, Reader};
use crate::job::Job;
use crate::preview::digest;
use crate::shelf::GrowingFile;

/// Maximum bytes of the messages that a step puts back, unless one has more.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Time between two looks at an earlier undo that is ending, and their maximum number.
const ENDING_LOOK_TIME: TimeSpan = TimeSpan::from_ms(50);
const ENDING_LOOK_COUNT: u32 = 20;
/// Why a message stays that cannot be kept.
const CANNOT_BE_KEPT: &str = "some messages are damaged or larger than 1 MiB, so they stay: after \
    their deletion the job could not be undone";
/// Why a message is not put back.
const IS_DAMAGED: &str = "the file with the messages of the undone job is damaged at some places, \
    and the messages there are not put back";

/// Messages of a job that works, before their deeds.
#[derive(Default)]
pub(crate) struct Originals {
    /// The end of their file.
    export: Option<Export>,
    /// The messages that the job puts back.
    returns: Option<(Reader, Contents)>,
    /// The end of the file of an export.
    pub(crate) output: Option<GrowingFile>,
    /// Why some messages of the step stay.
    pub(crate) problem: Option<&'static str>,
}

/// Messages that an entity has read for a step, or the results of the step.
enum StepView {
    Messages(Vec<HeadFacts<ReceivedMessage>>, BTreeMap<SequenceNumber, Bytes>),
    Results(Vec<ActedMessage>),
}

impl Engine {
    /// Carries out a step, after its messages are kept, or the messages to put back are read.
    pub(crate) async fn act(
        &self,
        job: &Job,
        entity: &Entity,
        mut act: Act,
        originals: &mut Originals,
    ) -> Result<Outcome, BrokerError> {
        if let Deed::Export(form) = job.facts.deed {
            let exported = self.export(job, entity, &act, form, originals).await;
            if exported.is_err() {
                // A part may be written, so the file is continued after the last step.
                *originals = Originals::default();
            }
            return exported;
        }
        if job.has_export()
            && let Err(error) = self.prepare(job, entity, &mut act, originals).await
        {
            // A part may be written, so the file is read again.
            *originals = Originals::default();
            return Err(error);
        }
        let acted = entity.call(Command::OfOperator(OperatorCommand::Act(Box::new(act)))).await;
        // After an error that may be repeated the result is unknown.
        if acted.as_ref().map_or_else(BrokerError::retryable, |_| true) {
            self.table.with(job.facts.id, |entry| entry.is_step_open = true);
        }
        acted
    }

    async fn prepare(
        &self,
        job: &Job,
        entity: &Entity,
        act: &mut Act,
        originals: &mut Originals,
    ) -> Result<(), BrokerError> {
        let refuse = |rejection| self.broker.refuse(rejection, &job.facts.path);
        originals.problem = None;
        let mut export = match originals.export.take() {
            Some(export) => export,
            None => self.table.export(job).map_err(refuse)?,
        };
        if let Some(undone) = job.undone() {
            if let StepView::Results(messages) = self.look(job, entity, act).await? {
                // The file may already have its numbers as put back, so it does not have the
                // messages of this step any more.
                act.sequences = messages.iter().map(|message| message.sequence).collect();
            } else {
                let returns = match originals.returns.take() {
                    Some(returns) => returns,
                    None => self.table.contents(undone, None).await.map_err(refuse)?,
                };
                let read = read_originals(&returns, act)
                    .map_err(|error| refuse(self.table.refuse_export(undone, &error)))?;
                originals.problem = (!read).then_some(IS_DAMAGED);
                originals.returns = Some(returns);
            }
        } else {
            let kept = self.keep_originals(&mut export, job, entity, act).await?;
            originals.problem = (!kept).then_some(CANNOT_BE_KEPT);
        }
        originals.export = Some(export);
        Ok(())
    }

    /// Writes the messages of a step, unless it was carried out. Returns whether all contents could
    /// be read.
    async fn keep_originals(
        &self,
        export: &mut Export,
        job: &Job,
        entity: &Entity,
        act: &mut Act,
    ) -> Result<bool, BrokerError> {
        let refuse = |rejection| self.broker.refuse(rejection, &job.facts.path);
        let (heads, mut records) = match self.look(job, entity, act).await? {
            StepView::Messages(heads, records) => (heads, records),
            StepView::Results(_) => {
                // Should the receipt make way before the deed, no message may change.
                act.kept = Some(BTreeMap::new());
                return Ok(true);
            }
        };
        self.table.rewind_export(export, job).map_err(refuse)?;
        let (mut kept, mut is_whole) = (BTreeMap::new(), true);
        for head in heads {
            let sequence = head.message.facts.sequence;
            let Some(record) = records.remove(&sequence) else { continue };
            let mut original = Original::default();
            if job.facts.deed == Deed::Delete {
                if u64::from(head.message.facts.size) > MESSAGE_BYTES_MAX {
                    // It arrived after the preview.
                    is_whole = false;
                    continue;
                }
                original = match load(&head.message).await {
                    Ok(original) => original,
                    // It left meanwhile.
                    Err(StoreError::Gone) => continue,
                    Err(StoreError::Damaged(problem)) => {
                        tracing::error!(%problem, %sequence, "a message cannot be kept");
                        is_whole = false;
                        continue;
                    }
                    Err(error) => {
                        let detail = format!("a message cannot be read: {error}");
                        return Err(refuse(Rejection::server_busy(detail)));
                    }
                };
            }
            original.record = record.clone();
            kept.insert(sequence, record);
            export.add(sequence, &original);
            if export.bytes() > job.undo_room {
                return Err(refuse(Rejection::invalid_operation(
                    "messages have grown since the preview, so that the job could not be undone; \
                     cancel it and make another one",
                )));
            }
            if export.is_full() {
                self.table.write_export(export).map_err(refuse)?;
            }
        }
        self.table.write_export(export).map_err(refuse)?;
        act.kept = Some(kept);
        Ok(is_whole)
    }

    /// Reads the messages of a step, or its results if it was carried out.
    async fn look(&self, job: &Job, entity: &Entity, act: &Act) -> Result<StepView, BrokerError> {
        let step = act.step.unwrap_or(JobStep { job: job.facts.id, number: 0 });
        let asked = Command::Inspect(Inquiry::Originals { sequences: act.sequences.clone(), step });
        if let Outcome::Inspected(excerpt) = entity.call(asked).await?
            && let Excerpt::Originals { heads, records, receipt } = *excerpt
        {
            return Ok(match receipt {
                Some(messages) => StepView::Results(messages),
                None => StepView::Messages(heads, records),
            });
        }
        let rejection = Rejection::internal("the messages have another answer");
        Err(self.broker.refuse(rejection, &job.facts.path))
    }

    /// Writes the numbers of the messages that a step has changed or put back, before the line of
    /// the step. Returns the bytes of the file and why some messages stay.
    pub(crate) fn note(
        &self,
        job: &Job,
        originals: &mut Originals,
        messages: &[ActedMessage],
    ) -> Result<(u64, Option<&'static str>), Rejection> {
        if let Some(file) = &originals.output {
            return Ok((file.bytes(), originals.problem));
        }
        let Some(mut export) = originals.export.take() else { return Ok((0, None)) };
        export.note(messages, job.undone().is_some());
        // After an error the repeated step reads the file again.
        self.table.write_export(&mut export)?;
        let noted = (export.bytes(), originals.problem);
        originals.export = Some(export);
        Ok(noted)
    }

    /// Makes and starts the job that undoes another one, or returns it if it exists.
    pub(crate) async fn undo(&self, id: JobId) -> Result<JobFacts, Rejection> {
        let is_ending = || self.table.undo_of(id).is_some_and(|undo| undo.needs_completion());
        for _ in 0..ENDING_LOOK_COUNT {
            if !is_ending() {
                break;
            }
            wait(&self.broker, ENDING_LOOK_TIME).await;
        }
        if let Some(undo) = self.find_undo(id)? {
            return Ok(undo);
        }
        let undone = self.undoable(id)?;
        let contents = self.table.contents(id, Some(undone.kept)).await?.1;
        // Its time may be up since.
        let undone = self.undoable(id)?;
        let sequences: Vec<SequenceNumber> = contents.places.keys().copied().collect();
        if sequences.is_empty() {
            if !contents.is_damaged {
                let removed = self.table.remove_export(id);
                removed.map_err(|error| self.table.refuse_export(id, &error))?;
            }
            return Err(Rejection::invalid_operation(format!(
                "job {id} has changed no message that can be put back"
            )));
        }
        let (new, now) = (JobId(self.broker.random_bits()), self.broker.now());
        let deed = Some(undone.facts.deed.clone());
        let draft = JobDraft {
            selection: JobSelection::Numbers(Vec::new()),
            deed: Deed::PutBack(Box::new(PutBack { undone: id, deed, originals: Vec::new() })),
            breaks_locks: false,
            rate: undone.facts.rate.max(JOB_RATE_DEFAULT),
            trial: None,
        };
        let mut job = Job::new(new, &undone.facts.path, &draft, now);
        job.facts.started_at = Some(now);
        job.kept = self.table.length_of_export(id)?;
        job.refusal = contents.is_damaged.then(|| IS_DAMAGED.into());
        let preview = JobPreview {
            digest: digest(&job.facts, undone.entity, &sequences, false),
            until: now.plus(JOB_START_TIME),
            count: sequences.len() as u64,
            bytes: contents.bytes(),
            oldest_at: None,
            newest_at: None,
            is_cut: false,
            can_be_undone: false,
            refused: Vec::new(),
            reasons: Vec::new(),
            samples: Vec::new(),
        };
        let line = job.select(undone.entity, sequences.into(), preview);
        self.table.make(job, &line)?;
        self.has_changes.notify_one();
        self.table.facts(new).ok_or_else(|| unknown_job(new))
    }

    /// The undo of a job that works, or has put everything back.
    fn find_undo(&self, id: JobId) -> Result<Option<JobFacts>, Rejection> {
        let Some(undo) = self.table.undo_of(id) else { return Ok(None) };
        if undo.is_damaged {
            return Err(Rejection::invalid_operation(format!(
                "job {id} cannot be undone: the file of job {}, its undo, is damaged",
                undo.facts.id
            )));
        }
        let is_whole = undo.facts.state == JobState::Done
            && self.table.facts(id).is_none_or(|undone| undone.undo_until.is_none());
        Ok((undo.works() || is_whole).then_some(undo.facts))
    }

    /// Returns a job that can be undone now.
    fn undoable(&self, id: JobId) -> Result<Job, Rejection> {
        let job = self.table.get(id).ok_or_else(|| unknown_job(id))?;
        if job.is_export() {
            let detail = format!("job {id} cannot be undone: an export changes nothing");
            return Err(Rejection::invalid_operation(detail));
        }
        if !job.facts.state.is_end() {
            return Err(job.refuse("undone"));
        }
        if job.needs_completion() {
            let detail = "the job is ending, which the disk delays; try again later";
            return Err(Rejection::server_busy(detail));
        }
        if job.facts.undo_until.is_none_or(|until| until <= self.broker.now()) {
            return Err(Rejection::invalid_operation(format!(
                "job {id} cannot be undone: its messages are not kept, or no longer"
            )));
        }
        self.table.check()?;
        self.refuse_too_many()?;
        Ok(job)
    }

    /// Writes the numbers of the messages of a step that has no line, if it was carried out. The
    /// job has ended.
    pub(crate) async fn note_open_step(&self, job: &Job) -> Result<(), BrokerError> {
        let (id, path) = (job.facts.id, &*job.facts.path);
        let refuse = |rejection| self.broker.refuse(rejection, path);
        if !job.has_export() || job.facts.started_at.is_none() {
            return Ok(());
        }
        let has_changed = job.facts.progress.done > 0;
        self.table.with(id, |entry| entry.has_changed |= has_changed);
        // An undo that is whole has removed it.
        if self.table.length_of_export(job.export()).map_err(refuse)? < job.kept {
            return Ok(());
        }
        let mut export = self.table.export(job).map_err(refuse)?;
        let is_open = self.table.with(id, |entry| entry.is_step_open) == Some(true);
        if let Some(act) = job.next_step().filter(|_| is_open) {
            let looked = match self.entity(job) {
                Ok(entity) => self.look(job, &entity, &act).await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(StepView::Results(messages)) => {
                    export.note(&messages, job.undone().is_some());
                    self.table.write_export(&mut export).map_err(refuse)?;
                }
                Ok(StepView::Messages(..)) => {}
                Err(error) if error.condition() == Condition::EntityNotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.table.with(id, |entry| {
            entry.is_step_open = false;
            entry.has_changed |= export.has_notes(job.kept);
            entry.job.kept = export.bytes();
        });
        Ok(())
    }

    /// Removes the messages of a job that has changed none, or that an undo has put back. The
    /// end of the job is durable.
    pub(crate) fn release_export(&self, job: &Job) -> io::Result<()> {
        let facts = &job.facts;
        let has_changed = self.table.with(facts.id, |entry| entry.has_changed) == Some(true);
        let is_whole =
            facts.state == JobState::Done && facts.progress.failed == 0 && job.refusal.is_none();
        match job.undone() {
            Some(undone) if is_whole => self.table.remove_export(undone),
            None if job.undo_room > 0 && !has_changed => self.table.remove_export(facts.id),
            _ => Ok(()),
        }
    }
}

/// Adds the messages that a step puts back, in the order of its numbers, at most some bytes. Its
/// other messages are left to the next step. Returns whether all could be read.
fn read_originals((reader, contents): &(Reader, Contents), act: &mut Act) -> io::Result<bool> {
    let (mut originals, mut bytes, mut is_whole) = (Vec::new(), 0, true);
    for sequence in &act.sequences {
        let original = match contents.places.get(sequence) {
            Some(Some(place)) => reader.original(*place)?,
            Some(None) | None => None,
        };
        is_whole &= original.is_some();
        // An empty one is refused.
        let original = original.unwrap_or_default();
        bytes += original.bytes();
        if bytes > STEP_BYTES_MAX && !originals.is_empty() {
            break;
        }
        originals.push(original);
    }
    act.sequences.truncate(originals.len());
    if let Deed::PutBack(put_back) = &mut act.deed {
        put_back.originals = originals;
    }
    Ok(is_whole)
}

/// Reads content and overlays of a message.
async fn load(message: &ReceivedMessage) -> Result<Original, StoreError> {
    let mut original =
        Original { content: Some(message.content.load().await?), ..Original::default() };
    for overlay in &message.overlays {
        original.overlays.push(overlay.load().await?);
    }
    Ok(original)
}

//! Steps of an operator's job: queues and topics share the checks of a step and the receipts by
//! which a repeated step is recognised (CON-12, CON-15). See `queue/act.rs` and `topic/act.rs` for
//! the deeds.
//!
//! A job repeats its last step if the broker was killed or the connection lost before the answer.
//! The step is sent before the next one, so one receipt for each job is sufficient.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use crate::change::{Change, Durability};
use crate::command::{
    ACT_COUNT_MAX, Act, ActResult, ActedMessage, BodyEdit, Deed, JobStep, NewInstant, Outcome,
    RECEIPT_AGE_MAX, RECEIPT_COUNT_MAX, Receipt, Route,
};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::{JobId, SequenceNumber};
use crate::intake::{self, Intake};
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

/// Receipts of the last steps of jobs in an entity, at most [`RECEIPT_COUNT_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Receipts(BTreeMap<JobId, Receipt>);

impl Receipts {
    /// Number of results in all receipts.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|receipt| receipt.messages.len()).sum()
    }

    /// Number of results in the receipt of a job.
    fn len_of(&self, job: JobId) -> usize {
        self.0.get(&job).map_or(0, |receipt| receipt.messages.len())
    }

    /// Iterates over the receipts, by job.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Receipt> {
        self.0.values()
    }

    /// The receipt of a job.
    pub(crate) fn get(&self, job: JobId) -> Option<&Receipt> {
        self.0.get(&job)
    }

    /// Sets the result of a message that was leaving and is at its destination now. The store need
    /// not know: there the message no longer exists.
    pub(crate) fn note_left(&mut self, job: JobId, sequence: SequenceNumber) {
        let messages = self.0.get_mut(&job).map(|receipt| &mut receipt.messages);
        let message = messages.into_iter().flatten().find(|one| one.sequence == sequence);
        if let Some(message) = message.filter(|one| one.result == ActResult::Leaving) {
            message.result = ActResult::Done;
        }
    }

    /// Keeps the receipt of a step; it replaces the receipt of the job's previous step.
    pub(crate) fn keep(&mut self, receipt: Receipt) {
        self.0.insert(receipt.step.job, receipt);
    }

    /// Forgets a job.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// Returns the receipt of a step that was carried out before.
    fn of_repeated(
        &self,
        step: JobStep,
        sub_queue: SubQueue,
        act: &Act,
    ) -> Result<Option<&Receipt>, Rejection> {
        let JobStep { job, number } = step;
        let Some(receipt) = self.0.get(&job).filter(|receipt| receipt.step.number >= number) else {
            return Ok(None);
        };
        let refuse = |detail: String| Err(Rejection::invalid_operation(detail));
        let last = receipt.step.number;
        if last > number {
            return refuse(format!(
                "step {number} of job {job} comes after step {last}, and only the result of the \
                 last step is kept; continue with step {}",
                last.saturating_add(1)
            ));
        }
        let named = receipt.messages.iter().map(|message| message.sequence);
        if receipt.sub_queue != sub_queue
            || receipt.deed_hash != deed_hash(act)
            || !named.eq(act.sequences.iter().copied())
        {
            return refuse(format!(
                "step {number} of job {job} was carried out with another deed or on other \
                 messages; give each step a number of its own"
            ));
        }
        Ok(Some(receipt))
    }

    /// Refuses a next step while messages of the last one are leaving: only its receipt has their
    /// way.
    fn refuse_while_leaving(&self, step: JobStep) -> Result<(), Rejection> {
        let JobStep { job, number } = step;
        match self.0.get(&job).filter(|receipt| is_leaving(receipt)) {
            Some(receipt) => Err(Rejection::server_busy(format!(
                "messages of step {} of job {job} are leaving; repeat that step until it has all \
                 results, then send step {number}",
                receipt.step.number
            ))),
            None => Ok(()),
        }
    }

    /// Returns the job to forget before a receipt of `job` is kept: the job whose last step is
    /// oldest, if the number of receipts is at its limit. A receipt with the way of messages that
    /// are leaving stays.
    fn job_to_forget(&self, job: JobId, now: Timestamp) -> Result<Option<JobId>, Rejection> {
        if self.0.len() < RECEIPT_COUNT_MAX || self.0.contains_key(&job) {
            return Ok(None);
        }
        let ended = self.0.iter().filter(|(_, receipt)| !is_leaving(receipt));
        let Some((oldest, receipt)) = ended.min_by_key(|(_, receipt)| receipt.at) else {
            return Err(Rejection::quota_exceeded(format!(
                "messages of {RECEIPT_COUNT_MAX} jobs, the limit, are leaving the entity; end a job"
            )));
        };
        let until = receipt.at.plus(RECEIPT_AGE_MAX);
        if until > now {
            return Err(Rejection::quota_exceeded(format!(
                "the entity keeps the receipts of {RECEIPT_COUNT_MAX} jobs, the limit; end a \
                 job, or retry after {until}, when the receipt of job {oldest} makes way"
            )));
        }
        Ok(Some(*oldest))
    }
}

/// A machine on whose messages an operator acts.
pub(crate) trait ActOnMessages: Intake {
    fn receipts(&self) -> &Receipts;

    /// Records a use of the entity.
    fn note_use(&mut self, now: Timestamp);

    /// Returns the way of the messages of a deed that sends them.
    fn route(&self, sub_queue: SubQueue, deed: &Deed) -> Option<Route>;

    /// Carries a deed out on each message that permits it.
    ///
    /// # Errors
    /// If the deed is not possible in the sub-queue. Then nothing is changed.
    fn carry_out(
        &mut self,
        sub_queue: SubQueue,
        act: &Act,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Vec<ActedMessage>, Rejection>;

    /// Carries a step out, or answers from its receipt if it is a repetition.
    fn act(
        &mut self,
        sub_queue: SubQueue,
        act: &Act,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        check_sequences(&act.sequences)?;
        let mut replaced = None;
        if act.deed.is_of_jobs() && act.step.is_none() {
            return Err(Rejection::argument(
                "only a job sends messages, puts them back or exports them",
            ));
        }
        if let Some(of_job) = act.step {
            let receipts = self.receipts();
            if let Some(receipt) = receipts.of_repeated(of_job, sub_queue, act)? {
                return Ok(Answer::after_commit(Outcome::Acted(receipt.messages.clone())));
            }
            receipts.refuse_while_leaving(of_job)?;
            replaced = receipts.job_to_forget(of_job.job, ctx.now)?;
            // The receipts that this one replaces make room for it.
            let ended = [Some(of_job.job), replaced].into_iter().flatten();
            let freed: usize = ended.map(|job| receipts.len_of(job)).sum();
            intake::refuse_too_many_receipts(act.sequences.len().saturating_sub(freed), ctx)?;
        }
        let messages = self.carry_out(sub_queue, act, ctx, step)?;
        self.note_use(ctx.now);
        if let Some(of_job) = act.step {
            if let Some(job) = replaced {
                self.apply_change(Change::JobForgotten(job), Durability::Lazy, ctx, step);
            }
            let receipt = Receipt {
                step: of_job,
                at: ctx.now,
                sub_queue,
                deed_hash: deed_hash(act),
                route: self.route(sub_queue, &act.deed),
                messages: messages.clone(),
            };
            let kept = Change::Receipted(Box::new(receipt));
            self.apply_change(kept, Durability::Sync, ctx, step);
        }
        Ok(Answer::after_commit(Outcome::Acted(messages)))
    }

    /// Forgets the receipt of a job, if there is one.
    fn forget_job(&mut self, job: JobId, ctx: &Ctx<'_>, step: &mut StepOutput) -> Answer {
        if self.receipts().0.contains_key(&job) {
            self.apply_change(Change::JobForgotten(job), Durability::Sync, ctx, step);
        }
        Answer::after_commit(Outcome::Done)
    }
}

/// Hash of the deed of a step and of whether it breaks locks. Receipts in stores have it, so it
/// never changes.
fn deed_hash(act: &Act) -> u64 {
    let mut hasher = SipHasher24::new();
    let mut add = |tag: u8, value: i128| {
        hasher.write(&[tag]);
        hasher.write(&value.to_be_bytes());
    };
    add(0, i128::from(act.breaks_locks));
    match &act.deed {
        Deed::Delete => add(1, 0),
        Deed::Undefer => add(2, 0),
        Deed::Reschedule(NewInstant::At(at)) => add(3, i128::from(at.ticks())),
        Deed::Reschedule(NewInstant::Later(shift)) => add(4, i128::from(shift.ticks())),
        Deed::Reschedule(NewInstant::Earlier(shift)) => add(5, i128::from(shift.ticks())),
        Deed::Reschedule(NewInstant::Now) => add(6, 0),
        Deed::Resubmit { .. } | Deed::Move { .. } => {
            let tag = if matches!(act.deed, Deed::Move { .. }) { 9 } else { 10 };
            let to = act.deed.destination();
            add(tag, to.map_or(-1, |to| to.len() as i128));
            hasher.write(to.unwrap_or_default().as_bytes());
            if let Some(edit) = act.deed.edit() {
                hasher.write(&[11, u8::from(edit.new_id)]);
                hasher.write(&edit.changes.size_bytes().to_be_bytes());
                hasher.write(edit.changes.as_bytes());
                if let Some(body) = &edit.body {
                    let tag = if matches!(body, BodyEdit::Whole(_)) { 12 } else { 13 };
                    hasher.write(&[tag]);
                    hasher.write(&(body.as_bytes().len() as u64).to_be_bytes());
                    hasher.write(body.as_bytes());
                }
            }
        }
        Deed::PutBack(put_back) => {
            add(14, 0);
            hasher.write(&put_back.undone.0.to_be_bytes());
        }
        Deed::Export(_) => add(15, 0),
        Deed::DeadLetter { reason, description } => {
            for (tag, text) in [(7, reason), (8, description)] {
                let length = text.as_ref().map_or(-1, |text| text.len() as i128);
                hasher.write(&[tag]);
                hasher.write(&length.to_be_bytes());
                hasher.write(text.as_deref().unwrap_or_default().as_bytes());
            }
        }
    }
    hasher.finish()
}

/// Whether a message of the step is leaving.
pub(crate) fn is_leaving(receipt: &Receipt) -> bool {
    receipt.messages.iter().any(|message| message.result == ActResult::Leaving)
}

fn check_sequences(sequences: &[SequenceNumber]) -> Result<(), Rejection> {
    if sequences.is_empty() || sequences.len() > ACT_COUNT_MAX {
        return Err(Rejection::out_of_range(format!(
            "{} sequence numbers were given; give 1 to {ACT_COUNT_MAX}",
            sequences.len()
        )));
    }
    let mut seen = BTreeSet::new();
    match sequences.iter().find(|sequence| !seen.insert(**sequence)) {
        Some(sequence) => Err(Rejection::argument(format!(
            "sequence number {sequence} was given twice; name each message once"
        ))),
        None => Ok(()),
    }
}

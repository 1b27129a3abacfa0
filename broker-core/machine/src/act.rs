//! Steps of an operator's job: queues and topics share the checks of a step and the receipts by
//! which a repeated step is recognised (CON-12, CON-15). See `queue/act.rs` and `topic/act.rs` for
//! the deeds.
//!
//! A job repeats its last step if the broker was killed or the connection lost before the answer.
//! The step is sent before the next one, so one receipt for each job is sufficient.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Change, Durability};
use crate::command::{
    ACT_COUNT_MAX, Act, ActedMessage, JobStep, Outcome, RECEIPT_AGE_MAX, RECEIPT_COUNT_MAX, Receipt,
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

    /// Iterates over the receipts, by job.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Receipt> {
        self.0.values()
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
        sequences: &[SequenceNumber],
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
        if receipt.sub_queue != sub_queue || !named.eq(sequences.iter().copied()) {
            return refuse(format!(
                "step {number} of job {job} was carried out on other messages; give each step a \
                 number of its own"
            ));
        }
        Ok(Some(receipt))
    }

    /// Returns the job to forget before a receipt of `job` is kept: the job whose last step is
    /// oldest, if the number of receipts is at its limit.
    fn job_to_forget(&self, job: JobId, now: Timestamp) -> Result<Option<JobId>, Rejection> {
        if self.0.len() < RECEIPT_COUNT_MAX || self.0.contains_key(&job) {
            return Ok(None);
        }
        let oldest = self.0.iter().min_by_key(|(_, receipt)| receipt.at);
        let Some((oldest, receipt)) = oldest else { return Ok(None) };
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
        if let Some(of_job) = act.step {
            let receipts = self.receipts();
            if let Some(receipt) = receipts.of_repeated(of_job, sub_queue, &act.sequences)? {
                return Ok(Answer::after_commit(Outcome::Acted(receipt.messages.clone())));
            }
            replaced = receipts.job_to_forget(of_job.job, ctx.now)?;
            intake::refuse_too_many_receipts(act.sequences.len(), ctx)?;
        }
        let messages = self.carry_out(sub_queue, act, ctx, step)?;
        self.note_use(ctx.now);
        if let Some(of_job) = act.step {
            if let Some(job) = replaced {
                self.apply_change(Change::JobForgotten(job), Durability::Lazy, ctx, step);
            }
            let receipt =
                Receipt { step: of_job, at: ctx.now, sub_queue, messages: messages.clone() };
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

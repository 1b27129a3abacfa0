//! Messages that the step of a job sends (CON-15 to CON-17). Its receipt has their way.
//!
//! ```text
//!  step ──► Leaving, frozen ──► list ──┬─ taken: Done, without a record
//!            ▲                        ├─ refused: a result, recorded; offered to receivers again
//!            └── not tried ◄──────────┘  (full destination, or 10 times not tried: all return)
//! ```
//!
//! A stored receipt that says *leaving* has two meanings: the message is frozen if it exists, and it
//! is at its destination if it does not. So a restart needs no other record.

use super::depart::RETRY;
use super::{Exit, List};
use crate::act::is_leaving;
use crate::change::{Change, Durability};
use crate::command::{ActResult, Outcome, Receipt};
use crate::condition::Condition;
use crate::effect::{Answer, Gate};
use crate::ids::{JobId, SequenceNumber};
use crate::queue::Queue;
use crate::transfer::Departure;
use crate::{Ctx, StageNumber, StepOutput};

/// Results of refusals that have a name.
const NAMED_RESULTS: [(Condition, ActResult); 5] = [
    (Condition::EntityNotFound, ActResult::NoDestination),
    (Condition::EntityDisabled, ActResult::DestinationDisabled),
    (Condition::QuotaExceeded, ActResult::DestinationFull),
    (Condition::MessageSizeExceeded, ActResult::DestinationTooSmall),
    (Condition::SessionIdIsNull, ActResult::NoSession),
];
/// Number of lists in a row without a result after which the messages return to receivers. They are
/// offered each [`RETRY`], so this takes about 10 s.
const OFFER_COUNT_MAX: u32 = 10;

impl Queue {
    /// Freezes the messages of a job that are leaving. None leaves before `stage` is durable.
    pub(in crate::queue) fn begin_to_send(&mut self, job: JobId, stage: Option<StageNumber>) {
        let Some(receipt) = self.receipts.get(job).filter(|receipt| is_leaving(receipt)) else {
            return;
        };
        let leaving = receipt.messages.iter().filter(|one| one.result == ActResult::Leaving);
        let leaving: Vec<SequenceNumber> = leaving.map(|one| one.sequence).collect();
        for sequence in leaving {
            match self.slots.get(sequence) {
                // It left before the last start.
                None => self.receipts.note_left(job, sequence),
                Some(slot) if slot.is_transferring() => {}
                Some(_) => {
                    self.alter(sequence, |_| {});
                    self.freeze(sequence);
                    self.transfers.wait_for_job(job, sequence);
                }
            }
        }
        if let Some(stage) = stage {
            self.transfers.block_until(&Exit::Job(job), stage);
        }
    }

    /// Continues all steps after a restart.
    pub(in crate::queue) fn send_messages_of_receipts(&mut self) {
        let jobs: Vec<JobId> = self.receipts.iter().map(|receipt| receipt.step.job).collect();
        for job in jobs {
            self.begin_to_send(job, None);
        }
    }

    /// Keeps the messages of a forgotten job that have not left. Those on a list may still leave.
    pub(in crate::queue) fn keep_messages_of(&mut self, job: JobId) {
        for sequence in self.transfers.take_waiting(job) {
            self.thaw(sequence);
        }
        self.transfers.forget_idle_job(job);
    }

    /// Applies the results of a list of a job.
    pub(super) fn end_list_of_job(
        &mut self,
        job: JobId,
        list: List,
        departures: Vec<Departure>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let (mut has_left, mut is_full) = (false, false);
        let (mut refused, mut waiting) = (Vec::new(), Vec::new());
        let mut departures = departures.into_iter();
        for sequence in list.sequences {
            let departure = departures.next().unwrap_or(Departure::NotTried);
            let Some(slot) =
                self.slots.get(sequence).copied().filter(|slot| slot.is_transferring())
            else {
                continue;
            };
            if matches!(departure, Departure::Taken) {
                self.note_departed(sequence, slot.size, ctx, step);
                self.receipts.note_left(job, sequence);
                has_left = true;
                continue;
            }
            match result_of(&departure) {
                Some(result) => {
                    is_full |= result == ActResult::DestinationFull;
                    refused.push((sequence, result));
                }
                None => waiting.push(sequence),
            }
        }
        let is_forgotten = self.receipts.get(job).is_none();
        let has_no_result = !has_left && refused.is_empty();
        let is_last_offer = self.transfers.alter(&Exit::Job(job), |backlog| {
            backlog.failures = if has_no_result { backlog.failures + 1 } else { 0 };
            let delay = has_no_result.then(|| ctx.now.plus(RETRY));
            backlog.not_before = delay.unwrap_or_default();
            backlog.failures >= OFFER_COUNT_MAX
        });
        if is_full || is_last_offer == Some(true) || is_forgotten {
            // Messages that cannot leave now return to receivers. Their job repeats them later.
            let rest = waiting.drain(..).chain(self.transfers.take_waiting(job));
            refused.extend(rest.map(|sequence| (sequence, ActResult::DestinationFull)));
        }
        for sequence in waiting {
            self.transfers.wait_for_job(job, sequence);
        }
        for (sequence, _) in &refused {
            self.thaw(*sequence);
        }
        if !refused.is_empty()
            && let Some(receipt) = self.receipts.get(job).cloned()
        {
            let receipt = Box::new(with_results(receipt, &refused));
            self.change(Change::Receipted(receipt), Durability::Sync, ctx, step);
        }
        self.transfers.forget_idle_job(job);
        Answer::Now(Outcome::Done, Gate::Open)
    }
}

/// Returns the receipt with these results.
fn with_results(mut receipt: Receipt, results: &[(SequenceNumber, ActResult)]) -> Receipt {
    for message in &mut receipt.messages {
        let found = results.iter().find(|(sequence, _)| *sequence == message.sequence);
        if let Some((_, result)) = found {
            message.result = *result;
        }
    }
    receipt
}

/// Result of a message that its destination refuses; none if it is offered again.
fn result_of(departure: &Departure) -> Option<ActResult> {
    let rejection = match departure {
        Departure::NotAdmitted(rejection) => rejection,
        Departure::Duplicate => return Some(ActResult::Duplicate),
        Departure::NotJson => return Some(ActResult::NotJson),
        Departure::Refused { .. } => return Some(ActResult::Refused),
        Departure::Taken
        | Departure::Delivered
        | Departure::Postponed { .. }
        | Departure::Failed { .. }
        | Departure::NotTried
        | Departure::Unknown => return None,
    };
    let condition = rejection.condition();
    let known =
        NAMED_RESULTS.iter().find(|(refusal, _)| *refusal == condition).map(|(_, result)| *result);
    known.or_else(|| (!condition.retryable()).then_some(ActResult::Refused))
}

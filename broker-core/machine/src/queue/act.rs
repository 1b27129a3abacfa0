//! Deeds of an operator on messages of a queue or subscription (CON-12). `act.rs` above has the
//! steps and their receipts.

use super::Queue;
use super::settle::{overlay_bytes, refuse_large_header};
use crate::act::{ActOnMessages, Receipts};
use crate::change::{Change, DeadLetterCause, Durability, Removal};
use crate::command::{Act, ActResult, ActedMessage, Deed, NewInstant, Route, Settlement};
use crate::error::Rejection;
use crate::event::LockEnd;
use crate::ids::SequenceNumber;
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::slot::{Slot, SlotState};
use crate::time::Timestamp;
use crate::{Ctx, StepOutput, intake};

impl ActOnMessages for Queue {
    fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    fn note_use(&mut self, now: Timestamp) {
        self.touch(now);
    }

    fn route(&self, sub_queue: SubQueue, deed: &Deed) -> Option<Route> {
        if !deed.sends() {
            return None;
        }
        let to = match (deed.destination(), sub_queue) {
            (Some(to), _) => Some(to.into()),
            (None, SubQueue::Main) => None,
            (None, SubQueue::DeadLetter | SubQueue::TransferDeadLetter) => Some(self.path().into()),
        };
        let (is_resubmit, edit) = (matches!(deed, Deed::Resubmit { .. }), deed.edit().cloned());
        Some(Route { to, is_resubmit, edit })
    }

    fn carry_out(
        &mut self,
        sub_queue: SubQueue,
        act: &Act,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Vec<ActedMessage>, Rejection> {
        self.refuse_deed(sub_queue, &act.deed)?;
        if let Deed::PutBack(put_back) = &act.deed {
            return self.put_back(&act.sequences, put_back, ctx, step);
        }
        if let Deed::Reschedule(to) = act.deed {
            let slots = act.sequences.iter().filter_map(|sequence| self.slots.get(*sequence));
            let scheduled = slots.filter(|slot| slot.state == SlotState::Scheduled);
            refuse_endless(to, scheduled, ctx.now)?;
        }
        if matches!(act.deed, Deed::DeadLetter { .. }) {
            intake::refuse_without_room(ctx)?;
        }
        let verdict = verdict(&act.deed, ctx)?;
        let messages = act.sequences.iter().map(|sequence| {
            let sequence = *sequence;
            let judged = self.judge_deed(sub_queue, sequence, act, verdict.as_ref(), ctx);
            let result = match judged {
                Ok(slot) => self.do_deed(sequence, &slot, &act.deed, verdict.as_ref(), ctx, step),
                Err(result) => result,
            };
            ActedMessage { sequence, result }
        });
        let messages: Vec<ActedMessage> = messages.collect();
        if messages.iter().any(|message| message.result == ActResult::Leaving) {
            // Another batch deletes the records of these messages, so the store must know the last
            // number before (MSG-13).
            let last = self.last_sequence;
            self.change(Change::Numbered { last }, Durability::Sync, ctx, step);
        }
        Ok(messages)
    }
}

impl Queue {
    /// Refuses a deed that no message of the sub-queue permits.
    fn refuse_deed(&self, sub_queue: SubQueue, deed: &Deed) -> Result<(), Rejection> {
        let is_main = sub_queue == SubQueue::Main;
        let problem = match deed {
            Deed::DeadLetter { .. } if !is_main => "a dead letter cannot be dead-lettered again",
            Deed::Reschedule(_) if !is_main || self.subscription.is_some() => {
                "it holds no scheduled messages"
            }
            Deed::Resubmit { .. } | Deed::Move { .. } if is_main && self.sessions.is_some() => {
                "messages of sessions cannot be moved; receive and send them"
            }
            Deed::Export(_) => "no step exports messages; the keeper of jobs reads them",
            Deed::Delete
            | Deed::Undefer
            | Deed::DeadLetter { .. }
            | Deed::Reschedule(_)
            | Deed::Resubmit { .. }
            | Deed::Move { .. }
            | Deed::PutBack(_) => return Ok(()),
        };
        let (path, suffix) = (self.path(), sub_queue.suffix());
        Err(Rejection::invalid_operation(format!("`{path}{suffix}`: {problem}")))
    }

    /// Returns the slot of a message that permits the deed, else the result to report.
    fn judge_deed(
        &self,
        sub_queue: SubQueue,
        sequence: SequenceNumber,
        act: &Act,
        verdict: Option<&Overlay>,
        ctx: &Ctx<'_>,
    ) -> Result<Slot, ActResult> {
        let slot = self.slots.get(sequence).filter(|slot| slot.sub_queue == sub_queue).copied();
        let slot = slot.ok_or(ActResult::NotFound)?;
        if slot.lock.is_some() {
            // In a session only the lock of the session is broken (CON-26).
            let is_in_session = self.sessions.is_some() && sub_queue == SubQueue::Main;
            if !act.breaks_locks || is_in_session {
                return Err(ActResult::Locked);
            }
        } else if !self.is_at_rest(sequence, &slot) {
            return Err(ActResult::Busy);
        }
        let is_state_right = match act.deed {
            Deed::Delete => true,
            // It judges its messages itself.
            Deed::PutBack(_) | Deed::Export(_) => false,
            Deed::DeadLetter { .. } => slot.state != SlotState::Scheduled,
            Deed::Undefer => slot.state == SlotState::Deferred,
            Deed::Reschedule(_) => slot.state == SlotState::Scheduled,
            Deed::Resubmit { .. } | Deed::Move { .. } => slot.state == SlotState::Active,
        };
        if !is_state_right {
            return Err(ActResult::WrongState);
        }
        if (act.deed == Deed::Undefer || act.deed.sends()) && self.is_expired(&slot, ctx.now) {
            return Err(ActResult::Expired);
        }
        // The delay of a message that its destination refuses would be lost.
        if act.deed.sends() && slot.is_delayed() {
            return Err(ActResult::Busy);
        }
        if refuse_large_header(&slot, verdict, 0, ctx).is_err() {
            return Err(ActResult::TooLarge);
        }
        if let Some(kept) = &act.kept
            && kept.get(&sequence) != Some(&self.record(sequence, &slot))
        {
            return Err(ActResult::Busy);
        }
        Ok(slot)
    }

    /// Whether an unlocked message is durable, and neither about to leave nor to be removed with
    /// its expired session.
    pub(super) fn is_at_rest(&self, sequence: SequenceNumber, slot: &Slot) -> bool {
        if slot.is_in_flight() || slot.is_transferring() {
            return false;
        }
        match slot.state {
            SlotState::Active if slot.is_delayed() => self.is_durably_delayed(sequence),
            SlotState::Active => self.is_available(sequence, slot.sub_queue),
            SlotState::Scheduled | SlotState::Deferred => true,
            SlotState::Pending => false,
        }
    }

    /// Carries out a deed that the message permits. Its lock, if it has one, ends with the change.
    /// A message that is sent leaves with the receipt of the step.
    fn do_deed(
        &mut self,
        sequence: SequenceNumber,
        slot: &Slot,
        deed: &Deed,
        verdict: Option<&Overlay>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> ActResult {
        if let Some(lock) = slot.lock.and_then(|index| self.locks.get(index)) {
            let span = ctx.now.since(lock.taken_at);
            step.note_lock_end(sequence, lock.holder, (span, LockEnd::Operator));
        }
        let change = match deed {
            Deed::Delete => {
                let is_scheduled = slot.state == SlotState::Scheduled;
                let reason = if is_scheduled { Removal::Cancelled } else { Removal::Deleted };
                self.remove_message(sequence, reason, ctx, step);
                return ActResult::Done;
            }
            Deed::DeadLetter { .. } => {
                step.bytes_added += overlay_bytes(verdict);
                Change::DeadLettered {
                    sequence,
                    into: SubQueue::DeadLetter,
                    delivery_count: slot.delivery_count,
                    properties: verdict.cloned(),
                    verdict: None,
                    cause: DeadLetterCause::Operator,
                }
            }
            Deed::Undefer => Change::Undeferred { sequence },
            Deed::Reschedule(to) => {
                let at = to.of(slot.enqueued_at, ctx.now);
                Change::Rescheduled { sequence, at, expires_at: expiry_at(slot, at) }
            }
            Deed::Resubmit { .. } | Deed::Move { .. } => return ActResult::Leaving,
            Deed::PutBack(_) | Deed::Export(_) => return ActResult::WrongState,
        };
        self.change(change, Durability::Sync, ctx, step);
        ActResult::Done
    }
}

/// Instant of expiry of a scheduled message that is enqueued at another instant: its time to live
/// stays.
pub(crate) fn expiry_at(slot: &Slot, at: Timestamp) -> Timestamp {
    match slot.expires_at.is_never() {
        true => slot.expires_at,
        false => at.plus(slot.expires_at.since(slot.enqueued_at)),
    }
}

/// Refuses an instant at which one of these scheduled messages would never be enqueued, or would
/// lose its time to live.
pub(crate) fn refuse_endless<'s>(
    to: NewInstant,
    mut scheduled: impl Iterator<Item = &'s Slot>,
    now: Timestamp,
) -> Result<(), Rejection> {
    let is_endless = |slot: &Slot| {
        let at = to.of(slot.enqueued_at, now);
        at.is_never() || (!slot.expires_at.is_never() && expiry_at(slot, at).is_never())
    };
    match scheduled.any(is_endless) {
        true => Err(Rejection::out_of_range(
            "the new instant, or the end of the time to live counted from it, is beyond the last \
             instant of the calendar; give an earlier instant",
        )),
        false => Ok(()),
    }
}

/// Returns the properties that a deed sets if it dead-letters, as if a receiver had given them
/// (SET-06).
pub(super) fn verdict(deed: &Deed, ctx: &Ctx<'_>) -> Result<Option<Overlay>, Rejection> {
    let Deed::DeadLetter { reason, description } = deed else { return Ok(None) };
    let (reason, description) = (reason.as_deref(), description.as_deref());
    match Settlement::dead_letter(reason, description, &[], ctx.limits)? {
        Settlement::DeadLetter { properties } => Ok(properties),
        Settlement::Complete
        | Settlement::Abandon { .. }
        | Settlement::Defer { .. }
        | Settlement::Release => Ok(None),
    }
}

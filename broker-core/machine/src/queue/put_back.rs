//! Messages that a job puts back as they were before another job (CON-20), which has removed them,
//! dead-lettered them, or made them active. A message that is no longer as that job left it stays.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::Queue;
use super::act::verdict;
use crate::change::{Change, Durability, codec};
use crate::command::{ActResult, ActedMessage, Deed, JobStep, Original, PutBack};
use crate::error::Rejection;
use crate::excerpt::MachineExcerpt;
use crate::ids::SequenceNumber;
use crate::inspect::Excerpt;
use crate::intake::{self, Intake};
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::slot::{Mark, Slot, SlotState};
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

impl Queue {
    /// Reads messages of a sub-queue with their records, if they are there, and at rest or
    /// locked. Returns the results of the step in their place if it was carried out.
    pub(super) fn originals(
        &self,
        sub_queue: SubQueue,
        sequences: &[SequenceNumber],
        step: JobStep,
        now: Timestamp,
    ) -> MachineExcerpt {
        let receipt = self.receipts.get(step.job).filter(|receipt| receipt.step == step);
        let receipt = receipt.map(|receipt| receipt.messages.clone());
        let wanted: &[SequenceNumber] = if receipt.is_some() { &[] } else { sequences };
        let slots =
            wanted.iter().filter_map(|sequence| Some((*sequence, self.slots.get(*sequence)?)));
        let at_rest = slots.filter(|(_, slot)| {
            slot.sub_queue == sub_queue && !slot.is_in_flight() && !slot.is_transferring()
        });
        let at_rest: Vec<_> = at_rest.collect();
        let heads =
            at_rest.iter().map(|(sequence, slot)| self.head(*sequence, slot, now)).collect();
        let record = |&(sequence, slot): &(_, &Slot)| (sequence, self.record(sequence, slot));
        Excerpt::Originals { heads, records: at_rest.iter().map(record).collect(), receipt }
    }

    /// The slot and session of a message, as its record has them.
    pub(super) fn record(&self, sequence: SequenceNumber, slot: &Slot) -> Bytes {
        let mut record = Vec::new();
        codec::write_slot(slot, self.session_name(sequence).map(AsRef::as_ref), &mut record);
        record.into()
    }

    /// Puts messages back, in the order of `sequences`.
    pub(super) fn put_back(
        &mut self,
        sequences: &[SequenceNumber],
        put_back: &PutBack,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Vec<ActedMessage>, Rejection> {
        let PutBack { deed, originals, .. } = put_back;
        let Some(deed) = deed.as_ref().filter(|_| sequences.len() == originals.len()) else {
            return Err(Rejection::argument("a step puts back one message for each number"));
        };
        intake::refuse_without_room(ctx)?;
        let verdict = verdict(deed, ctx)?;
        let judge = |(sequence, original): (&SequenceNumber, &Original)| {
            self.judge_original(*sequence, original, deed, verdict.as_ref(), ctx)
        };
        let judged: Vec<_> = sequences.iter().zip(originals).map(judge).collect();
        self.refuse_returns(judged.iter().flatten(), ctx)?;
        let acted = sequences.iter().zip(judged).map(|(sequence, judged)| {
            let result = match judged {
                Ok(change) => {
                    self.count_bytes(&change, step);
                    self.change(change, Durability::Sync, ctx, step);
                    ActResult::Done
                }
                Err(result) => result,
            };
            ActedMessage { sequence: *sequence, result }
        });
        Ok(acted.collect())
    }

    /// Refuses messages to put back if they exceed a limit.
    fn refuse_returns<'c>(
        &self,
        changes: impl Iterator<Item = &'c Change>,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let waits = |slot: &Slot| matches!(slot.state, SlotState::Scheduled | SlotState::Deferred);
        let (mut bytes, mut count, mut waiting) = (0, 0, 0);
        let mut fresh = BTreeSet::new();
        for change in changes {
            let Change::PutBack { sequence, slot, session, .. } = change else { continue };
            let now = self.slots.get(*sequence);
            bytes += u64::from(slot.size.saturating_sub(now.map_or(0, |now| now.size)));
            count += usize::from(now.is_none());
            waiting += u64::from(waits(slot) && !now.is_some_and(waits));
            if let (Some(sessions), Some(session)) = (&self.sessions, session)
                && sessions.named(session).is_none()
            {
                fresh.insert(session);
            }
        }
        if bytes > 0 {
            self.refuse_over_quota(bytes, ctx)?;
        }
        intake::refuse_too_many_messages(count, ctx)?;
        if waiting > ctx.remaining.delayed {
            return Err(intake::too_many_delayed(ctx));
        }
        if fresh.len() as u64 > ctx.remaining.sessions {
            return Err(intake::too_many_sessions(ctx));
        }
        Ok(())
    }

    /// Returns the change that puts a message back, else the result to report.
    fn judge_original(
        &self,
        sequence: SequenceNumber,
        original: &Original,
        deed: &Deed,
        verdict: Option<&Overlay>,
        ctx: &Ctx<'_>,
    ) -> Result<Change, ActResult> {
        let read = codec::read_slot(&original.record);
        let (slot, session) = read.map_err(|_| ActResult::WrongState)?;
        let is_in_session = self.sessions.is_some() && slot.sub_queue == SubQueue::Main;
        if is_in_session != session.is_some() || sequence > self.last_sequence {
            return Err(ActResult::WrongState);
        }
        let session = session.map(Arc::from);
        let now = self.slots.get(sequence);
        if now.is_some_and(|now| now.lock.is_some()) {
            return Err(ActResult::Locked);
        }
        if self.is_expired(&slot, ctx.now) {
            return Err(ActResult::Expired);
        }
        match (now, &original.content) {
            (None, None) => Err(ActResult::NotFound),
            // The other job has not removed it.
            (Some(_), Some(_)) => Err(ActResult::WrongState),
            (None, Some(content)) => {
                let content = Content::parse(content.clone()).map_err(|_| ActResult::WrongState)?;
                let overlays: Vec<_> =
                    original.overlays.iter().cloned().map(Overlay::from_bytes).collect();
                if overlays.len() != usize::from(slot.overlay_count) {
                    return Err(ActResult::WrongState);
                }
                let content = Some(content);
                Ok(Change::PutBack { sequence, slot, session, content, overlays, stale_count: 0 })
            }
            (Some(now), None) => {
                if !self.is_at_rest(sequence, now) {
                    return Err(ActResult::Busy);
                }
                let left = slot_after(deed, slot, verdict).ok_or(ActResult::WrongState)?;
                // A deferred message loses this mark when the broker starts again.
                let mut present = *now;
                present.marks.clear(Mark::WasScheduled);
                if present != left {
                    return Err(ActResult::WrongState);
                }
                let stale_count = now.overlay_count.saturating_sub(slot.overlay_count);
                let (content, overlays) = (None, Vec::new());
                Ok(Change::PutBack { sequence, slot, session, content, overlays, stale_count })
            }
        }
    }

    fn count_bytes(&self, change: &Change, step: &mut StepOutput) {
        let Change::PutBack { sequence, slot, .. } = change else { return };
        let now = self.slots.get(*sequence).map_or(0, |now| u64::from(now.size));
        let after = u64::from(slot.size);
        step.bytes_added += after.saturating_sub(now);
        step.bytes_freed += now.saturating_sub(after);
    }
}

/// The slot that a deed leaves of a message; none if it leaves none.
fn slot_after(deed: &Deed, mut slot: Slot, verdict: Option<&Overlay>) -> Option<Slot> {
    match deed {
        Deed::DeadLetter { .. } => {
            slot.sub_queue = SubQueue::DeadLetter;
            slot.add_overlay(verdict);
        }
        Deed::Undefer => {}
        Deed::Delete
        | Deed::Reschedule(_)
        | Deed::Resubmit { .. }
        | Deed::Move { .. }
        | Deed::PutBack(_)
        | Deed::Export(_) => return None,
    }
    slot.state = SlotState::Active;
    slot.marks.clear(Mark::WasScheduled);
    Some(slot)
}

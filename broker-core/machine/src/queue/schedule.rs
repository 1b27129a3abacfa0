//! Scheduled messages: they wait for their instant and are enqueued then, as if they had been sent
//! at that time.

use super::Queue;
use crate::change::{Change, Durability, Removal};
use crate::command::Outcome;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::Intake as _;
use crate::path::SubQueue;
use crate::slot::{Slot, SlotState};
use crate::{Ctx, StepOutput};

impl Queue {
    /// Removes scheduled messages by number, all or none (SCH-04, SCH-05).
    pub(super) fn cancel_scheduled(
        &mut self,
        sub_queue: SubQueue,
        sequences: &[SequenceNumber],
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.cancellable(sub_queue, sequences)?;
        self.cancel(sequences, ctx, step);
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Refuses sequence numbers that do not name a scheduled message of the queue.
    pub(super) fn cancellable(
        &self,
        sub_queue: SubQueue,
        sequences: &[SequenceNumber],
    ) -> Result<(), Rejection> {
        if self.subscription.is_some() {
            return Err(self.refuse_sending(sub_queue));
        }
        if sub_queue != SubQueue::Main {
            return Err(Rejection::invalid_operation(format!(
                "`{}{}` holds no scheduled messages",
                self.path(),
                sub_queue.suffix()
            )));
        }
        self.check_cancelled(sequences)
    }

    /// Removes scheduled messages that [`Queue::cancellable`] has accepted.
    pub(super) fn cancel(
        &mut self,
        sequences: &[SequenceNumber],
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        for sequence in sequences {
            self.remove_message(*sequence, Removal::Cancelled, ctx, step);
        }
    }

    /// Whether a message is scheduled and durable.
    pub(super) fn is_durably_scheduled(&self, sequence: SequenceNumber) -> bool {
        self.slots
            .get(sequence)
            .is_some_and(|slot| slot.state == SlotState::Scheduled && !slot.is_in_flight())
    }

    /// Adds a scheduled message to the index of due instants.
    pub(super) fn watch_schedule(&mut self, sequence: SequenceNumber, slot: &Slot) {
        self.schedule.insert(slot.enqueued_at, sequence);
    }

    /// Enqueues the due messages, by instant, then by number (SCH-03, SCH-07).
    pub(super) fn enqueue_due(&mut self, moves: &mut usize, ctx: &Ctx<'_>, step: &mut StepOutput) {
        while *moves > 0 {
            let Some((_, from)) = self.schedule.pop_due(ctx.now) else { return };
            *moves -= 1;
            if !self.is_durably_scheduled(from) {
                continue;
            }
            let Some(slot) = self.slots.get(from) else { continue };
            // Its overlays move with it.
            *moves = moves.saturating_sub(usize::from(slot.overlay_count));
            // The instants of a scheduled slot assume an enqueue on time. Their difference is the
            // TTL, whose maximum is the default in force now (EXP-05, EXP-17).
            let expires_at = if slot.expires_at.is_never() {
                slot.expires_at
            } else {
                let own = slot.expires_at.since(slot.enqueued_at);
                ctx.now.plus(own.min(self.description.default_message_time_to_live))
            };
            let to = self.last_sequence.next();
            let change = Change::Materialised { from, to, enqueued_at: ctx.now, expires_at };
            self.change(change, Durability::Sync, ctx, step);
            if self.tally.counts.scheduled == 0 {
                self.touch(ctx.now);
            }
        }
    }
}

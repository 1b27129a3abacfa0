//! Peek and batch delete: operations without receiving (PEK-01 to PEK-10, DEL-01 to DEL-10).
//! `queue/mod.rs` and `session/list.rs` call it. A batch delete never removes a locked message.

use super::demand::Lane;
use super::{COMMAND_MOVES_MAX, MessageView, Queue};
use crate::change::Removal;
use crate::command::{MessageFacts, Outcome};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::sequence_set::SequenceSet;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

impl Queue {
    /// Returns messages in any state from a number on (PEK-03), within the bounds of PEK-08.
    pub(super) fn peek(
        &mut self,
        sub_queue: SubQueue,
        from: SequenceNumber,
        count_max: u32,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        let members = &self.sub_queue(sub_queue).members;
        let messages = self.peek_messages(members.iter_from(from), count_max, ctx)?;
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Peeked(messages)))
    }

    /// Returns the facts of messages for a browser, within the bounds of PEK-08.
    pub(super) fn peek_messages(
        &self,
        sequences: impl Iterator<Item = SequenceNumber>,
        count_max: u32,
        ctx: &Ctx<'_>,
    ) -> Result<Vec<MessageFacts>, Rejection> {
        if count_max == 0 {
            return Err(Rejection::out_of_range("a peek must ask for at least 1 message, not 0"));
        }
        let count_max = (count_max as usize).min(ctx.limits.peek_count_max);
        let mut bytes = 0u64;
        let mut messages = Vec::new();
        for sequence in sequences {
            let Some(slot) = self.slots.get(sequence) else { continue };
            if slot.is_in_flight() || slot.is_transferring() {
                continue;
            }
            bytes += u64::from(slot.size);
            if messages.len() == count_max
                || (!messages.is_empty() && bytes > ctx.limits.peek_bytes_max)
            {
                break;
            }
            messages.push(self.facts(sequence, slot, MessageView::Peeked));
        }
        Ok(messages)
    }

    /// Removes available and Delayed messages enqueued before an instant, lowest numbers first
    /// (DEL-03, DEL-04, RTY-13).
    pub(super) fn delete_batch(
        &mut self,
        sub_queue: SubQueue,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_sessionless_delete(Lane::SubQueue(sub_queue))?;
        self.refuse_receive()?;
        Self::refuse_delete_count(count_max, ctx)?;
        let before = enqueued_before.unwrap_or(ctx.now);
        // Enqueue times ascend with the numbers, so the first message that is too young ends the
        // search.
        let first_of = |all: &SequenceSet| -> Vec<SequenceNumber> {
            all.iter_from(SequenceNumber(0))
                .take_while(|sequence| self.is_enqueued_before(*sequence, before))
                .take(count_max as usize)
                .collect()
        };
        let mut to_delete = first_of(&self.sub_queue(sub_queue).available);
        if let Some(waiting) = self.transfers.waiting_of(sub_queue) {
            to_delete.extend(first_of(waiting));
        }
        let delayed = self.delays.iter_from(sub_queue, SequenceNumber(0));
        to_delete.extend(
            delayed
                .filter(|sequence| self.is_durably_delayed(*sequence))
                .take_while(|sequence| self.is_enqueued_before(*sequence, before))
                .take(count_max as usize),
        );
        to_delete.sort_unstable();
        to_delete.truncate(count_max as usize);
        Ok(self.delete_all(&to_delete, ctx, step))
    }

    /// Removes messages and answers with their number. It removes fewer if their overlays exceed
    /// the moves of a step.
    pub(super) fn delete_all(
        &mut self,
        to_delete: &[SequenceNumber],
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let (mut count, mut overlays_left) = (0, COMMAND_MOVES_MAX);
        for sequence in to_delete {
            if overlays_left == 0 {
                break;
            }
            overlays_left = overlays_left.saturating_sub(self.overlay_count(*sequence));
            self.remove_message(*sequence, Removal::Deleted, ctx, step);
            count += 1;
        }
        self.touch(ctx.now);
        Answer::after_commit(Outcome::Deleted(count))
    }

    pub(super) fn is_enqueued_before(&self, sequence: SequenceNumber, before: Timestamp) -> bool {
        self.slots.get(sequence).is_some_and(|slot| slot.enqueued_at < before)
    }

    pub(super) fn refuse_delete_count(count_max: u32, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        if count_max == 0 || count_max as usize > ctx.limits.batch_delete_count_max {
            return Err(Rejection::out_of_range(format!(
                "a batch delete removes 1 to {} messages; {count_max} is out of range",
                ctx.limits.batch_delete_count_max
            )));
        }
        Ok(())
    }
}

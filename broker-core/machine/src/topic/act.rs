//! Deeds of an operator on the scheduled messages of a topic (CON-12). `act.rs` above has the steps
//! and their receipts. The outbox has its own, for the topic's transfer dead-letter queue.

use super::Topic;
use crate::act::{ActOnMessages, Receipts};
use crate::change::{Change, Durability, Removal};
use crate::command::{Act, ActResult, ActedMessage, Deed, Route};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::queue::{expiry_at, refuse_endless};
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

impl ActOnMessages for Topic {
    fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    fn note_use(&mut self, now: Timestamp) {
        self.usage.touch(now);
    }

    fn route(&self, _: SubQueue, _: &Deed) -> Option<Route> {
        None
    }

    fn carry_out(
        &mut self,
        _: SubQueue,
        act: &Act,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Vec<ActedMessage>, Rejection> {
        match act.deed {
            Deed::Delete | Deed::Reschedule(_) => {}
            Deed::DeadLetter { .. }
            | Deed::Undefer
            | Deed::Resubmit { .. }
            | Deed::Move { .. }
            | Deed::PutBack(_)
            | Deed::Export(_) => {
                return Err(Rejection::invalid_operation(format!(
                    "topic `{}` holds only scheduled messages; delete or reschedule them, or act \
                     on messages of a subscription",
                    self.path()
                )));
            }
        }
        if let Deed::Reschedule(to) = act.deed {
            let slots = act.sequences.iter().filter_map(|sequence| self.slots.get(*sequence));
            refuse_endless(to, slots, ctx.now)?;
        }
        let messages = act.sequences.iter().map(|sequence| {
            let result = self.act_on_scheduled(*sequence, &act.deed, ctx, step);
            ActedMessage { sequence: *sequence, result }
        });
        Ok(messages.collect())
    }
}

impl Topic {
    fn act_on_scheduled(
        &mut self,
        sequence: SequenceNumber,
        deed: &Deed,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> ActResult {
        let Some(slot) = self.slots.get(sequence).copied() else { return ActResult::NotFound };
        // A message that is being loaded is published at its present instant.
        let is_leaving = matches!(deed, Deed::Reschedule(_)) && self.loading.contains(&sequence);
        if slot.is_in_flight() || is_leaving {
            return ActResult::Busy;
        }
        let change = match deed {
            Deed::Reschedule(to) => {
                let at = to.of(slot.enqueued_at, ctx.now);
                Change::Rescheduled { sequence, at, expires_at: expiry_at(&slot, at) }
            }
            Deed::Delete
            | Deed::DeadLetter { .. }
            | Deed::Undefer
            | Deed::Resubmit { .. }
            | Deed::Move { .. }
            | Deed::PutBack(_)
            | Deed::Export(_) => {
                step.bytes_freed += u64::from(slot.size);
                let overlay_count = slot.overlay_count;
                Change::Removed { sequence, overlay_count, reason: Removal::Cancelled }
            }
        };
        self.change(change, Durability::Sync, ctx, step);
        ActResult::Done
    }
}

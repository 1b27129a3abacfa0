//! Send-via: what is sent by way of the topic is stored there until it is transferred, and rests in the
//! topic's transfer dead-letter queue if it cannot be (VIA-01, VIA-03, VIA-05).
//!
//! All of it is done by a queue inside the topic. It is made at first need, gives its numbers from the
//! topic's own row, and its records lie in the topic's space: a topic without it has none of its cost.

use super::Topic;
use crate::command::Command;
use crate::idle::Idles as _;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::slot::{Slot, SlotState};
use crate::time::Timestamp;
use crate::{Ctx, Machine, Step};

/// Whether a message that is stored in the space of a topic is one of its outbox.
pub(super) const fn is_in_outbox(slot: &Slot) -> bool {
    matches!(slot.state, SlotState::Pending)
        || matches!(slot.sub_queue, SubQueue::TransferDeadLetter)
}

impl Topic {
    /// Whether a command is one for the outbox: all that is asked of the transfer dead-letter queue, and
    /// what concerns messages on their way.
    pub(super) const fn is_for_outbox(&self, sub_queue: SubQueue, command: &Command) -> bool {
        match sub_queue {
            // A commit names the sub-queue of each part.
            SubQueue::TransferDeadLetter => !matches!(command, Command::Commit { .. }),
            SubQueue::DeadLetter => false,
            SubQueue::Main => {
                // Who receives from the transfer dead-letter queue ends by the last two.
                matches!(command, Command::SendVia { .. } | Command::TransferOut { .. })
                    || (self.outbox.is_some()
                        && matches!(
                            command,
                            Command::Detach { .. } | Command::CancelReceive { .. }
                        ))
            }
        }
    }

    /// Does something with the outbox, which is made for it if there is none.
    pub(super) fn with_outbox<T>(
        &mut self,
        now: Timestamp,
        run: impl FnOnce(&mut Queue) -> T,
    ) -> T {
        let mut outbox = self.outbox.take().unwrap_or_else(|| {
            Box::new(Queue::outbox(self.id, &self.description, self.config, now))
        });
        outbox.pace(self.moves);
        outbox.number_after(self.last_sequence);
        outbox.note_other_receivers(self.relatives.receiver_count);
        let size_before = outbox.size_bytes();
        let result = run(&mut outbox);
        self.last_sequence = self.last_sequence.max(outbox.last_sequence());
        self.relatives.size_bytes =
            (self.relatives.size_bytes + outbox.size_bytes()).saturating_sub(size_before);
        // Sends by way of the topic are its own, and its sub-queue counts for it (TMP-16).
        if outbox.used_at() > self.usage.last_at {
            self.usage.touch(outbox.used_at());
        }
        self.outbox = Some(outbox);
        result
    }

    /// Lets time pass in the outbox, if there is one.
    pub(super) fn advance_outbox(&mut self, ctx: &mut Ctx<'_>, step: &mut Step) {
        if self.outbox.is_some() {
            self.with_outbox(ctx.now, |outbox| outbox.advance(ctx, step));
        }
    }

    /// Hands messages over, and matches demand for those that rest.
    pub(super) fn serve_outbox(&mut self, ctx: &mut Ctx<'_>, step: &mut Step) {
        if self.outbox.is_some() {
            self.with_outbox(ctx.now, |outbox| outbox.serve(ctx, step));
        }
    }

    /// Whether something lasting in the outbox keeps the topic from being idle: messages on their way,
    /// a receive that waits (TMP-15, TMP-16).
    pub(super) fn is_outbox_in_use(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_held())
    }

    /// Whether a message is the outbox's.
    pub(super) fn is_outbox_message(&self, sequence: SequenceNumber) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.holds(sequence))
    }
}

//! Send-via: messages that are sent via the topic are stored until they are transferred. A message
//! that cannot be transferred goes to the topic's transfer dead-letter queue (VIA-01, VIA-03,
//! VIA-05).
//!
//! A queue inside the topic does all of this. It is created at first need, takes its numbers from
//! the topic's sequence, and has its records in the topic's space. A topic without it has no cost.

use super::Topic;
use crate::command::Command;
use crate::idle::IdleDetection as _;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::slot::{Slot, SlotState};
use crate::time::Timestamp;
use crate::{Ctx, Machine, StepOutput};

/// Whether a stored message in the space of a topic belongs to its outbox.
pub(super) const fn is_in_outbox(slot: &Slot) -> bool {
    matches!(slot.state, SlotState::Pending)
        || matches!(slot.sub_queue, SubQueue::TransferDeadLetter)
}

impl Topic {
    /// Whether the outbox handles a command: all commands to the transfer dead-letter queue, and
    /// commands about messages in transfer.
    pub(super) const fn is_for_outbox(&self, sub_queue: SubQueue, command: &Command) -> bool {
        match sub_queue {
            // A commit names the sub-queue of each part. An inquiry creates no outbox.
            SubQueue::TransferDeadLetter => {
                !matches!(command, Command::Commit { .. } | Command::Inspect(_))
            }
            SubQueue::DeadLetter => false,
            SubQueue::Main => {
                // Receivers of the transfer dead-letter queue end with the last two commands.
                matches!(command, Command::SendVia { .. } | Command::EndTransfer { .. })
                    || (self.outbox.is_some()
                        && matches!(
                            command,
                            Command::Detach { .. } | Command::CancelReceive { .. }
                        ))
            }
        }
    }

    /// Runs `run` with the outbox, which is created if it does not exist.
    pub(super) fn with_outbox<T>(
        &mut self,
        now: Timestamp,
        run: impl FnOnce(&mut Queue) -> T,
    ) -> T {
        let mut outbox = self.outbox.take().unwrap_or_else(|| {
            Box::new(Queue::outbox(self.id, &self.description, self.config, now))
        });
        outbox.set_move_limit(self.move_limit);
        outbox.number_after(self.last_sequence);
        outbox.note_other_receivers(self.family_summary.receiver_count);
        let size_before = outbox.size_bytes();
        let result = run(&mut outbox);
        self.last_sequence = self.last_sequence.max(outbox.last_sequence());
        self.family_summary.size_bytes =
            (self.family_summary.size_bytes + outbox.size_bytes()).saturating_sub(size_before);
        // Sends via the topic and use of its sub-queue count as use of the topic (TMP-16).
        if outbox.used_at() > self.usage.last_at {
            self.usage.touch(outbox.used_at());
        }
        self.outbox = Some(outbox);
        result
    }

    /// Lets time pass in the outbox, if it exists.
    pub(super) fn advance_outbox(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        if self.outbox.is_some() {
            self.with_outbox(ctx.now, |outbox| outbox.advance(ctx, step));
        }
    }

    /// Hands messages over, and serves receivers of the transfer dead-letter queue.
    pub(super) fn serve_outbox(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        if self.outbox.is_some() {
            self.with_outbox(ctx.now, |outbox| outbox.serve(ctx, step));
        }
    }

    /// Whether the outbox permanently keeps the topic in use: messages in transfer, a waiting
    /// receive (TMP-15, TMP-16).
    pub(super) fn is_outbox_in_use(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_in_use())
    }

    /// Whether a message belongs to the outbox.
    pub(super) fn is_outbox_message(&self, sequence: SequenceNumber) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.holds(sequence))
    }
}

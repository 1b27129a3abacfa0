//! Send-via: messages that are stored here until they are transferred (VIA-01). `queue/mod.rs` and
//! commits call it. A pending message is invisible to receivers.

use std::sync::Arc;

use crate::change::{Change, Durability};
use crate::command::{InboundMessage, Outcome};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::slot::{Marks, Slot, SlotState};
use crate::{Ctx, StepOutput};

impl Queue {
    /// Stores messages that wait for their transfer, all or none. The destination judges sessions,
    /// schedules and duplicates.
    pub(in crate::queue) fn send_via(
        &mut self,
        sub_queue: SubQueue,
        destination: &Arc<str>,
        messages: Vec<InboundMessage>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.admit_via(sub_queue, &messages, ctx)?;
        let sequences = messages
            .into_iter()
            .map(|message| self.store_pending(message, Arc::clone(destination), ctx, step))
            .collect();
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::AcceptedBatch(sequences)))
    }

    /// Stores an admitted message that waits for its transfer.
    pub(in crate::queue) fn store_pending(
        &mut self,
        message: InboundMessage,
        destination: Arc<str>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        let sequence = self.last_sequence.next();
        // It does not expire while it waits (LIF-05); its time to live starts again at the
        // destination (EXP-16).
        let slot = Slot {
            state: SlotState::Pending,
            marks: Marks::never_duplicate(message.envelope.is_never_duplicate()),
            ..Slot::arriving(ctx.now, message.envelope.size, message.envelope.header_size)
        };
        step.bytes_added += u64::from(slot.size);
        let change = Change::Pending { sequence, slot, destination, content: message.content };
        self.change(change, Durability::Sync, ctx, step);
        sequence
    }
}

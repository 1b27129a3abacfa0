//! Messages that another broker forwards: the checks of a transfer, and a record of each taken
//! message in the same batch, so that a message whose answer was lost is not stored twice (FWD-09,
//! FWD-13).

use super::arrive::AdmittedMessage;
use crate::change::PreviousLocation;
use crate::command::{Outcome, PeerArrival};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::intake::Intake as _;
use crate::path::SubQueue;
use crate::peers::PeerSource;
use crate::queue::Queue;
use crate::take_over::{self, TakeDecision};
use crate::{Ctx, StepOutput, intake};

impl Queue {
    /// Takes over messages in their order, each as a unit of its own. A message that was taken
    /// before counts as accepted. Ends at the first refused message, so that no later message
    /// overtakes it (FWD-10).
    pub(in crate::queue) fn transfer_from_peer(
        &mut self,
        sub_queue: SubQueue,
        source: PeerSource,
        messages: Vec<PeerArrival>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_sub_queue(sub_queue)?;
        let results = take_over::arrivals_of_peer(messages, |arrival| {
            self.take_from_peer(source, arrival, ctx, step).map(TakeDecision::Take)
        });
        if results.iter().any(Result::is_ok) {
            self.touch(ctx.now);
        }
        Ok(Answer::after_commit(Outcome::TakenOver(results)))
    }

    fn take_from_peer(
        &mut self,
        source: PeerSource,
        arrival: PeerArrival,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<(), Rejection> {
        let PeerArrival {
            message,
            sequence,
            enqueued_at,
            enqueued_sequence,
            hops,
            copies_spent,
            ..
        } = arrival;
        if self.peers.contains(&source, sequence, enqueued_at) {
            return Ok(());
        }
        take_over::refuse_hops_of_peer(hops, self.config.forwarding.hop_count_max)?;
        let bytes = step.bytes_added.saturating_add(u64::from(message.envelope.size));
        self.admit_arrival(&message, Some(bytes), ctx)?;
        // The other broker checked it when it was sent, but under its own limits.
        intake::check_messages(std::slice::from_ref(&message), self.message_bytes_max())?;
        intake::refuse_without_room(ctx)?;
        intake::refuse_too_many_messages(1, ctx)?;
        if self.peers.grows_by(&source) {
            intake::refuse_too_many_taken(ctx)?;
        }
        let admitted = AdmittedMessage {
            envelope: message.envelope,
            // Its overlays are part of its content.
            overlay_count: 0,
            enqueued_sequence,
            hops,
            copies_spent,
            dead_letter_source: arrival.dead_letter_source,
            previous: PreviousLocation::Peer(message.content),
        };
        self.arrive(admitted, ctx, step);
        self.record_peer(source, sequence, enqueued_at, ctx, step);
        Ok(())
    }
}

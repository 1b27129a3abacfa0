//! Messages that another broker forwards to a topic: each is published and remembered in the batch
//! of its copies, so that a message whose answer was lost is not published twice (FWD-09, FWD-13).

use super::Topic;
use super::copies::StagedCopies;
use super::publish::Journey;
use crate::command::{Outcome, PeerArrival};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::intake::Intake as _;
use crate::message::Overlay;
use crate::peers::PeerSource;
use crate::take_over::{self, TakeDecision};
use crate::{Ctx, StepOutput, intake};

impl Topic {
    /// Publishes messages in their order, each as a unit of its own. A message that was taken
    /// before counts as accepted. Ends at the first refused message, so that no later message
    /// overtakes it (FWD-10), and before a message that would exceed an atomic step (QUO-10).
    pub(super) fn transfer_from_peer(
        &mut self,
        source: PeerSource,
        messages: Vec<PeerArrival>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let mut staged = StagedCopies::default();
        let results = take_over::arrivals_of_peer(messages, |arrival| {
            self.take_from_peer(source, arrival, &mut staged, ctx, step)
        });
        if results.iter().any(Result::is_ok) {
            self.usage.touch(ctx.now);
        }
        Answer::after_commit(Outcome::TakenOver(results))
    }

    fn take_from_peer(
        &mut self,
        source: PeerSource,
        arrival: PeerArrival,
        staged: &mut StagedCopies,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<TakeDecision<()>, Rejection> {
        let journey = journey_of_peer(&arrival);
        let PeerArrival { message, sequence, enqueued_at, hops, .. } = arrival;
        if self.peers.contains(&source, sequence, enqueued_at) {
            return Ok(TakeDecision::Take(()));
        }
        take_over::refuse_hops_of_peer(hops, self.config.forwarding.hop_count_max)?;
        if self.is_unjudged(&message, &journey) {
            return Ok(TakeDecision::Postpone);
        }
        let plan = self.admit_one(&message, &journey, step.bytes_added, ctx)?;
        let with_it = staged.and(plan.staged(&journey));
        if with_it.exceeded_limit(ctx.limits).is_some() {
            return Ok(TakeDecision::Postpone);
        }
        if self.peers.grows_by(&source) {
            intake::refuse_too_many_taken(ctx)?;
        }
        *staged = with_it;
        self.accept(message, plan, journey, ctx, step);
        self.record_peer(source, sequence, enqueued_at, ctx, step);
        Ok(TakeDecision::Take(()))
    }
}

/// Returns the journey of a message from another broker.
pub(super) fn journey_of_peer(arrival: &PeerArrival) -> Journey {
    Journey {
        hops: arrival.hops,
        copies_spent: arrival.copies_spent,
        first: arrival.enqueued_sequence,
        changes: arrival.dead_letter_source.as_deref().map(Overlay::dead_letter_source),
        ..Journey::default()
    }
}

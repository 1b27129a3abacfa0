//! Messages that come to a topic from another entity of the broker: each is published by the rules
//! of a transfer, and its records at the source are deleted in the same batch (FWD-09, FND-03).

use super::Topic;
use super::copies::{InheritedProperties, StagedCopies};
use super::publish::{AdmissionPlan, Journey, refuse_excess, refuse_large_step};
use crate::change::{Change, Durability, PublishedContent};
use crate::command::{InboundMessage, Outcome};
use crate::condition::Condition;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber};
use crate::intake::Intake;
use crate::message::Overlay;
use crate::rule::{Copy, Selection};
use crate::slot::Marks;
use crate::take_over::{self, TakeDecision};
use crate::transfer::{Admission, Arrival, Resent, WhenFull};
use crate::{Ctx, StepOutput, intake};

/// Maximum bytes of headers that are rewritten in one step, which takes about a millisecond. A
/// larger header is rewritten by itself.
const REWRITTEN_BYTES_MAX: u64 = 128 << 10;

impl Topic {
    /// Publishes messages in the order of their source, each as a unit of its own. Ends after a
    /// refused message (FWD-10), and before a message that would exceed an atomic step (QUO-10) or
    /// the time of a step.
    pub(super) fn transfer_in(
        &mut self,
        messages: Vec<Arrival>,
        when_full: WhenFull,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let admissions = take_over::arrivals(
            &mut (&mut *self, &mut *ctx, step, StagedCopies::default(), 0u64, 0u64),
            messages,
            when_full,
            |(topic, ctx, step, staged, rewritten, grown), arrival| {
                let journey = journey_of(arrival);
                if !arrival.is_for_one() && topic.is_unjudged(&arrival.message, &journey) {
                    return Ok(TakeDecision::Postpone);
                }
                let added = (step.bytes_added, *grown);
                let (plan, growth) = topic.admit_arrival(arrival, &journey, added, ctx)?;
                if arrival.resent.is_some() {
                    let bytes_max = topic.description.message_bytes_max();
                    intake::check_resent(arrival, bytes_max, ctx)?;
                    if topic.is_duplicate(arrival, ctx) {
                        return Ok(TakeDecision::LeaveDuplicate);
                    }
                }
                let staged = staged.and(plan.staged(&journey));
                if staged.exceeded_limit(ctx.limits).is_some() {
                    return Ok(TakeDecision::Postpone);
                }
                let bytes = rewritten_bytes(&arrival.message, &plan, &journey);
                let with_it = rewritten.saturating_add(bytes);
                if bytes > 0 && *rewritten > 0 && with_it > REWRITTEN_BYTES_MAX {
                    return Ok(TakeDecision::Postpone);
                }
                *rewritten = with_it;
                Ok(TakeDecision::Take((plan, journey, staged, growth)))
            },
            |(topic, ctx, step, staged, _, grown), arrival, (plan, journey, with_it, growth)| {
                *staged = with_it;
                *grown += growth;
                topic.arrive(arrival, plan, journey, ctx, step);
            },
        );
        if admissions.contains(&Admission::Accepted) {
            self.usage.touch(ctx.now);
        }
        Answer::after_commit(Outcome::Admitted(admissions))
    }

    /// Numbers an admitted message and makes its copies, or drops it as a duplicate. Both remove it
    /// from its source (FWD-22).
    fn arrive(
        &mut self,
        arrival: Arrival,
        plan: AdmissionPlan,
        journey: Journey,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let (is_duplicate, is_for_one) = (self.is_duplicate(&arrival, ctx), arrival.is_for_one());
        let Arrival { message, origin, .. } = arrival;
        let id_hash = message.envelope.message_id_hash;
        if is_duplicate {
            step.note_duplicate(SequenceNumber(0), id_hash);
            self.change(Change::Absorbed { origin }, Durability::Sync, ctx, step);
            return;
        }
        match plan {
            AdmissionPlan::Schedule(_) => {
                // A scheduled message has no overlays: they become part of its content, except the
                // dead-letter source, which is not a property of a message.
                let message = with_changes(message, journey.changes.as_ref());
                self.accept(message, plan, journey, ctx, step);
                self.change(Change::Absorbed { origin }, Durability::Sync, ctx, step);
            }
            AdmissionPlan::Publish(selection) => {
                let sequence = self.last_sequence.next();
                let inherited = InheritedProperties::of_envelope(&message.envelope);
                let copies =
                    self.copies((&message.content, &inherited), sequence, selection, &journey, ctx);
                if !is_for_one {
                    let sampled = (&message.content, &journey);
                    self.note_sample(sampled, sequence, copies.len(), ctx.now, step);
                }
                self.publish(sequence, PublishedContent::Transferred(origin), copies, ctx, step);
                if !is_for_one {
                    self.remember_id(id_hash, None, ctx, step);
                }
            }
        }
    }

    /// Makes the checks of SND-19 that concern a transfer: status, size, quota, ids. `added` is the
    /// number of bytes that this step adds, and the growth of earlier messages of the list. Returns
    /// the growth of this one, too.
    fn admit_arrival(
        &self,
        arrival: &Arrival,
        journey: &Journey,
        (bytes_added, grown): (u64, u64),
        ctx: &mut Ctx<'_>,
    ) -> Result<(AdmissionPlan, u64), Rejection> {
        let message = &arrival.message;
        self.refuse_status()?;
        let size_max = self.description.message_bytes_max();
        let size = u64::from(message.envelope.sent_size());
        if size > size_max {
            return Err(Rejection::message_size_exceeded("message", size, size_max));
        }
        let plan = match arrival.resent {
            Some(Resent { only: Some(only), .. }) => self.plan_for_one(only, message)?,
            Some(_) | None => self.plan(message, journey, self.last_sequence.next(), ctx),
        };
        refuse_excess(std::slice::from_ref(&plan), ctx)?;
        refuse_large_step(plan.staged(journey), ctx)?;
        self.refuse_copies(std::slice::from_ref(&plan), journey)?;
        // A message that only moves within the tree needs room only for its growth.
        let is_within = |resent: &Resent| {
            resent.only.is_some() && self.subscriptions.contains_key(&resent.from)
        };
        let size = plan.size_bytes(message, journey);
        let within = arrival.resent.filter(is_within);
        let growth = within.map(|resent| size.saturating_sub(u64::from(resent.size)));
        match growth {
            Some(0) => {}
            Some(growth) => self.refuse_over_quota(grown + growth, ctx)?,
            None => self.refuse_over_quota(bytes_added.saturating_add(size), ctx)?,
        }
        let plans = std::slice::from_ref(&plan);
        self.refuse_over_broker_limits(std::slice::from_ref(message), plans, ctx)?;
        if !arrival.is_for_one() {
            self.refuse_full_history(std::slice::from_ref(message), ctx)?;
        }
        Ok((plan, growth.unwrap_or_default()))
    }
}

impl Topic {
    /// Whether the topic has or had a message with this id. A message for one subscription is not
    /// published, so the ids of the topic do not concern it (CON-17).
    fn is_duplicate(&self, arrival: &Arrival, ctx: &Ctx<'_>) -> bool {
        let id_hash = arrival.message.envelope.message_id_hash;
        !arrival.is_for_one() && self.find_duplicate(id_hash, ctx.now).is_some()
    }

    /// Plans a message that a job sends to one subscription, without its rules.
    fn plan_for_one(
        &self,
        subscription: EntityId,
        message: &InboundMessage,
    ) -> Result<AdmissionPlan, Rejection> {
        let Some(entry) = self.subscriptions.get(&subscription) else {
            return Err(Rejection::entity_not_found(self.path()));
        };
        if entry.settings.rules.requires_session && message.envelope.session_id.is_none() {
            let detail = "the subscription requires sessions, and the message has no session id";
            return Err(Rejection::new(Condition::SessionIdIsNull, detail));
        }
        Ok(AdmissionPlan::Publish(Selection {
            copies: vec![Copy { subscription, rule: None, changed: None, refusal: None }],
            selected_by: Some(subscription),
            ..Selection::default()
        }))
    }
}

/// Returns the journey of a message: all properties set since it was sent, and its dead-letter
/// source, as one overlay.
pub(super) fn journey_of(arrival: &Arrival) -> Journey {
    let source = arrival.dead_letter_source.as_deref().map(Overlay::dead_letter_source);
    let set = Overlay::combine(&arrival.overlays);
    let on_top = |below: Option<Overlay>, above: Option<Overlay>| match (below, above) {
        (Some(below), Some(above)) => Some(above.on_top_of(&below)),
        (below, above) => above.or(below),
    };
    let lowered = arrival.lowered_time_to_live.map(Overlay::time_to_live);
    Journey {
        hops: arrival.hops,
        first: arrival.enqueued_sequence,
        changes: on_top(on_top(set, lowered), source),
        copies_spent: arrival.copies_spent,
        marks: Marks::never_duplicate(arrival.message.envelope.is_never_duplicate()),
    }
}

/// Bytes of header and overlays to rewrite for a message that is scheduled.
fn rewritten_bytes(message: &InboundMessage, plan: &AdmissionPlan, journey: &Journey) -> u64 {
    match (plan, journey.set_bytes()) {
        (AdmissionPlan::Publish(_), _) | (AdmissionPlan::Schedule(_), 0) => 0,
        (AdmissionPlan::Schedule(_), set) => {
            u64::from(message.content.header_size()).saturating_add(set)
        }
    }
}

/// Returns the message with changed properties; unchanged if its content cannot be read.
fn with_changes(message: InboundMessage, changes: Option<&Overlay>) -> InboundMessage {
    let Some(changes) = changes else { return message };
    let Ok(mut changed) = message.content.decode() else { return message };
    changed.apply_overlay(changes);
    InboundMessage { content: changed.encode(), ..message }
}

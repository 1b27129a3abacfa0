//! Publish: the checks of SND-19, then a number, and a copy for each subscription that selects the
//! message (TOP-01 to TOP-10).

use std::sync::Arc;

use super::Topic;
use super::admit::AdmissionPlan;
use super::copies::InheritedProperties;
use crate::change::{Change, Durability, PublishedContent, SubscriptionCopy, TopicChange};
use crate::command::{InboundMessage, Outcome};
use crate::duplicate_history::DuplicateHistory;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::Intake as _;
use crate::message::Overlay;
use crate::slot::{Marks, Slot, SlotState};
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

/// Earlier transfers of a message from another entity; the default for a client's send.
#[derive(Clone, Debug, Default)]
pub(super) struct Journey {
    /// Number of transfers; the way to the subscriptions does not count (FWD-13).
    pub(super) hops: u8,
    /// Copies that the original message has made already, or that other copies may still make
    /// (FWD-33).
    pub(super) copies_spent: u16,
    /// Number at its original point of submission; 0 if that is the topic (MSG-15).
    pub(super) first: SequenceNumber,
    /// Properties set since it was sent, and the entity in which it was dead-lettered (FWD-26).
    pub(super) changes: Option<Overlay>,
    /// Marks of its copies: whether it is never a duplicate (DUP-14), as its envelope says, and
    /// whether it was scheduled (PEK-05).
    pub(super) marks: Marks,
}

impl Topic {
    /// Publishes one message, now or at its scheduled instant.
    pub(super) fn send(
        &mut self,
        message: InboundMessage,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let plan = self.admit(std::slice::from_ref(&message), ctx)?.pop();
        let Some(plan) = plan else { return Err(Rejection::internal("the message has no plan")) };
        let sequence = self.accept(message, plan, Journey::default(), ctx, step);
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Accepted(sequence)))
    }

    /// Publishes all messages, with consecutive numbers, or none (SND-29, SND-31, TOP-07).
    pub(super) fn send_batch(
        &mut self,
        messages: Vec<InboundMessage>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let plans = self.admit_batch(&messages, ctx)?;
        if messages.is_empty() {
            return Ok(Answer::after_commit(Outcome::AcceptedBatch(Vec::new())));
        }
        let sequences = messages
            .into_iter()
            .zip(plans)
            .map(|(message, plan)| self.accept(message, plan, Journey::default(), ctx, step))
            .collect();
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::AcceptedBatch(sequences)))
    }

    /// Numbers an admitted message and makes its copies. A duplicate is dropped: returns 0, or, for
    /// a scheduled duplicate, the number of the scheduled message that it repeats (DUP-02, DUP-12).
    pub(super) fn accept(
        &mut self,
        message: InboundMessage,
        plan: AdmissionPlan,
        journey: Journey,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        self.accept_as(message, plan, journey, None, ctx, step)
    }

    /// Accepts a message under a reserved number if it is still scheduled.
    pub(super) fn accept_as(
        &mut self,
        message: InboundMessage,
        plan: AdmissionPlan,
        mut journey: Journey,
        reserved: Option<SequenceNumber>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        let InboundMessage { content, envelope } = message;
        journey.marks = Marks::never_duplicate(envelope.is_never_duplicate());
        if let Some(earlier) = self.find_duplicate(envelope.message_id_hash, ctx.now) {
            return DuplicateHistory::number_for_sender(&envelope, earlier);
        }
        let next = self.last_sequence.next();
        let is_scheduled = matches!(plan, AdmissionPlan::Schedule(_));
        let sequence = reserved.filter(|_| is_scheduled).unwrap_or(next);
        // The rules judged later messages with numbers that assume that this message takes one too.
        self.last_sequence = next;
        let scheduled = is_scheduled.then_some(sequence);
        match plan {
            AdmissionPlan::Schedule(at) => {
                let own = envelope.time_to_live.map_or(Timestamp::NEVER, |own| at.plus(own));
                let slot = Slot {
                    expires_at: own,
                    enqueued_sequence: journey.first,
                    state: SlotState::Scheduled,
                    hops: journey.hops,
                    copies_spent: journey.copies_spent,
                    marks: journey.marks,
                    ..Slot::arriving(at, envelope.size, envelope.header_size)
                };
                step.bytes_added += u64::from(slot.size);
                let change = Change::Accepted {
                    sequence,
                    slot,
                    session: None,
                    dead_letter_source: journey.dead_letter_source().map(Arc::from),
                    content,
                };
                self.change(change, Durability::Sync, ctx, step);
            }
            AdmissionPlan::Publish(selection) => {
                let inherited = InheritedProperties::of_envelope(&envelope);
                let copies =
                    self.copies((&content, &inherited), sequence, selection, &journey, ctx);
                self.publish(sequence, PublishedContent::New(content), copies, ctx, step);
            }
        }
        self.remember_id(envelope.message_id_hash, scheduled, ctx, step);
        sequence
    }

    /// Makes the change of a publish.
    pub(super) fn publish(
        &mut self,
        sequence: SequenceNumber,
        content: PublishedContent,
        copies: Vec<SubscriptionCopy>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        step.bytes_added += copies.iter().map(|copy| u64::from(copy.slot.size)).sum::<u64>();
        let change = TopicChange::Published { sequence, content, copies };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
    }
}

impl Journey {
    /// The entity in which it was dead-lettered (FWD-26).
    pub(super) fn dead_letter_source(&self) -> Option<&str> {
        Overlay::dead_letter_source_of(self.changes.iter())
    }

    /// Bytes of the properties set on it.
    pub(super) fn set_bytes(&self) -> u64 {
        self.changes.as_ref().map_or(0, |changes| u64::from(changes.size_bytes()))
    }
}

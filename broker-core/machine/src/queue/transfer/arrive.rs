//! Arrival of messages from another entity: the checks of a send, and one change that stores a
//! message here and deletes it there (FND-03, FWD-09).

use std::sync::Arc;

use crate::change::{Change, Durability, PreviousLocation};
use crate::command::{InboundMessage, Outcome};
use crate::condition::Condition;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::Intake;
use crate::limits::OVERLAY_BYTES;
use crate::message::{Envelope, Overlay};
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::queue::settle::overlay_bytes;
use crate::rule::Refusal;
use crate::slot::{Marks, Slot, SlotState};
use crate::take_over::{self, TakeDecision};
use crate::transfer::{Admission, Arrival, WhenFull};
use crate::{Ctx, StepOutput, intake};

/// An admitted message from another entity or broker.
pub(super) struct AdmittedMessage {
    pub(super) envelope: Envelope,
    /// Number of overlays that come with it.
    pub(super) overlay_count: usize,
    pub(super) enqueued_sequence: SequenceNumber,
    pub(super) hops: u8,
    pub(super) copies_spent: u16,
    pub(super) dead_letter_source: Option<Arc<str>>,
    pub(super) previous: PreviousLocation,
}

impl From<Arrival> for AdmittedMessage {
    fn from(arrival: Arrival) -> Self {
        Self {
            envelope: arrival.message.envelope,
            overlay_count: arrival.overlays.len(),
            enqueued_sequence: arrival.enqueued_sequence,
            hops: arrival.hops,
            copies_spent: arrival.copies_spent,
            dead_letter_source: arrival.dead_letter_source,
            previous: PreviousLocation::Here(arrival.origin),
        }
    }
}

impl Queue {
    /// Takes over messages in their order, each as an atomic unit of its own. No message after a
    /// refused one is taken; [`take_over::arrivals`] gives the reason.
    pub(in crate::queue) fn transfer_in(
        &mut self,
        messages: Vec<Arrival>,
        when_full: WhenFull,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let admissions = take_over::arrivals(
            &mut (&mut *self, &mut *ctx, step, 0),
            messages,
            when_full,
            |(queue, ctx, step, grown), arrival| queue.judge_arrival(arrival, *grown, ctx, step),
            |(queue, ctx, step, grown), arrival, ()| {
                *grown += queue.growth(&arrival).unwrap_or_default();
                queue.arrive(arrival.into(), ctx, step);
            },
        );
        if admissions.contains(&Admission::Accepted) {
            self.touch(ctx.now);
        }
        Answer::after_commit(Outcome::Admitted(admissions))
    }

    /// Decides about a message of another entity, or of this one if a job sends it. `grown` is the
    /// growth of earlier messages of the list.
    fn judge_arrival(
        &self,
        arrival: &Arrival,
        grown: u64,
        ctx: &Ctx<'_>,
        step: &StepOutput,
    ) -> Result<TakeDecision<()>, Rejection> {
        let message = &arrival.message;
        let bytes = match self.growth(arrival) {
            Some(0) => None,
            Some(growth) => Some(grown + growth),
            None => Some(step.bytes_added.saturating_add(u64::from(message.envelope.size))),
        };
        self.admit_arrival(message, bytes, ctx)?;
        if arrival.resent.is_some() {
            intake::check_resent(arrival, self.message_bytes_max(), ctx)?;
            if self.find_duplicate(message.envelope.message_id_hash, ctx.now).is_some() {
                return Ok(TakeDecision::LeaveDuplicate);
            }
        }
        Ok(TakeDecision::Take(()))
    }

    /// Bytes by which a message grows that a job sends to its own queue: it is here already, and
    /// needs room for no more (CON-17). None for other messages.
    fn growth(&self, arrival: &Arrival) -> Option<u64> {
        let resent = arrival.resent.filter(|resent| resent.from == self.id)?;
        Some(u64::from(arrival.message.envelope.size.saturating_sub(resent.size)))
    }

    /// Makes the checks of SND-19 that concern a transfer: status, size, session, quota. The limits
    /// of the sending client were checked when the message was sent. `bytes` is the room for which
    /// the quota is checked, if it needs any.
    pub(super) fn admit_arrival(
        &self,
        message: &InboundMessage,
        bytes: Option<u64>,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        self.refuse_status()?;
        let size_max = self.message_bytes_max();
        let sent_size = u64::from(message.envelope.sent_size());
        if sent_size > size_max {
            return Err(Rejection::message_size_exceeded("message", sent_size, size_max));
        }
        let message = std::slice::from_ref(message);
        self.refuse_without_session(message, Condition::SessionIdIsNull)?;
        if let Some(bytes) = bytes {
            self.refuse_over_quota(bytes, ctx)?;
        }
        intake::refuse_too_many_delayed(message, ctx)?;
        self.refuse_too_many_sessions(message, ctx)?;
        self.refuse_full_history(message, ctx)
    }

    /// Numbers an admitted message, or drops it as a duplicate. Both remove it from its previous
    /// entity in this broker (FWD-22).
    pub(super) fn arrive(
        &mut self,
        admitted: AdmittedMessage,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let AdmittedMessage {
            envelope,
            overlay_count,
            enqueued_sequence,
            hops,
            copies_spent,
            dead_letter_source,
            previous,
        } = admitted;
        if self.find_duplicate(envelope.message_id_hash, ctx.now).is_some() {
            step.note_duplicate(SequenceNumber(0), envelope.message_id_hash);
            if let PreviousLocation::Here(origin) = previous {
                self.change(Change::Absorbed { origin }, Durability::Sync, ctx, step);
            }
            return;
        }
        let scheduled_at = envelope.scheduled_enqueue_time.filter(|at| *at > ctx.now);
        let enqueued_at = scheduled_at.unwrap_or(ctx.now);
        let mut added: Vec<Overlay> =
            dead_letter_source.as_deref().map(Overlay::dead_letter_source).into_iter().collect();
        let header_size = u64::from(envelope.header_size)
            + added.iter().map(|overlay| u64::from(overlay.size_bytes())).sum::<u64>();
        let refusal = Refusal::of_header(header_size, ctx.limits.header_bytes_max);
        let is_dead = refusal.is_some();
        added.extend(refusal.and_then(|refusal| refusal.overlay()));
        // Its overlays stay separate, each with its own record (SET-41).
        let described = u32::try_from(overlay_count).unwrap_or(u32::MAX);
        let size = envelope.size.saturating_add(described.saturating_mul(OVERLAY_BYTES));
        let mut slot = Slot {
            expires_at: self.own_expiry(envelope.time_to_live, enqueued_at, scheduled_at),
            enqueued_sequence,
            overlay_count: u16::try_from(overlay_count).unwrap_or(u16::MAX),
            state: match scheduled_at {
                Some(_) if !is_dead => SlotState::Scheduled,
                Some(_) | None => SlotState::Active,
            },
            sub_queue: if is_dead { SubQueue::DeadLetter } else { SubQueue::Main },
            hops,
            copies_spent,
            marks: Marks::never_duplicate(envelope.is_never_duplicate()),
            ..Slot::arriving(enqueued_at, size, envelope.header_size)
        };
        for overlay in &added {
            slot.add_overlay(Some(overlay));
        }
        let session = match self.sessions {
            Some(_) if !is_dead => envelope.session_id.map(Arc::from),
            Some(_) | None => None,
        };
        let sequence = self.last_sequence.next();
        step.bytes_added +=
            u64::from(size) + added.iter().map(|overlay| overlay_bytes(Some(overlay))).sum::<u64>();
        let scheduled = (slot.state == SlotState::Scheduled).then_some(sequence);
        let change = Change::Arrived { sequence, slot, session, previous, added };
        self.change(change, Durability::Sync, ctx, step);
        self.remember_id(envelope.message_id_hash, scheduled, ctx, step);
    }
}

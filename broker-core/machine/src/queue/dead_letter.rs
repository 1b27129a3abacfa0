//! Moves into the dead-letter queue that the broker decides, with their exact reasons (DLQ-16).
//!
//! The reason is an overlay, like a reason from a receiver. It must stay as it was at the move: the
//! count in its text no longer grows, and a later abandon may overwrite it.

use std::borrow::Cow;

use super::Queue;
use super::settle::overlay_bytes;
use crate::change::{Change, DeadLetterCause, Durability, Removal};
use crate::command::{LAST_ERROR_PROPERTY, bounded_error};
use crate::condition::Condition;
use crate::ids::SequenceNumber;
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::{Ctx, StepOutput};

/// DLQ-16, "expired".
const TTL_EXPIRED: &str = "TTLExpiredException";
/// DLQ-16, "too many deliveries" (DLQ-18).
const MAX_DELIVERY_COUNT_EXCEEDED: &str = "MaxDeliveryCountExceeded";
/// Room in the header for the reason and for the description without an error.
const VERDICT_BYTES_MAX: u64 = 512;

impl Queue {
    /// Moves a message whose delivery count has reached the maximum (SET-34 to SET-36).
    pub(super) fn dead_letter_failed(
        &mut self,
        sequence: SequenceNumber,
        delivery_count: u32,
        properties: Option<Overlay>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let mut description = format!(
            "the message was not consumed after {delivery_count} delivery attempts, the maximum is {}",
            self.description.max_delivery_count
        );
        if let Some(error) = self.last_error(sequence, properties.as_ref(), ctx) {
            let described = format!("{error}; {description}");
            if described.chars().count() <= ctx.limits.dead_letter_description_chars_max {
                description = described;
            }
        }
        let verdict = verdict(MAX_DELIVERY_COUNT_EXCEEDED, &description);
        self.dead_letter_by_broker(
            sequence,
            delivery_count,
            properties,
            verdict,
            DeadLetterCause::DeliveryCount,
            ctx,
            step,
        );
    }

    /// Returns the error that the failed attempt reported, if the header of the message has room to
    /// describe it (DLQ-34).
    fn last_error<'a>(
        &self,
        sequence: SequenceNumber,
        properties: Option<&'a Overlay>,
        ctx: &Ctx<'_>,
    ) -> Option<Cow<'a, str>> {
        let properties = properties?;
        let error = properties.text(LAST_ERROR_PROPERTY).filter(|error| !error.is_empty())?;
        let error = bounded_error(error);
        let header = u64::from(self.slots.get(sequence)?.header_size)
            + u64::from(properties.size_bytes())
            + error.len() as u64;
        (header + VERDICT_BYTES_MAX <= ctx.limits.header_bytes_max).then_some(error)
    }

    /// Removes an expired message, or moves it if the queue dead-letters expired messages (EXP-21,
    /// EXP-22).
    pub(super) fn remove_expired(
        &mut self,
        sequence: SequenceNumber,
        properties: Option<Overlay>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        if !self.description.dead_lettering_on_message_expiration {
            self.remove_message(sequence, Removal::Expired, ctx, step);
            return;
        }
        let Some(slot) = self.slots.get(sequence) else { return };
        // A message that was locked until now has failed once more (file 23, "Locked, expired").
        let delivery_count = slot.delivery_count + u32::from(slot.lock.is_some());
        let verdict = verdict(TTL_EXPIRED, "the message expired and was dead-lettered");
        self.dead_letter_by_broker(
            sequence,
            delivery_count,
            properties,
            verdict,
            DeadLetterCause::Expired,
            ctx,
            step,
        );
    }

    /// Moves a message into the queue for messages that cannot be forwarded (FWD-16, FWD-18).
    pub(super) fn dead_letter_transfer(
        &mut self,
        sequence: SequenceNumber,
        reason: &str,
        description: &str,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(slot) = self.slots.get(sequence) else { return };
        let delivery_count = slot.delivery_count;
        self.dead_letter_counted(sequence, delivery_count, reason, description, ctx, step);
    }

    /// As [`Queue::dead_letter_transfer`], with a new delivery count.
    pub(super) fn dead_letter_counted(
        &mut self,
        sequence: SequenceNumber,
        delivery_count: u32,
        reason: &str,
        description: &str,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let verdict = verdict(reason, description);
        step.bytes_added += overlay_bytes(verdict.as_ref());
        let change = Change::DeadLettered {
            sequence,
            into: self.config.forwarding.failures_into,
            delivery_count,
            properties: None,
            verdict,
            cause: cause_of(reason),
        };
        self.change(change, Durability::Sync, ctx, step);
    }

    #[expect(clippy::too_many_arguments, reason = "each is one field of the change")]
    fn dead_letter_by_broker(
        &mut self,
        sequence: SequenceNumber,
        delivery_count: u32,
        properties: Option<Overlay>,
        verdict: Option<Overlay>,
        cause: DeadLetterCause,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        step.bytes_added += overlay_bytes(properties.as_ref()) + overlay_bytes(verdict.as_ref());
        let change = Change::DeadLettered {
            sequence,
            into: SubQueue::DeadLetter,
            delivery_count,
            properties,
            verdict,
            cause,
        };
        self.change(change, Durability::Sync, ctx, step);
    }
}

/// Returns the cause that the metrics count.
fn cause_of(reason: &str) -> DeadLetterCause {
    if reason == Condition::MaxTransferCopiesExceeded.reason_code() {
        return DeadLetterCause::CopyCount;
    }
    DeadLetterCause::Forwarding
}

/// Returns the two properties with the reason (DLQ-14). Texts of this length always fit.
fn verdict(reason: &str, description: &str) -> Option<Overlay> {
    Overlay::dead_letter(Some(reason), Some(description), &[]).ok()
}

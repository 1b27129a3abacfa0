//! Settlement: decisions of a receiver about a message that it holds (SET-01 to SET-13), and the
//! results of failed deliveries (SET-28 to SET-38).

use super::Queue;
use super::lock::LockInForce;
use crate::change::{Change, DeadLetterCause, Durability, Removal};
use crate::command::{LAST_ERROR_PROPERTY, Outcome, Settlement};
use crate::condition::Condition;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::event::LockEnd;
use crate::ids::{LockToken, SequenceNumber};
use crate::message::{Overlay, PropertyLimits};
use crate::path::SubQueue;
use crate::slot::{self, Slot, SlotState};
use crate::time::TimeSpan;
use crate::{Ctx, StepOutput, intake};

/// Part of the header that the errors of earlier attempts leave free, so that the last one fits as a
/// property and into the description of the dead letter (SET-44, DLQ-34).
const LAST_ATTEMPT_BYTES: u64 = 4_096;

/// Result of a failed delivery.
enum Failure {
    /// The message expired while it was locked; it is removed now (EXP-26, EXP-28).
    Expired,
    /// The delivery count has reached its maximum (SET-35).
    TooManyDeliveries { delivery_count: u32 },
    /// The message is available again, now or after a delay, or deferred as before.
    Returned { delivery_count: u32 },
}

impl Queue {
    /// Carries a settlement out, or rejects it and keeps the lock (SET-20).
    pub(super) fn settle(
        &mut self,
        sub_queue: SubQueue,
        token: LockToken,
        mut settlement: Settlement,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let lock = self.settleable(sub_queue, token, &mut settlement, ctx)?;
        self.settle_lock_in_force(&lock, settlement, ctx, step);
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Returns the lock to settle, if the settlement can be carried out. Removes the last error from
    /// an abandon if the message has no room for it (SET-44).
    pub(super) fn settleable(
        &self,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: &mut Settlement,
        ctx: &Ctx<'_>,
    ) -> Result<LockInForce, Rejection> {
        if matches!(settlement, Settlement::DeadLetter { .. }) && sub_queue != SubQueue::Main {
            return Err(Rejection::invalid_operation(format!(
                "a message of `{}{}` cannot be dead-lettered again",
                self.path(),
                sub_queue.suffix()
            )));
        }
        let lock = self.lock_in_force(sub_queue, token, ctx.now)?;
        let is_deferred = matches!(settlement, Settlement::Defer { .. })
            && self.count_at_maximum(&lock.slot).is_none();
        if is_deferred && ctx.remaining.delayed == 0 {
            return Err(intake::too_many_delayed(ctx));
        }
        if let Settlement::Abandon { delay, .. } = settlement {
            let requested = delay.filter(|delay| *delay > TimeSpan::ZERO);
            if let Some(delay) = requested {
                self.refuse_delay(&lock.slot, delay, ctx)?;
            }
            let delays = requested.is_some() || delay.is_none() && self.has_policy_for(&lock.slot);
            let returns = || matches!(self.failure(&lock.slot, ctx), Failure::Returned { .. });
            if delays && ctx.remaining.delayed == 0 && returns() {
                return Err(intake::no_room_for_a_delay(ctx));
            }
        }
        match settlement {
            Settlement::Abandon { properties, .. } => {
                self.fit_error(&lock.slot, properties, ctx)?;
            }
            Settlement::Defer { properties } => {
                refuse_properties(&lock.slot, properties.as_ref(), ctx)?;
            }
            Settlement::DeadLetter { properties } => {
                refuse_large_header(&lock.slot, properties.as_ref(), 0, ctx)?;
            }
            Settlement::Complete | Settlement::Release => {}
        }
        Ok(lock)
    }

    /// Refuses properties of an abandon that the message cannot have. The last error is removed
    /// instead, so that it never makes an abandon fail (SET-44).
    fn fit_error(
        &self,
        slot: &Slot,
        properties: &mut Option<Overlay>,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let Some(set) = properties.as_ref().filter(|set| set.text(LAST_ERROR_PROPERTY).is_some())
        else {
            return refuse_properties(slot, properties.as_ref(), ctx);
        };
        let rest = || set.without(LAST_ERROR_PROPERTY);
        // The move to the dead-letter queue happens once, so it may add an error to any number of
        // overlays.
        let is_last = self.count_at_maximum(slot).is_some();
        let reserve = if is_last { 0 } else { LAST_ATTEMPT_BYTES };
        let fits = refuse_large_header(slot, Some(set), reserve, ctx).is_ok()
            && (refuse_too_many_overlays(slot, ctx).is_ok() || is_last && rest().is_none());
        if fits {
            return Ok(());
        }
        *properties = rest();
        refuse_properties(slot, properties.as_ref(), ctx)
    }

    /// Carries out a settlement that [`Queue::settleable`] has accepted.
    pub(super) fn settle_lock_in_force(
        &mut self,
        lock: &LockInForce,
        settlement: Settlement,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let sequence = lock.sequence;
        let span = ctx.now.since(lock.taken_at);
        step.note_lock_end(sequence, self.noted_holder(lock, step), (span, LockEnd::Settled));
        match settlement {
            Settlement::Complete => self.remove_message(sequence, Removal::Completed, ctx, step),
            Settlement::Abandon { properties, delay } => {
                self.abandon(sequence, &lock.slot, properties, delay, ctx, step);
            }
            Settlement::Defer { properties } => {
                self.defer(sequence, &lock.slot, properties, ctx, step);
            }
            Settlement::DeadLetter { properties } => {
                step.bytes_added += overlay_bytes(properties.as_ref());
                let change = Change::DeadLettered {
                    sequence,
                    into: SubQueue::DeadLetter,
                    delivery_count: lock.slot.delivery_count,
                    properties,
                    verdict: None,
                    cause: DeadLetterCause::Application,
                };
                self.change(change, Durability::Sync, ctx, step);
            }
            Settlement::Release => self.release(sequence),
        }
    }

    /// Defers a message. The delivery counts, and may reach the maximum (SET-33).
    fn defer(
        &mut self,
        sequence: SequenceNumber,
        slot: &Slot,
        properties: Option<Overlay>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        if let Some(delivery_count) = self.count_at_maximum(slot) {
            return self.dead_letter_failed(sequence, delivery_count, properties, ctx, step);
        }
        step.bytes_added += overlay_bytes(properties.as_ref());
        let delivery_count = count_after_delivery(slot);
        let change = Change::Deferred { sequence, delivery_count, overlay: properties };
        self.change(change, Durability::Sync, ctx, step);
    }

    /// Returns a message after a failure that the receiver reported, at once or after a delay
    /// (SET-03, RTY-01).
    fn abandon(
        &mut self,
        sequence: SequenceNumber,
        slot: &Slot,
        properties: Option<Overlay>,
        delay: Option<TimeSpan>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        match self.failure(slot, ctx) {
            Failure::Expired => self.remove_expired(sequence, properties, ctx, step),
            Failure::TooManyDeliveries { delivery_count } => {
                self.dead_letter_failed(sequence, delivery_count, properties, ctx, step);
            }
            Failure::Returned { delivery_count } => {
                step.bytes_added += overlay_bytes(properties.as_ref());
                let delayed_until =
                    self.delayed_until(sequence, slot, delivery_count, delay, ctx, step);
                let change = Change::Abandoned {
                    sequence,
                    delivery_count,
                    delayed_until,
                    overlay: properties,
                };
                self.change(change, Durability::Sync, ctx, step);
            }
        }
    }

    /// Ends a delivery whose lock ran out or whose receiver disconnected. The count is durable
    /// within a second; no answer waits for it (SET-27).
    pub(super) fn fail_delivery(
        &mut self,
        sequence: SequenceNumber,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(slot) = self.slots.get(sequence).copied() else { return };
        step.unsettled_count += 1;
        if slot.sub_queue != SubQueue::Main {
            // A sub-queue counts no deliveries, so nothing is stored (SET-38).
            return self.release(sequence);
        }
        match self.failure(&slot, ctx) {
            Failure::Expired => self.remove_expired(sequence, None, ctx, step),
            Failure::TooManyDeliveries { delivery_count } => {
                self.dead_letter_failed(sequence, delivery_count, None, ctx, step);
            }
            Failure::Returned { delivery_count } => {
                let delayed_until =
                    self.delayed_until(sequence, &slot, delivery_count, None, ctx, step);
                let change = Change::DeliveryCounted { sequence, delivery_count, delayed_until };
                self.change(change, Durability::Lazy, ctx, step);
            }
        }
    }

    /// Decides the result of a failed delivery. Expiry takes precedence over the delivery count
    /// (EXP-28). A deferred message does not expire, but is deferred again (EXP-38, DEF-05). In a
    /// sub-queue no delivery counts (SET-38).
    fn failure(&self, slot: &Slot, ctx: &Ctx<'_>) -> Failure {
        let is_main = slot.sub_queue == SubQueue::Main;
        if is_main && slot.state == SlotState::Active && self.is_expired(slot, ctx.now) {
            return Failure::Expired;
        }
        match self.count_at_maximum(slot) {
            Some(delivery_count) => Failure::TooManyDeliveries { delivery_count },
            None => Failure::Returned { delivery_count: count_after_delivery(slot) },
        }
    }

    /// Returns the count after one more delivery, if that reaches the maximum (SET-35).
    fn count_at_maximum(&self, slot: &Slot) -> Option<u32> {
        let delivery_count = count_after_delivery(slot);
        let is_at_maximum = slot.sub_queue == SubQueue::Main
            && delivery_count >= self.description.max_delivery_count;
        is_at_maximum.then_some(delivery_count)
    }
}

/// Count after one more delivery; in a sub-queue it does not grow (SET-38).
const fn count_after_delivery(slot: &Slot) -> u32 {
    match slot.sub_queue {
        SubQueue::Main => slot.delivery_count.saturating_add(1),
        SubQueue::DeadLetter | SubQueue::TransferDeadLetter => slot.delivery_count,
    }
}

/// Refuses properties that no message may have, or that exceed the limit of the header without
/// `reserve` bytes. They count in full in addition to the existing header (SET-10, MSG-26).
pub(super) fn refuse_large_header(
    slot: &Slot,
    properties: Option<&Overlay>,
    reserve: u64,
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    if let Some(properties) = properties {
        properties.check(&PropertyLimits::of(ctx.limits))?;
    }
    let set = properties.map_or(0, |properties| u64::from(properties.size_bytes()));
    let size = u64::from(slot.header_size) + set + reserve;
    if properties.is_some() && size > ctx.limits.header_bytes_max {
        return Err(Rejection::message_size_exceeded(
            "message header with the properties to set",
            size,
            ctx.limits.header_bytes_max,
        ));
    }
    Ok(())
}

/// Refuses properties of an abandon or deferral that the message cannot have.
fn refuse_properties(
    slot: &Slot,
    properties: Option<&Overlay>,
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    refuse_large_header(slot, properties, 0, ctx)?;
    if properties.is_some() {
        refuse_too_many_overlays(slot, ctx)?;
    }
    Ok(())
}

/// Refuses to set properties on a message that has reached its limit of overlays, or when the
/// broker has reached its limit of messages: each overlay is kept until the message is removed
/// (SET-41, QUO-08). Dead-lettering is always possible, since it happens once per queue.
fn refuse_too_many_overlays(slot: &Slot, ctx: &Ctx<'_>) -> Result<(), Rejection> {
    let count_max = ctx.limits.message_overlay_count_max;
    if usize::from(slot.overlay_count) >= count_max {
        return Err(Rejection::new(
            Condition::MessageSizeExceeded,
            format!(
                "properties were set on the message {} times, the limit \
                 `message_overlay_count_max` is {count_max}; abandon or defer it without \
                 properties, or complete or dead-letter it",
                slot.overlay_count
            ),
        ));
    }
    if ctx.remaining.messages == 0 {
        return Err(intake::no_room_for_properties(ctx));
    }
    Ok(())
}

/// Bytes that an overlay adds to the stored size.
pub(super) fn overlay_bytes(overlay: Option<&Overlay>) -> u64 {
    overlay.map_or(0, |overlay| u64::from(slot::overlay_bytes(overlay)))
}

//! Results of handed-over messages: each is removed, kept, or dead-lettered with the exact reason
//! (FWD-12, FWD-15, FWD-23, FWD-28, FWD-32).

use super::{Exit, List};
use crate::change::{Change, Durability, Removal};
use crate::command::Outcome;
use crate::condition::Condition;
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::queue::Queue;
use crate::time::TimeSpan;
use crate::transfer::{Departure, ListNumber};
use crate::{Ctx, Machine, StepOutput};

/// Delay before a list is offered again whose result is unknown.
pub(super) const RETRY: TimeSpan = TimeSpan::from_seconds(1);
/// Delay before refused dead letters are offered again (FWD-28).
const DEAD_LETTER_RETRY: TimeSpan = TimeSpan::from_seconds(30);
/// Maximum delay after a failure of a forwarder. The delay starts with one second and doubles with
/// each failure in a row (FWD-32).
const BACK_OFF_MAX: TimeSpan = TimeSpan::from_seconds(60);
/// Number of times the list length is halved, down to 16 messages, after a refusal has cut a list
/// short: the destination may be nearly full, and refuse repeatedly.
const HALVINGS: u32 = 4;

/// Effect of a departure on its exit.
enum NextOffer {
    Continue,
    /// Offer the rest after this delay.
    After(TimeSpan),
}

impl Queue {
    /// Applies the results of a list. The machine has no such list if it was rebuilt; then nothing
    /// happens.
    pub(in crate::queue) fn transfer_out(
        &mut self,
        number: ListNumber,
        departures: Vec<Departure>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let done = Answer::Now(Outcome::Done, Gate::Open);
        let Some((exit, list)) = self.take_list(number) else { return done };
        if let Exit::Job(job) = exit {
            return self.end_list_of_job(job, list, departures, ctx, step);
        }
        let destination = self.list_destination(&exit);
        let mut wait: Option<TimeSpan> = None;
        let (mut has_failed, mut has_left) = (false, false);
        let (mut has_refused, mut is_cut) = (false, false);
        let mut departures = departures.into_iter();
        for sequence in list.sequences {
            let departure = departures.next().unwrap_or(Departure::NotTried);
            let is_tried = !matches!(departure, Departure::NotTried);
            let fails = matches!(departure, Departure::Failed { .. });
            has_failed |= fails;
            has_refused |=
                matches!(departure, Departure::NotAdmitted(_) | Departure::Refused { .. });
            is_cut |= has_refused && !is_tried;
            match self.depart(&exit, sequence, departure, &destination, ctx, step) {
                NextOffer::Continue => has_left |= !fails,
                // A message that was not tried delays the next list only if no message of this list
                // has left. Otherwise a forwarder took only a few messages, or an earlier message
                // was refused, and the rest can follow at once.
                NextOffer::After(_) if has_left && !is_tried => {}
                NextOffer::After(span) => wait = Some(wait.map_or(span, |other| other.max(span))),
            }
        }
        self.transfers.alter(&exit, |backlog| {
            if !has_failed {
                backlog.failures = 0;
            }
            backlog.halvings = if is_cut { HALVINGS } else { backlog.halvings.saturating_sub(1) };
            if let Some(span) = wait {
                backlog.not_before = ctx.now.plus(span);
            }
        });
        if let Exit::Pending(destination) = &exit {
            self.transfers.forget_idle(destination);
            if wait.is_none() {
                // As with scheduled messages, idleness begins when the last message has left
                // (TMP-14).
                self.touch(ctx.now);
            }
        }
        done
    }

    fn take_list(&mut self, number: ListNumber) -> Option<(Exit, List)> {
        let exit = self.transfers.lists.remove(&number)?;
        let list = self.transfers.alter(&exit, |backlog| backlog.list.take())??;
        Some((exit, list))
    }

    /// Name of a destination for texts. The description may have changed since the list was handed
    /// over.
    fn list_destination(&self, exit: &Exit) -> String {
        let text = match exit {
            Exit::Messages => self.description.forward_to.as_deref(),
            Exit::DeadLetters => self.description.forward_dead_lettered_messages_to.as_deref(),
            Exit::Pending(destination) => Some(&**destination),
            Exit::Job(_) => None,
        };
        text.unwrap_or("the destination").to_owned()
    }

    fn depart(
        &mut self,
        exit: &Exit,
        sequence: SequenceNumber,
        departure: Departure,
        destination: &str,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> NextOffer {
        let Some(slot) = self.slots.get(sequence).copied().filter(|slot| slot.is_transferring())
        else {
            return NextOffer::Continue;
        };
        match departure {
            Departure::Taken => {
                self.note_departed(sequence, slot.size, ctx, step);
                NextOffer::Continue
            }
            Departure::Delivered => {
                self.remove_message(sequence, Removal::Forwarded, ctx, step);
                self.transfers.block_until(exit, ctx.stage);
                NextOffer::Continue
            }
            // The last two are results of jobs, which `job.rs` applies.
            Departure::NotTried
            | Departure::Unknown
            | Departure::Duplicate
            | Departure::NotJson => {
                self.thaw(sequence);
                NextOffer::After(RETRY)
            }
            Departure::NotAdmitted(rejection) => {
                self.not_admitted(exit, sequence, &rejection, destination, ctx, step)
            }
            Departure::Refused { reason, description } => {
                if *exit == Exit::DeadLetters {
                    self.keep_until_restart(sequence);
                    return NextOffer::Continue;
                }
                // Texts of forwarders have the same limits as texts of clients (SET-11).
                let reason = cut(&reason, ctx.limits.dead_letter_reason_chars_max);
                let description = cut(&description, ctx.limits.dead_letter_description_chars_max);
                self.give_up(exit, sequence, reason, description, ctx, step);
                NextOffer::Continue
            }
            Departure::Postponed { retry_after } => {
                self.thaw(sequence);
                NextOffer::After(retry_after.unwrap_or(RETRY))
            }
            Departure::Failed { why, retry_after } => {
                let why = cut(&why, ctx.limits.dead_letter_description_chars_max);
                self.failed(exit, sequence, why, retry_after, ctx, step)
            }
        }
    }

    /// Removes a message that its destination took. The batch of the destination removed its
    /// records, so its bytes are free already (FWD-25).
    pub(super) fn note_departed(
        &mut self,
        sequence: SequenceNumber,
        size: u32,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        step.bytes_departed += u64::from(size);
        let change = Change::Departed { sequence };
        self.enact(&change, ctx.stage);
        step.changes.push(change);
    }

    /// Handles a message that its destination does not admit.
    fn not_admitted(
        &mut self,
        exit: &Exit,
        sequence: SequenceNumber,
        rejection: &Rejection,
        destination: &str,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> NextOffer {
        let condition = rejection.condition();
        let is_final = matches!(
            condition,
            Condition::EntityNotFound
                | Condition::EntityDisabled
                | Condition::QuotaExceeded
                | Condition::MessageSizeExceeded
                | Condition::ArgumentError
                | Condition::InvalidOperation
                | Condition::MaxTransferCopiesExceeded
                | Condition::SessionIdIsNull
        );
        let is_held =
            condition == Condition::QuotaExceeded && self.config.forwarding.holds_when_full;
        if !is_final || (is_held && *exit != Exit::DeadLetters) {
            self.thaw(sequence);
            return NextOffer::After(RETRY);
        }
        if *exit == Exit::DeadLetters {
            // It is a dead letter already (FWD-28). A destination never takes a message that is too
            // large, would exceed the limit of copies or lacks a session id. So this message stays,
            // and does not hold up the others.
            if matches!(
                condition,
                Condition::MessageSizeExceeded
                    | Condition::MaxTransferCopiesExceeded
                    | Condition::SessionIdIsNull
            ) {
                self.keep_until_restart(sequence);
                return NextOffer::Continue;
            }
            self.thaw(sequence);
            return NextOffer::After(DEAD_LETTER_RETRY);
        }
        let description =
            format!("the destination `{destination}` refused the message: {}", rejection.detail());
        self.give_up(exit, sequence, condition.reason_code(), &description, ctx, step);
        NextOffer::Continue
    }

    /// Handles a message that a forwarder failed to deliver this time. It counts as a failed
    /// delivery; at MaxDeliveryCount the message is dead-lettered (FWD-32).
    fn failed(
        &mut self,
        exit: &Exit,
        sequence: SequenceNumber,
        why: &str,
        retry_after: Option<TimeSpan>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> NextOffer {
        let Some(slot) = self.slots.get(sequence).copied() else { return NextOffer::Continue };
        let delivery_count = slot.delivery_count.saturating_add(1);
        // The delivery count of a dead letter has no effect (SET-38).
        if *exit != Exit::DeadLetters && delivery_count >= self.description.max_delivery_count {
            let description = format!(
                "the forwarder failed {delivery_count} times, the maximum is {}; last error: {why}",
                self.description.max_delivery_count
            );
            let reason = Condition::ForwarderFailed.reason_code();
            self.dead_letter_counted(sequence, delivery_count, reason, &description, ctx, step);
            self.transfers.block_until(exit, ctx.stage);
            return NextOffer::Continue;
        }
        let change = Change::DeliveryCounted { sequence, delivery_count, delayed_until: None };
        self.change(change, Durability::Lazy, ctx, step);
        self.transfers.block_until(exit, ctx.stage);
        let failures = self.transfers.alter(exit, |backlog| {
            backlog.failures = backlog.failures.saturating_add(1);
            backlog.failures
        });
        let doubled = 1i64 << failures.unwrap_or(0).saturating_sub(1).min(6);
        let back_off = TimeSpan::from_seconds(doubled).min(BACK_OFF_MAX);
        NextOffer::After(retry_after.unwrap_or(back_off))
    }

    /// Keeps a dead letter for receivers until the broker restarts, because its destination would
    /// refuse it again (FWD-28). Later dead letters leave before it, so that one that is never
    /// taken does not hold up the others. The decision is not stored: after a restart, the dead
    /// letter is offered again. If its destination takes it then, it arrives after later ones, so
    /// the order of FWD-10 does not apply to it.
    fn keep_until_restart(&mut self, sequence: SequenceNumber) {
        self.thaw(sequence);
        if self.transfers.dead_letters.waiting.remove(sequence) {
            self.dead_letter.available.insert(sequence);
        }
    }

    /// Dead-letters a message that its destination has refused. No message leaves by this exit
    /// until that is durable: if the change were lost, the message would be offered again after
    /// later ones (FWD-10).
    fn give_up(
        &mut self,
        exit: &Exit,
        sequence: SequenceNumber,
        reason: &str,
        description: &str,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        self.dead_letter_transfer(sequence, reason, description, ctx, step);
        self.transfers.block_until(exit, ctx.stage);
    }
}

/// Returns the first `chars_max` characters of a text.
fn cut(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

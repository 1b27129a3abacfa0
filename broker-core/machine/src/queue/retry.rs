//! Retry with a delay: a message whose delivery has failed becomes available later, if its receiver
//! or the entity's policy requires it (RTY-01 to RTY-25).
//!
//! A Delayed message is active and keeps its place. Its slot has a mark, and this module has the
//! instant at which its delay ends. The record of the message has that instant too. When the
//! instant passes, nothing is written: after a restart, the machine compares the stored instant
//! with the clock, and a delay that ended while the broker was down is over.

use std::collections::{BTreeMap, BTreeSet};

use super::{COMMAND_MOVES_MAX, Queue};
use crate::description::SessionRetryOrder;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::slot::{Mark, Slot, SlotState};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput};

/// Delayed messages. Insert, remove and lookup take logarithmic time.
#[derive(Debug, Default)]
pub(super) struct Delays {
    by_message: BTreeMap<(SubQueue, SequenceNumber), Timestamp>,
    by_instant: BTreeSet<(Timestamp, SequenceNumber)>,
    /// Number from which Delayed messages of sessions do not follow the current SessionRetryOrder
    /// yet.
    unordered_from: Option<SequenceNumber>,
}

impl Delays {
    /// Number of Delayed messages.
    pub(super) fn len(&self) -> usize {
        self.by_message.len()
    }

    /// Whether each message is found in both indexes.
    pub(super) fn is_whole(&self) -> bool {
        self.by_message.len() == self.by_instant.len()
            && self
                .by_message
                .iter()
                .all(|((_, sequence), until)| self.by_instant.contains(&(*until, *sequence)))
    }

    /// The first end of a delay.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.by_instant.first().map(|(until, _)| *until)
    }

    /// Returns the end of the delay of a message.
    pub(super) fn until(&self, which: SubQueue, sequence: SequenceNumber) -> Option<Timestamp> {
        self.by_message.get(&(which, sequence)).copied()
    }

    /// Iterates over the messages of a sub-queue from a number on, in ascending order.
    pub(super) fn iter_from(
        &self,
        which: SubQueue,
        from: SequenceNumber,
    ) -> impl Iterator<Item = SequenceNumber> {
        let all = self.by_message.range((which, from)..=(which, SequenceNumber(u64::MAX)));
        all.map(|((_, sequence), _)| *sequence)
    }

    /// Returns the first message whose delay has ended, by instant, then by number.
    fn first_due(&self, now: Timestamp) -> Option<SequenceNumber> {
        let (until, sequence) = self.by_instant.first()?;
        (*until <= now).then_some(*sequence)
    }

    pub(super) fn insert(&mut self, which: SubQueue, sequence: SequenceNumber, until: Timestamp) {
        self.remove(which, sequence);
        self.by_message.insert((which, sequence), until);
        self.by_instant.insert((until, sequence));
    }

    pub(super) fn remove(&mut self, which: SubQueue, sequence: SequenceNumber) {
        if let Some(until) = self.by_message.remove(&(which, sequence)) {
            self.by_instant.remove(&(until, sequence));
        }
    }
}

impl Queue {
    /// Refuses a delay that an abandon may not have (RTY-02, RTY-08).
    pub(super) fn refuse_delay(
        &self,
        slot: &Slot,
        delay: TimeSpan,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        if delay > ctx.limits.retry_delay_max {
            return Err(Rejection::out_of_range(format!(
                "the delay of an abandon must be from PT0S to {}; {delay} is out of range",
                ctx.limits.retry_delay_max
            )));
        }
        if slot.state == SlotState::Deferred {
            return Err(Rejection::invalid_operation(format!(
                "the message of `{}` is deferred and can only be received by its number; abandon \
                 it without a delay",
                self.path()
            )));
        }
        Ok(())
    }

    /// Whether the policy delays the next failure of a message: only in the main queue, and not for
    /// deferred messages (RTY-17, RTY-19).
    pub(super) fn has_policy_for(&self, slot: &Slot) -> bool {
        self.description.retry_policy.is_some()
            && slot.sub_queue == SubQueue::Main
            && slot.state == SlotState::Active
    }

    /// Returns the end of the delay after failure number `failures`: by the requested delay, else
    /// by the policy (RTY-17). If the broker has reached its limit of delayed messages, a failure
    /// without a requested delay is not delayed, and the step counts it (RTY-32).
    pub(super) fn delayed_until(
        &self,
        sequence: SequenceNumber,
        slot: &Slot,
        failures: u32,
        requested: Option<TimeSpan>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Option<Timestamp> {
        if slot.state != SlotState::Active {
            return None;
        }
        let delay = match (requested, &self.description.retry_policy) {
            (Some(delay), _) => delay,
            (None, Some(_)) if self.has_policy_for(slot) && ctx.remaining.delayed == 0 => {
                step.undelayed_count += 1;
                return None;
            }
            (None, Some(policy)) if self.has_policy_for(slot) => {
                let random = scattered([self.id.0, sequence.0, failures.into()]);
                policy.delay_after(failures, random, ctx.limits)
            }
            (None, _) => return None,
        };
        (delay > TimeSpan::ZERO).then(|| ctx.now.plus(delay))
    }

    /// Marks an unlocked message as Delayed, without offering it.
    pub(super) fn delay(&mut self, sequence: SequenceNumber, until: Option<Timestamp>) {
        let Some(until) = until else { return };
        let Some(slot) = self.slots.get_mut(sequence) else { return };
        self.tally.subtract(slot);
        slot.marks.set(Mark::Delayed);
        self.tally.add(slot);
        self.delays.insert(slot.sub_queue, sequence, until);
    }

    /// Registers a durable Delayed message: it is not available, but expires like an available one
    /// (RTY-07).
    pub(super) fn register_delayed(&mut self, sequence: SequenceNumber, slot: &Slot) {
        if slot.sub_queue != SubQueue::Main {
            return;
        }
        let holds = self.description.session_retry_order == SessionRetryOrder::Hold;
        if let Some(sessions) = &mut self.sessions {
            sessions.register_delayed(sequence, holds);
        }
        self.watch_expiry(sequence, slot);
    }

    /// Whether a message is Delayed and durable, and its session is not expiring. The messages of
    /// an expiring session only wait for their removal (EXP-41).
    pub(super) fn is_durably_delayed(&self, sequence: SequenceNumber) -> bool {
        let Some(slot) = self.slots.get(sequence) else { return false };
        if !slot.is_delayed() || slot.is_in_flight() {
            return false;
        }
        match (&self.sessions, slot.sub_queue) {
            (Some(sessions), SubQueue::Main) => sessions.is_delayed(sequence),
            _ => true,
        }
    }

    /// Makes the messages available whose delay has ended, each at its place by number (RTY-03,
    /// RTY-04).
    pub(super) fn end_delays(&mut self, moves: &mut usize, ctx: &Ctx<'_>) {
        while *moves > 0 {
            let Some(sequence) = self.delays.first_due(ctx.now) else { return };
            *moves -= 1;
            let was_delayed = self.is_durably_delayed(sequence);
            let Some(slot) = self.take_delay(sequence) else { return };
            if was_delayed {
                self.offer(sequence);
            } else if let (Some(sessions), true) = (&mut self.sessions, slot.is_in_flight())
                && slot.sub_queue == SubQueue::Main
            {
                // The delay has ended before its record is durable. Later messages of the session
                // wait until then, even with `SessionRetryOrder::Pass`, which let them overtake
                // the message during its delay.
                sessions.hold_back(sequence);
            }
        }
    }

    /// Removes the delay of a message, and returns its slot.
    fn take_delay(&mut self, sequence: SequenceNumber) -> Option<Slot> {
        let slot = self.slots.get_mut(sequence)?;
        self.tally.subtract(slot);
        slot.marks.clear(Mark::Delayed);
        self.tally.add(slot);
        let slot = *slot;
        self.delays.remove(slot.sub_queue, sequence);
        Some(slot)
    }

    /// Ends the delays that passed before a restart; their messages are available like all others
    /// (RTY-04).
    pub(super) fn forget_past_delays(&mut self, now: Timestamp) {
        while let Some(sequence) = self.delays.first_due(now) {
            if self.take_delay(sequence).is_none() {
                return;
            }
        }
    }

    /// Applies a new SessionRetryOrder to the Delayed messages of sessions (RTY-23): at once if
    /// they are few, else within the budget of a step.
    pub(super) fn begin_to_reorder(&mut self, before: SessionRetryOrder) {
        if self.description.session_retry_order != before && self.sessions.is_some() {
            self.delays.unordered_from = Some(SequenceNumber(0));
            self.reorder_delayed(&mut { COMMAND_MOVES_MAX });
        }
    }

    /// Whether sessions may still offer messages that a Delayed message must hold up. While this
    /// is true, no session offers a message.
    pub(super) fn is_order_behind(&self) -> bool {
        self.delays.unordered_from.is_some()
            && self.description.session_retry_order == SessionRetryOrder::Hold
    }

    /// Deadline in the past while Delayed messages do not follow the current order.
    pub(super) fn reorder_deadline(&self) -> Option<Timestamp> {
        self.delays.unordered_from.map(|_| Timestamp::NONE)
    }

    /// Applies the current order to more Delayed messages.
    pub(super) fn reorder_delayed(&mut self, moves: &mut usize) {
        let Some(from) = self.delays.unordered_from else { return };
        let holds = self.description.session_retry_order == SessionRetryOrder::Hold;
        let mut delayed: Vec<SequenceNumber> =
            self.delays.iter_from(SubQueue::Main, from).take(*moves + 1).collect();
        // The surplus number is the start of the next step.
        self.delays.unordered_from = if delayed.len() > *moves { delayed.pop() } else { None };
        *moves -= delayed.len();
        for sequence in delayed {
            let is_delayed = self.is_durably_delayed(sequence);
            let in_flight = self.slots.get(sequence).is_some_and(Slot::is_in_flight);
            let Some(sessions) = &mut self.sessions else { return };
            match (is_delayed, in_flight, holds) {
                (true, _, _) => sessions.register_delayed(sequence, holds),
                (false, true, true) => sessions.hold_back(sequence),
                (false, true, false) => sessions.withdraw(sequence),
                // It expires with its session.
                (false, false, _) => {}
            }
        }
    }
}

/// Returns pseudorandom bits that are equal for equal words, so that the decisions of a machine
/// depend only on its state.
fn scattered(words: [u64; 3]) -> u64 {
    words.into_iter().fold(0x9e37_79b9_7f4a_7c15, |bits: u64, word| {
        let mut bits = (bits ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

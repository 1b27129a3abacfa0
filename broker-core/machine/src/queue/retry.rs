//! Retry with a delay: a message whose delivery has failed comes again later, when its receiver or the
//! entity's policy says so (RTY-01 to RTY-25).
//!
//! A message that is Delayed is active and stays in its place: it has a mark in its slot, and here is until
//! when. Its record has the instant, too; that it has come is stored nowhere, since the clock says it. So an
//! instant that has passed while the broker was down has come when it is up again.

use std::collections::{BTreeMap, BTreeSet};

use super::{MOVES_PER_STEP, Queue};
use crate::description::SessionRetryOrder;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::slot::{Mark, Slot, SlotState};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, Step};

/// Messages that are Delayed. Adding, removing and finding one takes a time that grows with the logarithm of
/// their number.
#[derive(Debug, Default)]
pub(super) struct Delays {
    by_message: BTreeMap<(SubQueue, SequenceNumber), Timestamp>,
    by_instant: BTreeSet<(Timestamp, SequenceNumber)>,
    /// From which number on those of sessions have yet to heed a new SessionRetryOrder.
    unordered_from: Option<SequenceNumber>,
}

impl Delays {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_message.len()
    }

    /// Whether each is found both ways.
    pub(super) fn is_whole(&self) -> bool {
        self.by_message.len() == self.by_instant.len()
            && self
                .by_message
                .iter()
                .all(|((_, sequence), until)| self.by_instant.contains(&(*until, *sequence)))
    }

    /// The first instant.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.by_instant.first().map(|(until, _)| *until)
    }

    /// Until when a message is Delayed.
    pub(super) fn until(&self, which: SubQueue, sequence: SequenceNumber) -> Option<Timestamp> {
        self.by_message.get(&(which, sequence)).copied()
    }

    /// Those of a sub-queue from a number on, ascending.
    pub(super) fn iter_from(
        &self,
        which: SubQueue,
        from: SequenceNumber,
    ) -> impl Iterator<Item = SequenceNumber> {
        let all = self.by_message.range((which, from)..=(which, SequenceNumber(u64::MAX)));
        all.map(|((_, sequence), _)| *sequence)
    }

    /// The first whose instant has come, by instant, then by number.
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
    /// Refuses a delay other than zero that an abandon may not have (RTY-02, RTY-08).
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

    /// Whether the next failure of a message is delayed by the policy, which holds in the main queue only and
    /// not for deferred messages (RTY-17, RTY-19).
    pub(super) fn has_policy_for(&self, slot: &Slot) -> bool {
        self.description.retry_policy.is_some()
            && slot.sub_queue == SubQueue::Main
            && slot.state == SlotState::Active
    }

    /// Until when a message is Delayed whose delivery has failed for the `failures`-th time: by the delay that
    /// was asked for, else by the policy (RTY-17). Beyond what the broker has room for it is not: a failure that
    /// nobody can refuse is told by the step instead (RTY-32).
    pub(super) fn delayed_until(
        &self,
        sequence: SequenceNumber,
        slot: &Slot,
        failures: u32,
        asked: Option<TimeSpan>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Option<Timestamp> {
        if slot.state != SlotState::Active {
            return None;
        }
        let delay = match (asked, &self.description.retry_policy) {
            (Some(delay), _) => delay,
            (None, Some(_)) if self.has_policy_for(slot) && ctx.left.delayed == 0 => {
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

    /// Marks an unlocked message as Delayed; it is offered to nobody yet.
    pub(super) fn delay(&mut self, sequence: SequenceNumber, until: Option<Timestamp>) {
        let Some(until) = until else { return };
        let Some(slot) = self.slots.get_mut(sequence) else { return };
        self.tally.subtract(slot);
        slot.marks.set(Mark::Delayed);
        self.tally.add(slot);
        self.delays.insert(slot.sub_queue, sequence, until);
    }

    /// Lets a durable Delayed message rest: nobody gets it, but it expires like an available one (RTY-07).
    pub(super) fn rest(&mut self, sequence: SequenceNumber, slot: &Slot) {
        if slot.sub_queue != SubQueue::Main {
            return;
        }
        let holds = self.description.session_retry_order == SessionRetryOrder::Hold;
        if let Some(sessions) = &mut self.sessions {
            sessions.rest(sequence, holds);
        }
        self.watch_expiry(sequence, slot);
    }

    /// Whether a message is Delayed, durable, and not about to expire with its session.
    pub(super) fn is_resting(&self, sequence: SequenceNumber) -> bool {
        let Some(slot) = self.slots.get(sequence) else { return false };
        if !slot.is_delayed() || slot.is_in_flight() {
            return false;
        }
        match (&self.sessions, slot.sub_queue) {
            (Some(sessions), SubQueue::Main) => sessions.is_resting(sequence),
            _ => true,
        }
    }

    /// Makes those available again whose instant has come, each at its place by number (RTY-03, RTY-04).
    pub(super) fn end_delays(&mut self, moves: &mut usize, ctx: &Ctx<'_>) {
        while *moves > 0 {
            let Some(sequence) = self.delays.first_due(ctx.now) else { return };
            *moves -= 1;
            let was_resting = self.is_resting(sequence);
            let Some(slot) = self.take_delay(sequence) else { return };
            if was_resting {
                self.offer(sequence);
            } else if let (Some(sessions), true) = (&mut self.sessions, slot.is_in_flight())
                && slot.sub_queue == SubQueue::Main
            {
                // Those behind it wait now until it is durable, whether or not they might pass it before.
                sessions.hold_back(sequence);
            }
        }
    }

    /// Takes the delay off a message, and returns its slot.
    fn take_delay(&mut self, sequence: SequenceNumber) -> Option<Slot> {
        let slot = self.slots.get_mut(sequence)?;
        self.tally.subtract(slot);
        slot.marks.clear(Mark::Delayed);
        self.tally.add(slot);
        let slot = *slot;
        self.delays.remove(slot.sub_queue, sequence);
        Some(slot)
    }

    /// After a restart: what came due meanwhile is available like the rest (RTY-04).
    pub(super) fn forget_past_delays(&mut self, now: Timestamp) {
        while let Some(sequence) = self.delays.first_due(now) {
            if self.take_delay(sequence).is_none() {
                return;
            }
        }
    }

    /// Lets Delayed messages of sessions hold up others, or no longer, after the description was replaced
    /// (RTY-23): at once if they are few, else at most so many in a step.
    pub(super) fn begin_to_reorder(&mut self, before: SessionRetryOrder) {
        if self.description.session_retry_order != before && self.sessions.is_some() {
            self.delays.unordered_from = Some(SequenceNumber(0));
            self.reorder_delayed(&mut { MOVES_PER_STEP });
        }
    }

    /// Whether sessions offer yet what a Delayed message is to hold up: then none of them gives anything.
    pub(super) fn is_order_behind(&self) -> bool {
        self.delays.unordered_from.is_some()
            && self.description.session_retry_order == SessionRetryOrder::Hold
    }

    /// What does not heed the order yet is to do so at once.
    pub(super) fn reorder_deadline(&self) -> Option<Timestamp> {
        self.delays.unordered_from.map(|_| Timestamp::NONE)
    }

    /// Has more of them heed the order that is in force.
    pub(super) fn reorder_delayed(&mut self, moves: &mut usize) {
        let Some(from) = self.delays.unordered_from else { return };
        let holds = self.description.session_retry_order == SessionRetryOrder::Hold;
        let mut delayed: Vec<SequenceNumber> =
            self.delays.iter_from(SubQueue::Main, from).take(*moves + 1).collect();
        // The one too many is where the next step begins.
        self.delays.unordered_from = if delayed.len() > *moves { delayed.pop() } else { None };
        *moves -= delayed.len();
        for sequence in delayed {
            let is_resting = self.is_resting(sequence);
            let in_flight = self.slots.get(sequence).is_some_and(Slot::is_in_flight);
            let Some(sessions) = &mut self.sessions else { return };
            match (is_resting, in_flight, holds) {
                (true, _, _) => sessions.rest(sequence, holds),
                (false, true, true) => sessions.hold_back(sequence),
                (false, true, false) => sessions.withdraw(sequence),
                // It expires with its session.
                (false, false, _) => {}
            }
        }
    }
}

/// Bits that look random and are the same for the same words: what a machine decides depends on its state
/// alone.
fn scattered(words: [u64; 3]) -> u64 {
    words.into_iter().fold(0x9e37_79b9_7f4a_7c15, |bits: u64, word| {
        let mut bits = (bits ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

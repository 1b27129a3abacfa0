//! Expiration: lazily while a receiver is active, or at once when a lock on an expired message ends
//! (EXP-20 to EXP-39).
//!
//! A message without a TTL of its own expires by the default that is in force at the time of the
//! check (EXP-13). So its entry has the instant of enqueueing, and a new description changes no
//! entry.

use super::Queue;
use crate::due::DueIndex;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::sequence_set::SequenceSet;
use crate::slot::{Slot, SlotState, SlotTable};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput};

/// Instants at which messages of the main queue may expire. Each available message has an entry in
/// exactly one of the three indexes.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Entries by the stored TTL.
    own: DueIndex,
    /// Entries by the default TTL, in the order of numbers, which is the order of enqueueing.
    in_order: SequenceSet,
    /// Entries by the default TTL for `set_back_messages`, by their instant of enqueueing.
    set_back_by_instant: DueIndex,
    /// Messages that were enqueued at an earlier instant than a message with a lower number,
    /// because the clock was set back while the broker was down. The order of numbers does not hold
    /// for them. Also contains messages that are not available and so have no entry.
    set_back_messages: SequenceSet,
    /// The latest instant of enqueueing.
    latest_at: Timestamp,
}

impl Expiry {
    /// Records a new message; its number is the highest.
    pub(super) fn note(&mut self, sequence: SequenceNumber, slot: &Slot) {
        // The instant of a scheduled message lies in the future; then it gets another number.
        if slot.state == SlotState::Scheduled {
            return;
        }
        if slot.enqueued_at < self.latest_at {
            self.set_back_messages.insert(sequence);
        }
        self.latest_at = self.latest_at.max(slot.enqueued_at);
    }

    /// Removes all data about a message.
    pub(super) fn forget(&mut self, sequence: SequenceNumber, slot: &Slot) {
        self.unwatch(sequence, slot);
        self.set_back_messages.remove(sequence);
    }

    fn watch(&mut self, sequence: SequenceNumber, slot: &Slot) {
        if !slot.expires_at.is_never() {
            self.own.insert(slot.expires_at, sequence);
        } else if self.set_back_messages.contains(sequence) {
            self.set_back_by_instant.insert(slot.enqueued_at, sequence);
        } else {
            self.in_order.insert(sequence);
        }
    }

    /// Removes the entry of a message, if it has one.
    pub(super) fn unwatch(&mut self, sequence: SequenceNumber, slot: &Slot) {
        if !slot.expires_at.is_never() {
            self.own.remove(slot.expires_at, sequence);
        } else if !self.in_order.remove(sequence) {
            self.set_back_by_instant.remove(slot.enqueued_at, sequence);
        }
    }

    /// Returns the entry that is due first, by instant, then by number.
    fn first(
        &self,
        slots: &SlotTable,
        by_default: TimeSpan,
    ) -> Option<(Timestamp, SequenceNumber)> {
        let in_order = self.in_order.first().and_then(|sequence| {
            let slot = slots.get(sequence)?;
            Some((slot.enqueued_at, sequence))
        });
        let by_default = in_order
            .into_iter()
            .chain(self.set_back_by_instant.first())
            .map(|(enqueued_at, sequence)| (enqueued_at.plus(by_default), sequence))
            .filter(|(at, _)| !at.is_never());
        by_default.chain(self.own.first()).min()
    }

    /// Iterates over the entries from `from` on, by instant, then by number. Each entry costs one
    /// lookup of a slot at most.
    pub(super) fn iter_from<'a>(
        &'a self,
        slots: &'a SlotTable,
        by_default: TimeSpan,
        from: (Timestamp, SequenceNumber),
    ) -> impl Iterator<Item = (Timestamp, SequenceNumber)> {
        let first = self.first_in_order_from(slots, by_default, from);
        let in_order = self.in_order.iter_from(first);
        let set_back = self.set_back_by_instant.range(enqueued(from, by_default)..);
        merged(
            self.own.range(from..),
            in_order.map_while(move |sequence| Self::by_default(slots, by_default, sequence)),
            set_back.map_while(move |(at, sequence)| expiring(at, by_default, sequence)),
            Ord::min,
        )
    }

    /// Iterates over the entries before `before`, in descending order.
    pub(super) fn iter_back_from<'a>(
        &'a self,
        slots: &'a SlotTable,
        by_default: TimeSpan,
        before: (Timestamp, SequenceNumber),
    ) -> impl Iterator<Item = (Timestamp, SequenceNumber)> {
        let before = before.min((Timestamp::NEVER, SequenceNumber(0)));
        let end = self.first_in_order_from(slots, by_default, before);
        let last = end.0.checked_sub(1).map(SequenceNumber);
        let in_order = last.into_iter().flat_map(|last| self.in_order.iter_back_from(last));
        let set_back = self.set_back_by_instant.range(..enqueued(before, by_default)).rev();
        merged(
            self.own.range(..before).rev(),
            in_order.filter_map(move |sequence| Self::by_default(slots, by_default, sequence)),
            set_back.filter_map(move |(at, sequence)| expiring(at, by_default, sequence)),
            Ord::max,
        )
    }

    /// Returns the lowest number from which the entries of [`Self::in_order`] are at `from` or
    /// later.
    fn first_in_order_from(
        &self,
        slots: &SlotTable,
        by_default: TimeSpan,
        from: (Timestamp, SequenceNumber),
    ) -> SequenceNumber {
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.in_order.first_from(SequenceNumber(middle)).and_then(|sequence| {
                let at = slots.get(sequence)?.enqueued_at.plus(by_default);
                Some((at, sequence))
            });
            match found {
                Some(entry) if entry < from => low = entry.1.0.saturating_add(1),
                Some(_) | None => high = middle,
            }
        }
        SequenceNumber(low)
    }

    /// Returns the entry of a message by the default TTL.
    fn by_default(
        slots: &SlotTable,
        by_default: TimeSpan,
        sequence: SequenceNumber,
    ) -> Option<(Timestamp, SequenceNumber)> {
        expiring(slots.get(sequence)?.enqueued_at, by_default, sequence)
    }

    /// Whether a message has its entry.
    pub(super) fn watches(&self, sequence: SequenceNumber, slot: &Slot) -> bool {
        self.own.contains(slot.expires_at, sequence)
            || self.in_order.contains(sequence)
            || self.set_back_by_instant.contains(slot.enqueued_at, sequence)
    }

    /// Number of entries.
    pub(super) fn len(&self) -> u64 {
        (self.own.len() + self.set_back_by_instant.len()) as u64 + self.in_order.len()
    }

    fn remove(&mut self, slots: &SlotTable, sequence: SequenceNumber) {
        if let Some(slot) = slots.get(sequence) {
            self.unwatch(sequence, slot);
        }
    }
}

/// Returns the entry of a message that expires by the default TTL, if it ever does.
fn expiring(
    enqueued_at: Timestamp,
    by_default: TimeSpan,
    sequence: SequenceNumber,
) -> Option<(Timestamp, SequenceNumber)> {
    let at = enqueued_at.plus(by_default);
    (!at.is_never()).then_some((at, sequence))
}

/// Converts an entry with an instant of expiry to one with an instant of enqueueing.
fn enqueued(
    (at, sequence): (Timestamp, SequenceNumber),
    by_default: TimeSpan,
) -> (Timestamp, SequenceNumber) {
    match at >= Timestamp::NONE.plus(by_default) {
        true => (at.minus(by_default), sequence),
        false => (Timestamp::NONE, SequenceNumber(0)),
    }
}

/// Merges three iterators without a common entry, each in the order in which `first` prefers
/// entries.
pub(super) fn merged<T: Ord + Copy>(
    one: impl Iterator<Item = T>,
    two: impl Iterator<Item = T>,
    three: impl Iterator<Item = T>,
    first: fn(T, T) -> T,
) -> impl Iterator<Item = T> {
    let (mut one, mut two, mut three) = (one.peekable(), two.peekable(), three.peekable());
    std::iter::from_fn(move || {
        let heads = [one.peek().copied(), two.peek().copied(), three.peek().copied()];
        let next = heads.into_iter().flatten().reduce(first)?;
        match heads {
            [Some(head), _, _] if head == next => one.next(),
            [_, Some(head), _] if head == next => two.next(),
            _ => three.next(),
        }
    })
}

impl Queue {
    /// Instant at which a message expires: by its own stored TTL, else by the default in force
    /// (EXP-13).
    pub(super) fn expires_at(&self, slot: &Slot) -> Timestamp {
        if slot.expires_at.is_never() {
            slot.enqueued_at.plus(self.description.default_message_time_to_live)
        } else {
            slot.expires_at
        }
    }

    /// Whether a message is expired (EXP-15). Scheduled messages and messages in a sub-queue never
    /// are (EXP-19, EXP-39).
    pub(super) fn is_expired(&self, slot: &Slot, now: Timestamp) -> bool {
        slot.sub_queue == SubQueue::Main
            && !matches!(slot.state, SlotState::Scheduled | SlotState::Pending)
            && !slot.is_transferring()
            && self.expires_at(slot) <= now
    }

    /// Adds the entry of an available message of the main queue.
    pub(super) fn watch_expiry(&mut self, sequence: SequenceNumber, slot: &Slot) {
        self.expiry.watch(sequence, slot);
    }

    /// Returns the first entry, with or without an active receiver.
    fn first_expiry(&self) -> Option<(Timestamp, SequenceNumber)> {
        self.expiry.first(&self.slots, self.description.default_message_time_to_live)
    }

    /// Instant of the next expiration; `None` without an active receiver.
    pub(super) fn expiry_deadline(&self) -> Option<Timestamp> {
        if !self.has_active_receiver() {
            return None;
        }
        self.first_expiry().map(|(at, _)| at)
    }

    /// Whether expired messages are still present because of the budget of a step.
    pub(super) fn is_expiry_behind(&self, now: Timestamp) -> bool {
        self.expiry_deadline().is_some_and(|at| at <= now)
    }

    /// Removes or dead-letters expired, unlocked messages, oldest first, while there is an active
    /// receiver (EXP-31, EXP-34).
    pub(super) fn expire(&mut self, moves: &mut usize, ctx: &Ctx<'_>, step: &mut StepOutput) {
        self.empty_expired_sessions(moves, ctx, step);
        if !self.has_active_receiver() {
            return;
        }
        while *moves > 0 {
            let Some((at, sequence)) = self.first_expiry() else { return };
            if at > ctx.now {
                return;
            }
            *moves -= 1;
            // A locked or in-flight message gets an entry again when it is offered.
            self.expiry.remove(&self.slots, sequence);
            let due = (self.is_available(sequence, SubQueue::Main)
                || self.is_durably_delayed(sequence))
                && self.slots.get(sequence).is_some_and(|slot| self.is_expired(slot, ctx.now));
            if !due {
                continue;
            }
            *moves = moves.saturating_sub(self.overlay_count(sequence));
            match &mut self.sessions {
                Some(sessions) if self.config.expire_whole_sessions => {
                    sessions.expire_session(sequence);
                    self.empty_expired_sessions(moves, ctx, step);
                }
                Some(_) | None => self.remove_expired(sequence, None, ctx, step),
            }
        }
    }

    /// Empties expired sessions (EXP-41, EXP-44). Their messages are not available from the instant
    /// at which the first message expired, in however many steps they are removed (EXP-45).
    fn empty_expired_sessions(&mut self, moves: &mut usize, ctx: &Ctx<'_>, step: &mut StepOutput) {
        while *moves > 0
            && let Some(expiring) =
                self.sessions.as_mut().and_then(|sessions| sessions.expiring.front_mut())
        {
            *moves -= 1;
            let sequence = expiring.others.pop_first().or_else(|| expiring.delayed.pop_first());
            let cause = expiring.cause;
            if sequence.is_none()
                && let Some(sessions) = &mut self.sessions
            {
                sessions.expiring.pop_front();
            }
            let sequence = sequence.unwrap_or(cause);
            *moves = moves.saturating_sub(self.overlay_count(sequence));
            self.remove_expired(sequence, None, ctx, step);
        }
    }

    /// Number of overlays of a message, which are removed with it.
    pub(super) fn overlay_count(&self, sequence: SequenceNumber) -> usize {
        self.slots.get(sequence).map_or(0, |slot| usize::from(slot.overlay_count))
    }
}

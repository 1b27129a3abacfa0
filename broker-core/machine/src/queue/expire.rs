//! Expiration: lazily, while somebody receives, or at once when a lock on an expired message ends
//! (EXP-20 to EXP-39).

use super::{MOVES_PER_STEP, Queue};
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::slot::{Slot, SlotState};
use crate::time::Timestamp;
use crate::{Ctx, Step};

impl Queue {
    /// When a message expires: by its own TTL as stored, else by the default in force now (EXP-13).
    pub(super) fn expires_at(&self, slot: &Slot) -> Timestamp {
        if slot.expires_at.is_never() {
            slot.enqueued_at.plus(self.description.default_message_time_to_live)
        } else {
            slot.expires_at
        }
    }

    /// Whether a message is expired (EXP-15). Scheduled ones and those in a sub-queue never are
    /// (EXP-19, EXP-39).
    pub(super) fn is_expired(&self, slot: &Slot, now: Timestamp) -> bool {
        slot.sub_queue == SubQueue::Main
            && !matches!(slot.state, SlotState::Scheduled | SlotState::Pending)
            && !slot.is_transferring()
            && self.expires_at(slot) <= now
    }

    /// Remembers when an available message of the main queue is due.
    pub(super) fn watch_expiry(&mut self, sequence: SequenceNumber, slot: &Slot) {
        self.expiry.insert(self.expires_at(slot), sequence);
        let alive = usize::try_from(self.tally.counts.active).unwrap_or(usize::MAX);
        if self.expiry.is_stale(alive) {
            self.rebuild_expiry();
        }
    }

    /// Makes the index anew, because the default TTL changed or most of its entries are dead.
    pub(super) fn rebuild_expiry(&mut self) {
        let mut expiry = std::mem::take(&mut self.expiry);
        expiry.clear();
        for (sequence, slot) in self.slots.iter() {
            if slot.sub_queue == SubQueue::Main && slot.state == SlotState::Active {
                expiry.insert(self.expires_at(slot), sequence);
            }
        }
        self.expiry = expiry;
    }

    /// Whether messages have expired that are still there, because a step moves only so many.
    pub(super) fn is_expiry_behind(&self, now: Timestamp) -> bool {
        self.has_active_receiver() && self.expiry.next_deadline().is_some_and(|at| at <= now)
    }

    /// Drops or dead-letters what is expired and unlocked, oldest first, while there is an active
    /// receiver (EXP-31, EXP-34).
    pub(super) fn expire(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        let mut moves = MOVES_PER_STEP;
        self.remove_doomed(&mut moves, ctx, step);
        if !self.has_active_receiver() {
            return;
        }
        while moves > 0 {
            moves -= 1;
            let Some((_, sequence)) = self.expiry.pop_due(ctx.now) else { return };
            // A message that is locked or in flight comes back to the index when it is offered.
            let due = (self.is_available(sequence, SubQueue::Main) || self.is_resting(sequence))
                && self.slots.get(sequence).is_some_and(|slot| self.is_expired(slot, ctx.now));
            if !due {
                continue;
            }
            match &mut self.sessions {
                Some(sessions) if self.config.expire_whole_sessions => {
                    sessions.doom(sequence);
                    self.remove_doomed(&mut moves, ctx, step);
                }
                Some(_) | None => self.remove_expired(sequence, None, ctx, step),
            }
        }
    }

    /// Empties the sessions that have expired (EXP-41, EXP-44). Their messages are offered to nobody
    /// from the instant at which the first of them expired, however many steps this takes (EXP-45).
    fn remove_doomed(&mut self, moves: &mut usize, ctx: &Ctx<'_>, step: &mut Step) {
        while *moves > 0
            && let Some(doomed) =
                self.sessions.as_mut().and_then(|sessions| sessions.doomed.front_mut())
        {
            *moves -= 1;
            let sequence = doomed.others.pop_first().or_else(|| doomed.delayed.pop_first());
            let cause = doomed.cause;
            if sequence.is_none()
                && let Some(sessions) = &mut self.sessions
            {
                sessions.doomed.pop_front();
            }
            self.remove_expired(sequence.unwrap_or(cause), None, ctx, step);
        }
    }
}

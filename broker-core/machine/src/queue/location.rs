//! Location of a message: slot table, sub-queue, session, lock, availability. Every operation moves
//! messages with these functions, and removes them with [`Queue::remove_message`].

use super::Queue;
use crate::change::{Change, Durability, Removal};
use crate::description::SessionRetryOrder;
use crate::ids::SequenceNumber;
use crate::lock_table::LockTable;
use crate::path::SubQueue;
use crate::slot::{LockIndex, Mark, Slot, SlotState};
use crate::{Ctx, StageNumber, StepOutput};

impl Queue {
    /// Removes a message permanently. Its bytes are freed when the removal is durable.
    pub(super) fn remove_message(
        &mut self,
        sequence: SequenceNumber,
        reason: Removal,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(slot) = self.slots.get(sequence) else { return };
        let overlay_count = slot.overlay_count;
        step.bytes_freed += u64::from(slot.size);
        self.change(
            Change::Removed { sequence, overlay_count, reason },
            Durability::Sync,
            ctx,
            step,
        );
    }

    /// Adds a message to the table, its sub-queue, its session and the tally.
    pub(super) fn insert(&mut self, sequence: SequenceNumber, slot: Slot, session: Option<&str>) {
        self.tally.add(&slot);
        if slot.state != SlotState::Pending {
            self.sub_queue_mut(slot.sub_queue).members.insert(sequence);
        }
        if let (Some(sessions), Some(session)) = (&mut self.sessions, session) {
            sessions.insert(sequence, slot.state, session);
        }
        self.expiry.note(sequence, &slot);
        self.slots.insert(sequence, slot);
        self.last_sequence = self.last_sequence.max(sequence);
    }

    /// Removes a message from the table, its sub-queue, its session, its lock and the tally.
    pub(super) fn take(&mut self, sequence: SequenceNumber) -> Option<Slot> {
        let mut slot = self.slots.remove(sequence)?;
        self.tally.subtract(&slot);
        self.expiry.forget(sequence, &slot);
        if slot.state == SlotState::Scheduled {
            self.schedule.remove(slot.enqueued_at, sequence);
        }
        if slot.is_delayed() {
            slot.marks.clear(Mark::Delayed);
            self.delays.remove(slot.sub_queue, sequence);
        }
        if let Some(lock) = slot.lock {
            self.drop_lock(sequence, slot.sub_queue, lock);
        }
        let sub_queue = self.sub_queue_mut(slot.sub_queue);
        sub_queue.members.remove(sequence);
        sub_queue.available.remove(sequence);
        self.transfers.withdraw(sequence);
        if let Some(sessions) = &mut self.sessions {
            sessions.remove(sequence, slot.state);
        }
        slot.marks.clear(Mark::Transferring);
        Some(Slot { lock: None, ..slot })
    }

    /// Changes a message. It loses its lock or delay, and is not available until the caller offers
    /// it.
    pub(super) fn alter(&mut self, sequence: SequenceNumber, change: impl FnOnce(&mut Slot)) {
        let Some(slot) = self.slots.get_mut(sequence) else { return };
        self.tally.subtract(slot);
        let before = *slot;
        slot.lock = None;
        slot.marks.clear(Mark::Transferring);
        if slot.is_delayed() {
            slot.marks.clear(Mark::Delayed);
            self.delays.remove(slot.sub_queue, sequence);
        }
        change(slot);
        self.tally.add(slot);
        let after = slot.state;
        self.expiry.unwatch(sequence, &before);
        if let Some(lock) = before.lock {
            self.drop_lock(sequence, before.sub_queue, lock);
        }
        self.sub_queue_mut(before.sub_queue).available.remove(sequence);
        if after == SlotState::Pending {
            self.transfers.recall(sequence);
        } else {
            self.transfers.withdraw(sequence);
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.withdraw(sequence);
            sessions.recount(sequence, before.state, after);
        }
    }

    /// Makes a message unavailable until the stage of its change is durable (DESIGN D5).
    pub(super) fn mark_in_flight(&mut self, sequence: SequenceNumber, stage: StageNumber) {
        let Some(slot) = self.slots.get_mut(sequence) else { return };
        slot.marks.set(Mark::InFlight);
        let is_active = slot.state == SlotState::Active;
        // Later messages may pass it while it is Delayed, so they may also pass it before that is
        // durable (RTY-23).
        let is_passed =
            slot.is_delayed() && self.description.session_retry_order == SessionRetryOrder::Pass;
        self.in_flight.push_back((stage, sequence));
        if let Some(sessions) = &mut self.sessions
            && is_active
            && !is_passed
        {
            sessions.hold_back(sequence);
        }
    }

    /// Makes a durable, unlocked message available according to its state.
    pub(super) fn offer(&mut self, sequence: SequenceNumber) {
        let Some(slot) = self.slots.get(sequence).copied() else { return };
        if slot.is_in_flight() {
            return;
        }
        match slot.state {
            SlotState::Active if slot.is_delayed() => self.register_delayed(sequence, &slot),
            SlotState::Active => {
                let leaves = self.leaves(&slot);
                match (&mut self.sessions, slot.sub_queue) {
                    (_, which) if leaves => self.offer_at_exit(sequence, which),
                    (Some(sessions), SubQueue::Main) => sessions.offer(sequence),
                    (_, which) => {
                        self.sub_queue_mut(which).available.insert(sequence);
                    }
                }
                if slot.sub_queue == SubQueue::Main {
                    self.watch_expiry(sequence, &slot);
                }
            }
            SlotState::Scheduled => self.watch_schedule(sequence, &slot),
            SlotState::Deferred => {}
            SlotState::Pending => self.transfers.offer_pending(sequence),
        }
    }

    /// Whether a message can be handed out or handed over, apart from the state of its session or
    /// exit.
    pub(super) fn is_available(&self, sequence: SequenceNumber, which: SubQueue) -> bool {
        if self.transfers.is_waiting(sequence, which) {
            return true;
        }
        match (&self.sessions, which) {
            (Some(sessions), SubQueue::Main) => sessions.is_available(sequence),
            (_, which) => self.sub_queue(which).available.contains(sequence),
        }
    }

    /// The session that a message belongs to.
    pub(super) fn session_name(&self, sequence: SequenceNumber) -> Option<&std::sync::Arc<str>> {
        self.sessions.as_ref()?.name_of(sequence)
    }

    /// Table that has the lock of a message: the table of its session, or of the queue.
    pub(super) fn lock_table(
        &self,
        sequence: SequenceNumber,
        which: SubQueue,
    ) -> Option<&LockTable> {
        match (&self.sessions, which) {
            (Some(sessions), SubQueue::Main) => {
                Some(&sessions.get(sessions.of(sequence)?)?.hold()?.locks)
            }
            _ => Some(&self.locks),
        }
    }

    /// Ends a lock. The message must still be in the sub-queue where it was locked.
    pub(super) fn drop_lock(&mut self, sequence: SequenceNumber, which: SubQueue, lock: LockIndex) {
        match (&mut self.sessions, which) {
            (Some(sessions), SubQueue::Main) => {
                let index = sessions.of(sequence);
                if let Some(hold) = index.and_then(|index| sessions.hold_mut(index)) {
                    hold.locks.remove(lock);
                }
            }
            _ => {
                self.locks.remove(lock);
            }
        }
    }
}

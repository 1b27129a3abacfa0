//! Counts and sizes, kept in step with the slots so that reading them is O(1) (CNT-07).

use crate::command::Counts;
use crate::path::SubQueue;
use crate::slot::{Slot, SlotState};

/// Running totals over all slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) size_bytes: u64,
    /// How often properties were set on them.
    pub(super) overlay_count: u64,
}

impl Tally {
    pub(super) const fn add(&mut self, slot: &Slot) {
        *self.count_of(slot) += 1;
        if is_counted_as_delayed(slot) {
            self.counts.delayed += 1;
        }
        self.size_bytes += slot.size as u64;
        self.overlay_count += slot.overlay_count as u64;
    }

    pub(super) const fn subtract(&mut self, slot: &Slot) {
        let count = self.count_of(slot);
        *count = count.saturating_sub(1);
        if is_counted_as_delayed(slot) {
            self.counts.delayed = self.counts.delayed.saturating_sub(1);
        }
        self.size_bytes = self.size_bytes.saturating_sub(slot.size as u64);
        self.overlay_count = self.overlay_count.saturating_sub(slot.overlay_count as u64);
    }

    const fn count_of(&mut self, slot: &Slot) -> &mut u64 {
        // What is on its way to another entity counts as that, wherever it was (LIF-05).
        if slot.is_transferring() {
            return &mut self.counts.transfer;
        }
        match (slot.sub_queue, slot.state) {
            (_, SlotState::Pending) => &mut self.counts.transfer,
            (SubQueue::Main, SlotState::Active) => &mut self.counts.active,
            (SubQueue::Main, SlotState::Deferred) => &mut self.counts.deferred,
            (SubQueue::Main, SlotState::Scheduled) => &mut self.counts.scheduled,
            (SubQueue::DeadLetter, _) => &mut self.counts.dead_letter,
            (SubQueue::TransferDeadLetter, _) => &mut self.counts.transfer_dead_letter,
        }
    }
}

/// Whether an active message of the main queue is Delayed; in a sub-queue it counts as a dead letter only
/// (RTY-11).
const fn is_counted_as_delayed(slot: &Slot) -> bool {
    slot.is_delayed() && matches!(slot.sub_queue, SubQueue::Main)
}

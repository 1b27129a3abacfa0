//! Counts and sizes of a queue, updated with every change of a slot, so that reading them takes
//! constant time (CNT-07).

use super::overlay_histogram::OverlayHistogram;
use crate::command::Counts;
use crate::path::SubQueue;
use crate::slot::{Slot, SlotState};

/// Totals over all slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) size_bytes: u64,
    /// Number of overlays on all messages; the next field has their distribution.
    pub(super) overlay_count: u64,
    histogram: OverlayHistogram,
}

impl Tally {
    pub(super) fn add(&mut self, slot: &Slot) {
        *self.count_of(slot) += 1;
        if is_counted_as_delayed(slot) {
            self.counts.delayed += 1;
        }
        self.size_bytes += slot.size as u64;
        if slot.overlay_count > 0 {
            self.overlay_count += u64::from(slot.overlay_count);
            self.histogram.add(slot.overlay_count);
        }
    }

    pub(super) fn subtract(&mut self, slot: &Slot) {
        let count = self.count_of(slot);
        *count = count.saturating_sub(1);
        if is_counted_as_delayed(slot) {
            self.counts.delayed = self.counts.delayed.saturating_sub(1);
        }
        self.size_bytes = self.size_bytes.saturating_sub(slot.size as u64);
        if slot.overlay_count > 0 {
            self.overlay_count = self.overlay_count.saturating_sub(slot.overlay_count.into());
            self.histogram.subtract(slot.overlay_count);
        }
    }

    /// Upper bound on the overlays of any `count` messages.
    pub(super) fn overlay_bound(&self, count: u64) -> u64 {
        match self.overlay_count {
            0 => 0,
            all => self.histogram.bound_for(count).min(all),
        }
    }

    const fn count_of(&mut self, slot: &Slot) -> &mut u64 {
        // A message on its way to another entity counts as `transfer` in any state (LIF-05).
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

/// Whether an active message of the main queue is Delayed. In a sub-queue it counts only as a dead
/// letter (RTY-11).
const fn is_counted_as_delayed(slot: &Slot) -> bool {
    slot.is_delayed() && matches!(slot.sub_queue, SubQueue::Main)
}

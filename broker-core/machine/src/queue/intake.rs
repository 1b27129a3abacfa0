//! Intake of a queue: its quota, status and duplicate detection (DUP-02, SND-24). It implements the
//! trait of `machine/src/intake.rs` for sends and transfers.

use super::Queue;
use crate::change::{Change, Durability};
use crate::description::EntityStatus;
use crate::duplicate_history::DuplicateHistory;
use crate::ids::SequenceNumber;
use crate::intake::{Intake, Quota};
use crate::peers::Peers;
use crate::slot::SlotState;
use crate::time::TimeSpan;
use crate::{Ctx, StepOutput};

impl Intake for Queue {
    fn quota(&self) -> Quota<'_> {
        let (kind, path) = self.quota_of();
        let bytes_max = self.description.max_size_in_megabytes.saturating_mul(1_024 * 1_024);
        Quota { kind, path, bytes_max }
    }

    fn status(&self) -> EntityStatus {
        self.description.status
    }

    fn name(&self) -> &str {
        self.path()
    }

    fn history(&self) -> Option<&DuplicateHistory> {
        self.duplicates.as_deref()
    }

    fn history_mut(&mut self) -> Option<&mut DuplicateHistory> {
        self.duplicates.as_deref_mut()
    }

    fn window(&self) -> TimeSpan {
        self.description.duplicate_detection_history_time_window
    }

    fn is_scheduled(&self, sequence: SequenceNumber) -> bool {
        self.slots.get(sequence).is_some_and(|slot| slot.state == SlotState::Scheduled)
    }

    fn is_cancellable(&self, sequence: SequenceNumber) -> bool {
        self.is_durably_scheduled(sequence)
    }

    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn apply_change(
        &mut self,
        change: Change,
        durability: Durability,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        self.change(change, durability, ctx, step);
    }
}

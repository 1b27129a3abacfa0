//! Duplicate detection: a message whose id was accepted within the window is dropped (DUP-02).

use super::Queue;
use crate::change::Durability;
use crate::command::InboundMessage;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::slot::SlotState;
use crate::time::Timestamp;
use crate::{Ctx, Step};

impl Queue {
    /// Looks an id up. A hit gives the number to answer with: that of the kept message if it is
    /// still scheduled, else 0 (DUP-12).
    pub(super) fn find_duplicate(
        &self,
        id_hash: Option<u128>,
        now: Timestamp,
    ) -> Option<SequenceNumber> {
        let window = self.description.duplicate_detection_history_time_window;
        let found = self.duplicates.as_ref()?.find(id_hash?, now, window)?;
        let scheduled =
            self.slots.get(found).is_some_and(|slot| slot.state == SlotState::Scheduled);
        Some(if scheduled { found } else { SequenceNumber(0) })
    }

    /// Remembers the id of a message that was just accepted.
    pub(super) fn remember_id(
        &mut self,
        id_hash: Option<u128>,
        sequence: SequenceNumber,
        scheduled: bool,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) {
        let (Some(history), Some(id_hash)) = (&self.duplicates, id_hash) else { return };
        let window = self.description.duplicate_detection_history_time_window;
        let change = history.remember(id_hash, scheduled.then_some(sequence), ctx.now, window);
        self.change(change, Durability::Sync, ctx, step);
    }

    /// Refuses messages with an id when the history can take no more of them (DUP-01).
    pub(super) fn refuse_full_history(
        &self,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let window = self.description.duplicate_detection_history_time_window;
        match &self.duplicates {
            Some(history) => history.refuse_if_full(messages, self.path(), window, ctx),
            None => Ok(()),
        }
    }

    /// Drops the buckets that every window has left.
    pub(super) fn forget_ids(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        let window = self.description.duplicate_detection_history_time_window;
        while let Some(change) =
            self.duplicates.as_ref().and_then(|history| history.forget_oldest(ctx.now, window))
        {
            self.change(change, Durability::Lazy, ctx, step);
        }
    }
}

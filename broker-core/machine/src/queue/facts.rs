//! Facts about a message as receivers and browsers see them. Receives, peeks and transfers return
//! them; nothing here changes state.

use super::Queue;
use crate::command::{MessageFacts, MessageState};
use crate::ids::SequenceNumber;
use crate::slot::{Slot, SlotState};
use crate::time::TimeSpan;

/// View of a message (EXP-14).
#[derive(Clone, Copy)]
pub(super) enum MessageView {
    Received,
    Peeked,
}

impl Queue {
    /// Returns the facts about a message, without its lock.
    pub(super) fn facts(
        &self,
        sequence: SequenceNumber,
        slot: &Slot,
        view: MessageView,
    ) -> MessageFacts {
        let own = (!slot.expires_at.is_never()).then_some(slot.expires_at);
        let expires_at = match view {
            MessageView::Received => Some(self.expires_at(slot)),
            MessageView::Peeked => own,
        };
        let time_to_live = match view {
            MessageView::Received if self.expires_at(slot).is_never() => Some(TimeSpan::MAX),
            MessageView::Received | MessageView::Peeked => {
                expires_at.map(|at| at.since(slot.enqueued_at))
            }
        };
        MessageFacts {
            sequence,
            enqueued_sequence: slot.enqueued_sequence,
            enqueued_at: slot.enqueued_at,
            expires_at,
            time_to_live,
            delivery_count: slot.delivery_count,
            state: match slot.state {
                SlotState::Active if slot.is_delayed() => MessageState::Delayed,
                SlotState::Active | SlotState::Pending => MessageState::Active,
                SlotState::Deferred => MessageState::Deferred,
                SlotState::Scheduled => MessageState::Scheduled,
            },
            delayed_until: match slot.is_delayed() {
                true => self.delays.until(slot.sub_queue, sequence),
                false => None,
            },
            sub_queue: slot.sub_queue,
            lock: None,
            size: slot.size,
            overlay_count: slot.overlay_count,
            was_scheduled: slot.was_scheduled(),
        }
    }
}

//! Inspection of a topic: its scheduled messages, and its transfer dead-letter queue (CON-02,
//! CON-28). It changes nothing (CON-01).

use super::Topic;
use crate::command::{MessageFacts, MessageState};
use crate::error::Rejection;
use crate::excerpt::{
    ENTRIES_MAX, EXAMINED_MAX, ListPosition, MachineExcerpt, ROW_WORK_MAX, check, first_entry,
    first_number, first_place, page_of_heads, timeline, work_to_count, work_to_examine,
};
use crate::ids::SequenceNumber;
use crate::inspect::{
    EntitySetup, HeadFacts, HeadOrder, HeadQuery, HeadState, Inquiry, TimelineOf,
};
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::slot::Slot;
use crate::time::Timestamp;

impl Topic {
    /// Whether published properties are still in force (CON-38).
    #[must_use]
    pub fn has_setup(&self, setup: &EntitySetup) -> bool {
        setup.time_to_live == self.description.default_message_time_to_live
            && setup.rules_version == self.matcher.version()
    }

    /// Properties to publish (CON-38).
    #[must_use]
    pub fn setup(&self) -> EntitySetup {
        EntitySetup {
            time_to_live: self.description.default_message_time_to_live,
            rules_version: self.matcher.version(),
            defaults_among_others: self.matcher.defaults_among_others().collect(),
            ..EntitySetup::default()
        }
    }

    /// Returns the excerpt that answers an inquiry.
    pub(super) fn inspect(
        &self,
        sub_queue: SubQueue,
        inquiry: &Inquiry,
        now: Timestamp,
    ) -> Result<MachineExcerpt, Rejection> {
        if sub_queue == SubQueue::TransferDeadLetter {
            return match &self.outbox {
                Some(outbox) => outbox.inspect(sub_queue, inquiry, now),
                None => Queue::outbox(self.id, &self.description, self.config, now)
                    .inspect(sub_queue, inquiry, now),
            };
        }
        check(inquiry)?;
        match inquiry {
            Inquiry::Heads(query) => self.inspect_heads(query),
            Inquiry::Timeline(query) if query.of == TimelineOf::Scheduled => {
                Ok(timeline(self.schedule.range(first_entry(query)..), query, ENTRIES_MAX))
            }
            Inquiry::Timeline(_)
            | Inquiry::Locks(_)
            | Inquiry::Sessions(_)
            | Inquiry::SessionState { .. }
            | Inquiry::Originals { .. } => Err(self.refuse_inquiry()),
        }
    }

    /// Work of an inquiry to the topic or its outbox.
    pub(super) fn work_of_inquiry(&self, inquiry: &Inquiry) -> u64 {
        let own = match inquiry {
            Inquiry::Heads(query) => {
                let count = u64::from(query.count_max).min(self.slots.len() as u64);
                work_to_examine(self.slots.len() as u64, EXAMINED_MAX) + count.min(ROW_WORK_MAX)
            }
            Inquiry::Timeline(_) => work_to_count(self.schedule.len()),
            Inquiry::Locks(_)
            | Inquiry::Sessions(_)
            | Inquiry::SessionState { .. }
            | Inquiry::Originals { .. } => 1,
        };
        own.max(self.outbox.as_ref().map_or(1, |outbox| outbox.work_of_inquiry(inquiry)))
    }

    fn inspect_heads(&self, query: &HeadQuery) -> Result<MachineExcerpt, Rejection> {
        if query.session.is_some() || query.order == HeadOrder::ExpiresAt {
            return Err(self.refuse_inquiry());
        }
        let head = |sequence: SequenceNumber| {
            let slot = self.slots.get(sequence)?;
            let is_shown = !slot.is_in_flight() && query.states.contains(HeadState::Scheduled);
            is_shown.then(|| scheduled_head(sequence, slot))
        };
        let places: Box<dyn Iterator<Item = ListPosition> + '_> = match query.order {
            HeadOrder::Number => {
                // All messages are scheduled, so their instants do not ascend with their numbers.
                let end = if query.is_descending { u64::MAX } else { 0 };
                let first = first_number(query, |_| Some(SequenceNumber(end)));
                let first = first.filter(|_| query.states.contains(HeadState::Scheduled));
                let at = |sequence| (Timestamp::NONE, sequence);
                match (first, query.is_descending) {
                    (None, _) => Box::new(std::iter::empty()),
                    (Some(first), false) => Box::new(self.slots.numbers_from(first).map(at)),
                    (Some(first), true) => Box::new(self.slots.numbers_back_from(first).map(at)),
                }
            }
            HeadOrder::ScheduledAt | HeadOrder::ExpiresAt => {
                let place = first_place(query)?;
                match query.is_descending {
                    false => Box::new(self.schedule.range(place..)),
                    true => Box::new(self.schedule.range(..place).rev()),
                }
            }
        };
        Ok(page_of_heads(places, query.count_max, head))
    }

    fn refuse_inquiry(&self) -> Rejection {
        Rejection::invalid_operation(format!(
            "`{}` is a topic, which has only scheduled messages; inspect its subscriptions",
            self.path()
        ))
    }
}

fn scheduled_head(sequence: SequenceNumber, slot: &Slot) -> HeadFacts<MessageFacts> {
    let expires_at = (!slot.expires_at.is_never()).then_some(slot.expires_at);
    HeadFacts {
        message: MessageFacts {
            sequence,
            enqueued_sequence: slot.enqueued_sequence,
            enqueued_at: slot.enqueued_at,
            expires_at,
            time_to_live: expires_at.map(|at| at.since(slot.enqueued_at)),
            delivery_count: slot.delivery_count,
            state: MessageState::Scheduled,
            delayed_until: None,
            sub_queue: SubQueue::Main,
            lock: None,
            size: slot.size,
            overlay_count: slot.overlay_count,
            was_scheduled: slot.was_scheduled(),
        },
        state: HeadState::Scheduled,
        expires_at: slot.expires_at,
        is_expired: false,
        hops: slot.hops,
        header_size: slot.header_size,
        session: None,
        destination: None,
        lock: None,
    }
}

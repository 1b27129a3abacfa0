//! The role of an outbox: the queue inside a topic that holds what is sent by way of the topic until it
//! is transferred, and its transfer dead-letter queue (VIA-01, VIA-05).
//!
//! What differs: it lives in the space of its topic and shares the numbers there, its quota is the
//! topic's, and what cannot be transferred stays here whatever the namespace has chosen, since a topic
//! has no dead-letter queue (DLQ-32). Its description as a queue is made from the topic's.

use super::{Queue, QueueConfig};
use crate::Step;
use crate::description::{QueueDescription, TopicDescription};
use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};

/// A topic has no LockDuration: a lock in its transfer dead-letter queue lasts as long as one of a queue
/// that was created without it (ENT-06).
const LOCK_DURATION: TimeSpan = TimeSpan::from_minutes(1);
/// Has no effect: the transfer dead-letter queue has no maximum (SET-38), and no forwarder is a
/// destination here.
const DELIVERY_COUNT_MAX: u32 = 10;

/// What an outbox is beside a queue.
#[derive(Debug, Default)]
pub(super) struct OutboxRole {
    /// Receivers of the subscriptions (RCV-22).
    other_receivers: usize,
}

impl Queue {
    /// An empty outbox of this topic.
    #[must_use]
    pub(crate) fn outbox(
        id: EntityId,
        topic: &TopicDescription,
        mut config: QueueConfig,
        now: Timestamp,
    ) -> Self {
        config.forwarding.failures_into = SubQueue::TransferDeadLetter;
        Self { outbox: Some(OutboxRole::default()), ..Self::new(id, as_queue(topic), config, now) }
    }

    /// Takes over what the topic's description says.
    pub(crate) fn follow(&mut self, topic: &TopicDescription) {
        *self.description = as_queue(topic);
    }

    /// Tells those who wait for messages that the status lets nobody receive (ENT-24, ENT-29).
    pub(crate) fn heed_status(&mut self, step: &mut Step) {
        if !self.description.status.allows_receive() {
            self.turn_receivers_away(step);
        }
    }

    /// The next number that is given here comes after this one.
    pub(crate) fn number_after(&mut self, last: SequenceNumber) {
        self.last_sequence = self.last_sequence.max(last);
    }

    /// The topic has so many other receivers (RCV-22).
    pub(crate) const fn note_other_receivers(&mut self, count: usize) {
        if let Some(role) = &mut self.outbox {
            role.other_receivers = count;
        }
    }

    /// Receivers that count together with the own ones (RCV-22).
    pub(super) fn other_receivers(&self) -> usize {
        let of_outbox = self.outbox.as_ref().map_or(0, |role| role.other_receivers);
        self.subscription.as_ref().map_or(of_outbox, |role| role.other_receivers)
    }

    /// When it was last used, [`Timestamp::NONE`] if never.
    pub(crate) const fn used_at(&self) -> Timestamp {
        self.usage.last_at
    }

    /// Whether it holds a message of that number.
    pub(crate) fn holds(&self, sequence: SequenceNumber) -> bool {
        self.slots.get(sequence).is_some()
    }
}

/// A topic as the queue that holds what is sent by way of it.
fn as_queue(topic: &TopicDescription) -> QueueDescription {
    QueueDescription {
        lock_duration: LOCK_DURATION,
        // Duplicates, sessions and time to live are the concern of the destination.
        default_message_time_to_live: TimeSpan::MAX,
        max_delivery_count: DELIVERY_COUNT_MAX,
        // It is never idle by itself; its use counts for the topic (TMP-16).
        auto_delete_on_idle: TimeSpan::MAX,
        ..QueueDescription::within(topic.path.clone(), topic)
    }
}

//! Role of an outbox: a queue inside a topic. It holds the messages that are sent via the topic
//! until they are transferred, and it is the topic's transfer dead-letter queue (VIA-01, VIA-05).
//!
//! Differences to a queue: it uses the space, the numbers and the quota of its topic. A message
//! that cannot be transferred stays here, for any setting of the namespace, since a topic has no
//! dead-letter queue (DLQ-32). Its description as a queue is derived from the topic's.

use super::{Queue, QueueConfig};
use crate::StepOutput;
use crate::description::{QueueDescription, TopicDescription};
use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};

/// A topic has no LockDuration. Locks in its transfer dead-letter queue last as long as the default
/// of a queue (ENT-06).
const LOCK_DURATION: TimeSpan = TimeSpan::from_minutes(1);
/// Has no effect: the transfer dead-letter queue has no maximum (SET-38), and no forwarder is a
/// destination here.
const DELIVERY_COUNT_MAX: u32 = 10;

/// State of an outbox in addition to its queue.
#[derive(Debug, Default)]
pub(super) struct OutboxRole {
    /// Receivers of the subscriptions (RCV-22).
    other_receivers: usize,
}

impl Queue {
    /// Returns an empty outbox of a topic.
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

    /// Applies a new description of the topic.
    pub(crate) fn follow(&mut self, topic: &TopicDescription) {
        *self.description = as_queue(topic);
    }

    /// Fails waiting receivers if the status forbids receiving (ENT-24, ENT-29).
    pub(crate) fn apply_status(&mut self, step: &mut StepOutput) {
        if !self.description.status.allows_receive() {
            self.reject_receivers(step);
        }
    }

    /// Raises the last number, so that the next number is higher than `last`.
    pub(crate) fn number_after(&mut self, last: SequenceNumber) {
        self.last_sequence = self.last_sequence.max(last);
    }

    /// Sets the number of the topic's other receivers (RCV-22).
    pub(crate) const fn note_other_receivers(&mut self, count: usize) {
        if let Some(role) = &mut self.outbox {
            role.other_receivers = count;
        }
    }

    /// Number of receivers that count together with the queue's own (RCV-22).
    pub(super) fn other_receivers(&self) -> usize {
        let of_outbox = self.outbox.as_ref().map_or(0, |role| role.other_receivers);
        self.subscription.as_ref().map_or(of_outbox, |role| role.other_receivers)
    }

    /// Instant of the last use; [`Timestamp::NONE`] if never used.
    pub(crate) const fn used_at(&self) -> Timestamp {
        self.usage.last_at
    }

    /// Number of results in the receipts of jobs on its messages.
    pub(crate) fn receipt_count(&self) -> usize {
        self.receipts.len()
    }

    /// Whether it holds a message of that number.
    pub(crate) fn holds(&self, sequence: SequenceNumber) -> bool {
        self.slots.get(sequence).is_some()
    }
}

/// Returns the description of a queue for messages sent via the topic.
fn as_queue(topic: &TopicDescription) -> QueueDescription {
    QueueDescription {
        lock_duration: LOCK_DURATION,
        // The destination handles duplicates, sessions and time to live.
        default_message_time_to_live: TimeSpan::MAX,
        max_delivery_count: DELIVERY_COUNT_MAX,
        // The outbox is never idle by itself; its use counts for the topic (TMP-16).
        auto_delete_on_idle: TimeSpan::MAX,
        ..QueueDescription::within(topic.path.clone(), topic)
    }
}

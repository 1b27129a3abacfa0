//! Descriptions with their runtime part: counts, sizes, instants (ENT-31, file 17).

use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::ids::SequenceNumber;
use crate::time::Timestamp;

/// Message counts of an entity (CNT-01 to CNT-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Active messages of the main queue, locked ones included (CNT-02).
    pub active: u64,
    /// Deferred messages of the main queue.
    pub deferred: u64,
    /// Scheduled messages.
    pub scheduled: u64,
    /// Messages in the dead-letter queue, deferred ones included.
    pub dead_letter: u64,
    /// Messages waiting to be moved to another entity (CNT-05).
    pub transfer: u64,
    /// Messages in the transfer dead-letter queue.
    pub transfer_dead_letter: u64,
    /// Of the active ones, those that are Delayed (RTY-11).
    pub delayed: u64,
}

impl Counts {
    /// The sum of all (CNT-03); what is Delayed is active.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.active
            + self.deferred
            + self.scheduled
            + self.dead_letter
            + self.transfer
            + self.transfer_dead_letter
    }
}

/// How many sessions an entity has (CNT-11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionCounts {
    /// Those that exist (SES-04).
    pub existing: u64,
    /// Those that a receiver holds.
    pub locked: u64,
}

/// A description with its runtime part (ENT-31, file 17).
#[derive(Clone, Debug)]
pub struct Described {
    /// All settable properties with their effective values.
    pub description: QueueDescription,
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes (CNT-08).
    pub size_bytes: u64,
    /// The highest sequence number given so far, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// When the entity was created.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
    /// Counts of sessions, if the entity requires them (CNT-11).
    pub sessions: Option<SessionCounts>,
}

/// A topic's description with its runtime part (ENT-31, CNT-04).
#[derive(Clone, Debug)]
pub struct DescribedTopic {
    /// All settable properties with their effective values.
    pub description: TopicDescription,
    /// How many subscriptions it has.
    pub subscription_count: u64,
    /// How many rules its subscriptions have whose filter is in SQL (ADM-47).
    pub sql_rule_count: u64,
    /// How many rules they have besides.
    pub correlation_rule_count: u64,
    /// How many messages wait for their instant.
    pub scheduled: u64,
    /// How many messages wait for their transfer to another entity, or are on their way (VIA-06).
    pub transfer: u64,
    /// How many messages are in its transfer dead-letter queue (VIA-06).
    pub transfer_dead_letter: u64,
    /// Sum of stored sizes, over its subscriptions too (CNT-08, TOP-10).
    pub size_bytes: u64,
    /// The highest sequence number given so far, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// When the topic was created.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, on its subscriptions too, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
}

/// A subscription's description with its runtime part (ENT-31, CNT-01).
#[derive(Clone, Debug)]
pub struct DescribedSubscription {
    /// All settable properties with their effective values.
    pub description: SubscriptionDescription,
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes, which count for the topic's quota.
    pub size_bytes: u64,
    /// The highest sequence number given so far, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// When the subscription was created.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
    /// Counts of sessions, if the subscription requires them (CNT-11).
    pub sessions: Option<SessionCounts>,
}

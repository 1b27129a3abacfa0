//! Descriptions with runtime facts: counts, sizes, instants (ENT-31, file 17). Management requests
//! return them.

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
    /// Active messages that are Delayed (RTY-11).
    pub delayed: u64,
}

impl Counts {
    /// Returns the sum of all counts (CNT-03). `delayed` is part of `active`.
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

/// Numbers of sessions of an entity (CNT-11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionCounts {
    /// Existing sessions (SES-04).
    pub existing: u64,
    /// Sessions that a receiver holds.
    pub locked: u64,
}

/// A queue's description with runtime facts (ENT-31, file 17).
#[derive(Clone, Debug)]
pub struct Described {
    /// All settable properties with their effective values.
    pub description: QueueDescription,
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes (CNT-08).
    pub size_bytes: u64,
    /// The highest sequence number that was given, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// Instant of creation.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
    /// Counts of sessions, if the entity requires them (CNT-11).
    pub sessions: Option<SessionCounts>,
}

/// A topic's description with runtime facts (ENT-31, CNT-04).
#[derive(Clone, Debug)]
pub struct DescribedTopic {
    /// All settable properties with their effective values.
    pub description: TopicDescription,
    /// Number of subscriptions.
    pub subscription_count: u64,
    /// Number of rules with an SQL filter in all subscriptions (ADM-47).
    pub sql_rule_count: u64,
    /// Number of rules with another filter in all subscriptions.
    pub correlation_rule_count: u64,
    /// Number of scheduled messages.
    pub scheduled: u64,
    /// Number of messages that wait for their transfer to another entity or are being transferred
    /// (VIA-06).
    pub transfer: u64,
    /// Number of messages in the transfer dead-letter queue (VIA-06).
    pub transfer_dead_letter: u64,
    /// Sum of stored sizes, subscriptions included (CNT-08, TOP-10).
    pub size_bytes: u64,
    /// The highest sequence number that was given, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// Instant of creation.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, subscriptions included; [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
}

/// A subscription's description with runtime facts (ENT-31, CNT-01).
#[derive(Clone, Debug)]
pub struct DescribedSubscription {
    /// All settable properties with their effective values.
    pub description: SubscriptionDescription,
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes, which count for the topic's quota.
    pub size_bytes: u64,
    /// The highest sequence number that was given, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// Instant of creation.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
    /// Counts of sessions, if the subscription requires them (CNT-11).
    pub sessions: Option<SessionCounts>,
}

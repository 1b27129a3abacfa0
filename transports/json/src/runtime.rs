//! Counts and instants of entities in JSON, and an entity with both parts.

use peeklock_core::command::{
    Counts, Described, DescribedSubscription, DescribedTopic, SessionCounts,
};
use peeklock_core::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use peeklock_core::ids::SequenceNumber;
use serde::{Deserialize, Serialize};

use crate::entity::EntityForm;
use crate::text::Instant;

/// Counts and instants of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Locked messages included.
    active_message_count: u64,
    deferred_message_count: u64,
    scheduled_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    /// Of the active ones, those that are delayed; left out if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    delayed_message_count: u64,
    /// The sum of all counts.
    total_message_count: u64,
    size_in_bytes: u64,
    last_sequence_number: u64,
    /// Sessions that exist; of a queue that requires them (CNT-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_count: Option<u64>,
    /// Those of them that a receiver holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locked_session_count: Option<u64>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    /// The version that `If-Match` states on an update over HTTP.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
    /// `0001-01-01T00:00:00Z` if there was no activity yet.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    accessed_at: Instant,
}

/// Counts and instants of a topic (CNT-04). It holds no messages but scheduled ones, and those that are
/// sent by way of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicRuntime {
    subscription_count: u64,
    /// Rules of its subscriptions whose filter is in SQL. Brokers of version 0.1 do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sql_filter_count: Option<u64>,
    /// Their other rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_filter_count: Option<u64>,
    scheduled_message_count: u64,
    /// Messages that were sent by way of the topic and are not at their destination yet.
    #[serde(default)]
    transfer_message_count: u64,
    /// Those that cannot go there.
    #[serde(default)]
    transfer_dead_letter_message_count: u64,
    /// Over all its subscriptions, too.
    size_in_bytes: u64,
    last_sequence_number: u64,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    /// The version that `If-Match` states on an update over HTTP.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
    /// `0001-01-01T00:00:00Z` if there was no activity yet.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    accessed_at: Instant,
}

/// Counts and instants of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionRuntime {
    /// Locked messages included.
    active_message_count: u64,
    deferred_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    /// Of the active ones, those that are delayed; left out if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    delayed_message_count: u64,
    /// The sum of all counts.
    total_message_count: u64,
    /// Counts for the topic's quota.
    size_in_bytes: u64,
    last_sequence_number: u64,
    /// Sessions that exist; of a subscription that requires them (CNT-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_count: Option<u64>,
    /// Those of them that a receiver holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locked_session_count: Option<u64>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    /// The version that `If-Match` states on an update over HTTP.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
    /// `0001-01-01T00:00:00Z` if there was no activity yet.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    accessed_at: Instant,
}

/// A count that is left out if it is zero.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

impl EntityForm for QueueDescription {
    type Described = Described;
    type Runtime = Runtime;
    const SCHEMAS: [&'static str; 2] = ["QueueProperties", "QueueView"];
    const NAMES: &'static [(&'static str, &'static str)] =
        &[("path", "Path as given at creation.")];

    fn split(described: Described) -> (Self, Runtime) {
        let Described {
            description,
            counts,
            size_bytes,
            last_sequence,
            created_at,
            updated_at,
            accessed_at,
            sessions,
        } = described;
        let runtime = Runtime {
            active_message_count: counts.active,
            deferred_message_count: counts.deferred,
            scheduled_message_count: counts.scheduled,
            dead_letter_message_count: counts.dead_letter,
            transfer_message_count: counts.transfer,
            transfer_dead_letter_message_count: counts.transfer_dead_letter,
            delayed_message_count: counts.delayed,
            total_message_count: counts.total(),
            size_in_bytes: size_bytes,
            last_sequence_number: last_sequence.0,
            session_count: sessions.map(|counts| counts.existing),
            locked_session_count: sessions.map(|counts| counts.locked),
            created_at: Instant(created_at),
            updated_at: Instant(updated_at),
            accessed_at: Instant(accessed_at),
        };
        (description, runtime)
    }

    fn join(description: Self, runtime: Runtime) -> Described {
        Described {
            description,
            counts: Counts {
                active: runtime.active_message_count,
                deferred: runtime.deferred_message_count,
                scheduled: runtime.scheduled_message_count,
                dead_letter: runtime.dead_letter_message_count,
                transfer: runtime.transfer_message_count,
                transfer_dead_letter: runtime.transfer_dead_letter_message_count,
                delayed: runtime.delayed_message_count,
            },
            size_bytes: runtime.size_in_bytes,
            last_sequence: SequenceNumber(runtime.last_sequence_number),
            created_at: runtime.created_at.0,
            updated_at: runtime.updated_at.0,
            accessed_at: runtime.accessed_at.0,
            sessions: runtime.session_count.map(|existing| SessionCounts {
                existing,
                locked: runtime.locked_session_count.unwrap_or(0),
            }),
        }
    }
}

impl EntityForm for TopicDescription {
    type Described = DescribedTopic;
    type Runtime = TopicRuntime;
    const SCHEMAS: [&'static str; 2] = ["TopicProperties", "TopicView"];
    const NAMES: &'static [(&'static str, &'static str)] =
        &[("path", "Path as given at creation.")];

    fn split(described: DescribedTopic) -> (Self, TopicRuntime) {
        let DescribedTopic {
            description,
            subscription_count,
            sql_rule_count,
            correlation_rule_count,
            scheduled,
            transfer,
            transfer_dead_letter,
            size_bytes,
            last_sequence,
            created_at,
            updated_at,
            accessed_at,
        } = described;
        let runtime = TopicRuntime {
            subscription_count,
            sql_filter_count: Some(sql_rule_count),
            correlation_filter_count: Some(correlation_rule_count),
            scheduled_message_count: scheduled,
            transfer_message_count: transfer,
            transfer_dead_letter_message_count: transfer_dead_letter,
            size_in_bytes: size_bytes,
            last_sequence_number: last_sequence.0,
            created_at: Instant(created_at),
            updated_at: Instant(updated_at),
            accessed_at: Instant(accessed_at),
        };
        (description, runtime)
    }

    fn join(description: Self, runtime: TopicRuntime) -> DescribedTopic {
        DescribedTopic {
            description,
            subscription_count: runtime.subscription_count,
            sql_rule_count: runtime.sql_filter_count.unwrap_or_default(),
            correlation_rule_count: runtime.correlation_filter_count.unwrap_or_default(),
            scheduled: runtime.scheduled_message_count,
            transfer: runtime.transfer_message_count,
            transfer_dead_letter: runtime.transfer_dead_letter_message_count,
            size_bytes: runtime.size_in_bytes,
            last_sequence: SequenceNumber(runtime.last_sequence_number),
            created_at: runtime.created_at.0,
            updated_at: runtime.updated_at.0,
            accessed_at: runtime.accessed_at.0,
        }
    }
}

impl EntityForm for SubscriptionDescription {
    type Described = DescribedSubscription;
    type Runtime = SubscriptionRuntime;
    const SCHEMAS: [&'static str; 2] = ["SubscriptionProperties", "SubscriptionView"];
    const NAMES: &'static [(&'static str, &'static str)] =
        &[("topic", "Path of its topic."), ("name", "Name as given at creation.")];

    fn split(described: DescribedSubscription) -> (Self, SubscriptionRuntime) {
        let DescribedSubscription {
            description,
            counts,
            size_bytes,
            last_sequence,
            created_at,
            updated_at,
            accessed_at,
            sessions,
        } = described;
        let runtime = SubscriptionRuntime {
            active_message_count: counts.active,
            deferred_message_count: counts.deferred,
            dead_letter_message_count: counts.dead_letter,
            transfer_message_count: counts.transfer,
            transfer_dead_letter_message_count: counts.transfer_dead_letter,
            delayed_message_count: counts.delayed,
            total_message_count: counts.total(),
            size_in_bytes: size_bytes,
            last_sequence_number: last_sequence.0,
            session_count: sessions.map(|counts| counts.existing),
            locked_session_count: sessions.map(|counts| counts.locked),
            created_at: Instant(created_at),
            updated_at: Instant(updated_at),
            accessed_at: Instant(accessed_at),
        };
        (description, runtime)
    }

    fn join(description: Self, runtime: SubscriptionRuntime) -> DescribedSubscription {
        DescribedSubscription {
            description,
            counts: Counts {
                active: runtime.active_message_count,
                deferred: runtime.deferred_message_count,
                // What is scheduled waits at the topic.
                scheduled: 0,
                dead_letter: runtime.dead_letter_message_count,
                transfer: runtime.transfer_message_count,
                transfer_dead_letter: runtime.transfer_dead_letter_message_count,
                delayed: runtime.delayed_message_count,
            },
            size_bytes: runtime.size_in_bytes,
            last_sequence: SequenceNumber(runtime.last_sequence_number),
            created_at: runtime.created_at.0,
            updated_at: runtime.updated_at.0,
            accessed_at: runtime.accessed_at.0,
            sessions: runtime.session_count.map(|existing| SessionCounts {
                existing,
                locked: runtime.locked_session_count.unwrap_or(0),
            }),
        }
    }
}

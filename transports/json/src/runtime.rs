//! JSON forms of the counts and instants of entities, and the conversion of an entity with both of
//! its parts.

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
    /// Includes locked messages.
    active_message_count: u64,
    deferred_message_count: u64,
    scheduled_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    /// Number of active messages that are delayed; left out if zero.
    #[serde(default, skip_serializing_if = "is_none")]
    delayed_message_count: u64,
    /// The sum of all counts.
    total_message_count: u64,
    size_in_bytes: u64,
    last_sequence_number: u64,
    /// Number of existing sessions, for a queue that requires sessions (CNT-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_count: Option<u64>,
    /// Number of sessions that a receiver holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locked_session_count: Option<u64>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    /// Version for `If-Match` in an update over HTTP.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
    /// `0001-01-01T00:00:00Z` before the first activity.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    accessed_at: Instant,
}

/// Counts and instants of a topic (CNT-04). A topic holds only scheduled messages and messages sent
/// via the topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicRuntime {
    subscription_count: u64,
    /// Number of rules with an SQL filter in all subscriptions. Brokers of version 0.1 do not send
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sql_filter_count: Option<u64>,
    /// Number of other rules in all subscriptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_filter_count: Option<u64>,
    scheduled_message_count: u64,
    /// Messages sent via the topic that have not reached their destination.
    #[serde(default)]
    transfer_message_count: u64,
    /// Messages sent via the topic that cannot reach their destination.
    #[serde(default)]
    transfer_dead_letter_message_count: u64,
    /// Includes all subscriptions.
    size_in_bytes: u64,
    last_sequence_number: u64,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    /// Version for `If-Match` in an update over HTTP.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
    /// `0001-01-01T00:00:00Z` before the first activity.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    accessed_at: Instant,
}

/// Counts and instants of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionRuntime {
    /// Includes locked messages.
    active_message_count: u64,
    deferred_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    /// Number of active messages that are delayed; left out if zero.
    #[serde(default, skip_serializing_if = "is_none")]
    delayed_message_count: u64,
    /// The sum of all counts.
    total_message_count: u64,
    /// Counts towards the topic's quota.
    size_in_bytes: u64,
    last_sequence_number: u64,
    /// Number of existing sessions, for a subscription that requires sessions (CNT-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_count: Option<u64>,
    /// Number of sessions that a receiver holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locked_session_count: Option<u64>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    /// Version for `If-Match` in an update over HTTP.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
    /// `0001-01-01T00:00:00Z` before the first activity.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    accessed_at: Instant,
}

/// Returns whether a count is zero, so that serde leaves it out.
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
                // Scheduled messages wait at the topic.
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

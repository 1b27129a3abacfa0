//! Topics in JSON: what can be set, and what is shown.

use peeklock_core::command::DescribedTopic;
use peeklock_core::description::{Cleared, EntityStatus, TopicDescription, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::queue::{named, span};
use crate::text::{Instant, Span};

/// Properties of a topic to be created or updated. On create an absent property has its default; on
/// update it keeps its value, and `null` clears one that can be without a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TopicProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size_in_megabytes: Option<u64>,
    /// Fixed at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_duplicate_detection: Option<bool>,
    /// An ISO 8601 duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_detection_history_time_window: Option<String>,
    /// An ISO 8601 duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_message_time_to_live: Option<String>,
    /// Stored, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_batched_operations: Option<bool>,
    /// Active, Disabled or SendDisabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// An ISO 8601 duration of at least 5 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_delete_on_idle: Option<String>,
    /// Stored, without effect; fixed at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_partitioning: Option<bool>,
    /// Stored, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_express: Option<bool>,
    /// Stored, without effect: order is always kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    support_ordering: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_message_size_in_kilobytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    user_metadata: Option<Option<String>>,
}

/// A topic: its properties with their effective values, and its runtime part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicView {
    /// As it was created.
    pub path: String,
    max_size_in_megabytes: u64,
    requires_duplicate_detection: bool,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    duplicate_detection_history_time_window: Span,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    default_message_time_to_live: Span,
    enable_batched_operations: bool,
    status: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    auto_delete_on_idle: Span,
    enable_partitioning: bool,
    enable_express: bool,
    support_ordering: bool,
    max_message_size_in_kilobytes: u64,
    user_metadata: Option<String>,
    runtime: TopicRuntime,
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

impl TopicProperties {
    /// What an update takes the value of: what is named and has none.
    #[must_use]
    pub fn cleared(&self) -> Cleared {
        Cleared { user_metadata: self.user_metadata == Some(None), ..Cleared::default() }
    }

    /// As an update that replaces: what can be without a value and has none is cleared.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.user_metadata.get_or_insert(None);
        self
    }

    /// The properties as the broker takes them.
    ///
    /// # Errors
    /// `ArgumentError` for a status that topics do not have, and for what is no duration.
    pub fn to_update(&self) -> Result<TopicUpdate, Rejection> {
        let status = match self.status.as_deref() {
            None => None,
            Some(name) => Some(EntityStatus::parse(name).ok_or_else(|| {
                Rejection::argument("status must be Active, Disabled or SendDisabled")
            })?),
        };
        Ok(TopicUpdate {
            max_size_in_megabytes: self.max_size_in_megabytes,
            requires_duplicate_detection: self.requires_duplicate_detection,
            duplicate_detection_history_time_window: span(
                "duplicateDetectionHistoryTimeWindow",
                self.duplicate_detection_history_time_window.as_deref(),
            )?,
            default_message_time_to_live: span(
                "defaultMessageTimeToLive",
                self.default_message_time_to_live.as_deref(),
            )?,
            enable_batched_operations: self.enable_batched_operations,
            status,
            auto_delete_on_idle: span("autoDeleteOnIdle", self.auto_delete_on_idle.as_deref())?,
            enable_partitioning: self.enable_partitioning,
            enable_express: self.enable_express,
            support_ordering: self.support_ordering,
            max_message_size_in_kilobytes: self.max_message_size_in_kilobytes,
            user_metadata: self.user_metadata.clone().flatten().map(Box::from),
            extensions: None,
        })
    }
}

impl From<&TopicUpdate> for TopicProperties {
    fn from(update: &TopicUpdate) -> Self {
        let span = |span: Option<TimeSpan>| span.map(|span| span.to_string());
        Self {
            max_size_in_megabytes: update.max_size_in_megabytes,
            requires_duplicate_detection: update.requires_duplicate_detection,
            duplicate_detection_history_time_window: span(
                update.duplicate_detection_history_time_window,
            ),
            default_message_time_to_live: span(update.default_message_time_to_live),
            enable_batched_operations: update.enable_batched_operations,
            status: update.status.map(|status| status.name().to_owned()),
            auto_delete_on_idle: span(update.auto_delete_on_idle),
            enable_partitioning: update.enable_partitioning,
            enable_express: update.enable_express,
            support_ordering: update.support_ordering,
            max_message_size_in_kilobytes: update.max_message_size_in_kilobytes,
            user_metadata: update.user_metadata.as_deref().map(|text| Some(text.to_owned())),
        }
    }
}

impl From<DescribedTopic> for TopicView {
    fn from(described: DescribedTopic) -> Self {
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
        Self {
            path: description.path.into(),
            max_size_in_megabytes: description.max_size_in_megabytes,
            requires_duplicate_detection: description.requires_duplicate_detection,
            duplicate_detection_history_time_window: Span(
                description.duplicate_detection_history_time_window,
            ),
            default_message_time_to_live: Span(description.default_message_time_to_live),
            enable_batched_operations: description.enable_batched_operations,
            status: description.status.name().to_owned(),
            auto_delete_on_idle: Span(description.auto_delete_on_idle),
            enable_partitioning: description.enable_partitioning,
            enable_express: description.enable_express,
            support_ordering: description.support_ordering,
            max_message_size_in_kilobytes: description.max_message_size_in_kilobytes,
            user_metadata: description.user_metadata.map(String::from),
            runtime: TopicRuntime {
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
            },
        }
    }
}

impl From<TopicView> for DescribedTopic {
    fn from(view: TopicView) -> Self {
        let runtime = view.runtime;
        Self {
            description: TopicDescription {
                path: view.path.into(),
                max_size_in_megabytes: view.max_size_in_megabytes,
                requires_duplicate_detection: view.requires_duplicate_detection,
                duplicate_detection_history_time_window: view
                    .duplicate_detection_history_time_window
                    .0,
                default_message_time_to_live: view.default_message_time_to_live.0,
                enable_batched_operations: view.enable_batched_operations,
                status: EntityStatus::parse(&view.status).unwrap_or(EntityStatus::Unknown),
                auto_delete_on_idle: view.auto_delete_on_idle.0,
                enable_partitioning: view.enable_partitioning,
                enable_express: view.enable_express,
                support_ordering: view.support_ordering,
                max_message_size_in_kilobytes: view.max_message_size_in_kilobytes,
                user_metadata: view.user_metadata.map(Box::from),
                extensions: None,
            },
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

//! Queues in JSON: what can be set, and what is shown.

use peeklock_core::command::Described;
use peeklock_core::description::{EntityStatus, QueueUpdate};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::message::span;
use crate::error::Refusal;

/// Properties of a queue to be created or updated. On create an absent property has its default; on
/// update it keeps its value, and `null` clears one that can be without a value.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct QueueProperties {
    /// An ISO 8601 duration of 5 s to 5 min.
    #[schema(example = "PT1M")]
    lock_duration: Option<String>,
    max_size_in_megabytes: Option<u64>,
    /// Fixed at creation.
    requires_duplicate_detection: Option<bool>,
    /// An ISO 8601 duration.
    duplicate_detection_history_time_window: Option<String>,
    /// Fixed at creation.
    requires_session: Option<bool>,
    /// An ISO 8601 duration.
    default_message_time_to_live: Option<String>,
    dead_lettering_on_message_expiration: Option<bool>,
    max_delivery_count: Option<u32>,
    /// Stored, without effect.
    enable_batched_operations: Option<bool>,
    /// Active, Disabled, SendDisabled or ReceiveDisabled.
    status: Option<String>,
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    forward_to: Option<Option<String>>,
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    forward_dead_lettered_messages_to: Option<Option<String>>,
    /// An ISO 8601 duration of at least 5 min.
    auto_delete_on_idle: Option<String>,
    /// Stored, without effect; fixed at creation.
    enable_partitioning: Option<bool>,
    /// Stored, without effect; fixed at creation.
    enable_express: Option<bool>,
    max_message_size_in_kilobytes: Option<u64>,
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    user_metadata: Option<Option<String>>,
}

/// A queue: its properties with their effective values, and its runtime part.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueView {
    path: String,
    lock_duration: String,
    max_size_in_megabytes: u64,
    requires_duplicate_detection: bool,
    duplicate_detection_history_time_window: String,
    requires_session: bool,
    default_message_time_to_live: String,
    dead_lettering_on_message_expiration: bool,
    max_delivery_count: u32,
    enable_batched_operations: bool,
    status: &'static str,
    forward_to: Option<String>,
    forward_dead_lettered_messages_to: Option<String>,
    auto_delete_on_idle: String,
    enable_partitioning: bool,
    enable_express: bool,
    max_message_size_in_kilobytes: u64,
    user_metadata: Option<String>,
    runtime: Runtime,
}

/// Counts and instants of a queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Runtime {
    /// Locked messages included.
    active_message_count: u64,
    deferred_message_count: u64,
    scheduled_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    /// The sum of all counts.
    total_message_count: u64,
    size_in_bytes: u64,
    created_at: String,
    /// The version that `If-Match` states on an update.
    updated_at: String,
    /// `0001-01-01T00:00:00Z` if there was no activity yet.
    accessed_at: String,
}

/// Tells `null` from an absent property.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl QueueProperties {
    /// Keeps what an update does not name where the broker takes absence for a wish (ENT-17).
    pub(crate) fn keep(&mut self, current: &Described) {
        let keep = |field: &mut Option<Option<String>>, value: &Option<Box<str>>| {
            field.get_or_insert_with(|| value.as_deref().map(str::to_owned));
        };
        let description = &current.description;
        keep(&mut self.forward_to, &description.forward_to);
        keep(
            &mut self.forward_dead_lettered_messages_to,
            &description.forward_dead_lettered_messages_to,
        );
        keep(&mut self.user_metadata, &description.user_metadata);
    }

    /// The properties as the broker takes them.
    pub(crate) fn to_update(&self) -> Result<QueueUpdate, Refusal> {
        let status = match self.status.as_deref() {
            None => None,
            Some(name) => Some(EntityStatus::parse(name).ok_or_else(|| {
                Refusal::argument("status is not Active, Disabled, SendDisabled or ReceiveDisabled")
            })?),
        };
        let text = |field: &Option<Option<String>>| {
            field.as_ref().and_then(|text| text.as_deref()).map(Box::from)
        };
        Ok(QueueUpdate {
            lock_duration: span("lockDuration", self.lock_duration.as_deref())?,
            max_size_in_megabytes: self.max_size_in_megabytes,
            requires_duplicate_detection: self.requires_duplicate_detection,
            duplicate_detection_history_time_window: span(
                "duplicateDetectionHistoryTimeWindow",
                self.duplicate_detection_history_time_window.as_deref(),
            )?,
            requires_session: self.requires_session,
            default_message_time_to_live: span(
                "defaultMessageTimeToLive",
                self.default_message_time_to_live.as_deref(),
            )?,
            dead_lettering_on_message_expiration: self.dead_lettering_on_message_expiration,
            max_delivery_count: self.max_delivery_count,
            enable_batched_operations: self.enable_batched_operations,
            status,
            forward_to: text(&self.forward_to),
            forward_dead_lettered_messages_to: text(&self.forward_dead_lettered_messages_to),
            auto_delete_on_idle: span("autoDeleteOnIdle", self.auto_delete_on_idle.as_deref())?,
            enable_partitioning: self.enable_partitioning,
            enable_express: self.enable_express,
            max_message_size_in_kilobytes: self.max_message_size_in_kilobytes,
            user_metadata: text(&self.user_metadata),
        })
    }
}

impl From<Described> for QueueView {
    fn from(described: Described) -> Self {
        let Described {
            description, counts, size_bytes, created_at, updated_at, accessed_at, ..
        } = described;
        let text = |text: Option<Box<str>>| text.map(String::from);
        Self {
            path: description.path.into(),
            lock_duration: description.lock_duration.to_string(),
            max_size_in_megabytes: description.max_size_in_megabytes,
            requires_duplicate_detection: description.requires_duplicate_detection,
            duplicate_detection_history_time_window: description
                .duplicate_detection_history_time_window
                .to_string(),
            requires_session: description.requires_session,
            default_message_time_to_live: description.default_message_time_to_live.to_string(),
            dead_lettering_on_message_expiration: description.dead_lettering_on_message_expiration,
            max_delivery_count: description.max_delivery_count,
            enable_batched_operations: description.enable_batched_operations,
            status: description.status.name(),
            forward_to: text(description.forward_to),
            forward_dead_lettered_messages_to: text(description.forward_dead_lettered_messages_to),
            auto_delete_on_idle: description.auto_delete_on_idle.to_string(),
            enable_partitioning: description.enable_partitioning,
            enable_express: description.enable_express,
            max_message_size_in_kilobytes: description.max_message_size_in_kilobytes,
            user_metadata: text(description.user_metadata),
            runtime: Runtime {
                active_message_count: counts.active,
                deferred_message_count: counts.deferred,
                scheduled_message_count: counts.scheduled,
                dead_letter_message_count: counts.dead_letter,
                transfer_message_count: counts.transfer,
                transfer_dead_letter_message_count: counts.transfer_dead_letter,
                total_message_count: counts.total(),
                size_in_bytes: size_bytes,
                created_at: created_at.to_string(),
                updated_at: updated_at.to_string(),
                accessed_at: accessed_at.to_string(),
            },
        }
    }
}

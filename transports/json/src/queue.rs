//! Queues in JSON: what can be set, and what is shown.

use peeklock_core::command::{Counts, Described, SessionCounts};
use peeklock_core::description::{Cleared, EntityStatus, QueueDescription, QueueUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::TimeSpan;
use serde::{Deserialize, Deserializer, Serialize};

use crate::retry::{RetryPolicyForm, is_none, order, order_of, order_told, policy};
use crate::text::{Instant, Span};

/// Properties of a queue to be created or updated. On create an absent property has its default; on
/// update it keeps its value, and `null` clears one that can be without a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QueueProperties {
    /// An ISO 8601 duration of 5 s to 5 min.
    #[cfg_attr(feature = "schema", schema(example = "PT1M"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size_in_megabytes: Option<u64>,
    /// Fixed at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_duplicate_detection: Option<bool>,
    /// An ISO 8601 duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_detection_history_time_window: Option<String>,
    /// Fixed at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_session: Option<bool>,
    /// An ISO 8601 duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_message_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_lettering_on_message_expiration: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delivery_count: Option<u32>,
    /// Stored, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_batched_operations: Option<bool>,
    /// Active, Disabled, SendDisabled or ReceiveDisabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    forward_to: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    forward_dead_lettered_messages_to: Option<Option<String>>,
    /// An ISO 8601 duration of at least 5 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_delete_on_idle: Option<String>,
    /// Stored, without effect; fixed at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_partitioning: Option<bool>,
    /// Stored, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_express: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_message_size_in_kilobytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    user_metadata: Option<Option<String>>,
    /// When a message comes again whose delivery has failed; at once without one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<RetryPolicyForm>))]
    retry_policy: Option<Option<RetryPolicyForm>>,
    /// Whether a session waits for its delayed messages: hold or pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_retry_order: Option<String>,
}

/// A queue: its properties with their effective values, and its runtime part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// As it was created.
    pub path: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    lock_duration: Span,
    max_size_in_megabytes: u64,
    requires_duplicate_detection: bool,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    duplicate_detection_history_time_window: Span,
    requires_session: bool,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    default_message_time_to_live: Span,
    dead_lettering_on_message_expiration: bool,
    max_delivery_count: u32,
    enable_batched_operations: bool,
    status: String,
    forward_to: Option<String>,
    forward_dead_lettered_messages_to: Option<String>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    auto_delete_on_idle: Span,
    enable_partitioning: bool,
    enable_express: bool,
    max_message_size_in_kilobytes: u64,
    user_metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_policy: Option<RetryPolicyForm>,
    /// Left out if a session waits for its delayed messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_retry_order: Option<String>,
    runtime: Runtime,
}

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

/// Tells `null` from an absent property.
pub(crate) fn named<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl QueueProperties {
    /// What an update takes the value of: what is named and has none.
    #[must_use]
    pub fn cleared(&self) -> Cleared {
        let is_cleared = |field: &Option<Option<String>>| *field == Some(None);
        Cleared {
            forward_to: is_cleared(&self.forward_to),
            forward_dead_lettered_messages_to: is_cleared(&self.forward_dead_lettered_messages_to),
            user_metadata: is_cleared(&self.user_metadata),
        }
    }

    /// Where it is to forward to, as far as that is named.
    #[must_use]
    pub fn destinations(&self) -> [Option<&str>; 2] {
        let named = [&self.forward_to, &self.forward_dead_lettered_messages_to];
        named.map(|field| field.as_ref()?.as_deref())
    }

    /// The properties as the broker takes them.
    ///
    /// # Errors
    /// `ArgumentError` for a status that does not exist, and for what is no duration.
    pub fn to_update(&self) -> Result<QueueUpdate, Rejection> {
        let status = match self.status.as_deref() {
            None => None,
            Some(name) => Some(EntityStatus::parse(name).ok_or_else(|| {
                let detail = "status must be Active, Disabled, SendDisabled or ReceiveDisabled";
                Rejection::argument(detail)
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
            retry_policy: policy(self.retry_policy.as_ref())?,
            session_retry_order: order(self.session_retry_order.as_deref())?,
            extensions: None,
        })
    }
}

impl From<Described> for QueueView {
    fn from(described: Described) -> Self {
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
        let text = |text: Option<Box<str>>| text.map(String::from);
        Self {
            path: description.path.into(),
            lock_duration: Span(description.lock_duration),
            max_size_in_megabytes: description.max_size_in_megabytes,
            requires_duplicate_detection: description.requires_duplicate_detection,
            duplicate_detection_history_time_window: Span(
                description.duplicate_detection_history_time_window,
            ),
            requires_session: description.requires_session,
            default_message_time_to_live: Span(description.default_message_time_to_live),
            dead_lettering_on_message_expiration: description.dead_lettering_on_message_expiration,
            max_delivery_count: description.max_delivery_count,
            enable_batched_operations: description.enable_batched_operations,
            status: description.status.name().to_owned(),
            forward_to: text(description.forward_to),
            forward_dead_lettered_messages_to: text(description.forward_dead_lettered_messages_to),
            auto_delete_on_idle: Span(description.auto_delete_on_idle),
            enable_partitioning: description.enable_partitioning,
            enable_express: description.enable_express,
            max_message_size_in_kilobytes: description.max_message_size_in_kilobytes,
            user_metadata: text(description.user_metadata),
            retry_policy: description.retry_policy.map(Into::into),
            session_retry_order: order_told(description.session_retry_order),
            runtime: Runtime {
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
            },
        }
    }
}

impl From<&QueueUpdate> for QueueProperties {
    fn from(update: &QueueUpdate) -> Self {
        let span = |span: Option<TimeSpan>| span.map(|span| span.to_string());
        let text = |text: &Option<Box<str>>| text.as_deref().map(|text| Some(text.to_owned()));
        Self {
            lock_duration: span(update.lock_duration),
            max_size_in_megabytes: update.max_size_in_megabytes,
            requires_duplicate_detection: update.requires_duplicate_detection,
            duplicate_detection_history_time_window: span(
                update.duplicate_detection_history_time_window,
            ),
            requires_session: update.requires_session,
            default_message_time_to_live: span(update.default_message_time_to_live),
            dead_lettering_on_message_expiration: update.dead_lettering_on_message_expiration,
            max_delivery_count: update.max_delivery_count,
            enable_batched_operations: update.enable_batched_operations,
            status: update.status.map(|status| status.name().to_owned()),
            forward_to: text(&update.forward_to),
            forward_dead_lettered_messages_to: text(&update.forward_dead_lettered_messages_to),
            auto_delete_on_idle: span(update.auto_delete_on_idle),
            enable_partitioning: update.enable_partitioning,
            enable_express: update.enable_express,
            max_message_size_in_kilobytes: update.max_message_size_in_kilobytes,
            user_metadata: text(&update.user_metadata),
            retry_policy: update.retry_policy.map(|policy| policy.map(Into::into)),
            session_retry_order: update.session_retry_order.map(|order| order.name().to_owned()),
        }
    }
}

impl QueueProperties {
    /// As an update that replaces: what can be without a value and has none is cleared.
    pub fn replacing(self) -> Self {
        self.clearing(Cleared::ALL)
    }

    /// What is named here and has no new value loses its value.
    pub fn clearing(mut self, cleared: Cleared) -> Self {
        let clear = |property: &mut Option<Option<String>>, wanted: bool| {
            if wanted {
                property.get_or_insert(None);
            }
        };
        clear(&mut self.forward_to, cleared.forward_to);
        clear(
            &mut self.forward_dead_lettered_messages_to,
            cleared.forward_dead_lettered_messages_to,
        );
        clear(&mut self.user_metadata, cleared.user_metadata);
        self
    }
}

impl From<QueueView> for Described {
    fn from(view: QueueView) -> Self {
        let text = |text: Option<String>| text.map(Box::from);
        let runtime = view.runtime;
        Self {
            description: QueueDescription {
                path: view.path.into(),
                lock_duration: view.lock_duration.0,
                max_size_in_megabytes: view.max_size_in_megabytes,
                requires_duplicate_detection: view.requires_duplicate_detection,
                duplicate_detection_history_time_window: view
                    .duplicate_detection_history_time_window
                    .0,
                requires_session: view.requires_session,
                default_message_time_to_live: view.default_message_time_to_live.0,
                dead_lettering_on_message_expiration: view.dead_lettering_on_message_expiration,
                max_delivery_count: view.max_delivery_count,
                enable_batched_operations: view.enable_batched_operations,
                status: EntityStatus::parse(&view.status).unwrap_or(EntityStatus::Unknown),
                forward_to: text(view.forward_to),
                forward_dead_lettered_messages_to: text(view.forward_dead_lettered_messages_to),
                auto_delete_on_idle: view.auto_delete_on_idle.0,
                enable_partitioning: view.enable_partitioning,
                enable_express: view.enable_express,
                max_message_size_in_kilobytes: view.max_message_size_in_kilobytes,
                user_metadata: text(view.user_metadata),
                retry_policy: view.retry_policy.and_then(|form| form.read().ok()),
                session_retry_order: order_of(view.session_retry_order.as_deref()),
                extensions: None,
            },
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

/// A duration of a request; `name` is its property.
pub(crate) fn span(name: &str, text: Option<&str>) -> Result<Option<TimeSpan>, Rejection> {
    let Some(text) = text else { return Ok(None) };
    let parsed = TimeSpan::parse(text).ok_or_else(|| {
        Rejection::argument(format!("{name} must be an ISO 8601 duration such as PT1M"))
    });
    parsed.map(Some)
}

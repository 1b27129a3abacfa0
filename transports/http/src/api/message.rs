//! Messages in JSON. Names are the spec's in camel case, instants RFC 3339, durations ISO 8601.

use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::message::{Message, MessageId};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::broker_properties::state;
use crate::data::body;
use crate::error::Refusal;
use peeklock_json::{PropertyMap, PropertyValueSchema, write_map};

/// A message to be sent. Properties that the broker sets are ignored, so that a received message
/// can be sent as it is (MSG-11); other unknown names are refused, because they are misspelt.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewMessage {
    /// The body as text; not together with `bodyBase64`. Without either it is empty.
    body: Option<String>,
    /// The body as Base64.
    body_base64: Option<String>,
    /// At most 128 characters; the broker gives one if there is none.
    message_id: Option<String>,
    session_id: Option<String>,
    partition_key: Option<String>,
    transaction_partition_key: Option<String>,
    reply_to_session_id: Option<String>,
    correlation_id: Option<String>,
    content_type: Option<String>,
    subject: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    /// An ISO 8601 duration, such as `PT1M`.
    #[schema(example = "PT1M")]
    time_to_live: Option<String>,
    /// An RFC 3339 instant.
    scheduled_enqueue_time_utc: Option<String>,
    force_persistence: Option<bool>,
    /// Application properties, plain or with their exact type.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
    #[serde(default, rename = "sequenceNumber")]
    #[schema(ignore)]
    _sequence_number: IgnoredAny,
    #[serde(default, rename = "enqueuedSequenceNumber")]
    #[schema(ignore)]
    _enqueued_sequence_number: IgnoredAny,
    #[serde(default, rename = "enqueuedTimeUtc")]
    #[schema(ignore)]
    _enqueued_time_utc: IgnoredAny,
    #[serde(default, rename = "expiresAtUtc")]
    #[schema(ignore)]
    _expires_at_utc: IgnoredAny,
    #[serde(default, rename = "deliveryCount")]
    #[schema(ignore)]
    _delivery_count: IgnoredAny,
    #[serde(default, rename = "deadLetterSource")]
    #[schema(ignore)]
    _dead_letter_source: IgnoredAny,
    #[serde(default, rename = "state")]
    #[schema(ignore)]
    _state: IgnoredAny,
    #[serde(default, rename = "size")]
    #[schema(ignore)]
    _size: IgnoredAny,
    #[serde(default, rename = "lockToken")]
    #[schema(ignore)]
    _lock_token: IgnoredAny,
    #[serde(default, rename = "lockedUntilUtc")]
    #[schema(ignore)]
    _locked_until_utc: IgnoredAny,
}

/// A message that was received or looked at.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReceivedView {
    /// The body, if it is text in UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body as Base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_partition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_enqueue_time_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    force_persistence: Option<bool>,
    /// Application properties, plain where JSON has the type and with their exact type elsewhere.
    #[schema(value_type = std::collections::BTreeMap<String, PropertyValueSchema>)]
    application_properties: serde_json::Map<String, serde_json::Value>,
    sequence_number: u64,
    enqueued_sequence_number: u64,
    enqueued_time_utc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_utc: Option<String>,
    delivery_count: u32,
    state: StateView,
    /// Stored size in bytes.
    size: u32,
    /// Names the lock; only on messages received under one.
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until_utc: Option<String>,
}

/// Active, Deferred or Scheduled.
#[derive(ToSchema)]
#[schema(value_type = String)]
pub(crate) struct StateView(MessageState);

impl Serialize for StateView {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(state(self.0))
    }
}

impl NewMessage {
    /// The message of the broker.
    pub(crate) fn into_message(self) -> Result<Message, Refusal> {
        Ok(Message {
            body: body(self.body, self.body_base64).map_err(Refusal::argument)?,
            message_id: self.message_id.map(MessageId::String),
            session_id: self.session_id,
            partition_key: self.partition_key,
            transaction_partition_key: self.transaction_partition_key,
            reply_to_session_id: self.reply_to_session_id,
            correlation_id: self.correlation_id.map(MessageId::String),
            content_type: self.content_type,
            subject: self.subject,
            to: self.to,
            reply_to: self.reply_to,
            time_to_live: span("timeToLive", self.time_to_live.as_deref())?,
            scheduled_enqueue_time: instant(
                "scheduledEnqueueTimeUtc",
                self.scheduled_enqueue_time_utc.as_deref(),
            )?,
            force_persistence: self.force_persistence.unwrap_or_default(),
            application_properties: self.application_properties.unwrap_or_default().0,
        })
    }
}

impl ReceivedView {
    /// What a client is shown of a message.
    pub(crate) fn new(message: Message, facts: &MessageFacts) -> Self {
        let bytes = message.body.as_bytes();
        let (text, base64) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(base64_of(bytes))),
        };
        Self {
            body: text,
            body_base64: base64,
            message_id: message.message_id.map(|id| id.to_string()),
            session_id: message.session_id,
            partition_key: message.partition_key,
            transaction_partition_key: message.transaction_partition_key,
            reply_to_session_id: message.reply_to_session_id,
            correlation_id: message.correlation_id.map(|id| id.to_string()),
            content_type: message.content_type,
            subject: message.subject,
            to: message.to,
            reply_to: message.reply_to,
            time_to_live: facts.time_to_live.map(|span| span.to_string()),
            scheduled_enqueue_time_utc: message.scheduled_enqueue_time.map(|at| at.to_string()),
            force_persistence: message.force_persistence.then_some(true),
            application_properties: write_map(&message.application_properties),
            sequence_number: facts.sequence.0,
            enqueued_sequence_number: facts.enqueued_sequence.0,
            enqueued_time_utc: facts.enqueued_at.to_string(),
            expires_at_utc: facts.expires_at.map(|at| at.to_string()),
            delivery_count: facts.shown_delivery_count(),
            state: StateView(facts.state),
            size: facts.size,
            lock_token: facts.lock.map(|lock| lock.token.to_string()),
            locked_until_utc: facts.lock.map(|lock| lock.until.to_string()),
        }
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A duration of a request; `name` is its property.
pub(crate) fn span(name: &str, text: Option<&str>) -> Result<Option<TimeSpan>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match TimeSpan::parse(text) {
        Some(span) => Ok(Some(span)),
        None => Err(Refusal::argument(format!("{name} is not an ISO 8601 duration such as PT1M"))),
    }
}

/// An instant of a request; `name` is its property.
pub(crate) fn instant(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match Timestamp::parse(text) {
        Some(instant) => Ok(Some(instant)),
        None => Err(Refusal::argument(format!("{name} is not an RFC 3339 instant"))),
    }
}

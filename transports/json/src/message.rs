//! JSON forms of a message, to read and to write; used by the JSON API over HTTP, WebSocket frames
//! and the command line. Names are the specification's in camel case, instants RFC 3339, durations
//! ISO 8601. Absent properties are left out.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Body, Message, MessageId};
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

use crate::property::{PropertyMap, write_map};
use crate::size::as_text;
use crate::text::{Instant, Span, Token};

#[cfg(feature = "schema")]
use crate::property::PropertyValueSchema;

/// Selects whether a reader parses the properties that the broker sets.
pub trait BrokerProperties {
    /// Type that such a property is parsed into.
    type Of<T: DeserializeOwned>: Default + DeserializeOwned;
}

/// For a message to be sent: ignores any value of these properties, so that a received message can
/// be sent unchanged (MSG-11).
#[derive(Clone, Copy, Debug)]
pub struct Ignored;

/// For a message from a broker: parses the properties.
#[derive(Clone, Copy, Debug)]
pub struct FromBroker;

impl BrokerProperties for Ignored {
    type Of<T: DeserializeOwned> = IgnoredAny;
}

impl BrokerProperties for FromBroker {
    type Of<T: DeserializeOwned> = Option<T>;
}

/// A message to be sent.
pub type NewMessage = MessageObject<Ignored>;

/// A message from a broker.
pub type BrokerMessage = MessageObject<FromBroker>;

/// A message to be sent. Properties that the broker sets are ignored, so that a received message
/// can be sent unchanged (MSG-11). Other unknown names are rejected as misspelt.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = NewMessage, bound = "B: BrokerProperties"))]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "B: BrokerProperties")]
pub struct MessageObject<B: BrokerProperties> {
    /// The body as text; not together with `bodyBase64`. Without either it is empty.
    body: Option<String>,
    /// The body as Base64.
    body_base64: Option<String>,
    /// At most 128 characters; the broker assigns an id if it is absent.
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
    #[serde(default, deserialize_with = "time_to_live")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "PT1M"))]
    time_to_live: Option<Span>,
    /// An RFC 3339 instant.
    #[serde(default, deserialize_with = "scheduled_enqueue_time")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    scheduled_enqueue_time_utc: Option<Instant>,
    force_persistence: Option<bool>,
    /// Application properties, plain or with their exact type.
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)
    )]
    application_properties: Option<PropertyMap>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    sequence_number: B::Of<u64>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    enqueued_sequence_number: B::Of<u64>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    enqueued_time_utc: B::Of<Instant>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    expires_at_utc: B::Of<Instant>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    delivery_count: B::Of<u32>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    state: B::Of<StateName>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    delayed_until_utc: B::Of<Instant>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    size: B::Of<u32>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    lock_token: B::Of<Token>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    locked_until_utc: B::Of<Instant>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    dead_letter_source: B::Of<String>,
}

fn time_to_live<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    named("timeToLive", Option::deserialize(deserializer))
}

fn scheduled_enqueue_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Instant>, D::Error> {
    named("scheduledEnqueueTimeUtc", Option::deserialize(deserializer))
}

fn named<T, E: Error + fmt::Display>(name: &str, read: Result<T, E>) -> Result<T, E> {
    read.map_err(|error| E::custom(format!("{name}: {error}")))
}

impl<B: BrokerProperties> MessageObject<B> {
    /// Converts to the broker's message.
    ///
    /// # Errors
    /// Returns an error if there are two bodies, or if `bodyBase64` is not Base64.
    pub fn into_message(self) -> Result<Message, &'static str> {
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => return Err("a message has body or bodyBase64, not both"),
            (Some(text), None) => Bytes::from(text),
            (None, Some(text)) => match STANDARD.decode(text) {
                Ok(bytes) => bytes.into(),
                Err(_) => return Err("bodyBase64 must be Base64"),
            },
            (None, None) => Bytes::new(),
        };
        Ok(Message {
            body: Body::Data(body),
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
            time_to_live: self.time_to_live.map(|Span(span)| span),
            scheduled_enqueue_time: self.scheduled_enqueue_time_utc.map(|Instant(at)| at),
            force_persistence: self.force_persistence.unwrap_or_default(),
            application_properties: self.application_properties.unwrap_or_default().0,
        })
    }
}

impl BrokerMessage {
    /// Returns the properties that the broker set.
    ///
    /// # Errors
    /// Returns the name of a missing property that every broker sends.
    pub fn facts(&self) -> Result<MessageFacts, &'static str> {
        let lock = match (self.lock_token, self.locked_until_utc) {
            (Some(Token(token)), Some(Instant(until))) => Some(LockGrant { token, until }),
            (None | Some(_), None | Some(_)) => None,
        };
        let shown = self.delivery_count.ok_or("deliveryCount")?;
        Ok(MessageFacts {
            sequence: SequenceNumber(self.sequence_number.ok_or("sequenceNumber")?),
            enqueued_sequence: SequenceNumber(self.enqueued_sequence_number.unwrap_or(0)),
            enqueued_at: self.enqueued_time_utc.ok_or("enqueuedTimeUtc")?.0,
            expires_at: self.expires_at_utc.map(|Instant(at)| at),
            time_to_live: self.time_to_live.map(|Span(span)| span),
            delivery_count: if lock.is_some() { shown.saturating_sub(1) } else { shown },
            state: self.state.map_or(MessageState::Active, Into::into),
            delayed_until: self.delayed_until_utc.map(|Instant(at)| at),
            sub_queue: SubQueue::Main,
            lock,
            size: self.size.unwrap_or(0),
            overlay_count: 0,
            was_scheduled: false,
        })
    }

    /// Returns the entity in which the message was dead-lettered before it was forwarded (FWD-26).
    pub fn take_dead_letter_source(&mut self) -> Option<String> {
        self.dead_letter_source.take()
    }
}

/// A message as sent, with the changes of settlements.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MessageView<'a> {
    /// The body, if it is UTF-8 text without too many characters to escape.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// The body as Base64, if it is not text, or if it has more than 64 KiB and escapes would more
    /// than double its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_partition_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    time_to_live: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    scheduled_enqueue_time_utc: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    force_persistence: Option<bool>,
    /// Application properties: plain if JSON has the type, otherwise with their exact type. Left
    /// out if there are none.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)
    )]
    application_properties: serde_json::Map<String, serde_json::Value>,
}

/// A message that was received or peeked.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReceivedView<'a> {
    #[serde(flatten)]
    message: MessageView<'a>,
    sequence_number: u64,
    /// The first sequence number of a message that was forwarded or is a copy in a subscription;
    /// otherwise 0.
    enqueued_sequence_number: u64,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    enqueued_time_utc: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    expires_at_utc: Option<Instant>,
    delivery_count: u32,
    state: StateName,
    /// End of the delay; only on delayed messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    delayed_until_utc: Option<Instant>,
    /// Stored size in bytes.
    size: u32,
    /// Identifies the lock; only on messages received under a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    lock_token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    locked_until_utc: Option<Instant>,
    /// The entity in which the message was dead-lettered before it was forwarded here.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_source: Option<&'a str>,
}

/// State of a message, under the same name in all transports.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StateName {
    /// Available or locked.
    Active,
    /// Set aside by a receiver.
    Deferred,
    /// Waiting for its instant.
    Scheduled,
    /// Waiting for redelivery.
    Delayed,
}

impl StateName {
    /// Returns the name.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Deferred => "Deferred",
            Self::Scheduled => "Scheduled",
            Self::Delayed => "Delayed",
        }
    }
}

impl From<MessageState> for StateName {
    fn from(state: MessageState) -> Self {
        match state {
            MessageState::Active => Self::Active,
            MessageState::Deferred => Self::Deferred,
            MessageState::Scheduled => Self::Scheduled,
            MessageState::Delayed => Self::Delayed,
        }
    }
}

impl From<StateName> for MessageState {
    fn from(state: StateName) -> Self {
        match state {
            StateName::Active => Self::Active,
            StateName::Deferred => Self::Deferred,
            StateName::Scheduled => Self::Scheduled,
            StateName::Delayed => Self::Delayed,
        }
    }
}

impl<'a> MessageView<'a> {
    /// Creates the view of a message to be sent.
    #[must_use]
    pub fn new(message: &'a Message) -> Self {
        Self::with(message, message.time_to_live)
    }

    fn with(message: &'a Message, time_to_live: Option<TimeSpan>) -> Self {
        let bytes = message.body.as_bytes();
        let text = as_text(bytes);
        let id = |id: &Option<MessageId>| id.as_ref().map(ToString::to_string);
        Self {
            body: text,
            body_base64: text.is_none().then(|| STANDARD.encode(bytes)),
            message_id: id(&message.message_id),
            session_id: message.session_id.as_deref(),
            partition_key: message.partition_key.as_deref(),
            transaction_partition_key: message.transaction_partition_key.as_deref(),
            reply_to_session_id: message.reply_to_session_id.as_deref(),
            correlation_id: id(&message.correlation_id),
            content_type: message.content_type.as_deref(),
            subject: message.subject.as_deref(),
            to: message.to.as_deref(),
            reply_to: message.reply_to.as_deref(),
            time_to_live: time_to_live.map(Span),
            scheduled_enqueue_time_utc: message.scheduled_enqueue_time.map(Instant),
            force_persistence: message.force_persistence.then_some(true),
            application_properties: write_map(&message.application_properties),
        }
    }
}

impl<'a> ReceivedView<'a> {
    /// The view without the body, which a writer adds.
    #[must_use]
    pub fn without_body(mut self) -> Self {
        (self.message.body, self.message.body_base64) = (None, None);
        self
    }

    /// Creates the view of a message for a client; its time to live follows EXP-14.
    #[must_use]
    pub fn new(
        message: &'a Message,
        facts: &MessageFacts,
        dead_letter_source: Option<&'a str>,
    ) -> Self {
        Self {
            message: MessageView::with(message, facts.time_to_live),
            sequence_number: facts.sequence.0,
            enqueued_sequence_number: facts.enqueued_sequence.0,
            enqueued_time_utc: Instant(facts.enqueued_at),
            expires_at_utc: facts.expires_at.map(Instant),
            delivery_count: facts.shown_delivery_count(),
            state: facts.state.into(),
            delayed_until_utc: facts.delayed_until.map(Instant),
            size: facts.size,
            lock_token: facts.lock.map(|lock| Token(lock.token)),
            locked_until_utc: facts.lock.map(|lock| Instant(lock.until)),
            dead_letter_source,
        }
    }
}

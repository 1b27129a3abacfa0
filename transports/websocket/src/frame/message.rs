//! Messages in both forms: AMQP sections in the binary one, an object in JSON.
//!
//! The binary form passes content on as it is stored; nothing is decoded on the way out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Body, Content, ContentError, Message, MessageId, Overlay, Value};
use peeklock_core::path::SubQueue;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use super::json::Object;
use super::text::{Instant, Span, Token};
use super::wire::{Reader, Wire};
use crate::error::FrameError;
use peeklock_json::{PropertyMap, write_map};

/// A message on its way to the broker.
#[derive(Clone, Debug)]
pub(crate) enum Outgoing {
    /// In AMQP section encoding, not yet checked.
    Content(Bytes),
    /// As its properties.
    Typed(Box<Message>),
}

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) facts: MessageFacts,
    pub(crate) carried: Carried,
}

/// The message itself.
#[derive(Clone, Debug)]
pub(crate) enum Carried {
    /// Content and property overlays, as they are stored.
    Stored { content: Bytes, overlays: Vec<Bytes> },
    /// Read, overlays applied.
    Typed(Box<Message>),
}

/// Application properties to set: an application-properties section in the binary form.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Properties(pub(crate) Vec<(String, Value)>);

/// A message as JSON, in the names of the JSON API over HTTP. Those that the broker sets are ignored
/// when it is sent, so that a received message can be sent again (MSG-11).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MessageObject {
    body: Option<String>,
    body_base64: Option<String>,
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
    time_to_live: Option<Span>,
    scheduled_enqueue_time_utc: Option<Instant>,
    #[serde(default)]
    force_persistence: bool,
    #[serde(default)]
    application_properties: PropertyMap,
    sequence_number: Option<u64>,
    enqueued_sequence_number: Option<u64>,
    enqueued_time_utc: Option<Instant>,
    expires_at_utc: Option<Instant>,
    delivery_count: Option<u32>,
    state: Option<StateName>,
    size: Option<u32>,
    lock_token: Option<Token>,
    locked_until_utc: Option<Instant>,
    #[serde(default, rename = "deadLetterSource")]
    _dead_letter_source: IgnoredAny,
}

/// The same on its way out; absent properties are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
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
    time_to_live: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_enqueue_time_utc: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    force_persistence: Option<bool>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    application_properties: serde_json::Map<String, serde_json::Value>,
    #[serde(flatten)]
    facts: Option<FactsView>,
}

/// What the broker says of a message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FactsView {
    sequence_number: u64,
    enqueued_sequence_number: u64,
    enqueued_time_utc: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_utc: Option<Instant>,
    delivery_count: u32,
    state: StateName,
    size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until_utc: Option<Instant>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum StateName {
    Active,
    Deferred,
    Scheduled,
}

impl From<MessageState> for StateName {
    fn from(state: MessageState) -> Self {
        match state {
            MessageState::Active => Self::Active,
            MessageState::Deferred => Self::Deferred,
            MessageState::Scheduled => Self::Scheduled,
        }
    }
}

impl From<StateName> for MessageState {
    fn from(state: StateName) -> Self {
        match state {
            StateName::Active => Self::Active,
            StateName::Deferred => Self::Deferred,
            StateName::Scheduled => Self::Scheduled,
        }
    }
}

impl Outgoing {
    /// The typed view.
    ///
    /// # Errors
    /// When the bytes are no content.
    pub(crate) fn message(&self) -> Result<Message, ContentError> {
        match self {
            Self::Content(bytes) => Content::parse(bytes.clone())?.decode(),
            Self::Typed(message) => Ok((**message).clone()),
        }
    }
}

impl Carried {
    /// The message with what settlements have set.
    ///
    /// # Errors
    /// When the bytes are no content.
    pub(crate) fn message(&self) -> Result<Message, ContentError> {
        match self {
            Self::Stored { content, overlays } => {
                let overlays: Vec<_> = overlays.iter().cloned().map(Overlay::from_bytes).collect();
                Content::parse(content.clone())?.message(&overlays)
            }
            Self::Typed(message) => Ok((**message).clone()),
        }
    }
}

impl<'a> MessageView<'a> {
    fn new(message: &'a Message, facts: Option<&MessageFacts>) -> Self {
        let bytes = message.body.as_bytes();
        let text = std::str::from_utf8(bytes).ok();
        let time_to_live = match facts {
            Some(facts) => facts.time_to_live,
            None => message.time_to_live,
        };
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
            facts: facts.map(FactsView::new),
        }
    }
}

impl FactsView {
    fn new(facts: &MessageFacts) -> Self {
        Self {
            sequence_number: facts.sequence.0,
            enqueued_sequence_number: facts.enqueued_sequence.0,
            enqueued_time_utc: Instant(facts.enqueued_at),
            expires_at_utc: facts.expires_at.map(Instant),
            delivery_count: facts.shown_delivery_count(),
            state: facts.state.into(),
            size: facts.size,
            lock_token: facts.lock.map(|lock| Token(lock.token)),
            locked_until_utc: facts.lock.map(|lock| Instant(lock.until)),
        }
    }
}

impl MessageObject {
    fn message<E: serde::de::Error>(&mut self) -> Result<Message, E> {
        let body = match (self.body.take(), self.body_base64.take()) {
            (Some(_), Some(_)) => {
                return Err(E::custom("a message has body or bodyBase64, not both"));
            }
            (Some(text), None) => Bytes::from(text),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| E::custom(format!("bodyBase64: {error}")))?
                .into(),
            (None, None) => Bytes::new(),
        };
        Ok(Message {
            body: Body::Data(body),
            message_id: self.message_id.take().map(MessageId::String),
            session_id: self.session_id.take(),
            partition_key: self.partition_key.take(),
            transaction_partition_key: self.transaction_partition_key.take(),
            reply_to_session_id: self.reply_to_session_id.take(),
            correlation_id: self.correlation_id.take().map(MessageId::String),
            content_type: self.content_type.take(),
            subject: self.subject.take(),
            to: self.to.take(),
            reply_to: self.reply_to.take(),
            time_to_live: self.time_to_live.map(|span| span.0),
            scheduled_enqueue_time: self.scheduled_enqueue_time_utc.map(|at| at.0),
            force_persistence: self.force_persistence,
            application_properties: std::mem::take(&mut self.application_properties.0),
        })
    }

    fn facts<E: serde::de::Error>(&self) -> Result<MessageFacts, E> {
        let missing = E::missing_field;
        let lock = match (self.lock_token, self.locked_until_utc) {
            (Some(token), Some(until)) => Some(LockGrant { token: token.0, until: until.0 }),
            (None | Some(_), None | Some(_)) => None,
        };
        let shown = self.delivery_count.ok_or_else(|| missing("deliveryCount"))?;
        Ok(MessageFacts {
            sequence: SequenceNumber(
                self.sequence_number.ok_or_else(|| missing("sequenceNumber"))?,
            ),
            enqueued_sequence: SequenceNumber(self.enqueued_sequence_number.unwrap_or(0)),
            enqueued_at: self.enqueued_time_utc.ok_or_else(|| missing("enqueuedTimeUtc"))?.0,
            expires_at: self.expires_at_utc.map(|at| at.0),
            time_to_live: self.time_to_live.map(|span| span.0),
            delivery_count: if lock.is_some() { shown.saturating_sub(1) } else { shown },
            state: self.state.map_or(MessageState::Active, Into::into),
            sub_queue: SubQueue::Main,
            lock,
            size: self.size.unwrap_or(0),
            overlay_count: 0,
        })
    }
}

impl Serialize for Outgoing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.message().map_err(ser::Error::custom)?;
        MessageView::new(&message, None).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Outgoing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(mut object) = Object::<MessageObject>::deserialize(deserializer)?;
        Ok(Self::Typed(Box::new(object.message()?)))
    }
}

impl Serialize for Delivered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.carried.message().map_err(ser::Error::custom)?;
        MessageView::new(&message, Some(&self.facts)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Delivered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(mut object) = Object::<MessageObject>::deserialize(deserializer)?;
        let facts = object.facts()?;
        Ok(Self { facts, carried: Carried::Typed(Box::new(object.message()?)) })
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_map(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PropertyMap::deserialize(deserializer).map(|map| Self(map.0))
    }
}

impl Wire for Outgoing {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Content(bytes) => bytes.write(out),
            Self::Typed(message) => message.encode().as_bytes().write(out),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Bytes::read(reader).map(Self::Content)
    }
}

/// Which parts of the facts follow.
mod flag {
    pub(super) const LOCK: u8 = 1;
    pub(super) const EXPIRES_AT: u8 = 2;
    pub(super) const TIME_TO_LIVE: u8 = 4;
}

const STATES: [MessageState; 3] =
    [MessageState::Active, MessageState::Deferred, MessageState::Scheduled];

impl Wire for MessageFacts {
    const BYTES_MIN: usize = 34;

    fn write(&self, out: &mut Vec<u8>) {
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        let flags = flag(self.lock.is_some(), flag::LOCK)
            | flag(self.expires_at.is_some(), flag::EXPIRES_AT)
            | flag(self.time_to_live.is_some(), flag::TIME_TO_LIVE);
        flags.write(out);
        let state = STATES.iter().position(|state| *state == self.state).unwrap_or(0);
        u8::try_from(state).unwrap_or(0).write(out);
        self.sequence.0.write(out);
        self.enqueued_sequence.0.write(out);
        self.enqueued_at.ticks().write(out);
        self.shown_delivery_count().write(out);
        self.size.write(out);
        if let Some(lock) = self.lock {
            lock.token.0.write(out);
            lock.until.ticks().write(out);
        }
        if let Some(at) = self.expires_at {
            at.ticks().write(out);
        }
        if let Some(span) = self.time_to_live {
            span.ticks().write(out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let flags = u8::read(reader)?;
        let state = u8::read(reader)?;
        let state = STATES.get(usize::from(state)).ok_or(FrameError::BadValue("state"))?;
        let sequence = SequenceNumber(u64::read(reader)?);
        let enqueued_sequence = SequenceNumber(u64::read(reader)?);
        let enqueued_at = Instant::read(reader)?.0;
        let shown = u32::read(reader)?;
        let size = u32::read(reader)?;
        let lock = if flags & flag::LOCK == 0 {
            None
        } else {
            let token = Token::read(reader)?.0;
            Some(LockGrant { token, until: Instant::read(reader)?.0 })
        };
        let given = |flag| flags & flag != 0;
        let expires_at =
            if given(flag::EXPIRES_AT) { Some(Instant::read(reader)?.0) } else { None };
        let time_to_live =
            if given(flag::TIME_TO_LIVE) { Some(Span::read(reader)?.0) } else { None };
        Ok(Self {
            sequence,
            enqueued_sequence,
            enqueued_at,
            expires_at,
            time_to_live,
            delivery_count: if lock.is_some() { shown.saturating_sub(1) } else { shown },
            state: *state,
            sub_queue: SubQueue::Main,
            lock,
            size,
            overlay_count: 0,
        })
    }
}

impl Wire for Delivered {
    const BYTES_MIN: usize = MessageFacts::BYTES_MIN + 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.facts.write(out);
        match &self.carried {
            Carried::Stored { content, overlays } => {
                content.write(out);
                overlays.write(out);
            }
            Carried::Typed(message) => {
                message.encode().as_bytes().write(out);
                Vec::<Bytes>::new().write(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let facts = MessageFacts::read(reader)?;
        let content = Bytes::read(reader)?;
        let overlays = Vec::read(reader)?;
        Ok(Self { facts, carried: Carried::Stored { content, overlays } })
    }
}

impl Wire for Properties {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        let message =
            Message { application_properties: self.0.clone(), ..Message::new(Bytes::new()) };
        let content = message.encode();
        super::wire::write_bytes(out, content.sections().application_properties);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let section = Bytes::read(reader)?;
        if section.is_empty() {
            return Ok(Self::default());
        }
        let content = Content::parse(section).map_err(FrameError::Content)?;
        if content.sections().application_properties.len() != content.as_bytes().len() {
            return Err(FrameError::BadValue("application-properties section"));
        }
        let message = content.decode().map_err(FrameError::Content)?;
        Ok(Self(message.application_properties))
    }
}

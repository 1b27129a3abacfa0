//! Heads and bodies of messages, and counts of messages by slot.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    BodyPart, Head, HeadContent, HeadFacts, HeadPage, HeadState, TapId, TapPage, Timeline,
};
use peeklock_core::message::{Body, Message, MessageId};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::{Deserialize, Serialize};

use super::lock::LockView;
use super::{BodyKindName, HeadStateName, Paged, is_false};
use crate::property::PropertyMap;
#[cfg(feature = "schema")]
use crate::property::PropertyValueSchema;
use crate::text::{Instant, Span};

/// A page of messages without their bodies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeadPageView {
    heads: Vec<HeadView>,
    /// Number of messages that were examined for the page.
    examined: u64,
    /// Position of the next page. A page with it may be short or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A message without its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeadView {
    sequence_number: u64,
    /// The first sequence number of a message that was forwarded or is a copy in a subscription;
    /// otherwise 0.
    enqueued_sequence_number: u64,
    state: HeadStateName,
    /// Whether the message has expired and is still stored.
    #[serde(default, skip_serializing_if = "is_false")]
    is_expired: bool,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    enqueued_time_utc: Instant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    scheduled_enqueue_time_utc: Option<Instant>,
    /// Expiry in force, by the message or by the entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    expires_at_utc: Option<Instant>,
    /// End of the delay; only on delayed messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    delayed_until_utc: Option<Instant>,
    delivery_count: u32,
    /// Number of times that the message was forwarded.
    hops: u8,
    /// Stored size in bytes.
    size: u32,
    /// Bytes of everything but the body.
    header_size: u32,
    /// Bytes of the body; 0 if the message cannot be read.
    body_size: u64,
    /// Kind of the body; left out if the message cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_kind: Option<BodyKindName>,
    /// At most the first 256 bytes of the body, cut at a character, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_start: Option<String>,
    /// At most the first 256 bytes of the body as Base64, if they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_start_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transaction_partition_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    time_to_live: Option<Span>,
    /// Application properties, plain or with their exact type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)
    )]
    application_properties: Option<PropertyMap>,
    /// The entity in which the message was dead-lettered before it was forwarded here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead_letter_source: Option<String>,
    /// Destination of a message that is sent via this entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    via_destination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock: Option<LockView>,
    /// Whether the store cannot read the message.
    #[serde(default, skip_serializing_if = "is_false")]
    unreadable: bool,
}

/// Counts of messages by slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimelineView {
    /// Length of each slot in seconds.
    slot_seconds: i64,
    /// Start of the first slot.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    from_utc: Instant,
    /// Number of messages in each slot.
    counts: Vec<u64>,
    /// Number of messages before the first slot.
    before: u64,
    /// Number of messages after the last slot.
    later: u64,
    /// Number of entities that were not counted, because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    omitted_entities: u64,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A part of a body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BodyPartView {
    body_kind: BodyKindName,
    /// Bytes of the whole body.
    body_size: u64,
    /// Place of the first byte.
    from: u64,
    /// The bytes; empty after the end of the body.
    body_base64: String,
    /// Instant of the answer by the clock of the broker.
    now_utc: Instant,
}

/// Messages that were accepted since the last page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TapPageView {
    tap: u64,
    heads: Vec<HeadView>,
    /// Number of accepted messages that are not shown.
    omitted: u64,
    /// Instant of the answer by the clock of the broker.
    now_utc: Instant,
}

/// Returns whether a count is zero, so that serde leaves it out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
pub(super) const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl HeadPageView {
    pub(super) fn new(page: HeadPage, at: Timestamp) -> Self {
        Self {
            heads: page.heads.into_iter().map(HeadView::from).collect(),
            examined: page.examined,
            next: page.next.map(|cursor| Paged::Heads.cursor_text(cursor)),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<HeadPage, Rejection> {
        let next = self.next.as_deref().map(|text| Paged::Heads.parse_cursor(text));
        Ok(HeadPage { heads: heads(self.heads)?, examined: self.examined, next: next.transpose()? })
    }
}

fn heads(views: Vec<HeadView>) -> Result<Vec<Head>, Rejection> {
    views.into_iter().map(Head::try_from).collect()
}

impl TapPageView {
    pub(super) fn new(page: TapPage, at: Timestamp) -> Self {
        let TapPage { tap: TapId(tap), heads, omitted } = page;
        let heads = heads.into_iter().map(HeadView::from).collect();
        Self { tap, heads, omitted, now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<TapPage, Rejection> {
        Ok(TapPage { tap: TapId(self.tap), heads: heads(self.heads)?, omitted: self.omitted })
    }
}

impl TimelineView {
    pub(super) fn new(timeline: Timeline, at: Timestamp) -> Self {
        Self {
            slot_seconds: timeline.slot.as_ms() / 1_000,
            from_utc: Instant(timeline.from),
            counts: timeline.counts,
            before: timeline.before,
            later: timeline.later,
            omitted_entities: timeline.omitted_entities,
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn timeline(self) -> Timeline {
        Timeline {
            from: self.from_utc.0,
            slot: TimeSpan::from_seconds(self.slot_seconds),
            counts: self.counts,
            before: self.before,
            later: self.later,
            omitted_entities: self.omitted_entities,
        }
    }
}

impl BodyPartView {
    pub(super) fn new(part: &BodyPart, at: Timestamp) -> Self {
        Self {
            body_kind: part.kind.into(),
            body_size: part.length,
            from: part.from,
            body_base64: STANDARD.encode(&part.bytes),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn part(self) -> Result<BodyPart, Rejection> {
        let bytes = decode("bodyBase64", &self.body_base64)?.into();
        Ok(BodyPart { kind: self.body_kind.into(), length: self.body_size, from: self.from, bytes })
    }
}

/// Decodes Base64; `name` is its property.
pub(super) fn decode(name: &str, text: &str) -> Result<Vec<u8>, Rejection> {
    STANDARD.decode(text).map_err(|_| Rejection::argument(format!("{name} must be Base64")))
}

/// Returns the start of a body as text, cut at a character; `None` if it is not text.
pub(super) fn text_start(start: &[u8], body_bytes: u64) -> Option<&str> {
    match std::str::from_utf8(start) {
        Ok(text) => Some(text),
        // The last character continues after the start.
        Err(error) if error.error_len().is_none() && (start.len() as u64) < body_bytes => {
            std::str::from_utf8(start.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

impl From<Head> for HeadView {
    fn from(head: Head) -> Self {
        let Head { facts, content } = head;
        let HeadFacts { message, state, expires_at, is_expired, hops, header_size, .. } = facts;
        let unreadable = content.is_none();
        let mut view = Self {
            sequence_number: message.sequence.0,
            enqueued_sequence_number: message.enqueued_sequence.0,
            state: state.into(),
            is_expired,
            enqueued_time_utc: Instant(message.enqueued_at),
            scheduled_enqueue_time_utc: (state == HeadState::Scheduled)
                .then_some(Instant(message.enqueued_at)),
            expires_at_utc: (!expires_at.is_never()).then_some(Instant(expires_at)),
            delayed_until_utc: message.delayed_until.map(Instant),
            delivery_count: message.delivery_count,
            hops,
            size: message.size,
            header_size,
            body_size: 0,
            body_kind: None,
            body_start: None,
            body_start_base64: None,
            message_id: None,
            session_id: facts.session.as_deref().map(str::to_owned),
            partition_key: None,
            transaction_partition_key: None,
            reply_to_session_id: None,
            correlation_id: None,
            content_type: None,
            subject: None,
            to: None,
            reply_to: None,
            time_to_live: message.time_to_live.map(Span),
            application_properties: None,
            dead_letter_source: None,
            via_destination: facts.destination.as_deref().map(str::to_owned),
            lock: facts.lock.map(LockView::from),
            unreadable,
        };
        if let Some(content) = content {
            view.show(content);
        }
        view
    }
}

impl HeadView {
    fn show(&mut self, content: HeadContent) {
        let HeadContent { message, body_kind, body_bytes, dead_letter_source } = content;
        let start = message.body.as_bytes();
        let text = text_start(start, body_bytes).map(str::to_owned);
        self.body_start_base64 = text.is_none().then(|| STANDARD.encode(start));
        self.body_start = text;
        self.body_size = body_bytes;
        self.body_kind = Some(body_kind.into());
        self.message_id = message.message_id.map(|id| id.to_string());
        self.session_id = message.session_id.or_else(|| self.session_id.take());
        self.partition_key = message.partition_key;
        self.transaction_partition_key = message.transaction_partition_key;
        self.reply_to_session_id = message.reply_to_session_id;
        self.correlation_id = message.correlation_id.map(|id| id.to_string());
        self.content_type = message.content_type;
        self.subject = message.subject;
        self.to = message.to;
        self.reply_to = message.reply_to;
        let scheduled = message.scheduled_enqueue_time.map(Instant);
        self.scheduled_enqueue_time_utc = self.scheduled_enqueue_time_utc.or(scheduled);
        let properties = PropertyMap(message.application_properties);
        self.application_properties = (!properties.0.is_empty()).then_some(properties);
        self.dead_letter_source = dead_letter_source;
    }

    fn message(&mut self) -> Result<Message, Rejection> {
        let start = match (self.body_start.take(), &self.body_start_base64) {
            (Some(text), _) => Bytes::from(text),
            (None, Some(text)) => decode("bodyStartBase64", text)?.into(),
            (None, None) => Bytes::new(),
        };
        Ok(Message {
            body: Body::Data(start),
            message_id: self.message_id.take().map(MessageId::String),
            session_id: self.session_id.clone(),
            partition_key: self.partition_key.take(),
            transaction_partition_key: self.transaction_partition_key.take(),
            reply_to_session_id: self.reply_to_session_id.take(),
            correlation_id: self.correlation_id.take().map(MessageId::String),
            content_type: self.content_type.take(),
            subject: self.subject.take(),
            to: self.to.take(),
            reply_to: self.reply_to.take(),
            time_to_live: self.time_to_live.map(|Span(span)| span),
            scheduled_enqueue_time: self.scheduled_enqueue_time_utc.map(|Instant(at)| at),
            force_persistence: false,
            application_properties: self.application_properties.take().unwrap_or_default().0,
        })
    }
}

impl TryFrom<HeadView> for Head {
    type Error = Rejection;

    fn try_from(mut view: HeadView) -> Result<Self, Rejection> {
        let content = match view.body_kind.filter(|_| !view.unreadable) {
            Some(kind) => Some(HeadContent {
                message: view.message()?,
                body_kind: kind.into(),
                body_bytes: view.body_size,
                dead_letter_source: view.dead_letter_source.take(),
            }),
            None => None,
        };
        let state = HeadState::from(view.state);
        let expires_at = view.expires_at_utc.map(|Instant(at)| at);
        let message = MessageFacts {
            sequence: SequenceNumber(view.sequence_number),
            enqueued_sequence: SequenceNumber(view.enqueued_sequence_number),
            enqueued_at: view.enqueued_time_utc.0,
            expires_at,
            time_to_live: view.time_to_live.map(|Span(span)| span),
            delivery_count: view.delivery_count,
            state: match state {
                HeadState::Scheduled => MessageState::Scheduled,
                HeadState::Deferred => MessageState::Deferred,
                HeadState::Delayed => MessageState::Delayed,
                HeadState::Transferring
                | HeadState::Locked
                | HeadState::Expired
                | HeadState::Active => MessageState::Active,
            },
            delayed_until: view.delayed_until_utc.map(|Instant(at)| at),
            sub_queue: SubQueue::Main,
            lock: None,
            size: view.size,
            overlay_count: 0,
            was_scheduled: false,
        };
        let facts = HeadFacts {
            message,
            state,
            expires_at: expires_at.unwrap_or(Timestamp::NEVER),
            is_expired: view.is_expired,
            hops: view.hops,
            header_size: view.header_size,
            session: view.session_id.map(Into::into),
            destination: view.via_destination.map(Into::into),
            lock: view.lock.map(Into::into),
        };
        Ok(Self { facts, content })
    }
}

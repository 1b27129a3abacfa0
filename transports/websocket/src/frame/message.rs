//! Messages in both forms: AMQP sections in the binary form, an object in JSON.
//!
//! The binary form passes content on as it is stored; nothing is decoded for a delivery.

use std::borrow::Cow;

use bytes::Bytes;
use peeklock_core::command::{LoadedMessage, LockGrant, MessageFacts, MessageState};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Content, ContentError, Message, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;
use peeklock_json::{BrokerMessage, MessageView, NewMessage, PropertyMap, ReceivedView, write_map};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;

use super::cost::MADE_BYTES;
use super::json::Object;
use super::text::{Instant, Span, Token};
use super::wire::{Reader, RequestCost, Wire, skip_bytes};
use crate::error::FrameError;

/// A message that a client sends.
#[derive(Clone, Debug)]
pub(crate) enum SentMessage {
    /// AMQP sections, not validated yet.
    Content(Bytes),
    /// A message given by its properties.
    Typed(Box<Message>),
}

/// A message that the broker delivers.
#[derive(Clone, Debug)]
pub(crate) struct DeliveredMessage {
    pub(crate) facts: MessageFacts,
    pub(crate) carried: DeliveredContent,
    /// The whole message as JSON text, if it is already written; `carried` is empty then.
    pub(crate) text: Option<Box<RawValue>>,
}

/// The content of a delivered message.
#[derive(Clone, Debug)]
pub(crate) enum DeliveredContent {
    /// Content and property overlays, as they are stored.
    Stored { content: Bytes, overlays: Vec<Bytes> },
    /// Decoded, with the overlays applied.
    Typed { message: Box<Message>, dead_letter_source: Option<String> },
}

/// Application properties to set: an application-properties section in the binary form.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Properties(pub(crate) Vec<(String, Value)>);

impl SentMessage {
    /// Returns the decoded message.
    ///
    /// # Errors
    /// Fails if the bytes are not valid content.
    pub(crate) fn message(&self) -> Result<Message, ContentError> {
        match self {
            Self::Content(bytes) => Content::parse(bytes.clone())?.decode(),
            Self::Typed(message) => Ok((**message).clone()),
        }
    }
}

impl DeliveredContent {
    /// Returns the message with the properties that settlements have set, and the entity that
    /// dead-lettered it before it was forwarded (FWD-26).
    ///
    /// # Errors
    /// Fails if the bytes are not valid content.
    pub(crate) fn read(&self) -> Result<(Cow<'_, Message>, Option<Cow<'_, str>>), ContentError> {
        match self {
            Self::Stored { content, overlays } => {
                let read = LoadedMessage::read(content.clone(), overlays.iter().cloned())?;
                Ok((Cow::Owned(read.message), read.dead_letter_source.map(Cow::Owned)))
            }
            Self::Typed { message, dead_letter_source } => {
                Ok((Cow::Borrowed(message), dead_letter_source.as_deref().map(Cow::Borrowed)))
            }
        }
    }
}

impl DeliveredMessage {
    /// Replaces the content by its JSON text, whose length is known. The decoded message may take
    /// many times as much memory.
    ///
    /// # Errors
    /// Fails if the bytes are not valid content.
    pub(crate) fn into_text(self) -> serde_json::Result<Self> {
        let text = Some(serde_json::value::to_raw_value(&self)?);
        let carried = DeliveredContent::Stored { content: Bytes::new(), overlays: Vec::new() };
        Ok(Self { facts: self.facts, carried, text })
    }

    /// Returns the memory of the message once its text is written, in bytes.
    pub(crate) fn text_bytes(&self) -> u64 {
        let bytes = self.text.as_ref().map_or(0, |text| text.get().len());
        (bytes + size_of::<Self>()) as u64
    }
}

impl Serialize for SentMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.message().map_err(ser::Error::custom)?;
        MessageView::new(&message).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SentMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(object) = Object::<NewMessage>::deserialize(deserializer)?;
        Ok(Self::Typed(Box::new(object.into_message().map_err(D::Error::custom)?)))
    }
}

impl Serialize for DeliveredMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = &self.text {
            return text.serialize(serializer);
        }
        let (message, source) = self.carried.read().map_err(ser::Error::custom)?;
        ReceivedView::new(&message, &self.facts, source.as_deref()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DeliveredMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(mut object) = Object::<BrokerMessage>::deserialize(deserializer)?;
        let facts = object.facts().map_err(D::Error::missing_field)?;
        let dead_letter_source = object.take_dead_letter_source();
        let message = Box::new(object.into_message().map_err(D::Error::custom)?);
        let carried = DeliveredContent::Typed { message, dead_letter_source };
        Ok(Self { facts, carried, text: None })
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

impl Wire for SentMessage {
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

    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        Bytes::skim(reader, cost)
    }
}

/// Flags for the optional parts of the facts.
mod flag {
    pub(super) const LOCK: u8 = 1;
    pub(super) const EXPIRES_AT: u8 = 2;
    pub(super) const TIME_TO_LIVE: u8 = 4;
}

/// States by their codes. For the last one, Delayed, the end of the delay follows (RTY-12).
const STATES: [MessageState; 4] =
    [MessageState::Active, MessageState::Deferred, MessageState::Scheduled, MessageState::Delayed];

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
        if self.state == MessageState::Delayed {
            self.delayed_until.unwrap_or(Timestamp::NEVER).ticks().write(out);
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
        let delayed_until =
            if *state == MessageState::Delayed { Some(Instant::read(reader)?.0) } else { None };
        Ok(Self {
            sequence,
            enqueued_sequence,
            enqueued_at,
            expires_at,
            time_to_live,
            delivery_count: if lock.is_some() { shown.saturating_sub(1) } else { shown },
            state: *state,
            delayed_until,
            sub_queue: SubQueue::Main,
            lock,
            size,
            overlay_count: 0,
            was_scheduled: false,
        })
    }
}

impl Wire for DeliveredMessage {
    const BYTES_MIN: usize = MessageFacts::BYTES_MIN + 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.facts.write(out);
        match &self.carried {
            DeliveredContent::Stored { content, overlays } => {
                content.write(out);
                overlays.write(out);
            }
            DeliveredContent::Typed { message, dead_letter_source } => {
                message.encode().as_bytes().write(out);
                let source = dead_letter_source.as_deref().map(Overlay::dead_letter_source);
                let overlays = source.map(|overlay| overlay.as_bytes().clone());
                overlays.into_iter().collect::<Vec<_>>().write(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let facts = MessageFacts::read(reader)?;
        let content = Bytes::read(reader)?;
        let overlays = Vec::read(reader)?;
        Ok(Self { facts, carried: DeliveredContent::Stored { content, overlays }, text: None })
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

    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        cost.made_bytes += MADE_BYTES * skip_bytes(reader)? as u64;
        Ok(())
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

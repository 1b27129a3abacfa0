//! A received message: what the sender set, and what the broker says about it.

use std::borrow::Cow;

use bytes::Bytes;
use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Message, Value};
use peeklock_core::path::{EntityAddress, SubQueue};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::de::DeserializeOwned;

use crate::frame::message::Delivered;

/// Why a body is not of the type asked for.
#[derive(Debug, thiserror::Error)]
#[error("message {sequence} is not the JSON expected: {source}")]
pub struct BodyError {
    /// The message.
    pub sequence: SequenceNumber,
    /// What is wrong with it.
    #[source]
    pub source: serde_json::Error,
}

/// A message that was received or peeked.
#[derive(Clone, Debug)]
pub struct Received {
    message: Message,
    facts: MessageFacts,
    own_time_to_live: Option<TimeSpan>,
    dead_letter_source: Option<String>,
}

impl Received {
    /// Reads a delivery of a queue or sub-queue.
    pub(super) fn read(delivered: &Delivered, path: &str) -> Result<Self, Rejection> {
        let mut facts = delivered.facts;
        facts.sub_queue =
            EntityAddress::parse(path).map_or(SubQueue::Main, |address| address.sub_queue);
        let (message, dead_letter_source) = delivered.carried.read().map_err(|error| {
            let sequence = facts.sequence;
            Rejection::internal(format!("message {sequence} cannot be read: {error}"))
        })?;
        let mut message = message.into_owned();
        let own_time_to_live = message.time_to_live;
        message.time_to_live = facts.time_to_live.or(message.time_to_live);
        let dead_letter_source = dead_letter_source.map(Cow::into_owned);
        Ok(Self { message, facts, own_time_to_live, dead_letter_source })
    }

    /// The message with the properties that its sender set, and those set by settlements.
    #[must_use]
    pub const fn message(&self) -> &Message {
        &self.message
    }

    /// The message, to be sent again elsewhere.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }

    /// The bytes of the body (MSG-01).
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        self.message.body.as_bytes()
    }

    /// The body as a value of a type of yours.
    ///
    /// # Errors
    /// When it is not the JSON of one.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, BodyError> {
        serde_json::from_slice(self.body())
            .map_err(|source| BodyError { sequence: self.facts.sequence, source })
    }

    /// Identity in the entity (MSG-12).
    #[must_use]
    pub const fn sequence_number(&self) -> SequenceNumber {
        self.facts.sequence
    }

    /// When it was enqueued (MSG-17).
    #[must_use]
    pub const fn enqueued_at(&self) -> Timestamp {
        self.facts.enqueued_at
    }

    /// When it expires; not computed when peeking a message without own TTL (EXP-11).
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.facts.expires_at
    }

    /// The TTL: effective on receive, own on peek (EXP-14).
    #[must_use]
    pub const fn time_to_live(&self) -> Option<TimeSpan> {
        self.facts.time_to_live
    }

    /// The TTL that its sender set, before any ceiling (EXP-05). Over the JSON encoding the same as
    /// [`Received::time_to_live`].
    #[must_use]
    pub const fn own_time_to_live(&self) -> Option<TimeSpan> {
        self.own_time_to_live
    }

    /// 1 on the first delivery under lock (SET-30); when peeked, the deliveries that failed (SET-29).
    #[must_use]
    pub const fn delivery_count(&self) -> u32 {
        self.facts.shown_delivery_count()
    }

    /// Active, deferred or scheduled (PEK-05).
    #[must_use]
    pub const fn state(&self) -> MessageState {
        self.facts.state
    }

    /// The token that settles it; absent without a lock (MSG-19).
    #[must_use]
    pub fn lock_token(&self) -> Option<LockToken> {
        self.facts.lock.map(|lock| lock.token)
    }

    /// When the lock ends, as of the delivery (SET-16).
    #[must_use]
    pub fn locked_until(&self) -> Option<Timestamp> {
        self.facts.lock.map(|lock| lock.until)
    }

    /// Why it was dead-lettered (DLQ-14).
    #[must_use]
    pub fn dead_letter_reason(&self) -> Option<&str> {
        self.text(DEAD_LETTER_REASON)
    }

    /// What is said about why it was dead-lettered (DLQ-14).
    #[must_use]
    pub fn dead_letter_error_description(&self) -> Option<&str> {
        self.text(DEAD_LETTER_ERROR_DESCRIPTION)
    }

    /// The entity in which it was dead-lettered before it was forwarded here (FWD-26).
    #[must_use]
    pub fn dead_letter_source(&self) -> Option<&str> {
        self.dead_letter_source.as_deref()
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.message.application_property(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Everything the broker says about it.
    #[must_use]
    pub const fn facts(&self) -> &MessageFacts {
        &self.facts
    }
}

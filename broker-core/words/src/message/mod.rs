//! The message as a sender builds it and a receiver reads it, and its one encoding. (Data path,
//! step 1.)
//!
//! [`Message`] is the typed view, [`Content`] the bytes that are stored and measured (DESIGN D8),
//! [`Envelope`] what the entity reads of them, [`PropertyView`] what filters read in place,
//! [`Overlay`] the properties a settlement or a rule action changes. Absent on purpose: everything the broker sets itself, such as the sequence number.

mod beneath;
mod changes;
mod codec;
mod content;
mod envelope;
mod header_sizes;
mod overlay;
mod settable;
mod value;
mod view;

#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;

pub use self::beneath::Beneath;
pub use self::content::{Content, Sections};
pub use self::envelope::{Defect, Envelope, PropertyLimits};
pub use self::header_sizes::HeaderSizes;
pub use self::overlay::{
    DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Overlay, PropertyChange,
};
pub use self::settable::SettableProperty;
pub use self::value::{Value, ValueRef};
pub use self::view::PropertyView;
pub(crate) use self::view::{folded_name, same_name};
pub use crate::amqp::ContentError;
use crate::time::{TimeSpan, Timestamp};

/// A message with all properties a sender can set (MSG-04). Nothing is checked here: limits and
/// validity are judged when it is sent, from its [`Envelope`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The opaque body (MSG-01).
    pub body: Body,
    /// Identifies the message (MSG-06).
    pub message_id: Option<MessageId>,
    /// The messaging session it belongs to.
    pub session_id: Option<String>,
    /// Equal to the session id if both are set (MSG-08).
    pub partition_key: Option<String>,
    /// Also known as ViaPartitionKey.
    pub transaction_partition_key: Option<String>,
    /// The session that answers belong to.
    pub reply_to_session_id: Option<String>,
    /// What it answers or belongs to.
    pub correlation_id: Option<MessageId>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// Also known as Label.
    pub subject: Option<String>,
    /// The address the sender had in mind.
    pub to: Option<String>,
    /// Where answers are sent.
    pub reply_to: Option<String>,
    /// How long it lives from its enqueueing; the encoding has milliseconds (file 07). Unlimited is
    /// the same as none.
    pub time_to_live: Option<TimeSpan>,
    /// When it is enqueued; the encoding has milliseconds (file 08).
    pub scheduled_enqueue_time: Option<Timestamp>,
    /// Accepted, without effect: everything is durable.
    pub force_persistence: bool,
    /// Application properties in the sender's order, with distinct keys (MSG-22).
    pub application_properties: Vec<(String, Value)>,
}

/// The body of a message, of the kind of AMQP section it was sent in (MSG-03).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Plain bytes.
    Data(Bytes),
    /// A value section, complete as AMQP encodes it.
    Value(Bytes),
    /// One or more sequence sections, complete as AMQP encodes them.
    Sequence(Bytes),
}

/// The id of a message in the AMQP type it was sent in (AMQ-21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageId {
    /// Text, the usual form.
    String(String),
    /// An unsigned number.
    Ulong(u64),
    /// A UUID; its first byte on the wire is the most significant.
    Uuid(u128),
    /// Bytes.
    Binary(Bytes),
}

impl Message {
    /// A message of these bytes without any property.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: Body::Data(body.into()), ..Self::default() }
    }

    /// This message with this id.
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<MessageId>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// This message in this session.
    #[must_use]
    pub fn with_session_id(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }

    /// This message with this partition key.
    #[must_use]
    pub fn with_partition_key(mut self, key: impl Into<String>) -> Self {
        self.partition_key = Some(key.into());
        self
    }

    /// This message with this transaction partition key.
    #[must_use]
    pub fn with_transaction_partition_key(mut self, key: impl Into<String>) -> Self {
        self.transaction_partition_key = Some(key.into());
        self
    }

    /// This message with this session for answers.
    #[must_use]
    pub fn with_reply_to_session_id(mut self, id: impl Into<String>) -> Self {
        self.reply_to_session_id = Some(id.into());
        self
    }

    /// This message with this correlation id.
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<MessageId>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// This message with this media type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// This message with this subject.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// This message with this intended address.
    #[must_use]
    pub fn with_to(mut self, to: impl Into<String>) -> Self {
        self.to = Some(to.into());
        self
    }

    /// This message with this address for answers.
    #[must_use]
    pub fn with_reply_to(mut self, reply_to: impl Into<String>) -> Self {
        self.reply_to = Some(reply_to.into());
        self
    }

    /// This message with this time to live.
    #[must_use]
    pub fn with_time_to_live(mut self, span: impl Into<TimeSpan>) -> Self {
        self.time_to_live = Some(span.into());
        self
    }

    /// This message, enqueued at this instant.
    #[must_use]
    pub const fn with_scheduled_enqueue_time(mut self, at: Timestamp) -> Self {
        self.scheduled_enqueue_time = Some(at);
        self
    }

    /// This message with one more application property.
    #[must_use]
    pub fn with_application_property(
        mut self,
        key: impl Into<String>,
        value: impl Into<Value>,
    ) -> Self {
        self.application_properties.push((key.into(), value.into()));
        self
    }

    /// The value of the application property with exactly this key.
    #[must_use]
    pub fn application_property(&self, key: &str) -> Option<&Value> {
        self.application_properties.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The bytes that are stored and measured (MSG-25), in one allocation.
    #[must_use]
    pub fn encode(&self) -> Content {
        codec::encode(self)
    }

    /// Changes properties as a settlement or a rule action says (SET-08, ACT-02).
    pub fn apply_overlay(&mut self, overlay: &Overlay) {
        overlay.apply_to(self);
    }
}

impl Body {
    /// The bytes as transports without AMQP sections deliver them (MSG-03).
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        match self {
            Self::Data(bytes) | Self::Value(bytes) | Self::Sequence(bytes) => bytes,
        }
    }
}

impl Default for Body {
    /// The empty body, which is legal (MSG-01).
    fn default() -> Self {
        Self::Data(Bytes::new())
    }
}

/// The text form, by which ids are compared and filtered (AMQ-21): decimal digits of a number, the
/// usual form of a UUID, two lower-case hexadecimal digits for each byte.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

impl From<&str> for MessageId {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for MessageId {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

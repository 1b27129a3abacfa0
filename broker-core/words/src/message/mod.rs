//! The message as senders build it and receivers read it, and its only encoding. (Data path, step
//! 1.)
//!
//! [`Message`] is the typed view. [`Content`] is the stored and measured bytes (DESIGN D8).
//! [`Envelope`] has the facts that the entity reads, [`PropertyView`] the properties that filters
//! read in place, [`Overlay`] the properties that a settlement or a rule action changes. Not here:
//! properties that the broker sets, such as the sequence number.

mod beneath;
mod changes;
mod codec;
mod content;
mod content_head;
mod envelope;
mod header_sizes;
mod merge_patch;
mod overlay;
mod settable;
mod value;
mod view;

#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;

pub use self::beneath::IndexedOverlay;
pub use self::content::{Content, Sections};
pub use self::content_head::{BodyKind, BodySection, ContentHead, FoundSection, find_section};
pub use self::envelope::{Defect, Envelope, PropertyLimits, hash_of_id};
pub use self::header_sizes::HeaderSizes;
pub use self::merge_patch::MergePatch;
pub use self::overlay::{
    DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Overlay, PropertyChange,
};
pub use self::settable::SettableProperty;
pub use self::value::{Value, ValueRef};
pub use self::view::PropertyView;
pub(crate) use self::view::{folded_name, same_name};
pub use crate::amqp::ContentError;
use crate::time::{TimeSpan, Timestamp};

/// A message with all properties that a sender can set (MSG-04). It is not checked: limits and
/// validity are checked when it is sent, in its [`Envelope`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The opaque body (MSG-01).
    pub body: Body,
    /// Identifies the message (MSG-06).
    pub message_id: Option<MessageId>,
    /// The messaging session of the message.
    pub session_id: Option<String>,
    /// Equal to the session id if both are set (MSG-08).
    pub partition_key: Option<String>,
    /// Also known as ViaPartitionKey.
    pub transaction_partition_key: Option<String>,
    /// The session that answers belong to.
    pub reply_to_session_id: Option<String>,
    /// The id of the message that this one answers, or of a group of messages.
    pub correlation_id: Option<MessageId>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// Also known as Label.
    pub subject: Option<String>,
    /// The address that the sender intended.
    pub to: Option<String>,
    /// The address for answers.
    pub reply_to: Option<String>,
    /// Lifetime after the message is enqueued, encoded in milliseconds (file 07). Unlimited equals
    /// `None`.
    pub time_to_live: Option<TimeSpan>,
    /// The instant at which the message is enqueued, encoded in milliseconds (file 08).
    pub scheduled_enqueue_time: Option<Timestamp>,
    /// Accepted, without effect: everything is durable.
    pub force_persistence: bool,
    /// Application properties in the sender's order, with distinct keys (MSG-22).
    pub application_properties: Vec<(String, Value)>,
}

/// The body of a message, by its kind of AMQP section (MSG-03).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Plain bytes.
    Data(Bytes),
    /// A value section, complete as AMQP encodes it.
    Value(Bytes),
    /// One or more sequence sections, complete as AMQP encodes them.
    Sequence(Bytes),
}

/// The id of a message in the sender's AMQP type (AMQ-21).
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
    /// A message with this body and no properties.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: Body::Data(body.into()), ..Self::default() }
    }

    /// Sets the message id.
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<MessageId>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// Sets the session id.
    #[must_use]
    pub fn with_session_id(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }

    /// Sets the partition key.
    #[must_use]
    pub fn with_partition_key(mut self, key: impl Into<String>) -> Self {
        self.partition_key = Some(key.into());
        self
    }

    /// Sets the transaction partition key.
    #[must_use]
    pub fn with_transaction_partition_key(mut self, key: impl Into<String>) -> Self {
        self.transaction_partition_key = Some(key.into());
        self
    }

    /// Sets the session for answers.
    #[must_use]
    pub fn with_reply_to_session_id(mut self, id: impl Into<String>) -> Self {
        self.reply_to_session_id = Some(id.into());
        self
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<MessageId>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the media type of the body.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets the subject.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the intended address.
    #[must_use]
    pub fn with_to(mut self, to: impl Into<String>) -> Self {
        self.to = Some(to.into());
        self
    }

    /// Sets the address for answers.
    #[must_use]
    pub fn with_reply_to(mut self, reply_to: impl Into<String>) -> Self {
        self.reply_to = Some(reply_to.into());
        self
    }

    /// Sets the time to live.
    #[must_use]
    pub fn with_time_to_live(mut self, span: impl Into<TimeSpan>) -> Self {
        self.time_to_live = Some(span.into());
        self
    }

    /// Sets the instant at which the message is enqueued.
    #[must_use]
    pub const fn with_scheduled_enqueue_time(mut self, at: Timestamp) -> Self {
        self.scheduled_enqueue_time = Some(at);
        self
    }

    /// Adds an application property.
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

    /// The bytes to store and measure (MSG-25), in one allocation.
    #[must_use]
    pub fn encode(&self) -> Content {
        codec::encode(self)
    }

    /// Applies the changes of a settlement or a rule action (SET-08, ACT-02).
    pub fn apply_overlay(&mut self, overlay: &Overlay) {
        overlay.apply_to(self);
    }
}

impl Body {
    /// The bytes that transports without AMQP sections deliver (MSG-03).
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

/// The text form, for comparisons and filters (AMQ-21): the decimal digits of a number, the usual
/// form of a UUID, two lower-case hexadecimal digits for each byte.
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

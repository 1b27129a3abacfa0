//! Ids of messages, borrowed from content. Content, views and envelopes use them.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::ids::write_guid;
use crate::message::MessageId;

/// A [`MessageId`] that borrows its text or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdRef<'a> {
    Text(&'a str),
    Ulong(u64),
    Uuid(u128),
    Binary(&'a [u8]),
}

impl<'a> IdRef<'a> {
    /// The text form (AMQ-21).
    pub(crate) fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }

    /// Whether the text form has more characters than `characters_max`, without building it.
    pub(crate) fn is_longer_than(self, characters_max: usize) -> bool {
        match self {
            Self::Text(text) => is_longer_than(text, characters_max),
            Self::Ulong(_) => self.text().len() > characters_max,
            Self::Uuid(_) => 36 > characters_max,
            Self::Binary(bytes) => bytes.len().saturating_mul(2) > characters_max,
        }
    }

    pub(crate) fn to_owned(self) -> MessageId {
        match self {
            Self::Text(text) => MessageId::String(text.to_owned()),
            Self::Ulong(number) => MessageId::Ulong(number),
            Self::Uuid(uuid) => MessageId::Uuid(uuid),
            Self::Binary(bytes) => MessageId::Binary(Bytes::copy_from_slice(bytes)),
        }
    }
}

/// Whether a text has more characters than `characters_max` (MSG-05).
pub(crate) fn is_longer_than(text: &str, characters_max: usize) -> bool {
    // A character has at least one byte, so the usual short text is not counted.
    text.len() > characters_max && text.chars().count() > characters_max
}

impl MessageId {
    pub(in crate::message) fn borrow(&self) -> IdRef<'_> {
        match self {
            Self::String(text) => IdRef::Text(text),
            Self::Ulong(number) => IdRef::Ulong(*number),
            Self::Uuid(uuid) => IdRef::Uuid(*uuid),
            Self::Binary(bytes) => IdRef::Binary(bytes),
        }
    }
}

impl fmt::Display for IdRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Ulong(number) => number.fmt(f),
            Self::Uuid(uuid) => write_guid(*uuid, f),
            Self::Binary(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

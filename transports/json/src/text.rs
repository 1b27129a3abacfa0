//! Values with a text form in JSON: instants, durations, lock tokens, GUIDs and states of sessions.
//! All JSON forms use them. A text with another form is refused with the expected form.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::ids::LockToken;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::size::as_text;

/// An instant in RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instant(
    /// The value.
    pub Timestamp,
);

/// A duration in ISO 8601; the largest means "unlimited".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(
    /// The value.
    pub TimeSpan,
);

/// A lock token, as a GUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(
    /// The value.
    pub LockToken,
);

/// Any other GUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guid(
    /// The value.
    pub u128,
);

/// Implements the JSON text form of a type.
macro_rules! text {
    ($name:ident, $expected:literal, $parse:expr) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        let parse: fn(&str) -> Option<_> = $parse;
                        parse(text).map($name).ok_or_else(|| E::custom(concat!("not ", $expected)))
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

text!(Instant, "an RFC 3339 instant", Timestamp::parse);
text!(Span, "an ISO 8601 duration such as PT1M", TimeSpan::parse);
text!(Token, "a lock token, which is a GUID", LockToken::parse);

impl Serialize for Guid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Token(LockToken(self.0)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Guid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Token::deserialize(deserializer).map(|token| Self(token.0.0))
    }
}

/// Returns the state of a session from its JSON form: `state` with text, or `stateBase64`.
///
/// # Errors
/// A text for the client.
pub fn state_bytes(
    state: Option<String>,
    base64: Option<String>,
) -> Result<Option<Bytes>, &'static str> {
    match (state, base64) {
        (Some(_), Some(_)) => Err("a session has state or stateBase64, not both"),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(_) => Err("stateBase64 must be base64"),
        },
        (None, None) => Ok(None),
    }
}

/// Returns a state as text if JSON can contain it unchanged, else as Base64.
#[must_use]
pub fn state_text(state: Option<&Bytes>) -> (Option<String>, Option<String>) {
    let Some(bytes) = state else { return (None, None) };
    match as_text(bytes) {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(STANDARD.encode(bytes))),
    }
}

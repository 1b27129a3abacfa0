//! Values with a text form in JSON: instants, durations, lock tokens and GUIDs. All JSON forms use
//! them. A text with another form is refused with the expected form.

use std::fmt;

use peeklock_core::ids::LockToken;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

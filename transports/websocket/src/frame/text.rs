//! Values that are text in JSON and numbers in the binary form.

use std::fmt;

use peeklock_core::ids::LockToken;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::wire::{Reader, Wire};
use crate::error::FrameError;

/// An instant: RFC 3339 in JSON, ticks of 100 ns since year 1 in the binary form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instant(pub(crate) Timestamp);

/// A duration: ISO 8601 in JSON, ticks of 100 ns in the binary form; the largest is "unlimited".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span(pub(crate) TimeSpan);

/// A lock token: a GUID in JSON, 16 bytes in the binary form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(pub(crate) LockToken);

/// Any other GUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guid(pub(crate) u128);

/// Gives a type its text form in JSON.
macro_rules! text {
    ($name:ident, $what:literal, $parse:expr) => {
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
                        f.write_str($what)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        let parse: fn(&str) -> Option<_> = $parse;
                        parse(text).map($name).ok_or_else(|| E::custom(concat!("not ", $what)))
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

impl Wire for Instant {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.ticks().write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        i64::read(reader).map(|ticks| Self(Timestamp::from_ticks(ticks)))
    }
}

impl Wire for Span {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.ticks().write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        i64::read(reader).map(|ticks| Self(TimeSpan::from_ticks(ticks)))
    }
}

impl Wire for Token {
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.0.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        u128::read(reader).map(|token| Self(LockToken(token)))
    }
}

impl Wire for Guid {
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        u128::read(reader).map(Self)
    }
}

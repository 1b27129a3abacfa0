//! The values that an evaluation works with, borrowed from the message or the rule where possible.
//! Filters, actions and correlation filters use them.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::ids::write_guid;
use crate::message::{Value, ValueRef};
use crate::time::Timestamp;

const TICKS_PER_MS: i128 = 10_000;

/// One value, or Unknown (SQL-16).
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Operand<'a> {
    /// Null, or missing.
    #[default]
    Unknown,
    /// True or false, also the result of a condition.
    Bool(bool),
    /// Signed, 8 bits.
    I8(i8),
    /// Signed, 16 bits.
    I16(i16),
    /// Signed, 32 bits.
    I32(i32),
    /// Signed, 64 bits.
    I64(i64),
    /// Unsigned, 8 bits.
    U8(u8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Floating point, 32 bits.
    F32(f32),
    /// Floating point, 64 bits.
    F64(f64),
    /// Decimal floating point, as [`super::Decimal`] encodes it.
    Decimal([u8; 16]),
    /// One Unicode scalar.
    Char(char),
    /// Text.
    Text(Cow<'a, str>),
    /// A UUID.
    Uuid(u128),
    /// An instant in ticks since year 1. Wide, because a sender can send any number of
    /// milliseconds.
    Timestamp(i128),
    /// Bytes.
    Binary(&'a [u8]),
    /// A URI.
    Uri(Cow<'a, str>),
    /// An instant in ticks since year 1, of the type with an offset.
    DateTimeOffset(i64),
    /// A duration in ticks.
    TimeSpan(i64),
}

/// The type of an operand, in the detail of error texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Null, or missing.
    Unknown,
    /// True or false.
    Bool,
    /// Any number.
    Number,
    /// One character.
    Char,
    /// Text.
    Text,
    /// A UUID.
    Uuid,
    /// An instant.
    Instant,
    /// A duration.
    TimeSpan,
    /// Bytes.
    Binary,
    /// A URI.
    Uri,
}

impl<'a> Operand<'a> {
    /// Number of bytes that an operation reads, for values of any length.
    pub(in crate::rule) fn length(&self) -> u64 {
        match self {
            Self::Text(text) | Self::Uri(text) => text.len() as u64,
            Self::Binary(bytes) => bytes.len() as u64,
            _ => 1,
        }
    }

    /// Borrowed text.
    #[must_use]
    pub const fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// Borrowed text, or Unknown.
    #[must_use]
    pub fn text_or_unknown(text: Option<&'a str>) -> Self {
        text.map_or(Self::Unknown, Self::text)
    }

    /// An instant.
    #[must_use]
    pub fn instant(at: Timestamp) -> Self {
        Self::Timestamp(i128::from(at.ticks()))
    }

    /// The operand, borrowed from this one.
    #[must_use]
    pub fn borrow(&self) -> Operand<'_> {
        match self {
            Self::Text(text) => Operand::text(text),
            Self::Uri(uri) => Operand::Uri(Cow::Borrowed(uri)),
            Self::Binary(bytes) => Operand::Binary(bytes),
            Self::Unknown => Operand::Unknown,
            Self::Bool(value) => Operand::Bool(*value),
            Self::I8(value) => Operand::I8(*value),
            Self::I16(value) => Operand::I16(*value),
            Self::I32(value) => Operand::I32(*value),
            Self::I64(value) => Operand::I64(*value),
            Self::U8(value) => Operand::U8(*value),
            Self::U16(value) => Operand::U16(*value),
            Self::U32(value) => Operand::U32(*value),
            Self::U64(value) => Operand::U64(*value),
            Self::F32(value) => Operand::F32(*value),
            Self::F64(value) => Operand::F64(*value),
            Self::Decimal(value) => Operand::Decimal(*value),
            Self::Char(value) => Operand::Char(*value),
            Self::Uuid(value) => Operand::Uuid(*value),
            Self::Timestamp(value) => Operand::Timestamp(*value),
            Self::DateTimeOffset(value) => Operand::DateTimeOffset(*value),
            Self::TimeSpan(value) => Operand::TimeSpan(*value),
        }
    }

    /// The value for a property. A timestamp is rounded down to whole milliseconds.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Unknown => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::I8(value) => Value::I8(*value),
            Self::I16(value) => Value::I16(*value),
            Self::I32(value) => Value::I32(*value),
            Self::I64(value) => Value::I64(*value),
            Self::U8(value) => Value::U8(*value),
            Self::U16(value) => Value::U16(*value),
            Self::U32(value) => Value::U32(*value),
            Self::U64(value) => Value::U64(*value),
            Self::F32(value) => Value::F32(*value),
            Self::F64(value) => Value::F64(*value),
            Self::Decimal(value) => Value::Decimal128(*value),
            Self::Char(value) => Value::Char(*value),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::Uuid(value) => Value::Uuid(*value),
            Self::Timestamp(ticks) => Value::Timestamp(unix_ms(*ticks)),
            Self::Binary(bytes) => Value::Binary(Bytes::copy_from_slice(bytes)),
            Self::Uri(uri) => Value::Uri(uri.clone().into_owned()),
            Self::DateTimeOffset(ticks) => Value::DateTimeOffset(*ticks),
            Self::TimeSpan(ticks) => Value::TimeSpan(*ticks),
        }
    }

    /// The type, for errors.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Unknown => Kind::Unknown,
            Self::Bool(_) => Kind::Bool,
            Self::I8(_)
            | Self::I16(_)
            | Self::I32(_)
            | Self::I64(_)
            | Self::U8(_)
            | Self::U16(_)
            | Self::U32(_)
            | Self::U64(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Decimal(_) => Kind::Number,
            Self::Char(_) => Kind::Char,
            Self::Text(_) => Kind::Text,
            Self::Uuid(_) => Kind::Uuid,
            Self::Timestamp(_) | Self::DateTimeOffset(_) => Kind::Instant,
            Self::Binary(_) => Kind::Binary,
            Self::Uri(_) => Kind::Uri,
            Self::TimeSpan(_) => Kind::TimeSpan,
        }
    }

    /// Ticks since year 1 of an instant of either type.
    #[must_use]
    pub fn instant_ticks(&self) -> Option<i128> {
        match self {
            Self::Timestamp(ticks) => Some(*ticks),
            Self::DateTimeOffset(ticks) => Some(i128::from(*ticks)),
            _ => None,
        }
    }

    /// The text of a text or of a character (SQL-37), which is written to `buffer`.
    pub(super) fn as_text<'s>(&'s self, buffer: &'s mut [u8; 4]) -> Option<&'s str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Char(character) => Some(character.encode_utf8(buffer)),
            _ => None,
        }
    }
}

impl<'a> From<ValueRef<'a>> for Operand<'a> {
    #[inline]
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::Null => Self::Unknown,
            ValueRef::Bool(value) => Self::Bool(value),
            ValueRef::I8(value) => Self::I8(value),
            ValueRef::I16(value) => Self::I16(value),
            ValueRef::I32(value) => Self::I32(value),
            ValueRef::I64(value) => Self::I64(value),
            ValueRef::U8(value) => Self::U8(value),
            ValueRef::U16(value) => Self::U16(value),
            ValueRef::U32(value) => Self::U32(value),
            ValueRef::U64(value) => Self::U64(value),
            ValueRef::F32(value) => Self::F32(value),
            ValueRef::F64(value) => Self::F64(value),
            ValueRef::Decimal128(bits) => Self::Decimal(bits),
            ValueRef::Char(value) => Self::Char(value),
            ValueRef::String(text) => Self::text(text),
            ValueRef::Uuid(value) => Self::Uuid(value),
            ValueRef::Timestamp(unix_ms) => Self::Timestamp(ticks(unix_ms)),
            ValueRef::Binary(bytes) => Self::Binary(bytes),
            ValueRef::Uri(uri) => Self::Uri(Cow::Borrowed(uri)),
            ValueRef::DateTimeOffset(ticks) => Self::DateTimeOffset(ticks),
            ValueRef::TimeSpan(ticks) => Self::TimeSpan(ticks),
        }
    }
}

fn ticks(unix_ms: i64) -> i128 {
    i128::from(unix_ms) * TICKS_PER_MS + epoch()
}

/// Milliseconds since 1970, rounded down. Saturates far outside the range of instants.
pub(super) fn unix_ms(ticks: i128) -> i64 {
    let milliseconds = (ticks - epoch()).div_euclid(TICKS_PER_MS);
    i64::try_from(milliseconds).unwrap_or(if milliseconds < 0 { i64::MIN } else { i64::MAX })
}

/// Whether an instant fits a timestamp.
pub(super) fn is_timestamp(ticks: i128) -> bool {
    i64::try_from((ticks - epoch()).div_euclid(TICKS_PER_MS)).is_ok()
}

fn epoch() -> i128 {
    i128::from(Timestamp::from_unix_ms(0).ticks())
}

/// The canonical text of a UUID (SQL-36), without an allocation.
pub(super) struct UuidText([u8; 36]);

impl UuidText {
    pub(super) fn of(uuid: u128) -> Self {
        let mut text = [b'-'; 36];
        let mut nibbles = 0..32u32;
        for (place, byte) in text.iter_mut().enumerate() {
            if matches!(place, 8 | 13 | 18 | 23) {
                continue;
            }
            let nibble = nibbles.next().map_or(0, |nibble| (uuid >> (124 - 4 * nibble)) & 0xf);
            let digit = u32::try_from(nibble).ok().and_then(|digit| char::from_digit(digit, 16));
            *byte = digit.and_then(|digit| u8::try_from(digit).ok()).unwrap_or(b'0');
        }
        Self(text)
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "null",
            Self::Bool => "a bool",
            Self::Number => "a number",
            Self::Char => "a character",
            Self::Text => "text",
            Self::Uuid => "a UUID",
            Self::Instant => "an instant",
            Self::TimeSpan => "a time-span",
            Self::Binary => "binary",
            Self::Uri => "a URI",
        })
    }
}

/// The operand in SQL-like notation for people, in explanations. The caller cuts long text.
impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("NULL"),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Char(character) => write!(f, "char '{character}'"),
            Self::Uuid(uuid) => {
                f.write_str("uuid ")?;
                write_guid(*uuid, f)
            }
            Self::Uri(uri) => write!(f, "uri '{uri}'"),
            Self::Bool(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
            other => {
                let text = super::convert::invariant_text(other);
                match other.kind() {
                    Kind::Instant => write!(f, "instant {text}"),
                    Kind::TimeSpan => write!(f, "time-span {text}"),
                    Kind::Binary => write!(f, "binary {text}"),
                    _ => f.write_str(&text),
                }
            }
        }
    }
}

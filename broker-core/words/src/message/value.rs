//! Values of application properties. Messages, overlays and rules share these types. A value keeps
//! its AMQP type, so it is returned with the type with which it was sent.

use bytes::Bytes;

use super::ContentError;
use super::codec::{self, Reader};
use crate::time::{TimeSpan, Timestamp};

/// The value of an application property: exactly the types that round-trip with their type on typed
/// transports (MSG-20). Lists, maps and arrays have no form here (MSG-21).
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
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
    /// IEEE 754-2008 decimal128, binary integer encoding, in network order; never computed with.
    Decimal128([u8; 16]),
    /// One Unicode scalar.
    Char(char),
    /// Text. An AMQP symbol reads as text, too.
    String(String),
    /// A UUID; its first byte on the wire is the most significant.
    Uuid(u128),
    /// An instant in milliseconds since 1970.
    Timestamp(i64),
    /// Bytes.
    Binary(Bytes),
    /// A URI, described `com.microsoft:uri`.
    Uri(String),
    /// An instant in ticks of UTC since year 1, described `com.microsoft:datetime-offset`.
    DateTimeOffset(i64),
    /// A duration in ticks, described `com.microsoft:timespan`; may be negative.
    TimeSpan(i64),
}

/// A [`Value`] that borrows its text or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// No value.
    Null,
    /// True or false.
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
    /// IEEE 754-2008 decimal128, binary integer encoding, in network order.
    Decimal128([u8; 16]),
    /// One Unicode scalar.
    Char(char),
    /// Text.
    String(&'a str),
    /// A UUID; its first byte on the wire is the most significant.
    Uuid(u128),
    /// An instant in milliseconds since 1970.
    Timestamp(i64),
    /// Bytes.
    Binary(&'a [u8]),
    /// A URI.
    Uri(&'a str),
    /// An instant in ticks of UTC since year 1.
    DateTimeOffset(i64),
    /// A duration in ticks; may be negative.
    TimeSpan(i64),
}

impl Value {
    /// Appends the AMQP encoding of the value, with its type.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        codec::write_value(bytes, self);
    }

    /// Decodes one value, which must use all of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, ContentError> {
        let mut reader = Reader::new(bytes);
        let value = reader.raw()?;
        if reader.is_empty() { codec::read_value(value) } else { Err(ContentError::BadCount) }
    }

    /// The bytes of heap memory that the value owns.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::String(text) | Self::Uri(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// The text of a string or URI.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) | Self::Uri(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is whole and in the range of `i64`, in any type.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.whole().and_then(|number| i64::try_from(number).ok())
    }

    /// The number, if it is whole and in the range of `u64`, in any type.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.whole().and_then(|number| u64::try_from(number).ok())
    }

    /// The number, in any type. A whole number with more digits than fit is rounded.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::F32(number) => Some(f64::from(*number)),
            Self::F64(number) => Some(*number),
            _ => self.whole().map(|number| number as f64),
        }
    }

    /// The bytes of a binary value.
    #[must_use]
    pub const fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The instant, in either of the two types.
    #[must_use]
    pub const fn as_timestamp(&self) -> Option<Timestamp> {
        match self {
            Self::Timestamp(ms) => Some(Timestamp::from_unix_ms(*ms)),
            Self::DateTimeOffset(ticks) => Some(Timestamp::from_ticks(*ticks)),
            _ => None,
        }
    }

    fn whole(&self) -> Option<i128> {
        Some(match self {
            Self::I8(number) => (*number).into(),
            Self::I16(number) => (*number).into(),
            Self::I32(number) => (*number).into(),
            Self::I64(number) => (*number).into(),
            Self::U8(number) => (*number).into(),
            Self::U16(number) => (*number).into(),
            Self::U32(number) => (*number).into(),
            Self::U64(number) => (*number).into(),
            _ => return None,
        })
    }

    /// The value, borrowed.
    #[must_use]
    pub fn borrow(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::I8(value) => ValueRef::I8(*value),
            Self::I16(value) => ValueRef::I16(*value),
            Self::I32(value) => ValueRef::I32(*value),
            Self::I64(value) => ValueRef::I64(*value),
            Self::U8(value) => ValueRef::U8(*value),
            Self::U16(value) => ValueRef::U16(*value),
            Self::U32(value) => ValueRef::U32(*value),
            Self::U64(value) => ValueRef::U64(*value),
            Self::F32(value) => ValueRef::F32(*value),
            Self::F64(value) => ValueRef::F64(*value),
            Self::Decimal128(value) => ValueRef::Decimal128(*value),
            Self::Char(value) => ValueRef::Char(*value),
            Self::String(text) => ValueRef::String(text),
            Self::Uuid(value) => ValueRef::Uuid(*value),
            Self::Timestamp(value) => ValueRef::Timestamp(*value),
            Self::Binary(bytes) => ValueRef::Binary(bytes),
            Self::Uri(uri) => ValueRef::Uri(uri),
            Self::DateTimeOffset(ticks) => ValueRef::DateTimeOffset(*ticks),
            Self::TimeSpan(ticks) => ValueRef::TimeSpan(*ticks),
        }
    }
}

impl ValueRef<'_> {
    /// The value as an owned one.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::I8(value) => Value::I8(value),
            Self::I16(value) => Value::I16(value),
            Self::I32(value) => Value::I32(value),
            Self::I64(value) => Value::I64(value),
            Self::U8(value) => Value::U8(value),
            Self::U16(value) => Value::U16(value),
            Self::U32(value) => Value::U32(value),
            Self::U64(value) => Value::U64(value),
            Self::F32(value) => Value::F32(value),
            Self::F64(value) => Value::F64(value),
            Self::Decimal128(value) => Value::Decimal128(value),
            Self::Char(value) => Value::Char(value),
            Self::String(text) => Value::String(text.to_owned()),
            Self::Uuid(value) => Value::Uuid(value),
            Self::Timestamp(value) => Value::Timestamp(value),
            Self::Binary(bytes) => Value::Binary(Bytes::copy_from_slice(bytes)),
            Self::Uri(uri) => Value::Uri(uri.to_owned()),
            Self::DateTimeOffset(ticks) => Value::DateTimeOffset(ticks),
            Self::TimeSpan(ticks) => Value::TimeSpan(ticks),
        }
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from! {
    bool => Bool, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64,
    char => Char, &str => String, String => String, Bytes => Binary, Vec<u8> => Binary,
}

impl From<Timestamp> for Value {
    fn from(instant: Timestamp) -> Self {
        Self::Timestamp(instant.unix_ms())
    }
}

impl From<TimeSpan> for Value {
    fn from(span: TimeSpan) -> Self {
        Self::TimeSpan(span.ticks())
    }
}

//! Values of application properties.

use bytes::Bytes;

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

//! The one AMQP 1.0 codec for content (MSG-25, AMQP 1.6 and 3.2): sections to and from bytes.
//!
//! Writing uses the smallest encoding of every value, so that equal messages have equal bytes.
//! Reading takes untrusted bytes: every length is bounded by what surrounds it, nesting is limited,
//! and nothing is allocated for a length that was only claimed. Absent on purpose: frames and
//! links, which belong to the AMQP transport.

mod check;
mod encode;
mod id;
mod read;
mod section;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub(super) use self::encode::encode;
pub(super) use self::id::{IdRef, is_longer_than};
pub(super) use self::read::{Reader, Scalar};
pub(super) use self::section::{
    Annotations, Layout, Properties, body_sections, footer, layout, time_to_live, ttl,
};
pub(super) use self::value::{Entry, entries, read_value, read_value_ref};
pub(super) use self::write::{
    Compound, compound, compound_bytes, empty_list, id, symbol, text, write_value,
};

/// Descriptors of the sections (AMQP 3.2).
pub(super) mod descriptor {
    pub(crate) const HEADER: u8 = 0x70;
    pub(crate) const DELIVERY_ANNOTATIONS: u8 = 0x71;
    pub(crate) const MESSAGE_ANNOTATIONS: u8 = 0x72;
    pub(crate) const PROPERTIES: u8 = 0x73;
    pub(crate) const APPLICATION_PROPERTIES: u8 = 0x74;
    pub(crate) const DATA: u8 = 0x75;
    pub(crate) const SEQUENCE: u8 = 0x76;
    pub(crate) const VALUE: u8 = 0x77;
    pub(crate) const FOOTER: u8 = 0x78;
}

/// Constructors of the encodings (AMQP 1.6).
pub(super) mod code {
    pub(crate) const DESCRIBED: u8 = 0x00;
    pub(crate) const NULL: u8 = 0x40;
    pub(crate) const TRUE: u8 = 0x41;
    pub(crate) const FALSE: u8 = 0x42;
    pub(crate) const UINT0: u8 = 0x43;
    pub(crate) const ULONG0: u8 = 0x44;
    pub(crate) const LIST0: u8 = 0x45;
    pub(crate) const UBYTE: u8 = 0x50;
    pub(crate) const BYTE: u8 = 0x51;
    pub(crate) const SMALL_UINT: u8 = 0x52;
    pub(crate) const SMALL_ULONG: u8 = 0x53;
    pub(crate) const SMALL_INT: u8 = 0x54;
    pub(crate) const SMALL_LONG: u8 = 0x55;
    pub(crate) const BOOLEAN: u8 = 0x56;
    pub(crate) const USHORT: u8 = 0x60;
    pub(crate) const SHORT: u8 = 0x61;
    pub(crate) const UINT: u8 = 0x70;
    pub(crate) const INT: u8 = 0x71;
    pub(crate) const FLOAT: u8 = 0x72;
    pub(crate) const CHAR: u8 = 0x73;
    pub(crate) const DECIMAL32: u8 = 0x74;
    pub(crate) const ULONG: u8 = 0x80;
    pub(crate) const LONG: u8 = 0x81;
    pub(crate) const DOUBLE: u8 = 0x82;
    pub(crate) const TIMESTAMP: u8 = 0x83;
    pub(crate) const DECIMAL64: u8 = 0x84;
    pub(crate) const DECIMAL128: u8 = 0x94;
    pub(crate) const UUID: u8 = 0x98;
    pub(crate) const BINARY8: u8 = 0xa0;
    pub(crate) const STRING8: u8 = 0xa1;
    pub(crate) const SYMBOL8: u8 = 0xa3;
    pub(crate) const BINARY32: u8 = 0xb0;
    pub(crate) const STRING32: u8 = 0xb1;
    pub(crate) const SYMBOL32: u8 = 0xb3;
    pub(crate) const LIST8: u8 = 0xc0;
    pub(crate) const MAP8: u8 = 0xc1;
    pub(crate) const LIST32: u8 = 0xd0;
    pub(crate) const MAP32: u8 = 0xd1;
    pub(crate) const ARRAY8: u8 = 0xe0;
    pub(crate) const ARRAY32: u8 = 0xf0;
}

/// Keys of the message annotations that a sender may set (AMQP-44).
pub(super) mod annotation {
    pub(crate) const SCHEDULED_ENQUEUE_TIME: &str = "x-opt-scheduled-enqueue-time";
    pub(crate) const PARTITION_KEY: &str = "x-opt-partition-key";
    pub(crate) const VIA_PARTITION_KEY: &str = "x-opt-via-partition-key";
    pub(crate) const FORCE_PERSISTENCE: &str = "x-opt-force-persistence";
}

/// Descriptors of the described values (MSG-20).
pub(super) mod described {
    pub(crate) const URI: &str = "com.microsoft:uri";
    pub(crate) const DATE_TIME_OFFSET: &str = "com.microsoft:datetime-offset";
    pub(crate) const TIME_SPAN: &str = "com.microsoft:timespan";
}

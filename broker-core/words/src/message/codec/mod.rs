//! The only AMQP 1.0 codec for content (MSG-25, AMQP 1.6 and 3.2): sections to and from bytes.
//!
//! The writer uses the smallest encoding of every value, so that equal messages have equal bytes.
//! [`amqp`](crate::amqp) reads and writes the values.

mod encode;
mod id;
mod section;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub(super) use self::encode::{
    application_properties_bytes, broker_properties_bytes, encode, header_bytes, text_bytes,
    value_bytes,
};
pub(super) use self::id::{IdRef, is_longer_than};
pub(super) use self::section::{
    Annotations, Layout, PropertiesSection, body_sections, check_unread, footer, in_order, layout,
    time_to_live, ttl,
};
pub(super) use self::value::{PropertyEntry, entries, read_value, read_value_ref};
pub(super) use self::write::{
    Compound, binary, compound, compound_bytes, empty_list, id, symbol, text, write_value,
};
pub(super) use crate::amqp::{Reader, Scalar, code, descriptor};

/// Keys of the message annotations that a sender may set (AMQP-44).
pub(super) mod annotation {
    pub(crate) const SCHEDULED_ENQUEUE_TIME: &str = "x-opt-scheduled-enqueue-time";
    /// The annotation of JMS clients for the same purpose, a number of milliseconds (AMQP-101).
    pub(crate) const DELIVERY_TIME: &str = "x-opt-delivery-time";
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

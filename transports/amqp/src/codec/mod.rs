//! Conversion between bytes and typed fields, on top of the values of `peeklock_words::amqp`.
//!
//! [`list`] reads and writes the list of a performative, a delivery state or a terminus field by
//! field. [`value`] holds values that are passed on without change. A stored value was checked down
//! to its innermost length before any part was made.

pub mod list;
pub mod value;

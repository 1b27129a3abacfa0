//! From bytes to typed fields and back, on top of the values of `peeklock_words::amqp`.
//!
//! [`list`] reads the list of a performative, a delivery state or a terminus field by field, and writes one; [`value`]
//! holds values that are passed on as they came. Everything that is kept was checked to its innermost length before any
//! part of it was made.

pub mod list;
pub mod value;

//! Any bytes, given to each part that takes bytes of clients, and the conditions that must hold afterwards. Tests and
//! fuzzing share it.

mod connection;
mod frames;
mod sections;

use bytes::Bytes;
pub use peeklock_amqp::server::operations;

pub use self::connection::{Run, config, connection, login};
pub use self::frames::frames;
pub use self::sections::sections;

/// Reads `bytes` as a request to a management node; returns the number of values that could be read.
#[must_use]
pub fn requests(bytes: &[u8]) -> usize {
    peeklock_amqp::server::decode_all(Bytes::copy_from_slice(bytes))
}

//! Requests to management nodes, past the frames and sections that they come in: whatever stands there is refused or
//! understood.

use bytes::Bytes;

use crate::server::understand;

/// The names of all that can be asked at a management node (AMQP-82).
pub fn operations() -> impl Iterator<Item = String> {
    crate::server::operations()
}

/// Reads `bytes` as a request, and its body as that of each operation; returns how much of it can be understood.
#[must_use]
pub fn requests(bytes: &[u8]) -> usize {
    understand(Bytes::copy_from_slice(bytes))
}

//! Frames for tests of a whole process: every operation in both encodings.

use bytes::Bytes;

use crate::frame::{ClientFrame, Encoding, client_side};
use crate::operation::Operation;

/// The names of all operations, as in the table of operations.
pub fn operations() -> impl Iterator<Item = &'static str> {
    Operation::names().map(|(_, name)| name)
}

/// A client frame in the binary encoding; none if the frame or one of its requests is invalid.
#[must_use]
pub fn in_binary(json: &str) -> Option<Vec<u8>> {
    let bytes = Bytes::copy_from_slice(json.as_bytes());
    let frame = ClientFrame::decode(Encoding::Json, &bytes).ok()?;
    let requests = frame.requests.into_iter().collect::<Result<Vec<_>, _>>().ok()?;
    client_side::encode(Encoding::Binary, frame.seen, &requests).ok()
}

//! What tests of a whole process need of frames: everything that can be asked, and both forms of it.

use bytes::Bytes;

use crate::frame::{ClientFrame, Encoding, client_side};
use crate::operation::Operation;

/// The names of all that a client can ask for, as they stand in the table of operations.
pub fn operations() -> impl Iterator<Item = &'static str> {
    Operation::names().map(|(_, name)| name)
}

/// A frame of a client in the binary form; none if it cannot be read, or a request of it.
#[must_use]
pub fn in_binary(json: &str) -> Option<Vec<u8>> {
    let bytes = Bytes::copy_from_slice(json.as_bytes());
    let frame = ClientFrame::decode(Encoding::Json, &bytes).ok()?;
    let requests = frame.requests.into_iter().collect::<Result<Vec<_>, _>>().ok()?;
    client_side::encode(Encoding::Binary, frame.seen, &requests).ok()
}

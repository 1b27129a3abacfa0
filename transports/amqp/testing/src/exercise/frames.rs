//! Frames and what is in them: what can be read is read as the same when it is written again.

use bytes::{Bytes, BytesMut};

use peeklock_amqp::frame::Frame;
use peeklock_amqp::performative::Performative;
use peeklock_amqp::sasl::ClientFrame;

/// The largest frame that is taken.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Reads what stands in `bytes` frame by frame, and as the body of one; returns how many performatives there
/// are.
///
/// # Panics
/// When something does not hold.
#[must_use]
pub fn frames(bytes: &[u8]) -> usize {
    let mut input = BytesMut::from(bytes);
    let mut count = 0;
    while let Ok(Some(frame)) = Frame::split(&mut input, FRAME_BYTES_MAX) {
        count += usize::from(performative(&frame.body));
        ClientFrame::read(&frame.body).ok();
    }
    count + usize::from(performative(&Bytes::copy_from_slice(bytes)))
}

fn performative(body: &Bytes) -> bool {
    let Ok((read, payload)) = Performative::read(body) else { return false };
    let mut written = BytesMut::new();
    read.write(&mut written);
    written.extend_from_slice(&payload);
    let written_bytes = written.len();
    let again = Performative::read(&written.freeze());
    assert_eq!(again, Ok((read, payload)), "it is another when it is written again");
    // What little was said stays little.
    assert!(
        written_bytes <= 2 * body.len() + 64,
        "{} bytes have become {written_bytes}",
        body.len()
    );
    true
}

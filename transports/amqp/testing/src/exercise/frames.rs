//! Frames and performatives: a readable value that is written and read again stays the same.

use bytes::{Bytes, BytesMut};

use peeklock_amqp::frame::Frame;
use peeklock_amqp::performative::Performative;
use peeklock_amqp::sasl::ClientFrame;

/// Maximum size of a frame.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Reads `bytes` as frames and as the body of one frame; returns the number of performatives.
///
/// # Panics
/// If a check fails.
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
    // The encoded size stays proportional to the input.
    assert!(
        written_bytes <= 2 * body.len() + 64,
        "{} bytes have become {written_bytes}",
        body.len()
    );
    true
}

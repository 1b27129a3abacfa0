//! Messages: a message that is accepted can be delivered, a delivered message can be accepted
//! again, and the body stays the same.

use bytes::Bytes;
use peeklock_words::message::Content;

use peeklock_amqp::message::{CoordinatorRequest, Stamps, encode, unpack};

/// Maximum number of messages in a batch.
const BATCH_COUNT_MAX: usize = 100;

/// Maximum bytes that delivery adds to an accepted message.
const STAMPS_BYTES_MAX: usize = 256;

/// Reads `bytes` as a message, as a batch and as a request to a coordinator; returns the number of
/// readable messages.
///
/// # Panics
/// If a check fails.
#[must_use]
pub fn sections(bytes: &[u8]) -> usize {
    let bytes = Bytes::copy_from_slice(bytes);
    CoordinatorRequest::read(&bytes).ok();
    let mut count = 0;
    if let Ok(content) = Content::parse(bytes.clone()) {
        pass_on(&content);
        count += 1;
    }
    let batch = unpack(bytes, BATCH_COUNT_MAX).unwrap_or_default();
    assert!(batch.len() <= BATCH_COUNT_MAX, "a batch has too many messages");
    for content in &batch {
        pass_on(content);
    }
    count + batch.len()
}

#[expect(clippy::panic, reason = "it is for tests and fuzzing, and reports its findings")]
fn pass_on(content: &Content) {
    // Values are decoded lazily and may be refused at that time.
    content.decode().ok();
    for expires_at_ms in [None, Some(7)] {
        let stamps = Stamps { expires_at_ms, ..Stamps::default() };
        let sent = encode(content, &[], &stamps).concat();
        let (said_bytes, sent_bytes) = (content.as_bytes().len(), sent.len());
        assert!(
            sent_bytes <= said_bytes + STAMPS_BYTES_MAX,
            "{said_bytes} bytes became {sent_bytes}"
        );
        let taken = Content::parse(sent.into());
        let taken =
            taken.unwrap_or_else(|error| panic!("the sent message cannot be accepted: {error}"));
        assert_eq!(taken.body(), content.body(), "the body is another");
    }
}

//! Batches: many messages in the data sections of one (AMQP-42).

use bytes::Bytes;
use peeklock_words::amqp::{Reader, Scalar, descriptor};
use peeklock_words::message::{Content, ContentError};

/// The message format of a batch.
pub const BATCH_FORMAT: u32 = 0x8001_3700;
/// Maximum number of messages in a batch. Clients fill a batch by bytes, and the smallest message of an SDK takes more
/// than a 65,536th of the default `limits.batch_bytes_max`: only empty messages of raw clients meet this limit first.
pub const BATCH_COUNT_MAX: usize = 65_536;

/// Why bytes are no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// The batch itself is no message, or its body is no data.
    #[error("batch: {0}")]
    Envelope(ContentError),
    /// One of its messages is none.
    #[error("message {0} of the batch: {1}")]
    Message(usize, ContentError),
    /// There are more messages than a batch may have.
    #[error("batch has more than {0} messages; send several batches")]
    TooMany(usize),
}

/// The messages of a batch, as parts of its bytes. What stands beside them is dropped.
///
/// # Errors
/// When the batch or one of its messages is malformed, or there are more than `count_max`.
pub fn unpack(batch: Bytes, count_max: usize) -> Result<Vec<Content>, BatchError> {
    let envelope = Content::parse(batch).map_err(BatchError::Envelope)?;
    let body = envelope.as_bytes().slice_ref(envelope.sections().body);
    let mut reader = Reader::new(&body);
    let mut messages = Vec::new();
    while !reader.is_empty() {
        let wrong = BatchError::Envelope(ContentError::BadValue("body of a batch"));
        if reader.section().map_err(BatchError::Envelope)? != descriptor::DATA {
            return Err(wrong);
        }
        let Scalar::Binary(message) = reader.scalar().map_err(BatchError::Envelope)? else {
            return Err(wrong);
        };
        if message.is_empty() {
            // An empty batch of some clients is a message without bytes.
            continue;
        }
        if messages.len() == count_max {
            return Err(BatchError::TooMany(count_max));
        }
        let content = Content::from_sender(body.slice_ref(message));
        messages.push(content.map_err(|error| BatchError::Message(messages.len(), error))?);
    }
    Ok(messages)
}

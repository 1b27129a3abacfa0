//! Messages (AMQP 3.2): stored content to the messages that a client gets, and batches and requests
//! to their parts.
//!
//! Content is stored in the encoding of AMQP, so bodies are neither read nor copied here:
//! [`encode`] puts sections of the broker before the stored bytes. [`unpack`] takes a batch apart.
//! [`Declare`] and [`Discharge`] are bodies of messages to a coordinator.

mod outgoing;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::amqp::{Reader, Scalar, descriptor};
use peeklock_words::message::{Content, ContentError};

#[cfg(feature = "server")]
pub(crate) use self::outgoing::fields_of;
pub use self::outgoing::{NO_LOCK_MS, Stamps, encode};
use crate::codec::list::{FieldReader, List, put, read_described};
use crate::codec::value::Raw;
use crate::error::AmqpError;

/// Message format of a batch.
pub const BATCH_FORMAT: u32 = 0x8001_3700;
/// Maximum number of messages in a batch. Clients fill a batch by bytes, and the smallest message
/// of an SDK takes more than a 65,536th of the default `limits.batch_bytes_max`. So only empty
/// messages of raw clients meet this limit first.
pub const BATCH_COUNT_MAX: usize = 65_536;

/// Request to a coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoordinatorRequest {
    /// Begins a transaction.
    Declare(Declare),
    /// Ends a transaction.
    Discharge(Discharge),
}

impl CoordinatorRequest {
    /// Reads the request in a message whose body is a single value (AMQP-97).
    ///
    /// # Errors
    /// Fails if the body is not such a request.
    pub fn read(body: &Bytes) -> Result<Self, AmqpError> {
        let mut reader = Reader::new(body);
        if reader.section()? != descriptor::VALUE {
            return Err(AmqpError::decode("body of a request to the coordinator must be a value"));
        }
        let value = Raw::read(body, &mut reader)?;
        if !reader.is_empty() {
            return Err(AmqpError::decode(
                "a request to the coordinator is followed by more bytes",
            ));
        }
        let mut reader = Reader::new(value.as_bytes());
        let code = crate::codec::list::descriptor(&mut reader)?;
        if code == u64::from(Declare::DESCRIPTOR) {
            return Ok(Self::Declare(read_described(value.as_bytes())?));
        }
        Ok(Self::Discharge(read_described(value.as_bytes())?))
    }
}

/// Request for a transaction (AMQP 4.5.2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declare {
    /// Id of a distributed transaction, which is not supported.
    pub global_id: Option<Raw>,
}

impl List for Declare {
    const DESCRIPTOR: u8 = 0x31;
    const NAME: &'static str = "declare";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { global_id: fields.raw("global-id")? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.global_id.as_ref().map(Raw::as_bytes), put);
    }
}

/// Request to end a transaction (AMQP 4.5.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Discharge {
    /// Id of the transaction.
    pub txn_id: Bytes,
    /// Whether the transaction is rolled back.
    pub fail: bool,
}

impl List for Discharge {
    const DESCRIPTOR: u8 = 0x32;
    const NAME: &'static str = "discharge";
    const FIELD_COUNT: usize = 2;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            txn_id: fields.required("txn-id", FieldReader::binary)?,
            fail: fields.boolean("fail")?.unwrap_or(false),
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.txn_id), write::binary);
        fields.field(self.fail.then_some(true), write::boolean);
    }
}

/// Reason why bytes are not a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// The batch itself is not a message, or its body has a section that is not data.
    #[error("batch: {0}")]
    Envelope(ContentError),
    /// A message of the batch is malformed.
    #[error("message {0} of the batch: {1}")]
    Message(usize, ContentError),
    /// The batch has more messages than it may have.
    #[error("batch has more than {0} messages; send several batches")]
    TooMany(usize),
}

/// Returns the messages of a batch, which are its data sections, as parts of its bytes (AMQP-42).
/// Its other sections are dropped.
///
/// # Errors
/// Fails if the batch or one of its messages is malformed, or there are more than `count_max`
/// messages.
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
            // Some clients send an empty batch as a message without bytes.
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

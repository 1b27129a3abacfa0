//! Messages: how their parts become content, and content what a client is sent (AMQP 3.2).
//!
//! Content is kept in the encoding of AMQP, so a body is neither read nor copied here: [`Assembly`] joins
//! what came in several frames, once, and [`encode`] puts new sections that the broker owns before
//! the old bytes. [`unpack`] takes a batch apart. [`Declare`] and [`Discharge`] are what a coordinator
//! is sent.

mod batch;
mod outgoing;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::amqp::{Reader, descriptor};

pub use self::batch::{BATCH_COUNT_MAX, BATCH_FORMAT, BatchError, unpack};
#[cfg(feature = "server")]
pub(crate) use self::outgoing::fields_of;
pub use self::outgoing::{NO_LOCK_MS, Stamps, encode};
use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put, read_described};
use crate::codec::value::Raw;
use crate::error::AmqpError;

/// What a coordinator is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// For a transaction.
    Declare(Declare),
    /// To end one.
    Discharge(Discharge),
}

impl Request {
    /// The request in a message's body of one value (AMQP-97).
    ///
    /// # Errors
    /// When the body is none.
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
        let code = crate::codec::fields::descriptor(&mut reader)?;
        if code == u64::from(Declare::DESCRIPTOR) {
            return Ok(Self::Declare(read_described(value.as_bytes())?));
        }
        Ok(Self::Discharge(read_described(value.as_bytes())?))
    }
}

/// What is joined with more room than this left over is copied into just as much as it needs, if that is little.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// Above this, room that was never written to costs no memory.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// The parts of a message, joined as they come, so that it is in memory once. How large it may get is the link's
/// to say: the connection gives no more parts of one that is too large (AMQP-43).
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// The only part, as long as there is one.
    first: Bytes,
    joined: BytesMut,
}

impl Assembly {
    /// The next part.
    pub fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = part;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&part);
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole; a single part is not copied.
    #[must_use]
    pub fn join(self) -> Bytes {
        if self.joined.is_empty() {
            return self.first;
        }
        let spare = self.joined.capacity() - self.joined.len();
        if spare > SPARE_BYTES_MAX && self.joined.len() <= COPIED_BYTES_MAX {
            return Bytes::copy_from_slice(&self.joined);
        }
        self.joined.freeze()
    }
}

/// Asks for a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declare {
    /// Of a distributed one, which is not offered.
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

/// Ends a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Discharge {
    /// Which.
    pub txn_id: Bytes,
    /// Whether it is rolled back.
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

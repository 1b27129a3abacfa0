//! Messages: how their parts become content, and content what a client is sent (AMQP 3.2).
//!
//! Content is kept in the encoding of AMQP, so a body is neither read nor copied here: [`encode`] puts new sections
//! that the broker owns before the old bytes. [`unpack`] takes a batch apart. [`Declare`] and [`Discharge`] are bodies of
//! messages to a coordinator.

mod batch;
mod outgoing;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::amqp::{Reader, descriptor};

pub use self::batch::{BATCH_COUNT_MAX, BATCH_FORMAT, BatchError, unpack};
#[cfg(feature = "server")]
pub(crate) use self::outgoing::fields_of;
pub use self::outgoing::{NO_LOCK_MS, Stamps, encode};
use crate::codec::list::{FieldReader, List, put, read_described};
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
        let code = crate::codec::list::descriptor(&mut reader)?;
        if code == u64::from(Declare::DESCRIPTOR) {
            return Ok(Self::Declare(read_described(value.as_bytes())?));
        }
        Ok(Self::Discharge(read_described(value.as_bytes())?))
    }
}

/// Asks for a transaction (AMQP 4.5.2).
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

/// Ends a transaction (AMQP 4.5.3).
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

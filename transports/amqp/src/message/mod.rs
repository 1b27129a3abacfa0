//! Messages: how their parts become content, and content what a client is sent (AMQP 3.2).
//!
//! Content is kept in the encoding of AMQP, so a body is neither read nor copied here: [`Assembly`] joins
//! what came in several frames, once, and [`encode`] puts new sections that the broker owns before
//! the old bytes. [`unpack`] takes a batch apart. [`Declare`] and [`Discharge`] are what a coordinator
//! is sent.

mod assembly;
mod batch;
mod declare;
mod discharge;
mod outgoing;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use peeklock_words::amqp::{Reader, descriptor};

pub use self::assembly::Assembly;
pub use self::batch::{BATCH_COUNT_MAX, BATCH_FORMAT, BatchError, unpack};
pub use self::declare::Declare;
pub use self::discharge::Discharge;
#[cfg(feature = "server")]
pub(crate) use self::outgoing::fields_of;
pub use self::outgoing::{NO_LOCK_MS, Stamps, encode};
use crate::codec::list::{List, read_described};
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

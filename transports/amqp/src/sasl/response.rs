//! `sasl-response`: what a client answers (AMQP 5.3.3.4).

use std::fmt;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;

/// An answer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// What is answered.
    pub response: Bytes,
}

impl List for Response {
    const DESCRIPTOR: u8 = 0x43;
    const NAME: &'static str = "sasl-response";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { response: fields.required("response", FieldReader::binary)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.response), write::binary);
    }
}

/// Shows no secret.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}

//! `sasl-challenge`: what a mechanism asks (AMQP 5.3.3.3).

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Challenge {
    /// What is asked.
    pub challenge: Bytes,
}

impl List for Challenge {
    const DESCRIPTOR: u8 = 0x42;
    const NAME: &'static str = "sasl-challenge";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { challenge: fields.required("challenge", FieldReader::binary)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.challenge), write::binary);
    }
}

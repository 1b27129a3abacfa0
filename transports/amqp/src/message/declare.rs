//! `declare`: asks for a transaction (AMQP 4.5.2). It is the body of a message to a coordinator.

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::Raw;
use crate::error::AmqpError;

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

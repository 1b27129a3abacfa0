//! `sasl-outcome`: what came of it (AMQP 5.3.3.5).

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, ubyte};
use crate::error::AmqpError;

/// Whether a client is who it says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// 0: it is; 1: it is not.
    pub code: u8,
    /// More of it.
    pub additional_data: Option<Bytes>,
}

impl List for Outcome {
    const DESCRIPTOR: u8 = 0x44;
    const NAME: &'static str = "sasl-outcome";
    const FIELD_COUNT: usize = 2;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            code: fields.required("code", FieldReader::ubyte)?,
            additional_data: fields.binary("additional-data")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.code), ubyte);
        fields.field(self.additional_data.as_deref(), write::binary);
    }
}

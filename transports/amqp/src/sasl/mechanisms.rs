//! `sasl-mechanisms`: how a client may say who it is (AMQP 5.3.3.1).

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::Symbols;
use crate::error::AmqpError;

/// The mechanisms that are offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mechanisms {
    /// Their names.
    pub mechanisms: Symbols,
}

impl List for Mechanisms {
    const DESCRIPTOR: u8 = 0x40;
    const NAME: &'static str = "sasl-mechanisms";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { mechanisms: fields.required("sasl-server-mechanisms", FieldReader::symbols)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.mechanisms.as_bytes()), put);
    }
}

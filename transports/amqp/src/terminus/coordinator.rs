//! The target of transactions (AMQP 4.5.1).

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::Symbols;
use crate::error::AmqpError;

/// A target that coordinates transactions (AMQP-97).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coordinator {
    /// What it is to do.
    pub capabilities: Option<Symbols>,
}

impl List for Coordinator {
    const DESCRIPTOR: u8 = 0x30;
    const NAME: &'static str = "coordinator";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { capabilities: fields.symbols("capabilities")? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.capabilities.as_ref().map(Symbols::as_bytes), put);
    }
}

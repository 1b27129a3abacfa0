//! `close`: the end of a connection (AMQP 2.7.9).

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::read_described;
use crate::codec::list::{List, write_list};
use crate::error::AmqpError;

/// Closes a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Close {
    /// Why, if something is wrong.
    pub error: Option<AmqpError>,
}

impl List for Close {
    const DESCRIPTOR: u8 = 0x18;
    const NAME: &'static str = "close";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { error: fields.described("error", read_described)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.error.as_ref(), write_list);
    }

    fn shortened(&self, bytes: usize) -> Option<Self> {
        Some(Self { error: Some(self.error.as_ref()?.shortened(bytes)?) })
    }
}

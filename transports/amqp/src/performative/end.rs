//! `end`: the end of a session (AMQP 2.7.8).

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::read_described;
use crate::codec::list::{List, write_list};
use crate::error::AmqpError;

/// Ends a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Why, if something is wrong.
    pub error: Option<AmqpError>,
}

impl List for End {
    const DESCRIPTOR: u8 = 0x17;
    const NAME: &'static str = "end";
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

//! `rejected`: a delivery is invalid (AMQP 3.4.3).

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::read_described;
use crate::codec::list::{List, write_list};
use crate::error::AmqpError;

/// A delivery was rejected; to dead-letter, when a receiver says so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejected {
    /// Why, if something is wrong.
    pub error: Option<AmqpError>,
}

impl List for Rejected {
    const DESCRIPTOR: u8 = 0x25;
    const NAME: &'static str = "rejected";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { error: fields.described("error", read_described)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.error.as_ref(), write_list);
    }
}

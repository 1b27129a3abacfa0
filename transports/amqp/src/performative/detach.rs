//! `detach`: the end of a link (AMQP 2.7.7).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::read_described;
use crate::codec::list::{List, write_list};
use crate::error::AmqpError;

/// Detaches a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Detach {
    /// The link.
    pub handle: u32,
    /// Whether it is gone for good, which is always so here (AMQP-36).
    pub closed: bool,
    /// Why, if something is wrong.
    pub error: Option<AmqpError>,
}

impl List for Detach {
    const DESCRIPTOR: u8 = 0x16;
    const NAME: &'static str = "detach";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            handle: fields.required("handle", FieldReader::uint)?,
            closed: fields.boolean("closed")?.unwrap_or(false),
            error: fields.described("error", read_described)?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.handle), write::uint);
        fields.field(self.closed.then_some(true), write::boolean);
        fields.field(self.error.as_ref(), write_list);
    }

    fn shortened(&self, bytes: usize) -> Option<Self> {
        Some(Self { error: Some(self.error.as_ref()?.shortened(bytes)?), ..*self })
    }
}

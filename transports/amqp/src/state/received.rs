//! `received`: how far a delivery came (AMQP 3.4.1).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;

/// A delivery is under way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// The section.
    pub section_number: u32,
    /// The byte in it.
    pub section_offset: u64,
}

impl List for Received {
    const DESCRIPTOR: u8 = 0x23;
    const NAME: &'static str = "received";
    const FIELD_COUNT: usize = 2;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            section_number: fields.required("section-number", FieldReader::uint)?,
            section_offset: fields.required("section-offset", FieldReader::ulong)?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.section_number), write::uint);
        fields.field(Some(self.section_offset), write::ulong);
    }
}

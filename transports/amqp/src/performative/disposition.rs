//! `disposition`: what became of deliveries (AMQP 2.7.6).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;
use crate::performative::Role;
use crate::state::DeliveryState;

/// The state of a range of deliveries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disposition {
    /// What the sender of this is, to these deliveries.
    pub role: Role,
    /// The first delivery.
    pub first: u32,
    /// The last one; the first, if it is missing.
    pub last: Option<u32>,
    /// Whether the sender of this has settled them.
    pub settled: bool,
    /// Their state.
    pub state: Option<DeliveryState>,
    /// Whether the answer may wait for others.
    pub batchable: bool,
}

impl List for Disposition {
    const DESCRIPTOR: u8 = 0x15;
    const NAME: &'static str = "disposition";
    const FIELD_COUNT: usize = 6;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            role: Role::read(fields)?,
            first: fields.required("first", FieldReader::uint)?,
            last: fields.uint("last")?,
            settled: fields.boolean("settled")?.unwrap_or(false),
            state: DeliveryState::read_field(fields)?,
            batchable: fields.boolean("batchable")?.unwrap_or(false),
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.role.is_receiver()), write::boolean);
        fields.field(Some(self.first), write::uint);
        fields.field(self.last, write::uint);
        fields.field(self.settled.then_some(true), write::boolean);
        fields.field(self.state.as_ref(), |sink, state| state.write(sink));
        fields.field(self.batchable.then_some(true), write::boolean);
    }

    fn shortened(&self, bytes: usize) -> Option<Self> {
        Some(Self { state: Some(self.state.as_ref()?.shortened(bytes)?), ..*self })
    }
}

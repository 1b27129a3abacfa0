//! `transactional-state`: a delivery is part of a transaction (AMQP 4.5.8).

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;
use crate::state::Outcome;

/// A delivery or its outcome is part of a transaction (AMQP-66).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transactional {
    /// Of which.
    pub txn_id: Bytes,
    /// The outcome, which is no such state itself.
    pub outcome: Option<Outcome>,
}

impl List for Transactional {
    const DESCRIPTOR: u8 = 0x34;
    const NAME: &'static str = "transactional-state";
    const FIELD_COUNT: usize = 2;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            txn_id: fields.required("txn-id", FieldReader::binary)?,
            outcome: fields.described("outcome", Outcome::read)?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.txn_id), write::binary);
        fields.field(self.outcome.as_ref(), |sink, outcome| outcome.write(sink));
    }
}

//! `discharge`: ends a transaction (AMQP 4.5.3). It is the body of a message to a coordinator.

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;

/// Ends a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Discharge {
    /// Which.
    pub txn_id: Bytes,
    /// Whether it is rolled back.
    pub fail: bool,
}

impl List for Discharge {
    const DESCRIPTOR: u8 = 0x32;
    const NAME: &'static str = "discharge";
    const FIELD_COUNT: usize = 2;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            txn_id: fields.required("txn-id", FieldReader::binary)?,
            fail: fields.boolean("fail")?.unwrap_or(false),
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.txn_id), write::binary);
        fields.field(self.fail.then_some(true), write::boolean);
    }
}

//! `declared`: a transaction is open (AMQP 4.5.5).

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;

/// A transaction was declared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declared {
    /// Its id.
    pub txn_id: Bytes,
}

impl List for Declared {
    const DESCRIPTOR: u8 = 0x33;
    const NAME: &'static str = "declared";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { txn_id: fields.required("txn-id", FieldReader::binary)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.txn_id), write::binary);
    }
}

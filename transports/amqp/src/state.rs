//! States of deliveries (AMQP 3.4 and 4.5), as transfers and dispositions carry them. The link
//! machine and the server read and write them.

use bytes::Bytes;
use peeklock_words::amqp::Reader;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{
    FieldReader, List, descriptor, put, read_described, read_list, write_list,
};
use crate::codec::value::Map;
use crate::error::AmqpError;

/// State of a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryState {
    /// In transit.
    Received(Received),
    /// Ended, at least at its receiver.
    Outcome(Outcome),
    /// Part of a transaction.
    Transactional(Box<Transactional>),
}

/// Final state of a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Accepted.
    Accepted,
    /// Invalid.
    Rejected(Rejected),
    /// Not processed.
    Released,
    /// Not processed, and changed.
    Modified(Modified),
    /// Declared a transaction.
    Declared(Declared),
}

/// The outcome `accepted` (AMQP 3.4.2).
struct Accepted;

/// The outcome `released` (AMQP 3.4.4).
struct Released;

impl List for Accepted {
    const DESCRIPTOR: u8 = 0x24;
    const NAME: &'static str = "accepted";
    const FIELD_COUNT: usize = 0;

    fn read(_fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self)
    }

    fn fields<S: Sink>(&self, _fields: &mut Fields<'_, S>) {}
}

impl List for Released {
    const DESCRIPTOR: u8 = 0x26;
    const NAME: &'static str = "released";
    const FIELD_COUNT: usize = 0;

    fn read(_fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self)
    }

    fn fields<S: Sink>(&self, _fields: &mut Fields<'_, S>) {}
}

impl DeliveryState {
    /// Returns the state of an accepted delivery.
    #[must_use]
    pub const fn accepted() -> Self {
        Self::Outcome(Outcome::Accepted)
    }

    /// Returns the state of a delivery that is refused with this error.
    #[must_use]
    pub const fn rejected(error: AmqpError) -> Self {
        Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) }))
    }

    /// Completes the state for sending: an error reports whether a retry can succeed (ERR-02).
    #[must_use]
    pub fn with_transience(self) -> Self {
        match self {
            Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) => {
                Self::rejected(error.with_transience())
            }
            other => other,
        }
    }

    /// Returns the state with at least `bytes` bytes cut from the description of its error; `None`
    /// if it has no such description or a shorter one.
    pub(crate) fn shortened(&self, bytes: usize) -> Option<Self> {
        let Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) = self else {
            return None;
        };
        Some(Self::rejected(error.shortened(bytes)?))
    }

    /// Returns whether the state has an outcome.
    pub(crate) const fn has_outcome(&self) -> bool {
        match self {
            Self::Outcome(_) => true,
            Self::Transactional(state) => state.outcome.is_some(),
            Self::Received(_) => false,
        }
    }

    pub(crate) fn read_field(fields: &mut FieldReader<'_>) -> Result<Option<Self>, AmqpError> {
        fields.described("state", Self::read)
    }

    /// Reads a state that fills `value`.
    pub(crate) fn read(value: &Bytes) -> Result<Self, AmqpError> {
        let mut reader = Reader::new(value);
        let code = descriptor(&mut reader)?;
        Ok(match u8::try_from(code).unwrap_or(0) {
            Received::DESCRIPTOR => Self::Received(read_list(value, &mut reader)?),
            Transactional::DESCRIPTOR => {
                Self::Transactional(Box::new(read_list(value, &mut reader)?))
            }
            _ => Self::Outcome(Outcome::read(value)?),
        })
    }

    pub(crate) fn write<S: Sink>(&self, sink: &mut S) {
        match self {
            Self::Received(received) => write_list(sink, received),
            Self::Outcome(outcome) => outcome.write(sink),
            Self::Transactional(state) => write_list(sink, &**state),
        }
    }
}

impl Outcome {
    /// Reads an outcome that fills `value`.
    pub(crate) fn read(value: &Bytes) -> Result<Self, AmqpError> {
        let mut reader = Reader::new(value);
        let code = descriptor(&mut reader)?;
        Ok(match u8::try_from(code).unwrap_or(0) {
            Accepted::DESCRIPTOR => {
                read_list::<Accepted>(value, &mut reader)?;
                Self::Accepted
            }
            Rejected::DESCRIPTOR => Self::Rejected(read_list(value, &mut reader)?),
            Released::DESCRIPTOR => {
                read_list::<Released>(value, &mut reader)?;
                Self::Released
            }
            Modified::DESCRIPTOR => Self::Modified(read_list(value, &mut reader)?),
            Declared::DESCRIPTOR => Self::Declared(read_list(value, &mut reader)?),
            _ => return Err(AmqpError::decode(format!("descriptor 0x{code:x} is not an outcome"))),
        })
    }

    pub(crate) fn write<S: Sink>(&self, sink: &mut S) {
        match self {
            Self::Accepted => write_list(sink, &Accepted),
            Self::Rejected(rejected) => write_list(sink, rejected),
            Self::Released => write_list(sink, &Released),
            Self::Modified(modified) => write_list(sink, modified),
            Self::Declared(declared) => write_list(sink, declared),
        }
    }
}

/// Outcome: a transaction was declared (AMQP 4.5.5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declared {
    /// Id of the transaction.
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

/// Outcome: the delivery was not processed, and is changed (AMQP 3.4.5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Modified {
    /// Whether this counts as a failed delivery.
    pub delivery_failed: Option<bool>,
    /// Whether not to deliver it here again: the message is deferred.
    pub undeliverable_here: Option<bool>,
    /// Properties to change (AMQP-63).
    pub message_annotations: Option<Map>,
}

impl List for Modified {
    const DESCRIPTOR: u8 = 0x27;
    const NAME: &'static str = "modified";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            delivery_failed: fields.boolean("delivery-failed")?,
            undeliverable_here: fields.boolean("undeliverable-here")?,
            message_annotations: fields.map("message-annotations")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.delivery_failed, write::boolean);
        fields.field(self.undeliverable_here, write::boolean);
        fields.field(self.message_annotations.as_ref().map(Map::as_bytes), put);
    }
}

/// State: the delivery is in transit (AMQP 3.4.1).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Section that was reached.
    pub section_number: u32,
    /// Byte in the section.
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

/// Outcome: the delivery was rejected. From a receiver, it dead-letters the message (AMQP 3.4.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejected {
    /// Error, if any.
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

/// State: the delivery or its outcome is part of a transaction (AMQP-66) (AMQP 4.5.8).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transactional {
    /// Id of the transaction.
    pub txn_id: Bytes,
    /// Outcome, which cannot be transactional itself.
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

//! States of deliveries (AMQP 3.4 and 4.5).

use bytes::Bytes;
use peeklock_words::amqp::Reader;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{
    FieldReader, List, descriptor, put, read_described, read_list, write_list,
};
use crate::codec::value::Map;
use crate::error::AmqpError;

/// The state of a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryState {
    /// It is under way.
    Received(Received),
    /// It came to an end, at least for its receiver.
    Outcome(Outcome),
    /// It is part of a transaction.
    Transactional(Box<Transactional>),
}

/// How a delivery ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was taken.
    Accepted,
    /// It is invalid.
    Rejected(Rejected),
    /// It was not taken.
    Released,
    /// It was not taken, and is changed.
    Modified(Modified),
    /// It declared a transaction.
    Declared(Declared),
}

/// `accepted` (AMQP 3.4.2).
struct Accepted;

/// `released` (AMQP 3.4.4).
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
    /// The delivery was taken.
    #[must_use]
    pub const fn accepted() -> Self {
        Self::Outcome(Outcome::Accepted)
    }

    /// The delivery was not taken, for a reason.
    #[must_use]
    pub const fn rejected(error: AmqpError) -> Self {
        Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) }))
    }

    /// This state as the broker sends it: of what is wrong it says whether trying again can succeed (ERR-02).
    #[must_use]
    pub fn with_transience(self) -> Self {
        match self {
            Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) => {
                Self::rejected(error.with_transience())
            }
            other => other,
        }
    }

    /// The same with a description of what is wrong that is at least so many bytes shorter, if it has one that long.
    pub(crate) fn shortened(&self, bytes: usize) -> Option<Self> {
        let Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) = self else {
            return None;
        };
        Some(Self::rejected(error.shortened(bytes)?))
    }

    /// Whether it says what is to become of a delivery.
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

    /// The state that is the whole of `value`.
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
    /// The outcome that is the whole of `value`.
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

/// A transaction was declared (AMQP 4.5.5).
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

/// A delivery was not taken, and is changed (AMQP 3.4.5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Modified {
    /// Whether it counts as a delivery.
    pub delivery_failed: Option<bool>,
    /// Whether not to deliver it here again: to defer it.
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

/// A delivery is under way (AMQP 3.4.1).
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

/// A delivery was rejected; to dead-letter, when a receiver says so (AMQP 3.4.3).
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

/// A delivery or its outcome is part of a transaction (AMQP-66) (AMQP 4.5.8).
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

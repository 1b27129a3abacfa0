//! States of deliveries (AMQP 3.4 and 4.5), one file for each that has fields.

mod declared;
mod modified;
mod received;
mod rejected;
mod transactional;

use bytes::Bytes;
use peeklock_words::amqp::Reader;
use peeklock_words::amqp::write::{Fields, Sink};

pub use self::declared::Declared;
pub use self::modified::Modified;
pub use self::received::Received;
pub use self::rejected::Rejected;
pub use self::transactional::Transactional;
use crate::codec::fields::{FieldReader, descriptor};
use crate::codec::list::{List, read_list, write_list};
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

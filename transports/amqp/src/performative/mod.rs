//! The performatives, one file each, in the order of the standard (AMQP 2.7).

mod attach;
mod begin;
mod open;
mod transfer;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;

use bytes::Bytes;
use peeklock_words::amqp::write::Sink;
use peeklock_words::amqp::{Reader, Scalar};

pub use self::attach::Attach;
pub use self::attach::Detach;
pub use self::begin::Begin;
pub use self::begin::End;
pub use self::open::Close;
pub use self::open::Open;
pub use self::transfer::Disposition;
pub use self::transfer::Flow;
pub use self::transfer::Transfer;
use crate::codec::fields::{FieldReader, descriptor};
use crate::codec::list::{List, read_list, write_list};
use crate::error::AmqpError;

/// Maximum bytes of a delivery tag.
const TAG_BYTES_MAX: usize = 64;

/// The body of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Performative {
    /// Opens a connection.
    Open(Box<Open>),
    /// Begins a session.
    Begin(Box<Begin>),
    /// Attaches a link.
    Attach(Box<Attach>),
    /// Windows and credit.
    Flow(Flow),
    /// A message or a part of one.
    Transfer(Transfer),
    /// What became of deliveries.
    Disposition(Disposition),
    /// Detaches a link.
    Detach(Detach),
    /// Ends a session.
    End(End),
    /// Closes a connection.
    Close(Close),
}

impl Performative {
    /// The performative at the start of a frame's body, and the payload behind it.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn read(body: &Bytes) -> Result<(Self, Bytes), AmqpError> {
        let mut reader = Reader::new(body);
        let code = descriptor(&mut reader)?;
        let performative = match u8::try_from(code).unwrap_or(0) {
            Open::DESCRIPTOR => Self::Open(Box::new(read_list(body, &mut reader)?)),
            Begin::DESCRIPTOR => Self::Begin(Box::new(read_list(body, &mut reader)?)),
            Attach::DESCRIPTOR => Self::Attach(Box::new(read_list(body, &mut reader)?)),
            Flow::DESCRIPTOR => Self::Flow(read_list(body, &mut reader)?),
            Transfer::DESCRIPTOR => Self::Transfer(read_list(body, &mut reader)?),
            Disposition::DESCRIPTOR => Self::Disposition(read_list(body, &mut reader)?),
            Detach::DESCRIPTOR => Self::Detach(read_list(body, &mut reader)?),
            End::DESCRIPTOR => Self::End(read_list(body, &mut reader)?),
            Close::DESCRIPTOR => Self::Close(read_list(body, &mut reader)?),
            _ => {
                return Err(AmqpError::decode(format!(
                    "descriptor 0x{code:x} is not a performative of a connection"
                )));
            }
        };
        let payload = body.slice(body.len() - reader.remaining()..);
        if !payload.is_empty() && !matches!(performative, Self::Transfer(_)) {
            return Err(AmqpError::decode(
                "a performative without payload is followed by more bytes",
            ));
        }
        Ok((performative, payload))
    }
}

impl Performative {
    /// Writes it as the body of a frame.
    pub fn write<S: Sink>(&self, sink: &mut S) {
        match self {
            Self::Open(open) => write_list(sink, &**open),
            Self::Begin(begin) => write_list(sink, &**begin),
            Self::Attach(attach) => write_list(sink, &**attach),
            Self::Flow(flow) => write_list(sink, flow),
            Self::Transfer(transfer) => write_list(sink, transfer),
            Self::Disposition(disposition) => write_list(sink, disposition),
            Self::Detach(detach) => write_list(sink, detach),
            Self::End(end) => write_list(sink, end),
            Self::Close(close) => write_list(sink, close),
        }
    }
}

/// What an end of a link is (AMQP 2.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// It sends.
    #[default]
    Sender,
    /// It receives.
    Receiver,
}

impl Role {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        let receives = fields.required("role", FieldReader::boolean)?;
        Ok(if receives { Self::Receiver } else { Self::Sender })
    }

    /// Whether it receives, which is how a role is written.
    #[must_use]
    pub const fn is_receiver(self) -> bool {
        matches!(self, Self::Receiver)
    }

    /// What the other end is.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// How the sending end of a link settles (AMQP 2.8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderSettleMode {
    /// It sends everything unsettled.
    Unsettled,
    /// It sends everything settled.
    Settled,
    /// It may do both.
    Mixed,
}

impl SenderSettleMode {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Option<Self>, AmqpError> {
        Ok(match fields.ubyte("snd-settle-mode")? {
            None => None,
            Some(0) => Some(Self::Unsettled),
            Some(1) => Some(Self::Settled),
            Some(2) => Some(Self::Mixed),
            Some(other) => {
                return Err(AmqpError::invalid_field(format!(
                    "snd-settle-mode {other} is not defined; use 0, 1 or 2"
                )));
            }
        })
    }

    /// How it is written.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unsettled => 0,
            Self::Settled => 1,
            Self::Mixed => 2,
        }
    }
}

/// How the receiving end of a link settles (AMQP 2.8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverSettleMode {
    /// It settles at once.
    First,
    /// It settles when the sending end has.
    Second,
}

impl ReceiverSettleMode {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Option<Self>, AmqpError> {
        Ok(match fields.ubyte("rcv-settle-mode")? {
            None => None,
            Some(0) => Some(Self::First),
            Some(1) => Some(Self::Second),
            Some(other) => {
                return Err(AmqpError::invalid_field(format!(
                    "rcv-settle-mode {other} is not defined; use 0 or 1"
                )));
            }
        })
    }

    /// How it is written.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// The tag of a delivery, kept in place. The standard allows 32 bytes; some clients send the text of a UUID, which has
/// more (AMQP-41).
#[derive(Clone, Copy)]
pub struct DeliveryTag {
    bytes: [u8; TAG_BYTES_MAX],
    length: u8,
}

impl DeliveryTag {
    /// A tag of these bytes; none if they are too many.
    #[must_use]
    pub fn new(tag: &[u8]) -> Option<Self> {
        let mut bytes = [0; TAG_BYTES_MAX];
        bytes.get_mut(..tag.len())?.copy_from_slice(tag);
        let length = u8::try_from(tag.len()).ok()?;
        Some(Self { bytes, length })
    }

    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Option<Self>, AmqpError> {
        let Some(Scalar::Binary(tag)) = fields.tag()? else {
            return Ok(None);
        };
        let tag = Self::new(tag).ok_or_else(|| {
            AmqpError::invalid_field(format!(
                "delivery-tag has {} bytes, at most {TAG_BYTES_MAX} are allowed",
                tag.len()
            ))
        })?;
        Ok(Some(tag))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl PartialEq for DeliveryTag {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for DeliveryTag {}

impl fmt::Debug for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

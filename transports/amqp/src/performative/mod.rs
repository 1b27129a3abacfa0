//! The performatives (AMQP 2.7): the bodies of frames. This file has the performatives about
//! deliveries; `open`, `begin` and `attach` have the others. The order of fields is the standard's.

mod attach;
mod begin;
mod open;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::amqp::{Reader, Scalar};

pub use self::attach::{Attach, Detach};
pub use self::begin::{Begin, End};
pub use self::open::{Close, Open};
use crate::codec::list::{FieldReader, List, descriptor, put, read_list, ubyte, write_list};
use crate::codec::value::Map;
use crate::error::AmqpError;
use crate::state::DeliveryState;

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
    /// Reports windows and credit.
    Flow(Flow),
    /// Sends a message, whole or in part.
    Transfer(Transfer),
    /// Reports the state of deliveries.
    Disposition(Disposition),
    /// Detaches a link.
    Detach(Detach),
    /// Ends a session.
    End(End),
    /// Closes a connection.
    Close(Close),
}

impl Performative {
    /// Reads the performative at the start of a frame's body, and returns it with the payload after
    /// it.
    ///
    /// # Errors
    /// Fails if the bytes are not a performative, or bytes follow a performative without payload.
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
    /// Writes the performative as the body of a frame.
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

/// Direction of an end of a link (AMQP 2.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// Sends.
    #[default]
    Sender,
    /// Receives.
    Receiver,
}

impl Role {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        let receives = fields.required("role", FieldReader::boolean)?;
        Ok(if receives { Self::Receiver } else { Self::Sender })
    }

    /// Returns whether this end receives, which is the encoding of a role.
    #[must_use]
    pub const fn is_receiver(self) -> bool {
        matches!(self, Self::Receiver)
    }

    /// Returns the role of the other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// Settlement by the sending end of a link (AMQP 2.8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderSettleMode {
    /// All deliveries are sent unsettled.
    Unsettled,
    /// All deliveries are sent settled.
    Settled,
    /// Both are possible.
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

    /// Code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unsettled => 0,
            Self::Settled => 1,
            Self::Mixed => 2,
        }
    }
}

/// Settlement by the receiving end of a link (AMQP 2.8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverSettleMode {
    /// Settles immediately.
    First,
    /// Settles after the sending end has settled.
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

    /// Code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// Tag of a delivery, stored inline. The standard allows 32 bytes. Some clients send the text of a
/// UUID, which is longer, so up to 64 bytes are accepted (AMQP-41).
#[derive(Clone, Copy)]
pub struct DeliveryTag {
    bytes: [u8; TAG_BYTES_MAX],
    length: u8,
}

impl DeliveryTag {
    /// Makes a tag of these bytes; `None` if there are more than 64.
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

    /// Returns the bytes of the tag.
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

/// Transfer of a message, whole or in part (AMQP 2.7.5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transfer {
    /// Handle of the link.
    pub handle: u32,
    /// Number of the delivery in its session; continuations may omit it (AMQP-31).
    pub delivery_id: Option<u32>,
    /// Tag of the delivery in its link.
    pub delivery_tag: Option<DeliveryTag>,
    /// Format of the payload (AMQP-42).
    pub message_format: Option<u32>,
    /// Whether the sending end has settled the delivery.
    pub settled: Option<bool>,
    /// Whether more frames of the delivery follow.
    pub more: bool,
    /// Settlement by the receiving end for this delivery.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// State at the sending end: the transaction, if any.
    pub state: Option<DeliveryState>,
    /// Whether this resumes a delivery of an earlier attachment of the link, which is not
    /// supported.
    pub resume: bool,
    /// Whether the delivery is aborted, so that its earlier parts are void.
    pub aborted: bool,
    /// Whether dispositions may be delayed to be sent together.
    pub batchable: bool,
}

impl List for Transfer {
    const DESCRIPTOR: u8 = 0x14;
    const NAME: &'static str = "transfer";
    const FIELD_COUNT: usize = 11;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            handle: fields.required("handle", FieldReader::uint)?,
            delivery_id: fields.uint("delivery-id")?,
            delivery_tag: DeliveryTag::read(fields)?,
            message_format: fields.uint("message-format")?,
            settled: fields.boolean("settled")?,
            more: fields.boolean("more")?.unwrap_or(false),
            rcv_settle_mode: ReceiverSettleMode::read(fields)?,
            state: DeliveryState::read_field(fields)?,
            resume: fields.boolean("resume")?.unwrap_or(false),
            aborted: fields.boolean("aborted")?.unwrap_or(false),
            batchable: fields.boolean("batchable")?.unwrap_or(false),
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.handle), write::uint);
        fields.field(self.delivery_id, write::uint);
        fields.field(self.delivery_tag.as_ref().map(DeliveryTag::as_slice), write::binary);
        fields.field(self.message_format, write::uint);
        fields.field(self.settled, write::boolean);
        fields.field(self.more.then_some(true), write::boolean);
        fields.field(self.rcv_settle_mode.map(ReceiverSettleMode::code), ubyte);
        fields.field(self.state.as_ref(), |sink, state| state.write(sink));
        fields.field(self.resume.then_some(true), write::boolean);
        fields.field(self.aborted.then_some(true), write::boolean);
        fields.field(self.batchable.then_some(true), write::boolean);
    }
}

/// State of a session, and of a link if `handle` is present (AMQP 2.7.4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// Id of the next expected transfer; missing before the peer's `begin` is known.
    pub next_incoming_id: Option<u32>,
    /// Number of transfers that the sender of the flow takes from there.
    pub incoming_window: u32,
    /// Id of the next transfer from the sender of the flow.
    pub next_outgoing_id: u32,
    /// Number of transfers that it may have in transit.
    pub outgoing_window: u32,
    /// Handle of the link to which the remaining fields belong.
    pub handle: Option<u32>,
    /// Number of deliveries made on the link.
    pub delivery_count: Option<u32>,
    /// Number of further deliveries that may be made.
    pub link_credit: Option<u32>,
    /// Number of messages available for the link.
    pub available: Option<u32>,
    /// Whether the sending end must use up its credit now.
    pub drain: bool,
    /// Whether the sender of the flow requests the state of its peer.
    pub echo: bool,
    /// Further properties.
    pub properties: Option<Map>,
}

impl List for Flow {
    const DESCRIPTOR: u8 = 0x13;
    const NAME: &'static str = "flow";
    const FIELD_COUNT: usize = 11;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            next_incoming_id: fields.uint("next-incoming-id")?,
            incoming_window: fields.required("incoming-window", FieldReader::uint)?,
            next_outgoing_id: fields.required("next-outgoing-id", FieldReader::uint)?,
            outgoing_window: fields.required("outgoing-window", FieldReader::uint)?,
            handle: fields.uint("handle")?,
            delivery_count: fields.uint("delivery-count")?,
            link_credit: fields.uint("link-credit")?,
            available: fields.uint("available")?,
            drain: fields.boolean("drain")?.unwrap_or(false),
            echo: fields.boolean("echo")?.unwrap_or(false),
            properties: fields.map("properties")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.next_incoming_id, write::uint);
        fields.field(Some(self.incoming_window), write::uint);
        fields.field(Some(self.next_outgoing_id), write::uint);
        fields.field(Some(self.outgoing_window), write::uint);
        fields.field(self.handle, write::uint);
        fields.field(self.delivery_count, write::uint);
        fields.field(self.link_credit, write::uint);
        fields.field(self.available, write::uint);
        fields.field(self.drain.then_some(true), write::boolean);
        fields.field(self.echo.then_some(true), write::boolean);
        fields.field(self.properties.as_ref().map(Map::as_bytes), put);
    }
}

/// State of a range of deliveries (AMQP 2.7.6).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disposition {
    /// Role of the sender of the disposition for these deliveries.
    pub role: Role,
    /// First delivery.
    pub first: u32,
    /// Last delivery; equal to the first if it is missing.
    pub last: Option<u32>,
    /// Whether the sender of the disposition has settled the deliveries.
    pub settled: bool,
    /// State of the deliveries.
    pub state: Option<DeliveryState>,
    /// Whether the answer may be delayed to be sent with others.
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

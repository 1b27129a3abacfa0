//! `transfer`: a message, or a part of one (AMQP 2.7.5). Its payload stands behind it in the frame.

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put, ubyte};
use crate::codec::value::Map;
use crate::error::AmqpError;
use crate::performative::{DeliveryTag, ReceiverSettleMode, Role};
use crate::state::DeliveryState;

/// Transfers a message or a part of one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transfer {
    /// The link.
    pub handle: u32,
    /// The number of the delivery in its session; continuations may leave it out (AMQP-31).
    pub delivery_id: Option<u32>,
    /// The tag of the delivery in its link.
    pub delivery_tag: Option<DeliveryTag>,
    /// How the payload is to be read (AMQP-42).
    pub message_format: Option<u32>,
    /// Whether the sending end has settled it.
    pub settled: Option<bool>,
    /// Whether more frames of it follow.
    pub more: bool,
    /// How the receiving end settles this one.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// The state at the sending end: the transaction, if any.
    pub state: Option<DeliveryState>,
    /// Whether it goes on with one of an earlier life of the link, which is not offered.
    pub resume: bool,
    /// Whether what came of it is void.
    pub aborted: bool,
    /// Whether dispositions may wait for others.
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

/// The state of a session, and of one of its links if it names one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// The id of the transfer that is expected next; missing before the other's `begin` is known.
    pub next_incoming_id: Option<u32>,
    /// How many transfers it takes from there.
    pub incoming_window: u32,
    /// The id of the next transfer from here.
    pub next_outgoing_id: u32,
    /// How many transfers it may have under way.
    pub outgoing_window: u32,
    /// The link that the rest is about.
    pub handle: Option<u32>,
    /// How many deliveries were made.
    pub delivery_count: Option<u32>,
    /// How many more may be made.
    pub link_credit: Option<u32>,
    /// How many could be made.
    pub available: Option<u32>,
    /// Whether credit is used up now.
    pub drain: bool,
    /// Whether the state of the other is wanted.
    pub echo: bool,
    /// Anything else.
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

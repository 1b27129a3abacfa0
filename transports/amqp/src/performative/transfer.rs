//! `transfer`: a message, or a part of one (AMQP 2.7.5). Its payload stands behind it in the frame.

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, ubyte};
use crate::error::AmqpError;
use crate::performative::{DeliveryTag, ReceiverSettleMode};
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

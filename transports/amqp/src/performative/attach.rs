//! `attach` and `detach`: begin and end of a link on a session (AMQP 2.7.3, 2.7.7). The link
//! machine reads and writes them.

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{FieldReader, List, put, read_described, ubyte, write_list};
use crate::codec::value::{Map, Symbols};
use crate::error::AmqpError;
use crate::performative::{ReceiverSettleMode, Role, SenderSettleMode};
use crate::terminus::{Source, Target};

/// Attaches a link. Missing settle modes stay missing in the answer (AMQP-35).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attach {
    /// Name of the link.
    pub name: Box<str>,
    /// Handle that the sender of this assigns to the link.
    pub handle: u32,
    /// Role of the sender of this.
    pub role: Role,
    /// Settlement by the sending end.
    pub snd_settle_mode: Option<SenderSettleMode>,
    /// Settlement by the receiving end.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// Source of the messages; null refuses the link (AMQP-36).
    pub source: Option<Source>,
    /// Target of the messages; null refuses the link (AMQP-36).
    pub target: Option<Target>,
    /// Unsettled deliveries of an earlier attachment; ignored, since links do not recover
    /// (AMQP-39).
    pub unsettled: Option<Map>,
    /// Whether `unsettled` is incomplete.
    pub incomplete_unsettled: bool,
    /// First delivery-count of the sending end.
    pub initial_delivery_count: Option<u32>,
    /// Maximum message size in bytes; no limit if it is missing or 0.
    pub max_message_size: Option<u64>,
    /// Extensions that the sender of this supports.
    pub offered_capabilities: Option<Symbols>,
    /// Extensions that it would like to use.
    pub desired_capabilities: Option<Symbols>,
    /// Further properties.
    pub properties: Option<Map>,
}

impl List for Attach {
    const DESCRIPTOR: u8 = 0x12;
    const NAME: &'static str = "attach";
    const FIELD_COUNT: usize = 14;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            name: fields.required("name", FieldReader::text)?,
            handle: fields.required("handle", FieldReader::uint)?,
            role: Role::read(fields)?,
            snd_settle_mode: SenderSettleMode::read(fields)?,
            rcv_settle_mode: ReceiverSettleMode::read(fields)?,
            source: fields.described("source", read_described)?,
            target: fields.described("target", Target::read_any)?,
            unsettled: fields.map("unsettled")?,
            incomplete_unsettled: fields.boolean("incomplete-unsettled")?.unwrap_or(false),
            initial_delivery_count: fields.uint("initial-delivery-count")?,
            max_message_size: fields.ulong("max-message-size")?,
            offered_capabilities: fields.symbols("offered-capabilities")?,
            desired_capabilities: fields.symbols("desired-capabilities")?,
            properties: fields.map("properties")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.name), write::text);
        fields.field(Some(self.handle), write::uint);
        fields.field(Some(self.role.is_receiver()), write::boolean);
        fields.field(self.snd_settle_mode.map(SenderSettleMode::code), ubyte);
        fields.field(self.rcv_settle_mode.map(ReceiverSettleMode::code), ubyte);
        fields.field(self.source.as_ref(), write_list);
        fields.field(self.target.as_ref(), |sink, target| target.write(sink));
        fields.field(self.unsettled.as_ref().map(Map::as_bytes), put);
        fields.field(self.incomplete_unsettled.then_some(true), write::boolean);
        fields.field(self.initial_delivery_count, write::uint);
        fields.field(self.max_message_size, write::ulong);
        fields.field(self.offered_capabilities.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.desired_capabilities.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.properties.as_ref().map(Map::as_bytes), put);
    }
}

/// Detaches a link (AMQP 2.7.7).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Detach {
    /// Handle of the link.
    pub handle: u32,
    /// Whether the link is closed permanently, which is always the case here (AMQP-36).
    pub closed: bool,
    /// Error, if any.
    pub error: Option<AmqpError>,
}

impl List for Detach {
    const DESCRIPTOR: u8 = 0x16;
    const NAME: &'static str = "detach";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            handle: fields.required("handle", FieldReader::uint)?,
            closed: fields.boolean("closed")?.unwrap_or(false),
            error: fields.described("error", read_described)?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.handle), write::uint);
        fields.field(self.closed.then_some(true), write::boolean);
        fields.field(self.error.as_ref(), write_list);
    }

    fn shortened(&self, bytes: usize) -> Option<Self> {
        Some(Self { error: Some(self.error.as_ref()?.shortened(bytes)?), ..*self })
    }
}

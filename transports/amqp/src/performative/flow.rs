//! `flow`: windows of a session, credit of a link (AMQP 2.7.4).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::Map;
use crate::error::AmqpError;

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

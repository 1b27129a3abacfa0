//! `begin` and `end`: begin and end of a session on a channel (AMQP 2.7.2, 2.7.8). The session
//! machine reads and writes them.

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{FieldReader, List, put, read_described, ushort, write_list};
use crate::codec::value::{Map, Symbols};
use crate::error::AmqpError;

/// Begins a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Begin {
    /// Channel of the `begin` that this one answers.
    pub remote_channel: Option<u16>,
    /// Id of the next transfer from the sender of this.
    pub next_outgoing_id: u32,
    /// Number of transfers that it takes.
    pub incoming_window: u32,
    /// Number of transfers that it may have in transit.
    pub outgoing_window: u32,
    /// Highest handle.
    pub handle_max: Option<u32>,
    /// Extensions that it supports.
    pub offered_capabilities: Option<Symbols>,
    /// Extensions that it would like to use.
    pub desired_capabilities: Option<Symbols>,
    /// Further properties.
    pub properties: Option<Map>,
}

impl List for Begin {
    const DESCRIPTOR: u8 = 0x11;
    const NAME: &'static str = "begin";
    const FIELD_COUNT: usize = 8;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            remote_channel: fields.ushort("remote-channel")?,
            next_outgoing_id: fields.required("next-outgoing-id", FieldReader::uint)?,
            incoming_window: fields.required("incoming-window", FieldReader::uint)?,
            outgoing_window: fields.required("outgoing-window", FieldReader::uint)?,
            handle_max: fields.uint("handle-max")?,
            offered_capabilities: fields.symbols("offered-capabilities")?,
            desired_capabilities: fields.symbols("desired-capabilities")?,
            properties: fields.map("properties")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.remote_channel, ushort);
        fields.field(Some(self.next_outgoing_id), write::uint);
        fields.field(Some(self.incoming_window), write::uint);
        fields.field(Some(self.outgoing_window), write::uint);
        fields.field(self.handle_max, write::uint);
        fields.field(self.offered_capabilities.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.desired_capabilities.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.properties.as_ref().map(Map::as_bytes), put);
    }
}

/// Ends a session (AMQP 2.7.8).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Error, if any.
    pub error: Option<AmqpError>,
}

impl List for End {
    const DESCRIPTOR: u8 = 0x17;
    const NAME: &'static str = "end";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { error: fields.described("error", read_described)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.error.as_ref(), write_list);
    }

    fn shortened(&self, bytes: usize) -> Option<Self> {
        Some(Self { error: Some(self.error.as_ref()?.shortened(bytes)?) })
    }
}

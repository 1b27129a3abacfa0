//! `open` and `close`: begin and end of a connection (AMQP 2.7.1, 2.7.9). The connection machine
//! reads and writes them.

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{FieldReader, List, put, read_described, ushort, write_list};
use crate::codec::value::{Map, Symbols};
use crate::error::AmqpError;

/// Opens a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Open {
    /// Name of the sending container.
    pub container_id: Box<str>,
    /// Host that the client addresses; it has no effect on routing (AMQP-05).
    pub hostname: Option<Box<str>>,
    /// Maximum frame size in bytes; no limit if it is missing.
    pub max_frame_size: Option<u32>,
    /// Highest channel.
    pub channel_max: Option<u16>,
    /// Time without frames in milliseconds after which the sender of this closes the connection.
    pub idle_time_out: Option<u32>,
    /// Languages of its texts.
    pub outgoing_locales: Option<Symbols>,
    /// Languages that it prefers.
    pub incoming_locales: Option<Symbols>,
    /// Extensions that it supports.
    pub offered_capabilities: Option<Symbols>,
    /// Extensions that it would like to use.
    pub desired_capabilities: Option<Symbols>,
    /// Further properties.
    pub properties: Option<Map>,
}

impl List for Open {
    const DESCRIPTOR: u8 = 0x10;
    const NAME: &'static str = "open";
    const FIELD_COUNT: usize = 10;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            container_id: fields.required("container-id", FieldReader::text)?,
            hostname: fields.text("hostname")?,
            max_frame_size: fields.uint("max-frame-size")?,
            channel_max: fields.ushort("channel-max")?,
            idle_time_out: fields.uint("idle-time-out")?,
            outgoing_locales: fields.symbols("outgoing-locales")?,
            incoming_locales: fields.symbols("incoming-locales")?,
            offered_capabilities: fields.symbols("offered-capabilities")?,
            desired_capabilities: fields.symbols("desired-capabilities")?,
            properties: fields.map("properties")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.container_id), write::text);
        fields.field(self.hostname.as_deref(), write::text);
        fields.field(self.max_frame_size, write::uint);
        fields.field(self.channel_max, ushort);
        fields.field(self.idle_time_out, write::uint);
        fields.field(self.outgoing_locales.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.incoming_locales.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.offered_capabilities.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.desired_capabilities.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.properties.as_ref().map(Map::as_bytes), put);
    }
}

/// Closes a connection (AMQP 2.7.9).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Close {
    /// Error, if any.
    pub error: Option<AmqpError>,
}

impl List for Close {
    const DESCRIPTOR: u8 = 0x18;
    const NAME: &'static str = "close";
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

//! Where messages of a link go (AMQP 3.5.4).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::{Map, Raw, Symbols};
use crate::error::AmqpError;
use crate::terminus::address;

/// A target that is a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeTarget {
    /// The address, as it was written.
    pub address: Option<Raw>,
    /// What of it outlives the link.
    pub durable: Option<u32>,
    /// When it goes.
    pub expiry_policy: Option<Box<str>>,
    /// How many seconds after that.
    pub timeout: Option<u32>,
    /// Whether a node is to be made, which is not offered (AMQP-96).
    pub dynamic: bool,
    /// What kind of node.
    pub dynamic_node_properties: Option<Map>,
    /// What the node is to do.
    pub capabilities: Option<Symbols>,
}

impl List for NodeTarget {
    const DESCRIPTOR: u8 = 0x29;
    const NAME: &'static str = "target";
    const FIELD_COUNT: usize = 7;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            address: fields.raw("address")?,
            durable: fields.uint("durable")?,
            expiry_policy: fields.text("expiry-policy")?,
            timeout: fields.uint("timeout")?,
            dynamic: fields.boolean("dynamic")?.unwrap_or(false),
            dynamic_node_properties: fields.map("dynamic-node-properties")?,
            capabilities: fields.symbols("capabilities")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.address.as_ref()), address);
        fields.field(self.durable, write::uint);
        fields.field(self.expiry_policy.as_deref(), write::symbol);
        fields.field(self.timeout, write::uint);
        fields.field(self.dynamic.then_some(true), write::boolean);
        fields.field(self.dynamic_node_properties.as_ref().map(Map::as_bytes), put);
        fields.field(self.capabilities.as_ref().map(Symbols::as_bytes), put);
    }
}

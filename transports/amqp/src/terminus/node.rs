//! What both ends of a link say of their node, ahead of what is their own (AMQP 3.5.3, 3.5.4).

use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::amqp::{Scalar, code};

use crate::codec::fields::FieldReader;
use crate::codec::list::put;
use crate::codec::value::{Map, Raw};
use crate::error::AmqpError;

/// The node of a source or target. What is not looked into is kept as it came, to be echoed (AMQP-34).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
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
}

impl Node {
    /// How many fields it is.
    pub(super) const FIELD_COUNT: usize = 6;

    /// A node with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        let address = Raw::encoded(|bytes| write::text(bytes, address));
        Self { address: Some(address), ..Self::default() }
    }

    /// The address, if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self.address.as_ref()?.scalar() {
            Ok(Scalar::Text(text) | Scalar::Symbol(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            address: fields.raw("address")?,
            durable: fields.uint("durable")?,
            expiry_policy: fields.text("expiry-policy")?,
            timeout: fields.uint("timeout")?,
            dynamic: fields.boolean("dynamic")?.unwrap_or(false),
            dynamic_node_properties: fields.map("dynamic-node-properties")?,
        })
    }

    pub(super) fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.address.as_ref()), address);
        fields.field(self.durable, write::uint);
        fields.field(self.expiry_policy.as_deref(), write::symbol);
        fields.field(self.timeout, write::uint);
        fields.field(self.dynamic.then_some(true), write::boolean);
        fields.field(self.dynamic_node_properties.as_ref().map(Map::as_bytes), put);
    }
}

/// Writes an address, as null if there is none: an empty list would mean that there is no end at all
/// (AMQP-12).
fn address<S: Sink>(sink: &mut S, address: Option<&Raw>) {
    match address {
        Some(address) => sink.put(address.as_bytes()),
        None => sink.put_byte(code::NULL),
    }
}

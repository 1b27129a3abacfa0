//! Where messages of a link come from (AMQP 3.5.3).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::{Map, Raw, Symbols};
use crate::error::AmqpError;
use crate::terminus::Node;

/// A source. What is not looked into is kept as it came, to be echoed (AMQP-34).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// Where they are.
    pub node: Node,
    /// `move` or `copy` (AMQP-99).
    pub distribution_mode: Option<Box<str>>,
    /// Which messages (AMQP-70).
    pub filter: Option<Map>,
    /// What is assumed of deliveries that nobody settled.
    pub default_outcome: Option<Raw>,
    /// What may become of deliveries.
    pub outcomes: Option<Symbols>,
    /// What the node is to do.
    pub capabilities: Option<Symbols>,
}

impl List for Source {
    const DESCRIPTOR: u8 = 0x28;
    const NAME: &'static str = "source";
    const FIELD_COUNT: usize = Node::FIELD_COUNT + 5;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            node: Node::read(fields)?,
            distribution_mode: fields.text("distribution-mode")?,
            filter: fields.map("filter")?,
            default_outcome: fields.raw("default-outcome")?,
            outcomes: fields.symbols("outcomes")?,
            capabilities: fields.symbols("capabilities")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        self.node.fields(fields);
        fields.field(self.distribution_mode.as_deref(), write::symbol);
        fields.field(self.filter.as_ref().map(Map::as_bytes), put);
        fields.field(self.default_outcome.as_ref().map(Raw::as_bytes), put);
        fields.field(self.outcomes.as_ref().map(Symbols::as_bytes), put);
        fields.field(self.capabilities.as_ref().map(Symbols::as_bytes), put);
    }
}

//! Where messages of a link go (AMQP 3.5.4).

use peeklock_words::amqp::write::{Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::Symbols;
use crate::error::AmqpError;
use crate::terminus::Node;

/// A target that is a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeTarget {
    /// Which one.
    pub node: Node,
    /// What the node is to do.
    pub capabilities: Option<Symbols>,
}

impl List for NodeTarget {
    const DESCRIPTOR: u8 = 0x29;
    const NAME: &'static str = "target";
    const FIELD_COUNT: usize = Node::FIELD_COUNT + 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { node: Node::read(fields)?, capabilities: fields.symbols("capabilities")? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        self.node.fields(fields);
        fields.field(self.capabilities.as_ref().map(Symbols::as_bytes), put);
    }
}

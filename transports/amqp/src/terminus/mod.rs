//! Ends of links (AMQP 3.5 and 4.5.1): source, target, coordinator.

mod coordinator;
mod node;
mod source;
mod target;

use bytes::Bytes;
use peeklock_words::amqp::Reader;
use peeklock_words::amqp::write::Sink;

pub use self::coordinator::Coordinator;
pub use self::node::Node;
pub use self::source::Source;
pub use self::target::NodeTarget;
use crate::codec::fields::descriptor;
use crate::codec::list::{List, read_list, write_list};
use crate::error::AmqpError;

/// Where messages of a link go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A node.
    Node(NodeTarget),
    /// The coordinator of transactions.
    Coordinator(Coordinator),
}

impl Source {
    /// A source with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self { node: Node::at(address), ..Self::default() }
    }

    /// The address, if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.node.address()
    }
}

impl Target {
    /// A node with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self::Node(NodeTarget { node: Node::at(address), ..NodeTarget::default() })
    }

    /// The address, if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Node(target) => target.node.address(),
            Self::Coordinator(_) => None,
        }
    }

    /// The target that is the whole of `value`.
    pub(crate) fn read_any(value: &Bytes) -> Result<Self, AmqpError> {
        let mut reader = Reader::new(value);
        let code = descriptor(&mut reader)?;
        Ok(match u8::try_from(code).unwrap_or(0) {
            NodeTarget::DESCRIPTOR => Self::Node(read_list(value, &mut reader)?),
            Coordinator::DESCRIPTOR => Self::Coordinator(read_list(value, &mut reader)?),
            _ => return Err(AmqpError::decode(format!("descriptor 0x{code:x} is not a target"))),
        })
    }

    pub(crate) fn write<S: Sink>(&self, sink: &mut S) {
        match self {
            Self::Node(node) => write_list(sink, node),
            Self::Coordinator(coordinator) => write_list(sink, coordinator),
        }
    }
}

//! Ends of links (AMQP 3.5 and 4.5.1): source, target, coordinator.

mod coordinator;
mod source;
mod target;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{Reader, Scalar, code};

pub use self::coordinator::Coordinator;
pub use self::source::Source;
pub use self::target::NodeTarget;
use crate::codec::fields::descriptor;
use crate::codec::list::{List, read_list, write_list};
use crate::codec::value::Raw;
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
        Self { address: Some(text(address)), ..Self::default() }
    }

    /// The address, if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.address.as_ref().and_then(as_text)
    }
}

impl Target {
    /// A node with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self::Node(NodeTarget { address: Some(text(address)), ..NodeTarget::default() })
    }

    /// The address, if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Node(node) => node.address.as_ref().and_then(as_text),
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
            _ => return Err(AmqpError::decode(format!("descriptor 0x{code:x} is no target"))),
        })
    }

    pub(crate) fn write<S: Sink>(&self, sink: &mut S) {
        match self {
            Self::Node(node) => write_list(sink, node),
            Self::Coordinator(coordinator) => write_list(sink, coordinator),
        }
    }
}

fn text(address: &str) -> Raw {
    Raw::encoded(|bytes| write::text(bytes, address))
}

fn as_text(address: &Raw) -> Option<&str> {
    match address.scalar() {
        Ok(Scalar::Text(text) | Scalar::Symbol(text)) => Some(text),
        _ => None,
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

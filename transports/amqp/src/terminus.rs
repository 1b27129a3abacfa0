//! Ends of links (AMQP 3.5 and 4.5.1): sources, targets, and the coordinator of transactions.
//! `attach` contains them, and the server chooses the node of a link by them.

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::amqp::{Reader, Scalar, code};

use crate::codec::list::{FieldReader, List, descriptor, put, read_list, write_list};
use crate::codec::value::{Map, Raw, Symbols};
use crate::error::AmqpError;

/// Target of the messages of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A node.
    Node(NodeTarget),
    /// Coordinator of transactions.
    Coordinator(Coordinator),
}

impl Source {
    /// Makes a source with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self { node: TerminusNode::at(address), ..Self::default() }
    }

    /// Returns the address if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.node.address()
    }
}

impl Target {
    /// Makes a node target with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self::Node(NodeTarget { node: TerminusNode::at(address), ..NodeTarget::default() })
    }

    /// Returns the address if it is text.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Node(target) => target.node.address(),
            Self::Coordinator(_) => None,
        }
    }

    /// Reads a target that fills `value`.
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

/// Target that coordinates transactions (AMQP-97) (AMQP 4.5.1).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coordinator {
    /// Requested capabilities.
    pub capabilities: Option<Symbols>,
}

impl List for Coordinator {
    const DESCRIPTOR: u8 = 0x30;
    const NAME: &'static str = "coordinator";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { capabilities: fields.symbols("capabilities")? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.capabilities.as_ref().map(Symbols::as_bytes), put);
    }
}

/// Node of a source or target (AMQP 3.5.3, 3.5.4). Fields without effect are stored, so that the
/// answer can return them (AMQP-34).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TerminusNode {
    /// Encoded address.
    pub address: Option<Raw>,
    /// State that outlives the link.
    pub durable: Option<u32>,
    /// Event from which the node expires.
    pub expiry_policy: Option<Box<str>>,
    /// Time from that event to the expiry, in seconds.
    pub timeout: Option<u32>,
    /// Whether a node must be created, which is not supported (AMQP-96).
    pub dynamic: bool,
    /// Properties of the node to be created.
    pub dynamic_node_properties: Option<Map>,
}

impl TerminusNode {
    /// Number of fields that belong to the node.
    pub(super) const FIELD_COUNT: usize = 6;

    /// Makes a node with this address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        let address = Raw::encoded(|bytes| write::text(bytes, address));
        Self { address: Some(address), ..Self::default() }
    }

    /// Returns the address if it is text.
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

/// Writes an address, or null if there is none. An empty list would mean that the end is missing
/// (AMQP-12).
fn address<S: Sink>(sink: &mut S, address: Option<&Raw>) {
    match address {
        Some(address) => sink.put(address.as_bytes()),
        None => sink.put_byte(code::NULL),
    }
}

/// Source (AMQP 3.5.3). Fields without effect are stored, so that the answer can return them
/// (AMQP-34).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// Node of the messages.
    pub node: TerminusNode,
    /// `move` or `copy` (AMQP-99).
    pub distribution_mode: Option<Box<str>>,
    /// Filters (AMQP-70).
    pub filter: Option<Map>,
    /// Outcome of deliveries that are not settled.
    pub default_outcome: Option<Raw>,
    /// Possible outcomes.
    pub outcomes: Option<Symbols>,
    /// Requested capabilities.
    pub capabilities: Option<Symbols>,
}

impl List for Source {
    const DESCRIPTOR: u8 = 0x28;
    const NAME: &'static str = "source";
    const FIELD_COUNT: usize = TerminusNode::FIELD_COUNT + 5;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            node: TerminusNode::read(fields)?,
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

/// Target that is a node (AMQP 3.5.4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeTarget {
    /// Node to which the messages go.
    pub node: TerminusNode,
    /// Requested capabilities.
    pub capabilities: Option<Symbols>,
}

impl List for NodeTarget {
    const DESCRIPTOR: u8 = 0x29;
    const NAME: &'static str = "target";
    const FIELD_COUNT: usize = TerminusNode::FIELD_COUNT + 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            node: TerminusNode::read(fields)?,
            capabilities: fields.symbols("capabilities")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        self.node.fields(fields);
        fields.field(self.capabilities.as_ref().map(Symbols::as_bytes), put);
    }
}

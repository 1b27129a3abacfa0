//! Questions about the topology, and their answers.

use std::sync::Arc;

use crate::findings::EntityRow;
use crate::time::Timestamp;

/// Maximum number of nodes in an answer (CON-38).
pub const TOPOLOGY_NODE_COUNT_MAX: u32 = 2_000;
/// Maximum number of hops around an entity. More than any chain that messages can pass.
pub const TOPOLOGY_HOPS_MAX: u8 = 16;
/// Maximum number of circles in an answer.
pub(crate) const CIRCLE_COUNT_MAX: usize = 20;
/// Maximum number of names of a chain or circle in an answer.
pub(crate) const CHAIN_NAME_COUNT_MAX: usize = 32;

/// Selection of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyQuery {
    /// Only nodes near this entity.
    pub around: Option<Box<str>>,
    /// Maximum number of hops from that entity in either direction, at most [`TOPOLOGY_HOPS_MAX`].
    /// A copy to a subscription is no hop (FWD-13).
    pub hops_max: u8,
    /// Maximum number of nodes, 1 to [`TOPOLOGY_NODE_COUNT_MAX`]. The nearest ones are kept, or
    /// without an entity the ones with an edge.
    pub node_count_max: u32,
}

impl Default for TopologyQuery {
    fn default() -> Self {
        Self { around: None, hops_max: 1, node_count_max: TOPOLOGY_NODE_COUNT_MAX }
    }
}

/// Nodes and edges of the namespace, or near an entity (CON-38).
#[derive(Clone, PartialEq, Debug)]
pub struct Topology {
    /// Entities in the order of their paths, then destinations that are no entity.
    pub nodes: Vec<TopologyNode>,
    /// Edges between these nodes.
    pub edges: Vec<TopologyEdge>,
    /// Number of all nodes of the selection.
    pub node_count: u64,
    /// The longest chain of hops between these nodes, without circles.
    pub longest_chain: Option<Chain>,
    /// Circles between these nodes, at most 20: names in the order of the edges.
    pub circles: Vec<Vec<Arc<str>>>,
    /// Maximum number of hops of a message (FWD-12).
    pub hop_count_max: u8,
    /// Instant at which the counts were read.
    pub counted_at: Timestamp,
}

/// A node of a topology.
#[derive(Clone, PartialEq, Debug)]
pub struct TopologyNode {
    /// Path of an entity; of another destination its scheme and host, since some services take a
    /// key in the rest (CON-75).
    pub name: Arc<str>,
    /// Its kind.
    pub kind: NodeKind,
}

/// Kind of a node.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeKind {
    /// Queue, topic or subscription, with its counts.
    Entity(Box<EntityRow>),
    /// Destination of a forwarder, such as a queue of another broker or a webhook.
    Foreign {
        /// Scheme of the destination.
        scheme: Arc<str>,
    },
    /// Destination that does not exist, or that the reader may not read.
    Unknown,
}

/// An edge of a topology.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TopologyEdge {
    /// Place of the node where it begins.
    pub from: u32,
    /// Place of the node to which it leads.
    pub to: u32,
    /// Its kind.
    pub kind: EdgeKind,
    /// Messages per second. `None` until the counts were read twice, and for an entity that
    /// forwards both messages and dead letters, whose counts are one.
    pub rate: Option<f64>,
    /// Number of messages that wait to be forwarded; `None` for a copy, which never waits.
    pub waiting: Option<u64>,
    /// Number of messages that could not be forwarded; only known for [`EdgeKind::Forward`].
    pub failed: Option<u64>,
}

/// Kind of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeKind {
    /// From a topic to its subscription.
    Subscription,
    /// From an entity to its ForwardTo.
    Forward,
    /// From an entity to its ForwardDeadLetteredMessagesTo.
    DeadLetterForward,
}

impl EdgeKind {
    /// Number of hops (FWD-13).
    #[must_use]
    pub const fn hops(self) -> u8 {
        match self {
            Self::Subscription => 0,
            Self::Forward | Self::DeadLetterForward => 1,
        }
    }
}

/// A chain of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Number of its hops.
    pub hops: u32,
    /// Names of its nodes from the first one on, at most 32.
    pub names: Vec<Arc<str>>,
}

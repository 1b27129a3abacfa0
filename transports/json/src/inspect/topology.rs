//! Entities and their destinations as nodes and edges.

use std::sync::Arc;

use peeklock_core::description::EntityKind;
use peeklock_core::error::Rejection;
use peeklock_core::inspect::{
    Chain, EntityRow, NodeKind, TOPOLOGY_HOPS_MAX, TOPOLOGY_NODE_COUNT_MAX, Topology, TopologyEdge,
    TopologyNode, TopologyQuery,
};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::EdgeKindName;
use super::list::EntityRowView;
use crate::text::Instant;

/// Selection of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TopologyForm {
    /// Only nodes near this entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<String>,
    /// Maximum number of hops from that entity, 0 to 16; by default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<u8>,
    /// Maximum number of nodes, 1 to 2,000; by default 2,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
}

/// Entities and their destinations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopologyView {
    /// Entities in the order of their paths, then destinations that are no entity.
    nodes: Vec<TopologyNodeView>,
    /// Edges between these nodes.
    edges: Vec<TopologyEdgeView>,
    /// Number of all nodes of the selection.
    node_count: u64,
    /// The longest chain of hops between these nodes. Left out if no entity forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    longest_chain: Option<ChainView>,
    /// Circles between these nodes, at most 20: names in the order of the edges.
    circles: Vec<Vec<String>>,
    /// Maximum number of hops of a message.
    hop_count_max: u8,
    /// Instant at which the counts were read, at most 1 s ago.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    counted_at_utc: Instant,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct TopologyNodeView {
    /// Path of an entity; of another destination its scheme and host.
    name: String,
    kind: NodeKindName,
    /// Left out unless it is an entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entity: Option<EntityRowView>,
    /// Scheme of a destination elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheme: Option<String>,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
enum NodeKindName {
    /// A queue.
    Queue,
    /// A topic.
    Topic,
    /// A subscription.
    Subscription,
    /// Destination of a forwarder: another broker or a webhook.
    Foreign,
    /// Destination that does not exist, or that you may not read.
    Unknown,
}

/// An edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct TopologyEdgeView {
    /// Place of a node in `nodes`.
    from: u32,
    /// Place of a node in `nodes`.
    to: u32,
    kind: EdgeKindName,
    /// Messages per second. Left out until the counts were read twice, and for an entity that
    /// forwards both messages and dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    /// Number of messages that wait to be forwarded. Left out for `subscription`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    /// Number of messages in the transfer dead-letter queue. Only for `forward`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
}

/// A chain of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct ChainView {
    hops: u32,
    /// Names of the nodes from the first one on, at most 32.
    names: Vec<String>,
}

impl TopologyForm {
    pub(super) fn to_query(&self) -> Result<TopologyQuery, Rejection> {
        let default = TopologyQuery::default();
        let hops_max = self.hops.unwrap_or(default.hops_max);
        if hops_max > TOPOLOGY_HOPS_MAX {
            return Err(Rejection::out_of_range(format!(
                "hops is {hops_max}; it must be 0 to {TOPOLOGY_HOPS_MAX}"
            )));
        }
        let node_count_max = self.top.unwrap_or(default.node_count_max);
        if !(1..=TOPOLOGY_NODE_COUNT_MAX).contains(&node_count_max) {
            return Err(Rejection::out_of_range(format!(
                "top is {node_count_max}; it must be 1 to {TOPOLOGY_NODE_COUNT_MAX}"
            )));
        }
        let around = self.around.as_deref().map(Into::into);
        if around.is_none() && self.hops.is_some() {
            return Err(Rejection::argument("give hops only together with around"));
        }
        Ok(TopologyQuery { around, hops_max, node_count_max })
    }
}

impl From<&TopologyQuery> for TopologyForm {
    fn from(query: &TopologyQuery) -> Self {
        Self {
            around: query.around.as_deref().map(Into::into),
            hops: query.around.is_some().then_some(query.hops_max),
            top: Some(query.node_count_max),
        }
    }
}

fn texts(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| (**name).to_owned()).collect()
}

fn names(texts: Vec<String>) -> Vec<Arc<str>> {
    texts.into_iter().map(Into::into).collect()
}

impl TopologyView {
    pub(super) fn new(topology: Topology, at: Timestamp) -> Self {
        Self {
            nodes: topology.nodes.into_iter().map(Into::into).collect(),
            edges: topology.edges.into_iter().map(Into::into).collect(),
            node_count: topology.node_count,
            longest_chain: topology
                .longest_chain
                .map(|chain| ChainView { hops: chain.hops, names: texts(&chain.names) }),
            circles: topology.circles.iter().map(|circle| texts(circle)).collect(),
            hop_count_max: topology.hop_count_max,
            counted_at_utc: Instant(topology.counted_at),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn topology(self) -> Result<Topology, Rejection> {
        let nodes = self.nodes.into_iter().map(TopologyNode::try_from);
        let chain = |chain: ChainView| Chain { hops: chain.hops, names: names(chain.names) };
        Ok(Topology {
            nodes: nodes.collect::<Result<_, _>>()?,
            edges: self.edges.into_iter().map(Into::into).collect(),
            node_count: self.node_count,
            longest_chain: self.longest_chain.map(chain),
            circles: self.circles.into_iter().map(names).collect(),
            hop_count_max: self.hop_count_max,
            counted_at: self.counted_at_utc.0,
        })
    }
}

impl From<TopologyNode> for TopologyNodeView {
    fn from(node: TopologyNode) -> Self {
        let (kind, entity, scheme) = match node.kind {
            NodeKind::Entity(row) => {
                let kind = match row.kind {
                    EntityKind::Queue => NodeKindName::Queue,
                    EntityKind::Topic => NodeKindName::Topic,
                    EntityKind::Subscription => NodeKindName::Subscription,
                };
                (kind, Some(EntityRowView::from(&*row)), None)
            }
            NodeKind::Foreign { scheme } => (NodeKindName::Foreign, None, Some((*scheme).into())),
            NodeKind::Unknown => (NodeKindName::Unknown, None, None),
        };
        Self { name: (*node.name).into(), kind, entity, scheme }
    }
}

impl TryFrom<TopologyNodeView> for TopologyNode {
    type Error = Rejection;

    fn try_from(view: TopologyNodeView) -> Result<Self, Rejection> {
        let kind = match (view.entity, view.scheme) {
            (Some(row), _) => NodeKind::Entity(Box::new(EntityRow::try_from(row)?)),
            (None, Some(scheme)) => NodeKind::Foreign { scheme: scheme.into() },
            (None, None) => NodeKind::Unknown,
        };
        Ok(Self { name: view.name.into(), kind })
    }
}

impl From<TopologyEdge> for TopologyEdgeView {
    fn from(edge: TopologyEdge) -> Self {
        let TopologyEdge { from, to, kind, rate, waiting, failed } = edge;
        Self { from, to, kind: kind.into(), per_second: rate, waiting, failed }
    }
}

impl From<TopologyEdgeView> for TopologyEdge {
    fn from(view: TopologyEdgeView) -> Self {
        let TopologyEdgeView { from, to, kind, per_second: rate, waiting, failed } = view;
        Self { from, to, kind: kind.into(), rate, waiting, failed }
    }
}

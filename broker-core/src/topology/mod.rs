//! Entities and their destinations as nodes and edges (CON-38).
//!
//! ```text
//!  Survey ──► Graph: edges between all nodes ──► Links: chains, circles, neighbours ──► Topology
//! ```
//!
//! Entities publish their destinations ([`EntitySetup`](peeklock_model::inspect::EntitySetup)), so
//! that no entity gets mail. `links.rs` knows only numbers of nodes. The checks read the same graph.

pub(crate) mod links;
pub(crate) mod query;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use self::links::Links;
use self::query::{
    CHAIN_NAME_COUNT_MAX, CIRCLE_COUNT_MAX, Chain, EdgeKind, NodeKind, TOPOLOGY_NODE_COUNT_MAX,
    Topology, TopologyEdge, TopologyNode, TopologyQuery,
};
use crate::access::address_without_keys;
use crate::description::{Destination, EntityKind};
use crate::error::Rejection;
use crate::path::PathKey;
use crate::survey::{READ_AT_ONCE, ReadableKeys, SUBSCRIPTIONS, Survey, SurveyedEntity};

/// Nodes and edges of a survey: its entities in their order, then destinations that are no entity.
pub(crate) struct Graph<'s> {
    survey: &'s Survey,
    others: Vec<Other>,
    pub(crate) edges: Vec<GraphEdge>,
}

/// A destination that is no entity.
pub(crate) struct Other {
    /// Its address without keys, or its path.
    name: Arc<str>,
    /// Scheme of a forwarder; `None` for an entity that does not exist.
    scheme: Option<Arc<str>>,
}

/// An edge between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GraphEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: EdgeKind,
}

/// A node of a graph.
pub(crate) enum GraphNode<'g> {
    Entity(&'g SurveyedEntity),
    Other(&'g Other),
}

impl GraphNode<'_> {
    /// Path, or address.
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::Entity(entity) => &entity.row.path,
            Self::Other(other) => &other.name,
        }
    }

    /// Scheme of a destination elsewhere.
    pub(crate) fn scheme(&self) -> Option<&Arc<str>> {
        match self {
            Self::Entity(_) => None,
            Self::Other(other) => other.scheme.as_ref(),
        }
    }
}

impl<'s> Graph<'s> {
    /// Reads the edges of the readable entities. An entity that may not be read is a destination
    /// like one that does not exist (SEC-08).
    pub(crate) async fn of(survey: &'s Survey, readable: &ReadableKeys) -> Self {
        let mut graph = Self { survey, others: Vec::new(), edges: Vec::new() };
        let mut places = HashMap::new();
        for (chunk, some) in survey.entities.chunks(READ_AT_ONCE).enumerate() {
            for (place, entity) in some.iter().enumerate() {
                if readable.contains(&entity.key) {
                    graph.add(chunk * READ_AT_ONCE + place, entity, readable, &mut places);
                }
            }
            tokio::task::yield_now().await;
        }
        graph
    }

    fn add(
        &mut self,
        place: usize,
        entity: &SurveyedEntity,
        readable: &ReadableKeys,
        places: &mut HashMap<Box<str>, usize>,
    ) {
        let find = |key: &PathKey| self.survey.place(key).filter(|_| readable.contains(key));
        if entity.row.kind == EntityKind::Subscription
            && let Some((topic, _)) = entity.key.as_str().rsplit_once(SUBSCRIPTIONS)
            && let Some(topic) = find(&PathKey::fold(topic))
        {
            self.edges.push(GraphEdge { from: topic, to: place, kind: EdgeKind::Subscription });
        }
        let setup = &entity.setup;
        let destinations = [
            (&setup.forward_to, EdgeKind::Forward),
            (&setup.forward_dead_letters_to, EdgeKind::DeadLetterForward),
        ];
        for (destination, kind) in destinations {
            let Some(text) = destination else { continue };
            let (id, scheme): (Box<str>, Option<Arc<str>>) = match Destination::parse(text) {
                Ok(Destination::Foreign(scheme)) => (text.clone(), Some(scheme.into())),
                Ok(Destination::Entity(key)) => {
                    if let Some(to) = find(&key) {
                        self.edges.push(GraphEdge { from: place, to, kind });
                        continue;
                    }
                    (key.as_str().into(), None)
                }
                Err(_) => (text.clone(), None),
            };
            let next = self.survey.entities.len() + self.others.len();
            let to = *places.entry(id).or_insert(next);
            if to == next {
                self.others.push(Other { name: address_without_keys(text).into(), scheme });
            }
            self.edges.push(GraphEdge { from: place, to, kind });
        }
    }

    /// Number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.survey.entities.len() + self.others.len()
    }

    /// Returns a node.
    pub(crate) fn node(&self, place: usize) -> Option<GraphNode<'_>> {
        let entities = &self.survey.entities;
        match entities.get(place) {
            Some(entity) => Some(GraphNode::Entity(entity)),
            None => self.others.get(place.checked_sub(entities.len())?).map(GraphNode::Other),
        }
    }

    /// Returns the links of the edges.
    pub(crate) fn links(&self) -> Links {
        Links::new(
            self.node_count(),
            self.edges.iter().map(|edge| (edge.from, edge.to, edge.kind.hops())),
        )
    }

    /// Returns the nodes of an answer in their order, and how many there are without its bound.
    fn selected(
        &self,
        query: &TopologyQuery,
        readable: &ReadableKeys,
    ) -> Result<(Vec<usize>, u64), Rejection> {
        let links = self.links();
        let mut places = match &query.around {
            Some(path) => {
                let key = PathKey::fold(path);
                let place = self.survey.place(&key).filter(|_| readable.contains(&key));
                let place = place.ok_or_else(|| Rejection::entity_not_found(path))?;
                links.near(place, query.hops_max)
            }
            None => {
                let may_read = |place: &usize| match self.survey.entities.get(*place) {
                    Some(entity) => readable.contains(&entity.key),
                    None => true,
                };
                let mut places: Vec<usize> = (0..self.node_count()).filter(may_read).collect();
                // Without room for all, nodes without an edge are left out first.
                places.sort_by_key(|place| !links.is_linked(*place));
                places
            }
        };
        let count = places.len() as u64;
        places.truncate(query.node_count_max.clamp(1, TOPOLOGY_NODE_COUNT_MAX) as usize);
        places.sort_unstable();
        Ok((places, count))
    }

    fn edge(&self, edge: &GraphEdge, (from, to): (u32, u32)) -> TopologyEdge {
        let entity = |place: usize| self.survey.entities.get(place);
        let (mut rate, mut waiting, mut failed) = (None, None, None);
        match edge.kind {
            EdgeKind::Subscription => {
                let rates = entity(edge.to).and_then(|to| to.row.rates);
                rate = rates.map(|rates| rates.accepted);
            }
            EdgeKind::Forward | EdgeKind::DeadLetterForward => {
                if let Some(source) = entity(edge.from) {
                    let (counts, setup) = (&source.row.readings.counts, &source.setup);
                    let is_only =
                        setup.forward_to.is_none() || setup.forward_dead_letters_to.is_none();
                    // The count of both is one.
                    rate = source.forward_rate.filter(|_| is_only);
                    let is_forward = edge.kind == EdgeKind::Forward;
                    let leaving = if is_forward { counts.active } else { counts.dead_letter };
                    let moving = if is_forward || is_only { counts.transfer } else { 0 };
                    waiting = Some(leaving.saturating_add(moving));
                    failed = is_forward.then_some(counts.transfer_dead_letter);
                }
            }
        }
        TopologyEdge { from, to, kind: edge.kind, rate, waiting, failed }
    }
}

impl Survey {
    /// Answers a question about the topology.
    pub(crate) async fn topology(
        &self,
        query: &TopologyQuery,
        readable: &ReadableKeys,
        hop_count_max: u8,
    ) -> Result<Topology, Rejection> {
        let graph = Graph::of(self, readable).await;
        let (places, node_count) = graph.selected(query, readable)?;
        tokio::task::yield_now().await;
        let shown = |place: usize| {
            let shown = places.binary_search(&place).ok()?;
            u32::try_from(shown).ok()
        };
        let edges = graph
            .edges
            .iter()
            .filter_map(|edge| Some(graph.edge(edge, (shown(edge.from)?, shown(edge.to)?))));
        let edges: Vec<TopologyEdge> = edges.collect();
        let nodes: Vec<TopologyNode> =
            places.iter().filter_map(|place| graph.node(*place)).map(Into::into).collect();
        tokio::task::yield_now().await;
        let links =
            edges.iter().map(|edge| (edge.from as usize, edge.to as usize, edge.kind.hops()));
        let structure = Links::new(nodes.len(), links).structure();
        let name = |place: usize| nodes.get(place).map(|node| Arc::clone(&node.name));
        let longest_chain = structure.longest().map(|start| Chain {
            hops: structure.ways.get(start).map_or(0, |way| way.hops),
            names: structure.chain(start).filter_map(name).take(CHAIN_NAME_COUNT_MAX).collect(),
        });
        let circles = structure.circles.iter().take(CIRCLE_COUNT_MAX).map(|circle| {
            circle.iter().copied().filter_map(name).take(CHAIN_NAME_COUNT_MAX).collect()
        });
        let circles = circles.collect();
        Ok(Topology {
            nodes,
            edges,
            node_count,
            longest_chain,
            circles,
            hop_count_max,
            counted_at: self.taken_at,
        })
    }
}

impl From<GraphNode<'_>> for TopologyNode {
    fn from(node: GraphNode<'_>) -> Self {
        let kind = match &node {
            GraphNode::Entity(entity) => NodeKind::Entity(Box::new(entity.row.clone())),
            GraphNode::Other(Other { scheme: Some(scheme), .. }) => {
                NodeKind::Foreign { scheme: Arc::clone(scheme) }
            }
            GraphNode::Other(Other { scheme: None, .. }) => NodeKind::Unknown,
        };
        Self { name: Arc::clone(node.name()), kind }
    }
}

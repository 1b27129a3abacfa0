//! `peeklock topology`: entities with their destinations, and the longest chain (CON-38).

use std::sync::Arc;

use clap::Args;
use peeklock::inspect::{
    EdgeKind, Found, NodeKind, Question, TOPOLOGY_HOPS_MAX, Topology, TopologyEdge, TopologyNode,
    TopologyQuery,
};
use peeklock::websocket::client::findings_to_json;

use super::connect::{Common, Output, Patience};
use super::inspect::{ask, rate};
use super::listing::objects;
use super::message::counted;
use super::terminal::{Cell, Table, line, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topology                                every subscription and forwarding
  peeklock topology orders                         the entities next to `orders`
  peeklock topology orders --hops 4                entities that its messages can reach or come from
  peeklock topology -o json | jq '.[0].circles'

RATE is in messages per second, `-` if it is not known yet, or only together with another. WAITING \
counts messages that wait to be forwarded, FAILED counts messages in the transfer dead-letter \
queue. The setting `limits.hop_count_max` bounds the hops of a message (4 by default); a copy from \
a topic to its subscription does not count as a hop.

",
    exit_codes!()
);

#[derive(Args)]
pub struct TopologyFlags {
    /// Queue, topic or subscription; without it, the namespace
    entity: Option<String>,
    /// Maximum number of hops from the entity, in either direction
    #[arg(long, value_name = "N", default_value_t = 1, requires = "entity",
        value_parser = clap::value_parser!(u8).range(0..=i64::from(TOPOLOGY_HOPS_MAX)))]
    hops: u8,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &TopologyFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let query = TopologyQuery {
            around: flags.entity.as_deref().map(Into::into),
            hops_max: flags.hops,
            ..TopologyQuery::default()
        };
        let read = |found: &Found| match found {
            Found::Topology(topology) => Some(topology.clone()),
            _ => None,
        };
        let (topology, findings) = ask(session, "", Question::Topology(query), read).await?;
        if flags.common.output != Output::Table {
            return objects(session.out, flags.common.output, findings_to_json(findings));
        }
        if topology.edges.is_empty() {
            note("no entity here forwards, and no topic has a subscription");
            return Err(Failure::Reported(exit::NOTHING));
        }
        let (text, _) = table(&topology, session.out.colours).text(&session.out);
        session.out.print(&text)?;
        report(&topology);
        Ok(())
    })
}

fn table(topology: &Topology, colours: bool) -> Table {
    let mut table = Table::new(&["FROM", "KIND", "TO", "RATE", "WAITING", "FAILED"], 6, colours);
    let node = |place: u32| topology.nodes.get(place as usize);
    for edge in &topology.edges {
        if let (Some(from), Some(to)) = (node(edge.from), node(edge.to)) {
            table.row(row(edge, from, to));
        }
    }
    table
}

fn row(edge: &TopologyEdge, from: &TopologyNode, to: &TopologyNode) -> Vec<Cell> {
    let kind = match edge.kind {
        EdgeKind::Subscription => "copies",
        EdgeKind::Forward => "messages",
        EdgeKind::DeadLetterForward => "dead letters",
    };
    let to = match to.kind {
        NodeKind::Unknown => format!("{} (unknown)", to.name),
        NodeKind::Entity(_) | NodeKind::Foreign { .. } => (*to.name).to_owned(),
    };
    let none = || Cell::Right("-".to_owned());
    vec![
        Cell::Text((*from.name).to_owned()),
        Cell::Text(kind.to_owned()),
        Cell::Text(to),
        rate(edge.rate),
        edge.waiting.map_or_else(none, Cell::Number),
        edge.failed.map_or_else(none, Cell::Alarm),
    ]
}

/// Prints the longest chain, circles, and whether nodes are left out.
fn report(topology: &Topology) {
    let names = |names: &[Arc<str>]| {
        let names: Vec<String> = names.iter().map(|name| line(name).into_owned()).collect();
        names.join(" > ")
    };
    if let Some(chain) = &topology.longest_chain {
        let hops = counted(chain.hops.into(), "hop");
        let max = topology.hop_count_max;
        note(&format!("longest chain: {hops} of at most {max}: {}", names(&chain.names)));
    }
    for circle in &topology.circles {
        note(&format!("circle: {}", names(circle)));
    }
    let left_out = topology.node_count.saturating_sub(topology.nodes.len() as u64);
    if left_out > 0 {
        let left_out = counted(left_out, "node");
        note(&format!("{left_out} left out; name an entity to see its neighbours"));
    }
}

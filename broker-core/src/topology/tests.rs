use peeklock_model::inspect::EntitySetup;

use super::*;
use crate::declaration::yielder::run_counting_yields;
use crate::findings::{EntityRow, Rates};
use crate::ids::EntityId;
use crate::inspect::Readings;
use crate::time::Timestamp;

/// An entity with its destinations.
fn entity(path: &str, forward: Option<&str>, dead_letters: Option<&str>) -> SurveyedEntity {
    let kind = match path {
        _ if path.contains("/subscriptions/") => EntityKind::Subscription,
        _ if path.starts_with(['T', 't']) => EntityKind::Topic,
        _ => EntityKind::Queue,
    };
    let mut readings = Readings::default();
    readings.counts.active = 3;
    readings.counts.dead_letter = 5;
    readings.counts.transfer = 1;
    readings.counts.transfer_dead_letter = 2;
    let rates = Some(Rates { accepted: 4.0, removed: 0.0 });
    let row = EntityRow { path: path.into(), kind, readings, total_size: 0, rates };
    let mut entity = SurveyedEntity::of(EntityId(1), row);
    entity.setup = Arc::new(EntitySetup {
        forward_to: forward.map(Into::into),
        forward_dead_letters_to: dead_letters.map(Into::into),
        ..EntitySetup::default()
    });
    entity.forward_rate = Some(1.5);
    entity
}

fn survey(mut entities: Vec<SurveyedEntity>) -> Survey {
    entities.sort_by(|a, b| a.key.cmp(&b.key));
    Survey { taken_at: Timestamp::from_ticks(7), entities }
}

fn ask(survey: &Survey, query: &TopologyQuery, readable: &ReadableKeys) -> Topology {
    run_counting_yields(survey.topology(query, readable, 4)).0.unwrap()
}

fn near(path: &str, hops_max: u8) -> TopologyQuery {
    TopologyQuery { around: Some(path.into()), hops_max, ..TopologyQuery::default() }
}

fn names(topology: &Topology) -> Vec<&str> {
    topology.nodes.iter().map(|node| &*node.name).collect()
}

/// Edges as text.
fn edges(topology: &Topology) -> Vec<String> {
    let name = |place: u32| &*topology.nodes[place as usize].name;
    let texts = topology.edges.iter().map(|edge| {
        let (from, to) = (name(edge.from), name(edge.to));
        format!("{from} {:?} {to}", edge.kind)
    });
    texts.collect()
}

fn shop() -> Survey {
    survey(vec![
        entity("Topic", None, None),
        entity("topic/subscriptions/eu", Some("ORDERS"), None),
        entity("topic/subscriptions/us", None, None),
        entity("orders", Some("archive"), Some("webhook+https://u:p@hooks.example/secret?key=1")),
        entity("archive", Some("gone"), None),
        entity("lonely", None, None),
    ])
}

/// CON-38: nodes and edges of the namespace, with destinations elsewhere and missing ones.
#[test]
fn topology_has_all_nodes_and_edges() {
    let shop = shop();
    let topology = ask(&shop, &TopologyQuery::default(), &ReadableKeys::ALL);
    let expected = [
        "archive",
        "lonely",
        "orders",
        "Topic",
        "topic/subscriptions/eu",
        "topic/subscriptions/us",
        "gone",
        "webhook+https://hooks.example",
    ];
    assert_eq!(names(&topology), expected);
    let expected = [
        "archive Forward gone",
        "orders Forward archive",
        "orders DeadLetterForward webhook+https://hooks.example",
        "Topic Subscription topic/subscriptions/eu",
        "topic/subscriptions/eu Forward orders",
        "Topic Subscription topic/subscriptions/us",
    ];
    assert_eq!(edges(&topology), expected);
    assert_eq!(topology.nodes[6].kind, NodeKind::Unknown);
    assert_eq!(topology.nodes[7].kind, NodeKind::Foreign { scheme: "webhook+https".into() });
    let chain = topology.longest_chain.unwrap();
    assert_eq!(chain.hops, 3);
    let expected = ["Topic", "topic/subscriptions/eu", "orders", "archive", "gone"];
    assert!(chain.names.iter().map(|name| &**name).eq(expected), "{:?}", chain.names);
    assert!(topology.circles.is_empty());
    assert_eq!((topology.node_count, topology.hop_count_max), (8, 4));
}

/// CON-38: rate, waiting and failed messages of an edge; unknown numbers are absent.
#[test]
fn edges_have_the_counts_of_their_source() {
    let shop = shop();
    let topology = ask(&shop, &TopologyQuery::default(), &ReadableKeys::ALL);
    let numbers = |place: usize| {
        let TopologyEdge { rate, waiting, failed, .. } = topology.edges[place];
        (rate, waiting, failed)
    };
    assert_eq!(numbers(0), (Some(1.5), Some(4), Some(2)), "messages of `archive`");
    assert_eq!(numbers(1), (None, Some(4), Some(2)), "`orders` forwards dead letters too");
    assert_eq!(numbers(2), (None, Some(5), None), "dead letters of `orders`");
    assert_eq!(numbers(3), (Some(4.0), None, None), "copies");
    let only = survey(vec![entity("q", None, Some("q"))]);
    let edge = ask(&only, &TopologyQuery::default(), &ReadableKeys::ALL).edges[0];
    assert_eq!((edge.rate, edge.waiting, edge.failed), (Some(1.5), Some(6), None));
}

/// CON-38: nodes within hops of an entity; a copy is no hop.
#[test]
fn topology_around_an_entity_counts_hops() {
    let shop = shop();
    let all = ReadableKeys::ALL;
    let around = |path, hops| ask(&shop, &near(path, hops), &all);
    assert_eq!(names(&around("archive", 0)), ["archive"]);
    assert_eq!(names(&around("ARCHIVE", 1)), ["archive", "orders", "gone"]);
    let topology = around("topic/Subscriptions/EU", 0);
    assert_eq!(names(&topology), ["Topic", "topic/subscriptions/eu", "topic/subscriptions/us"]);
    assert_eq!(topology.longest_chain, None);
    assert_eq!(around("topic", TOPOLOGY_HOPS).nodes.len(), 7);
    let absent = run_counting_yields(shop.topology(&near("gone", 1), &all, 4)).0;
    assert!(absent.is_err());
}

const TOPOLOGY_HOPS: u8 = super::query::TOPOLOGY_HOPS_MAX;

/// CON-38, CON-73, SEC-08: an entity that may not be read is a destination like one that does not
/// exist, and its values are hidden.
#[test]
fn topology_shows_readable_entities_only() {
    let shop = shop();
    let readable = ["orders", "lonely", "topic/subscriptions/eu"].map(PathKey::fold);
    let readable = ReadableKeys(Some(readable.into()));
    let topology = ask(&shop, &TopologyQuery::default(), &readable);
    let expected =
        ["lonely", "orders", "topic/subscriptions/eu", "archive", "webhook+https://hooks.example"];
    assert_eq!(names(&topology), expected);
    assert_eq!(topology.nodes[3].kind, NodeKind::Unknown);
    let hidden = run_counting_yields(shop.topology(&near("archive", 1), &readable, 4)).0;
    assert!(hidden.is_err());
}

/// CON-38, CON-80: an answer has at most 2,000 nodes, and leaves out nodes without an edge first.
#[test]
fn topology_is_bounded() {
    for (count, shown) in [(1_999, 1_999), (2_000, 2_000), (2_001, 2_000)] {
        let mut entities: Vec<SurveyedEntity> =
            (2..count).map(|number| entity(&format!("q{number:05}"), None, None)).collect();
        entities.push(entity("y", Some("z"), None));
        entities.push(entity("z", None, None));
        let many = survey(entities);
        let query = TopologyQuery { node_count_max: u32::MAX, ..TopologyQuery::default() };
        let topology = ask(&many, &query, &ReadableKeys::ALL);
        assert_eq!((topology.nodes.len(), topology.node_count), (shown, count));
        assert_eq!(edges(&topology), ["y Forward z"]);
    }
    let query = TopologyQuery { node_count_max: 0, ..near("topic", 9) };
    assert_eq!(names(&ask(&shop(), &query, &ReadableKeys::ALL)), ["Topic"], "the nearest");
}

/// CON-38: circles are listed with the nodes in the order of the edges.
#[test]
fn circles_are_listed() {
    let round = survey(vec![
        entity("t", None, None),
        entity("t/subscriptions/s", None, Some("b")),
        entity("b", Some("t"), None),
        entity("c", Some("c"), None),
    ]);
    let topology = ask(&round, &TopologyQuery::default(), &ReadableKeys::ALL);
    let circles: Vec<String> = topology.circles.iter().map(|names| names.join(" ")).collect();
    assert_eq!(circles, ["b t t/subscriptions/s", "c"]);
    assert_eq!(topology.longest_chain, None);
}

//! Splits a declaration into parts that fit into one request each. Entities and their declared
//! forwarding destinations stay in the same part, so each part is planned and carried out by
//! itself.

use std::collections::BTreeMap;

use peeklock::declaration::{Declaration, DeclaredQueue, DeclaredTopic, Existing, Unnamed};
use peeklock::description::Destination;
use peeklock::error::{BrokerError, Rejection};
use peeklock::path::PathKey;
use peeklock_json::DeclarationForm;

/// Target size of a part in bytes of its request; a group that must stay together may exceed it.
const PART_BYTES: usize = 512 << 10;
/// Target number of queues, topics, subscriptions and rules of a part; a group may exceed it.
const PART_COUNT: usize = 5_000;
/// Maximum bytes of a request; a broker reserves sixteen times as many.
const REQUEST_BYTES_MAX: usize = 1_000_000;
/// Maximum queues, topics, subscriptions and rules of a request.
const REQUEST_COUNT_MAX: usize = 10_000;

/// Part of a declaration.
pub(super) struct Part {
    pub(super) declaration: Declaration,
    /// Index of each of its queues in the whole declaration.
    queues: Vec<usize>,
    /// Index of each of its topics in the whole declaration.
    topics: Vec<usize>,
}

/// Declared entity with its index.
enum IndexedEntity {
    Queue(usize, DeclaredQueue),
    Topic(usize, DeclaredTopic),
}

/// Declared entities that must stay in the same part.
#[derive(Default)]
struct Group {
    declared: Vec<IndexedEntity>,
    bytes: usize,
    count: usize,
}

/// Splits a declaration into parts, at least one, with queues and topics in their declared order.
///
/// # Errors
/// If the declaration exceeds the maximum of entities, or a group exceeds the maximum of a request.
pub(super) fn parts(mut whole: Declaration) -> Result<Vec<Part>, String> {
    whole.judge_counts().map_err(|misdeclared| misdeclared.to_string())?;
    let existing = whole.existing;
    if whole.unnamed == Unnamed::Delete {
        return Ok(vec![undivided_part(whole)?]);
    }
    let groups = groups(&mut whole);
    let mut packed = vec![Group::default()];
    for group in groups {
        if group.bytes > REQUEST_BYTES_MAX || group.count > REQUEST_COUNT_MAX {
            let first = group.declared.first().map_or("", IndexedEntity::path);
            return Err(format!(
                "`{first}`, with its parts and its forwarding links, has {} entities and rules of \
                 {} bytes; one request holds at most {REQUEST_COUNT_MAX} entities and rules and \
                 {REQUEST_BYTES_MAX} bytes; split the file: put forwarding destinations first, and \
                 a few subscriptions of a topic into each file",
                group.count, group.bytes
            ));
        }
        match packed.last_mut() {
            Some(last) if last.holds(&group) => last.add(group),
            _ => packed.push(group),
        }
    }
    Ok(packed.into_iter().map(|group| group.part(existing)).collect())
}

/// Returns a declaration that deletes unnamed entities as a single part, since a smaller part would
/// delete the entities of other parts.
///
/// # Errors
/// If the declaration exceeds the maximum of a request.
fn undivided_part(mut whole: Declaration) -> Result<Part, String> {
    let mut all = Group::default();
    let (existing, unnamed) = (whole.existing, whole.unnamed);
    for group in groups(&mut whole) {
        all.add(group);
    }
    if all.bytes > REQUEST_BYTES_MAX || all.count > REQUEST_COUNT_MAX {
        return Err(format!(
            "the file has {} entities and rules of {} bytes; with --delete, it must fit into one \
             request of at most {REQUEST_COUNT_MAX} entities and rules and {REQUEST_BYTES_MAX} \
             bytes; apply it without --delete, and delete other entities with `peeklock queue \
             delete`, `topic delete` and `subscription delete`",
            all.count, all.bytes
        ));
    }
    let mut part = all.part(existing);
    part.declaration.unnamed = unnamed;
    Ok(part)
}

/// Groups each queue and topic with its forwarding destinations, ordered by the first entity of
/// each group.
fn groups(whole: &mut Declaration) -> Vec<Group> {
    let queues = std::mem::take(&mut whole.queues).into_iter().enumerate();
    let topics = std::mem::take(&mut whole.topics).into_iter().enumerate();
    let declared = queues.map(|(place, queue)| IndexedEntity::Queue(place, queue));
    let topics = topics.map(|(place, topic)| IndexedEntity::Topic(place, topic));
    let declared: Vec<IndexedEntity> = declared.chain(topics).collect();
    let mut ties = UnionFind((0..declared.len()).collect());
    let mut known = BTreeMap::new();
    for (index, one) in declared.iter().enumerate() {
        // Duplicate declarations stay together, so that the broker sees and refuses them.
        ties.tie(index, *known.entry(key_of(one.path())).or_insert(index));
    }
    for (index, one) in declared.iter().enumerate() {
        for destination in one.destinations() {
            if let Some(other) = known.get(&key_of(destination)) {
                ties.tie(index, *other);
            }
        }
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for (index, one) in declared.into_iter().enumerate() {
        groups.entry(ties.first(index)).or_default().put(one);
    }
    groups.into_values().collect()
}

/// Key that identifies a queue or topic. An invalid path, which the broker refuses, is its own key.
fn key_of(path: &str) -> PathKey {
    match Destination::parse(path) {
        Ok(Destination::Entity(key)) => key,
        Ok(Destination::Foreign(_)) | Err(_) => PathKey::fold(path),
    }
}

/// Union-find structure: each entity refers to an earlier one of its group, or is the first.
struct UnionFind(Vec<usize>);

impl UnionFind {
    fn first(&mut self, mut index: usize) -> usize {
        while let Some(earlier) = self.0.get(index).copied().filter(|earlier| *earlier != index) {
            // Shortens the path for the next lookup.
            let further = self.0.get(earlier).copied().unwrap_or(earlier);
            if let Some(place) = self.0.get_mut(index) {
                *place = further;
            }
            index = earlier;
        }
        index
    }

    fn tie(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        if let Some(place) = self.0.get_mut(one.max(other)) {
            *place = one.min(other);
        }
    }
}

impl IndexedEntity {
    fn path(&self) -> &str {
        match self {
            Self::Queue(_, queue) => &queue.path,
            Self::Topic(_, topic) => &topic.path,
        }
    }

    /// Forwarding destinations of messages and dead letters.
    fn destinations(&self) -> Vec<&str> {
        let all: Vec<[&Option<Box<str>>; 2]> = match self {
            Self::Queue(_, queue) => {
                let of = &queue.properties;
                vec![[&of.forward_to, &of.forward_dead_lettered_messages_to]]
            }
            Self::Topic(_, topic) => {
                let below = topic.subscriptions.iter().map(|below| &below.properties);
                below.map(|of| [&of.forward_to, &of.forward_dead_lettered_messages_to]).collect()
            }
        };
        all.into_iter().flatten().filter_map(Option::as_deref).collect()
    }

    /// Number of the entity with its subscriptions and rules.
    fn count(&self) -> usize {
        match self {
            Self::Queue(..) => 1,
            Self::Topic(_, topic) => {
                let rules = topic.subscriptions.iter().filter_map(|below| below.rules.as_ref());
                1 + topic.subscriptions.len() + rules.map(Vec::len).sum::<usize>()
            }
        }
    }

    /// Bytes of the entity in a request.
    fn bytes(&self) -> usize {
        let alone = match self {
            Self::Queue(_, queue) => Declaration::new().with_queue(queue.clone()),
            Self::Topic(_, topic) => Declaration::new().with_topic(topic.clone()),
        };
        // Serialization of numbers and texts cannot fail.
        serde_json::to_vec(&DeclarationForm::from(&alone)).map_or(0, |json| json.len())
    }
}

impl Group {
    fn put(&mut self, one: IndexedEntity) {
        self.bytes += one.bytes();
        self.count += one.count();
        self.declared.push(one);
    }

    fn holds(&self, more: &Self) -> bool {
        let fits = self.bytes + more.bytes <= PART_BYTES && self.count + more.count <= PART_COUNT;
        self.declared.is_empty() || fits
    }

    fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.count += more.count;
        self.declared.extend(more.declared);
    }

    fn part(self, existing: Existing) -> Part {
        let (mut queues, mut topics) = (BTreeMap::new(), BTreeMap::new());
        for one in self.declared {
            match one {
                IndexedEntity::Queue(place, queue) => drop(queues.insert(place, queue)),
                IndexedEntity::Topic(place, topic) => drop(topics.insert(place, topic)),
            }
        }
        let (places_of_queues, queues) = queues.into_iter().unzip();
        let (places_of_topics, topics) = topics.into_iter().unzip();
        let declaration = Declaration { queues, topics, existing, ..Declaration::default() };
        Part { declaration, queues: places_of_queues, topics: places_of_topics }
    }
}

impl Part {
    /// The error of a part, with its place in the whole declaration.
    pub(super) fn in_whole(&self, error: BrokerError) -> BrokerError {
        let Some(detail) = self.placed(error.detail()) else { return error };
        let rejection = Rejection::new(error.condition(), detail);
        BrokerError::new(rejection, error.tracking_id(), error.entity(), error.timestamp())
    }

    /// Replaces the place at the beginning of a text by the place in the whole declaration.
    fn placed(&self, said: &str) -> Option<String> {
        for (list, places) in [("queues", &self.queues), ("topics", &self.topics)] {
            let behind = said.strip_prefix(list).and_then(|rest| rest.strip_prefix('['));
            let Some((index, rest)) = behind.and_then(|rest| rest.split_once(']')) else {
                continue;
            };
            let place = places.get(index.parse::<usize>().ok()?)?;
            return Some(format!("{list}[{place}]{rest}"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use peeklock::declaration::DeclaredSubscription;
    use peeklock::description::{QueueProperties, SubscriptionProperties};

    use super::*;

    /// Queue whose request has at least `bytes`.
    fn queue(name: &str, bytes: usize) -> DeclaredQueue {
        let properties =
            QueueProperties { user_metadata: Some("m".repeat(bytes).into()), ..Default::default() };
        DeclaredQueue::new(name).with(properties)
    }

    fn forwarded(name: &str, to: &str) -> DeclaredQueue {
        let properties = QueueProperties { forward_to: Some(to.into()), ..Default::default() };
        DeclaredQueue::new(name).with(properties)
    }

    fn names(part: &Part) -> Vec<&str> {
        let queues = part.declaration.queues.iter().map(|queue| &*queue.path);
        queues.chain(part.declaration.topics.iter().map(|topic| &*topic.path)).collect()
    }

    /// DEC-08, DEC-16: a small declaration is a single part in its order. A large one is split, and
    /// entities stay with their forwarding destinations, including the destinations of
    /// subscriptions.
    #[test]
    fn forwarding_destinations_stay_together() {
        assert_eq!(names(&parts(Declaration::new()).unwrap()[0]), [""; 0]);
        let small = ["b", "a", "c"].map(|name| queue(name, 9));
        let small = Declaration { queues: small.into(), ..Declaration::default() };
        let all = parts(small).unwrap();
        assert_eq!(all.iter().map(names).collect::<Vec<_>>(), [["b", "a", "c"]]);

        let to = SubscriptionProperties { forward_to: Some("B".into()), ..Default::default() };
        let topic =
            DeclaredTopic::new("t").with_subscription(DeclaredSubscription::new("s").with(to));
        let large = Declaration {
            queues: vec![
                queue("a", 400_000),
                queue("b", 300_000),
                queue("c", 300_000),
                forwarded("d", "A"),
                forwarded("e", "elsewhere"),
            ],
            topics: vec![topic],
            ..Declaration::default()
        };
        let all = parts(large).unwrap();
        let expected = [vec!["a", "d"], vec!["b", "t"], vec!["c", "e"]];
        assert_eq!(all.iter().map(names).collect::<Vec<_>>(), expected);
        assert_eq!(all[2].placed("queues[1]: no"), Some("queues[4]: no".to_owned()));
        let below = "topics[0].subscriptions[0]: no";
        assert_eq!(all[1].placed(below).as_deref(), Some(below));
        assert_eq!(all[1].placed("nobody may"), None);
    }

    /// DEC-04, DEC-16: a group that exceeds a request is refused with the limit and a solution, and
    /// so is a declaration with too many entities.
    #[test]
    fn an_oversized_group_is_refused() {
        let circle = (0..3).map(|index| DeclaredQueue {
            properties: QueueProperties {
                forward_dead_lettered_messages_to: Some(format!("q{}", (index + 1) % 3).into()),
                ..queue("", 400_000).properties
            },
            ..DeclaredQueue::new(format!("q{index}"))
        });
        let circle = Declaration { queues: circle.collect(), ..Declaration::default() };
        let refused = parts(circle).map(drop).unwrap_err();
        assert!(refused.starts_with("`q0`, with its parts"), "{refused}");
        assert!(
            refused.contains("at most 10000 entities and rules and 1000000 bytes; split"),
            "{refused}"
        );
        let many = (0..10_001).map(|index| DeclaredQueue::new(format!("q{index}"))).collect();
        let refused = parts(Declaration { queues: many, ..Declaration::default() }).map(drop);
        assert!(refused.unwrap_err().contains("more than 10000"));
    }
}

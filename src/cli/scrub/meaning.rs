//! Maps damaged keys to messages and their fates, by entity. The report in `output.rs` uses it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use peeklock::core::change::codec::{
    RecordKey, description_key, read_description, read_key, subscription_entry_key, topic_entry_key,
};
use peeklock::description::{
    Description, EntityKind, QueueDescription, SubscriptionDescription, TopicDescription,
};
use peeklock::ids::EntityId;
use peeklock::store::journal::verify::{Affected, Fate, Report};
use peeklock::store::{Key, SPACE_BYTES};

/// Maximum runs of numbers in one line; the others are counted.
const NUMBERS_MAX: usize = 24;

/// Affected records by entity and fate.
pub struct AffectedRecords {
    queues: BTreeMap<u64, Queue>,
    omitted: u64,
}

struct Queue {
    kind: EntityKind,
    name: Option<String>,
    fates: BTreeMap<Fate, AffectedEntity>,
}

/// Records of an entity with the same fate.
#[derive(Default)]
pub struct AffectedEntity {
    /// Sequence numbers of the messages.
    pub messages: Vec<u64>,
    /// Whether the description of the entity, which holds its properties, is affected.
    pub description: bool,
    /// Number of other records: counters, overlays, ids of duplicate detection, records of the
    /// namespace.
    pub others: u64,
}

impl AffectedRecords {
    /// Groups the affected records of a report. `value` returns the value of a readable record.
    pub fn of(report: &Report, value: &dyn Fn(&Key) -> Option<Vec<u8>>) -> Self {
        let mut queues: BTreeMap<u64, Queue> = BTreeMap::new();
        for Affected { key, fate, .. } in &report.affected {
            let id = entity(key);
            let queue = queues.entry(id).or_insert_with(|| {
                let kind = kind(id, value);
                Queue { kind, name: name(id, kind, value), fates: BTreeMap::new() }
            });
            let touched = queue.fates.entry(*fate).or_default();
            match read_key(key.as_bytes()) {
                Ok(RecordKey::Slot(number)) if id > 0 => touched.messages.push(number.0),
                Ok(RecordKey::Description) if id > 0 => touched.description = true,
                _ => touched.others += 1,
            }
        }
        for touched in queues.values_mut().flat_map(|queue| queue.fates.values_mut()) {
            touched.messages.sort_unstable();
        }
        Self { queues, omitted: report.affected_omitted }
    }

    /// Calls `show` with the id and name of each entity, and the records of each fate.
    pub fn each(&self, mut show: impl FnMut(u64, Option<&str>, Fate, &AffectedEntity)) {
        for (id, queue) in &self.queues {
            for (fate, touched) in &queue.fates {
                show(*id, queue.name.as_deref(), *fate, touched);
            }
        }
    }

    fn kind_of(&self, id: u64) -> EntityKind {
        self.queues.get(&id).map_or(EntityKind::Queue, |queue| queue.kind)
    }

    /// Text with a line for each entity and fate.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        self.each(|id, name, fate, touched| {
            if last != Some(id) {
                last = Some(id);
                let title = match (id, name) {
                    (0, _) => "the namespace".to_owned(),
                    (id, Some(name)) => format!("{} {name} (entity {id})", self.kind_of(id)),
                    (id, None) => format!("entity {id}, name unknown"),
                };
                // Writing into a string cannot fail.
                writeln!(text, "{title}").unwrap_or_default();
            }
            writeln!(text, "  {:<10}{}", word(fate), touched.text()).unwrap_or_default();
        });
        if self.omitted > 0 {
            writeln!(text, "and {} more records", self.omitted).unwrap_or_default();
        }
        text
    }
}

impl AffectedEntity {
    fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.messages.is_empty() {
            let word = if self.messages.len() == 1 { "message" } else { "messages" };
            parts.push(format!("{word} {}", numbers(&self.messages)));
        }
        if self.description {
            parts.push("the description of the entity: set its properties again".to_owned());
        }
        match self.others {
            0 => {}
            1 => parts.push("1 record other than messages".to_owned()),
            count => parts.push(format!("{count} records other than messages")),
        }
        parts.join("; ")
    }
}

/// Name of a fate in a table.
pub const fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Lost => "lost",
        Fate::Earlier => "earlier",
        Fate::Saved => "saved",
        Fate::Removed => "removed",
    }
}

/// Text of numbers in ascending order; runs appear as `3 to 7`.
fn numbers(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let shown = runs.iter().take(NUMBERS_MAX).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    let rest: u64 = runs.iter().skip(NUMBERS_MAX).map(|(first, last)| last - first + 1).sum();
    if rest > 0 {
        text.push_str(&format!(" and {rest} more"));
    }
    text
}

fn entity(key: &Key) -> u64 {
    let space = key.as_bytes().get(..SPACE_BYTES).and_then(|space| space.try_into().ok());
    space.map_or(0, u64::from_be_bytes)
}

/// Kind of an entity according to the namespace's records; a queue if there is none.
fn kind(id: u64, value: &dyn Fn(&Key) -> Option<Vec<u8>>) -> EntityKind {
    let id = EntityId(id);
    if value(&topic_entry_key(id)).is_some() {
        EntityKind::Topic
    } else if value(&subscription_entry_key(id)).is_some() {
        EntityKind::Subscription
    } else {
        EntityKind::Queue
    }
}

fn name(id: u64, kind: EntityKind, value: &dyn Fn(&Key) -> Option<Vec<u8>>) -> Option<String> {
    fn path<D: Description>(described: &[u8]) -> Option<String> {
        let description: D = read_description(described).ok()?;
        Some(Description::path(&description).into_owned())
    }
    let described = value(&description_key(EntityId(id)))?;
    match kind {
        EntityKind::Queue => path::<QueueDescription>(&described),
        EntityKind::Topic => path::<TopicDescription>(&described),
        EntityKind::Subscription => path::<SubscriptionDescription>(&described),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_in_runs_and_bounded() {
        assert_eq!(numbers(&[17, 18]), "17, 18");
        assert_eq!(numbers(&[1, 3, 4, 5, 9]), "1, 3 to 5, 9");
        let odd: Vec<u64> = (0..100).map(|number| number * 2).collect();
        assert!(numbers(&odd).ends_with("44, 46 and 76 more"), "{}", numbers(&odd));
    }
}

//! Who is where: paths to entities. Looked at once per link, not per message (DESIGN D4).

use std::sync::Arc;

use dashmap::DashMap;

use super::inlet::Inlet;
use crate::description::EntityKind;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::telemetry::Observed;

/// All entities of a broker by path.
#[derive(Default)]
pub struct Directory {
    entries: DashMap<PathKey, Entry>,
}

/// One entity.
#[derive(Clone)]
pub struct Entry {
    /// Its identity; a path that is created again gets another.
    pub id: EntityId,
    /// Queue, topic or subscription.
    pub kind: EntityKind,
    /// The path in the case given at creation.
    pub path: Arc<str>,
    /// The way in.
    pub inlet: Arc<Inlet>,
    /// Its gauges.
    pub observed: Arc<Observed>,
}

impl Directory {
    /// The entity at a path.
    #[must_use]
    pub fn get(&self, key: &PathKey) -> Option<Entry> {
        self.entries.get(key).map(|entry| entry.clone())
    }

    /// All entities in the order of their keys (ENT-30).
    #[must_use]
    pub fn sorted(&self) -> Vec<(PathKey, Entry)> {
        let mut all: Vec<(PathKey, Entry)> =
            self.entries.iter().map(|entry| (entry.key().clone(), entry.value().clone())).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Those of one kind whose keys begin with this, in the order of their keys (ENT-30).
    #[must_use]
    pub fn sorted_of(&self, kind: EntityKind, prefix: &str) -> Vec<(PathKey, Entry)> {
        let mut all: Vec<(PathKey, Entry)> = self
            .entries
            .iter()
            .filter(|entry| entry.value().kind == kind && entry.key().as_str().starts_with(prefix))
            .map(|entry| (entry.key().clone(), entry.value().clone()))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn insert(&self, key: PathKey, entry: Entry) {
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&self, key: &PathKey) -> Option<Entry> {
        self.entries.remove(key).map(|(_, entry)| entry)
    }
}

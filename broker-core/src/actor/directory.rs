//! Directory of entities by path. Read once per link, not per message (DESIGN D4). The namespace
//! actor writes it, and every handle reads it.

mod order;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use dashmap::DashMap;
use tokio::sync::watch;

use self::order::Order;
use super::inlet::Inlet;
use crate::description::EntityKind;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::telemetry::LiveGauges;

/// All entities of a broker by path. Only the namespace adds and removes entries.
#[derive(Default)]
pub struct Directory {
    entries: DashMap<PathKey, DirectoryEntry>,
    /// Paths whose creation is being stored. The sender is dropped when the outcome is known, which
    /// ends the waits on it.
    creations: DashMap<PathKey, watch::Sender<()>>,
    queues: RwLock<Order>,
    topics: RwLock<Order>,
    subscriptions: RwLock<Order>,
}

/// One entity.
#[derive(Clone)]
pub struct DirectoryEntry {
    /// Id of the entity; a path that is created again gets another.
    pub id: EntityId,
    /// Queue, topic or subscription.
    pub kind: EntityKind,
    /// The path in the case given at creation.
    pub path: Arc<str>,
    /// Inlet of the entity.
    pub inlet: Arc<Inlet>,
    /// Its gauges.
    pub observed: Arc<LiveGauges>,
}

impl Directory {
    /// Returns the entity at a path.
    #[must_use]
    pub fn get(&self, key: &PathKey) -> Option<DirectoryEntry> {
        self.entries.get(key).map(|entry| entry.clone())
    }

    /// Waits for the outcome of a creation at a path, if one is being stored. Requests in progress
    /// bound the number of waiting callers, and the creation bounds their time.
    pub async fn wait_for_creation(&self, key: &PathKey) {
        let forming = self.creations.get(key).map(|sender| sender.subscribe());
        if let Some(mut outcome) = forming {
            // No value is ever sent: dropping the sender reports the outcome.
            outcome.changed().await.ok();
        }
    }

    /// Notes that a creation at this path is being stored.
    pub(super) fn begin_creation(&self, key: &PathKey) {
        self.creations.entry(key.clone()).or_insert_with(|| watch::channel(()).0);
    }

    /// Ends the waits for a creation at this path. A created entity must be inserted before.
    pub(super) fn end_creation(&self, key: &PathKey) {
        self.creations.remove(key);
    }

    /// Ends the waits for all creations, because the broker is stopped.
    pub(super) fn end_all_creations(&self) {
        self.creations.clear();
    }

    /// Returns all entities in the order of their keys (ENT-30).
    #[must_use]
    pub fn sorted(&self) -> Vec<(PathKey, DirectoryEntry)> {
        let mut all: Vec<(PathKey, DirectoryEntry)> =
            self.entries.iter().map(|entry| (entry.key().clone(), entry.value().clone())).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Calls `visit` with each entity, in any order.
    pub fn for_each(&self, mut visit: impl FnMut(EntityId, EntityKind, &LiveGauges)) {
        for entry in &self.entries {
            visit(entry.id, entry.kind, &entry.observed);
        }
    }

    /// Returns the paths of a kind whose keys start with `prefix`, in the order of their keys: up
    /// to `top` after the first `skip` (ENT-30). The cost depends on the length of the result, not
    /// on the number of entities.
    #[must_use]
    pub fn list(&self, kind: EntityKind, prefix: &str, skip: usize, top: usize) -> Vec<Arc<str>> {
        let order = self.order_of(kind).read().unwrap_or_else(PoisonError::into_inner);
        order.list(prefix, skip, top)
    }

    /// Returns the path of an entity; searches all entities.
    #[must_use]
    pub fn path_of(&self, id: EntityId) -> Option<Arc<str>> {
        let found = self.entries.iter().find(|entry| entry.id == id)?;
        Some(Arc::clone(&found.path))
    }

    /// Returns the paths of all entities.
    #[must_use]
    pub fn paths(&self) -> HashMap<EntityId, Arc<str>> {
        self.entries.iter().map(|entry| (entry.id, Arc::clone(&entry.path))).collect()
    }

    /// Number of entities.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entities.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn insert(&self, key: PathKey, entry: DirectoryEntry) {
        let mut order = self.order_of(entry.kind).write().unwrap_or_else(PoisonError::into_inner);
        order.insert(key.clone(), Arc::clone(&entry.path));
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&self, key: &PathKey) -> Option<DirectoryEntry> {
        let (_, entry) = self.entries.remove(key)?;
        let mut order = self.order_of(entry.kind).write().unwrap_or_else(PoisonError::into_inner);
        order.remove(key);
        Some(entry)
    }

    const fn order_of(&self, kind: EntityKind) -> &RwLock<Order> {
        match kind {
            EntityKind::Queue => &self.queues,
            EntityKind::Topic => &self.topics,
            EntityKind::Subscription => &self.subscriptions,
        }
    }
}

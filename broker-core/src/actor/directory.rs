//! Who is where: paths to entities. Looked at once per link, not per message (DESIGN D4).

mod order;

use std::sync::{Arc, PoisonError, RwLock};

use dashmap::DashMap;
use tokio::sync::watch;

use self::order::Order;
use super::inlet::Inlet;
use crate::description::EntityKind;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::telemetry::Observed;

/// All entities of a broker by path. Only the namespace adds and removes.
#[derive(Default)]
pub struct Directory {
    entries: DashMap<PathKey, Entry>,
    /// Paths whose creation is on its way to the store. A sender is dropped when the outcome is known, which ends the
    /// waits on it.
    forming: DashMap<PathKey, watch::Sender<()>>,
    queues: RwLock<Order>,
    topics: RwLock<Order>,
    subscriptions: RwLock<Order>,
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

    /// Waits for the outcome of a creation at a path, if one is on its way to the store. The number of callers that wait is
    /// bounded by the requests under way, and their time by that of the creation.
    pub async fn formed(&self, key: &PathKey) {
        let forming = self.forming.get(key).map(|sender| sender.subscribe());
        if let Some(mut outcome) = forming {
            // Nothing is ever sent: the end of the sender is the outcome.
            outcome.changed().await.ok();
        }
    }

    /// A creation at this path is on its way to the store.
    pub(super) fn begin_forming(&self, key: &PathKey) {
        self.forming.entry(key.clone()).or_insert_with(|| watch::channel(()).0);
    }

    /// The outcome of the creation at this path is known; what was created is entered before.
    pub(super) fn end_forming(&self, key: &PathKey) {
        self.forming.remove(key);
    }

    /// The broker is stopped: no outcome comes any more.
    pub(super) fn end_all_forming(&self) {
        self.forming.clear();
    }

    /// All entities in the order of their keys (ENT-30); for what wants them all.
    #[must_use]
    pub fn sorted(&self) -> Vec<(PathKey, Entry)> {
        let mut all: Vec<(PathKey, Entry)> =
            self.entries.iter().map(|entry| (entry.key().clone(), entry.value().clone())).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// The paths of those of one kind whose keys begin with this, in the order of their keys, `top` of them
    /// after `skip` (ENT-30). What it costs depends on what it returns, not on how many there are.
    #[must_use]
    pub fn list(&self, kind: EntityKind, prefix: &str, skip: usize, top: usize) -> Vec<Arc<str>> {
        let order = self.order_of(kind).read().unwrap_or_else(PoisonError::into_inner);
        order.list(prefix, skip, top)
    }

    /// The path of an entity; looks at all of them.
    #[must_use]
    pub fn path_of(&self, id: EntityId) -> Option<Arc<str>> {
        let found = self.entries.iter().find(|entry| entry.id == id)?;
        Some(Arc::clone(&found.path))
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
        let mut order = self.order_of(entry.kind).write().unwrap_or_else(PoisonError::into_inner);
        order.insert(key.clone(), Arc::clone(&entry.path));
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&self, key: &PathKey) -> Option<Entry> {
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

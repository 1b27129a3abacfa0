//! The namespace's own records: the counter of ids, the key of hashes, and which entities there are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::change::codec::{
    self, NAMESPACE_SPACE, POLICIES, QUEUE_ENTRY, SUBSCRIPTION_ENTRY, TOPIC_ENTRY,
};
use crate::description::EntityKind;
use crate::ids::EntityId;
use crate::path::{EntityName, PathKey};
use crate::policies::Policy;
use crate::store::{Key, Store, StoreError};

pub(super) const TABLE_IDS: u8 = 0x01;
pub(super) const TABLE_SECRETS: u8 = 0x02;
pub(super) const TABLE_ANONYMOUS: u8 = 0x03;

/// What is known of a namespace before its entities are opened.
pub(crate) struct Loaded {
    pub(crate) duplicate_key: [u8; 16],
    pub(super) id_limit: u64,
    /// Queues and topics with their paths.
    pub(super) roots: Vec<(EntityId, EntityKind, Box<str>)>,
    /// Subscriptions with their topics and names.
    pub(super) subscriptions: Vec<(EntityId, EntityId, Box<str>)>,
    /// Policies by the entity that has them; those of the namespace under its space.
    pub(super) policies: HashMap<EntityId, Vec<Arc<Policy>>>,
    /// Whether nobody is let in without a token any more (SEC-17).
    pub(super) ended_anonymous_access: bool,
    /// Whether a namespace without policies gets its first one.
    pub(crate) has_policies: bool,
}

/// Reads the namespace's own records; makes the first ones in an empty store.
pub(crate) fn load(store: &dyn Store, fresh_key: [u8; 16]) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded {
        duplicate_key: fresh_key,
        id_limit: 1,
        roots: Vec::new(),
        subscriptions: Vec::new(),
        policies: HashMap::new(),
        ended_anonymous_access: false,
        has_policies: false,
    };
    let mut damaged = false;
    let prefix = Key::of_space(NAMESPACE_SPACE);
    store.scan(prefix.as_bytes(), &mut |key, value| {
        damaged |= read(&mut loaded, key, value).is_none();
    })?;
    if damaged {
        return Err(StoreError::Damaged("a record of the namespace cannot be read".into()));
    }
    check(&mut loaded)?;
    Ok(loaded)
}

fn read(loaded: &mut Loaded, key: &[u8], value: &[u8]) -> Option<()> {
    let (table, rest) = key.get(crate::store::SPACE_BYTES..)?.split_first()?;
    let id = || Some(EntityId(u64::from_be_bytes(rest.try_into().ok()?)));
    match *table {
        TABLE_IDS => loaded.id_limit = u64::from_be_bytes(value.try_into().ok()?),
        TABLE_SECRETS => loaded.duplicate_key = value.try_into().ok()?,
        QUEUE_ENTRY => {
            let path = std::str::from_utf8(value).ok()?;
            loaded.roots.push((id()?, EntityKind::Queue, path.into()));
        }
        TOPIC_ENTRY => {
            let path = std::str::from_utf8(value).ok()?;
            loaded.roots.push((id()?, EntityKind::Topic, path.into()));
        }
        SUBSCRIPTION_ENTRY => {
            let (topic, name) = codec::read_subscription_entry(value).ok()?;
            loaded.subscriptions.push((id()?, topic, name));
        }
        TABLE_ANONYMOUS => {
            codec::read_instant(value).ok()?;
            loaded.ended_anonymous_access = true;
        }
        POLICIES => {
            let records = codec::read_policies(value).ok()?;
            let policies = records.iter().map(|record| Policy::restore(record).map(Arc::new));
            loaded.policies.insert(id()?, policies.collect::<Option<Vec<_>>>()?);
        }
        _ => return None,
    }
    Some(())
}

/// Refuses what no broker has written: two entities of one path, a subscription without topic.
fn check(loaded: &mut Loaded) -> Result<(), StoreError> {
    let damaged = |what: String| Err(StoreError::Damaged(what.into()));
    let mut paths = HashMap::new();
    let mut topics = HashMap::new();
    for (id, kind, path) in &loaded.roots {
        if let Some(other) = paths.insert(PathKey::fold(path), *id) {
            return damaged(format!("entities {other} and {id} have one path, `{path}`"));
        }
        if *kind == EntityKind::Topic {
            topics.insert(*id, path.clone());
        }
    }
    for (id, topic, name) in &loaded.subscriptions {
        let Some(topic) = topics.get(topic) else {
            return damaged(format!("subscription {id}, `{name}`, has no topic"));
        };
        let name = EntityName::Subscription { topic: topic.clone(), name: name.clone() };
        if let Some(other) = paths.insert(name.key(), *id) {
            return damaged(format!("entities {other} and {id} have one path, `{name}`"));
        }
    }
    let roots: HashSet<EntityId> = loaded.roots.iter().map(|(id, ..)| *id).collect();
    let namespace = EntityId(NAMESPACE_SPACE);
    let is_absent = |id: &&EntityId| **id != namespace && !roots.contains(id);
    if let Some(id) = loaded.policies.keys().find(is_absent) {
        return damaged(format!(
            "there are policies of entity {id}, which is no queue and no topic"
        ));
    }
    // No id that any record names is given again, whatever became of the counter.
    let ids = paths.values().map(|id| id.0 + 1);
    loaded.id_limit = ids.max().unwrap_or(0).max(loaded.id_limit);
    Ok(())
}

//! Records of the namespace itself: the counter of ids, the key of hashes, the list of entities,
//! and facts about the namespace.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::change::codec::{
    self, NAMESPACE_SPACE, NamespaceFacts, POLICIES, QUEUE_ENTRY, RecordKey, SUBSCRIPTION_ENTRY,
    TOPIC_ENTRY,
};
use crate::description::{EntityKind, Settings};
use crate::ids::EntityId;
use crate::path::{EntityName, PathKey};
use crate::policies::Policy;
use crate::store::{Batch, Key, Store, StoreError};
use crate::time::Timestamp;

const TABLE_IDS: u8 = 0x01;
const TABLE_SECRETS: u8 = 0x02;
pub(super) const TABLE_ANONYMOUS: u8 = 0x03;
const TABLE_COPY: u8 = 0x04;

/// Key of the mark of a store into which a migration copies (CLU-54).
pub(crate) fn unfinished_copy_key() -> Key {
    Key::of_space(NAMESPACE_SPACE).then(&[TABLE_COPY])
}

/// State of a namespace before its entities are opened.
pub(crate) struct StoredNamespace {
    pub(crate) duplicate_key: [u8; 16],
    pub(super) id_limit: u64,
    /// The counter of ids; none in a new store.
    pub(super) stored_id_limit: Option<u64>,
    /// Facts about the namespace itself, as of this start (CNT-10).
    pub(crate) facts: NamespaceFacts,
    /// Whether they differ from the stored ones.
    pub(super) are_facts_new: bool,
    /// Queues and topics with their paths.
    pub(super) roots: Vec<(EntityId, EntityKind, Box<str>)>,
    /// Subscriptions with their topics and names.
    pub(super) subscriptions: Vec<(EntityId, EntityId, Box<str>)>,
    /// Policies by their entity; the namespace has the id of its space.
    pub(super) policies: HashMap<EntityId, Vec<Arc<Policy>>>,
    /// Whether clients without a token are refused permanently (SEC-17).
    pub(super) ended_anonymous_access: bool,
    /// Whether a namespace without policies gets a first one.
    pub(crate) has_policies: bool,
}

/// Reads the records of the namespace; an empty store yields the initial state.
pub(crate) async fn load(
    store: &dyn Store,
    settings: &Settings,
    now: Timestamp,
    fresh_key: [u8; 16],
) -> Result<StoredNamespace, StoreError> {
    let mut loaded = StoredNamespace {
        duplicate_key: fresh_key,
        id_limit: 1,
        stored_id_limit: None,
        facts: NamespaceFacts {
            created_at: now,
            modified_at: now,
            name: settings.name.clone(),
            tier: settings.limits.tier.name().into(),
        },
        are_facts_new: true,
        roots: Vec::new(),
        subscriptions: Vec::new(),
        policies: HashMap::new(),
        ended_anonymous_access: false,
        has_policies: false,
    };
    let mut damaged = false;
    let mut is_unfinished = false;
    let prefix = Key::of_space(NAMESPACE_SPACE);
    let mark = unfinished_copy_key();
    let mut records = store.scan(&prefix);
    let read_all = records.for_each(|key, value| {
        if key == mark.as_bytes() {
            is_unfinished = true;
        } else {
            damaged |= read(&mut loaded, key, value).is_none();
        }
    });
    read_all.await?;
    if is_unfinished {
        let text = "a migration into this store has not finished; run `peeklock migrate` again to \
            complete it, or use another store";
        return Err(StoreError::Failed(text.into()));
    }
    if damaged {
        return Err(StoreError::Damaged("a record of the namespace cannot be read".into()));
    }
    check(&mut loaded)?;
    load_facts(&mut loaded, store).await?;
    Ok(loaded)
}

/// Reads the facts about the namespace. Data of a version that stored none gets the creation time
/// of its oldest entity.
async fn load_facts(loaded: &mut StoredNamespace, store: &dyn Store) -> Result<(), StoreError> {
    let mut stored = None;
    let mut records = store.scan(&codec::namespace_facts_key());
    records.for_each(|_, value| stored = Some(codec::read_namespace_facts(value))).await?;
    let facts = &mut loaded.facts;
    match stored {
        Some(Ok(stored)) => {
            let is_same = (&stored.name, &stored.tier) == (&facts.name, &facts.tier);
            facts.created_at = stored.created_at;
            if is_same {
                facts.modified_at = stored.modified_at;
            }
            loaded.are_facts_new = !is_same;
        }
        Some(Err(reason)) => {
            let text = format!("the description of the namespace cannot be read: {reason}");
            return Err(StoreError::Damaged(text.into()));
        }
        None => {
            for (id, _, _) in &loaded.roots {
                let read = |key: &[u8], value: &[u8]| {
                    if let (Ok(RecordKey::Counters), Ok(counters)) =
                        (codec::read_key(key), codec::read_counters(value))
                    {
                        facts.created_at = facts.created_at.min(counters.created_at);
                    }
                };
                store.scan(&codec::counters_key(*id)).for_each(read).await?;
            }
            facts.modified_at = facts.created_at;
        }
    }
    Ok(())
}

/// Number of ids that are reserved in the store at a time, so that a creation writes no counter of
/// its own.
const ID_BLOCK: u64 = 1_000;
/// Maximum number of attempts to reserve ids while other brokers do the same.
const ATTEMPTS_MAX: usize = 8;

fn ids_key() -> Key {
    Key::of_space(NAMESPACE_SPACE).then(&[TABLE_IDS])
}

/// Reserves a block of ids that begins at `first` or later, so that no id is ever given twice
/// (CLU-28, DESIGN D4). `stored` is the counter as it was last read or written. The batch also has
/// the facts about the namespace, and the first one the key of the message id hashes: a namespace
/// without entities stores neither.
pub(super) async fn reserve_ids(
    store: &dyn Store,
    (first, mut stored): (u64, Option<u64>),
    facts: &NamespaceFacts,
    duplicate_key: &[u8; 16],
) -> Result<Range<u64>, StoreError> {
    for _ in 0..ATTEMPTS_MAX {
        let begin = stored.map_or(first, |stored| stored.max(first));
        let end = begin + ID_BLOCK;
        let mut batch = Batch::default();
        batch.put(&ids_key(), |value| value.extend_from_slice(&end.to_be_bytes()));
        if stored.is_none() {
            let key = Key::of_space(NAMESPACE_SPACE).then(&[TABLE_SECRETS]);
            batch.put(&key, |value| value.extend_from_slice(duplicate_key));
        }
        write_facts(facts, &mut batch);
        let expected = stored.map(|stored| Bytes::copy_from_slice(&stored.to_be_bytes()));
        if store.amend(&[(ids_key(), expected)], batch).await? {
            return Ok(begin..end);
        }
        // Another broker was faster, or an earlier attempt of unknown outcome was stored.
        stored = None;
        let read = |_: &[u8], value: &[u8]| {
            stored = value.try_into().ok().map(u64::from_be_bytes);
        };
        store.scan(&ids_key()).for_each(read).await?;
    }
    Err(StoreError::Failed("other brokers reserve ids at the same time".into()))
}

/// Adds the facts about the namespace to a batch.
pub(super) fn write_facts(facts: &NamespaceFacts, batch: &mut Batch) {
    batch.put(&codec::namespace_facts_key(), |value| codec::write_namespace_facts(facts, value));
}

fn read(loaded: &mut StoredNamespace, key: &[u8], value: &[u8]) -> Option<()> {
    let (table, rest) = key.get(crate::store::SPACE_BYTES..)?.split_first()?;
    let id = || Some(EntityId(u64::from_be_bytes(rest.try_into().ok()?)));
    match *table {
        TABLE_IDS => {
            loaded.id_limit = u64::from_be_bytes(value.try_into().ok()?);
            loaded.stored_id_limit = Some(loaded.id_limit);
        }
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
            let policies = codec::read_policies(value).ok()?.into_iter();
            let policies = policies.map(|policy| Arc::new(Policy::new(policy)));
            loaded.policies.insert(id()?, policies.collect());
        }
        _ => return None,
    }
    Some(())
}

/// Refuses records that no broker writes: two entities with the same path, a subscription without a
/// topic.
fn check(loaded: &mut StoredNamespace) -> Result<(), StoreError> {
    let damaged = |text: String| Err(StoreError::Damaged(text.into()));
    let mut paths = HashMap::new();
    let mut topics = HashMap::new();
    for (id, kind, path) in &loaded.roots {
        if let Some(other) = paths.insert(PathKey::fold(path), *id) {
            return damaged(format!("entities {other} and {id} have the same path, `{path}`"));
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
            return damaged(format!("entities {other} and {id} have the same path, `{name}`"));
        }
    }
    let roots: HashSet<EntityId> = loaded.roots.iter().map(|(id, ..)| *id).collect();
    let namespace = EntityId(NAMESPACE_SPACE);
    let is_absent = |id: &&EntityId| **id != namespace && !roots.contains(id);
    if let Some(id) = loaded.policies.keys().find(is_absent) {
        return damaged(format!(
            "there are policies of entity {id}, which is neither a queue nor a topic"
        ));
    }
    // Ids in any record are never given again, even if the counter is lower.
    let ids = paths.values().map(|id| id.0 + 1);
    loaded.id_limit = ids.max().unwrap_or(0).max(loaded.id_limit);
    Ok(())
}

//! The two rings, with the chunks of each entity.
//!
//! A station goes into the first ring. When it makes room there, and its message is notable, it
//! moves to the second ring with all other stations of the message. So a message that failed keeps
//! its stations from before the failure (CON-30). It is notable until its last station moves, the
//! second ring drops one of its stations, or its entity has its share of notable messages.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::entry::{Entry, Noted, Place};
use super::hash::ByNumber;
use super::names::{Clients, Jobs, Rules};
use super::query::StationKind;
use super::ring::{ChunkIndex, Ring, SHARES};
use crate::ids::EntityId;
use crate::path::PathKey;

/// Memory for a notable message: an element of an ordered set.
const NOTABLE_BYTES: u64 = 32;
/// The number of notable messages is bounded by this part of the second ring.
const NOTABLE_SHARE: u64 = 6;

/// One of the two rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingKind {
    /// Stations of all messages.
    Common,
    /// Stations of notable messages that made room in the first ring.
    Kept,
}

/// Rings and tables of names.
pub(super) struct State {
    common: Ring,
    kept: Ring,
    entities: ByNumber<EntityId, EntityLog>,
    /// The latest entity with each recorded path, by the hash of the path.
    by_path: ByNumber<u64, EntityId>,
    path_hasher: RandomState,
    /// Number of notable messages in all entities, and its bound. An entity has at most one in
    /// [`SHARES`].
    notable_count: usize,
    notable_max: usize,
    /// Instants of the latest station, the latest dropped one, and the latest dropped one of a
    /// forgotten entity.
    latest_at: i64,
    pub(super) dropped_at: i64,
    forgotten_at: i64,
    pub(super) rules: Rules,
    pub(super) jobs: Jobs,
    pub(super) clients: Clients,
}

/// Stations of an entity.
struct EntityLog {
    /// Its path; none until it records something itself.
    path: Option<Arc<str>>,
    /// Its chunks in each ring, the oldest first.
    common: VecDeque<ChunkIndex>,
    kept: VecDeque<ChunkIndex>,
    /// Messages whose stations move to the second ring.
    notable: BTreeSet<u64>,
    /// Greatest number of a message that left the set early or found no room in it.
    refused_max: u64,
    /// Instants of its latest dropped station, and of the latest dropped one of a duplicate.
    dropped_at: i64,
    duplicate_dropped_at: i64,
}

impl State {
    pub(super) fn new((common_bytes, kept_bytes): (u64, u64)) -> Self {
        let notable_bytes = kept_bytes / NOTABLE_SHARE;
        Self {
            common: Ring::new(common_bytes),
            kept: Ring::new(kept_bytes - notable_bytes),
            entities: ByNumber::default(),
            by_path: ByNumber::default(),
            path_hasher: RandomState::new(),
            notable_count: 0,
            notable_max: usize::try_from(notable_bytes / NOTABLE_BYTES).unwrap_or(usize::MAX),
            latest_at: i64::MIN,
            dropped_at: i64::MIN,
            forgotten_at: i64::MIN,
            rules: Rules::default(),
            jobs: Jobs::default(),
            clients: Clients::default(),
        }
    }

    /// Adds stations, entity by entity.
    pub(super) fn add(&mut self, mut noted: &[Noted]) {
        self.latest_at = noted.iter().map(|it| it.entry.at).fold(self.latest_at, i64::max);
        while let Some(first) = noted.first() {
            let entity = first.entity;
            let run = noted.iter().take_while(|it| it.entity == entity).count();
            let (own, rest) = noted.split_at(run);
            self.add_to(entity, own);
            noted = rest;
        }
    }

    fn add_to(&mut self, entity: EntityId, mut noted: &[Noted]) {
        while !noted.is_empty() {
            self.make_room(entity);
            let Some(log) = self.entities.get_mut(&entity) else { return };
            let Some(index) = log.common.back() else { return };
            let count = self.common.add(*index, noted.iter().map(|it| it.entry));
            let (added, rest) = noted.split_at(count.min(noted.len()));
            for Noted { entry, .. } in added {
                if entry.is_notable() || self.inherits(entity, entry) {
                    self.mark(entity, entry.sequence);
                }
            }
            if added.is_empty() {
                return;
            }
            noted = rest;
        }
    }

    /// Whether a message continues one that is notable, under another number or in another entity.
    fn inherits(&self, entity: EntityId, entry: &Entry) -> bool {
        let continues =
            matches!(entry.kind, StationKind::ForwardedFrom | StationKind::MaterialisedFrom);
        let Some((other, number)) = entry.other(entity).filter(|_| continues) else { return false };
        self.entities.get(&other).is_some_and(|log| log.notable.contains(&number.0))
    }

    /// Makes a message notable. If there is no room, the message of the entity with the lowest
    /// number gives up its place.
    fn mark(&mut self, entity: EntityId, sequence: u64) {
        let Some(log) = self.entities.get_mut(&entity) else { return };
        if log.notable.contains(&sequence) {
            return;
        }
        let has_share = log.notable.len() >= self.notable_max / SHARES;
        if has_share || self.notable_count >= self.notable_max {
            let Some(lowest) = log.notable.pop_first() else {
                log.refused_max = log.refused_max.max(sequence);
                return;
            };
            log.refused_max = log.refused_max.max(lowest);
            self.notable_count -= 1;
        }
        log.notable.insert(sequence);
        self.notable_count += 1;
    }

    /// Number of notable messages of an entity.
    #[cfg(test)]
    pub(super) fn notable_of(&self, entity: EntityId) -> usize {
        self.entities.get(&entity).map_or(0, |log| log.notable.len())
    }

    /// Number of notable messages in all entities, and its bound.
    #[cfg(test)]
    pub(super) const fn notable(&self) -> (usize, usize) {
        (self.notable_count, self.notable_max)
    }

    /// Sets the path of an entity that has stations.
    pub(super) fn set_path(&mut self, entity: EntityId, path: &Arc<str>) {
        if let Some(log) = self.entities.get_mut(&entity)
            && log.path.is_none()
        {
            log.path = Some(Arc::clone(path));
            self.by_path.insert(self.path_hasher.hash_one(PathKey::fold(path)), entity);
        }
    }

    /// Makes room for a station of an entity in the first ring.
    fn make_room(&mut self, entity: EntityId) {
        let log = self.entities.get(&entity);
        let last = log.and_then(|log| log.common.back()).copied();
        if !self.common.is_full(last) {
            return;
        }
        let oldest = log.and_then(|log| log.common.front()).copied();
        let victim = self.common.victim(oldest, log.map_or(0, |log| log.common.len()));
        let mut room = Vec::new();
        if let Some(victim) = victim {
            let owner;
            (owner, room) = self.common.take(victim);
            if let Some(log) = self.entities.get_mut(&owner) {
                pop(&mut log.common);
            }
            self.move_notable(owner, &mut room);
            if owner != entity {
                self.tidy(owner);
            }
        }
        let index = self.common.begin(victim, entity, room);
        self.log_of(entity).common.push_back(index);
    }

    /// Moves the stations of notable messages to the second ring, and drops the others.
    fn move_notable(&mut self, entity: EntityId, entries: &mut Vec<Entry>) {
        let Some(log) = self.entities.get_mut(&entity) else { return };
        entries.retain(|entry| {
            let is_kept = log.notable.contains(&entry.sequence) || entry.is_notable();
            if !is_kept {
                log.note_dropped(entry);
                self.dropped_at = self.dropped_at.max(entry.at);
            } else if entry.kind.is_last() && log.notable.remove(&entry.sequence) {
                self.notable_count -= 1;
            }
            is_kept
        });
        for entry in entries {
            self.keep(entity, *entry);
        }
    }

    /// Adds a station to the second ring.
    fn keep(&mut self, entity: EntityId, entry: Entry) {
        let log = self.entities.get(&entity);
        let last = log.and_then(|log| log.kept.back()).copied();
        let mut index = last;
        if self.kept.is_full(last) {
            let mut room = Vec::new();
            let oldest = log.and_then(|log| log.kept.front()).copied();
            let victim = self.kept.victim(oldest, log.map_or(0, |log| log.kept.len()));
            if let Some(victim) = victim {
                let owner;
                (owner, room) = self.kept.take(victim);
                if let Some(log) = self.entities.get_mut(&owner) {
                    pop(&mut log.kept);
                    for entry in &room {
                        log.note_dropped(entry);
                        self.dropped_at = self.dropped_at.max(entry.at);
                        self.notable_count -= usize::from(log.notable.remove(&entry.sequence));
                    }
                }
                if owner != entity {
                    self.tidy(owner);
                }
            }
            let begun = self.kept.begin(victim, entity, room);
            self.log_of(entity).kept.push_back(begun);
            index = Some(begun);
        }
        if let Some(index) = index {
            self.kept.add(index, [entry]);
        }
    }

    /// Forgets an entity without stations.
    fn tidy(&mut self, entity: EntityId) {
        let is_empty = |log: &EntityLog| log.common.is_empty() && log.kept.is_empty();
        if self.entities.get(&entity).is_some_and(is_empty)
            && let Some(log) = self.entities.remove(&entity)
        {
            self.notable_count -= log.notable.len();
            self.forgotten_at = self.forgotten_at.max(log.dropped_at);
            let hash = log.path.map(|path| self.path_hasher.hash_one(PathKey::fold(&path)));
            if let Some(hash) = hash.filter(|hash| self.by_path.get(hash) == Some(&entity)) {
                self.by_path.remove(&hash);
            }
        }
    }

    fn log_of(&mut self, entity: EntityId) -> &mut EntityLog {
        let forgotten_at = self.forgotten_at;
        self.entities.entry(entity).or_insert_with(|| EntityLog::new(forgotten_at))
    }

    pub(super) const fn ring(&self, kind: RingKind) -> &Ring {
        match kind {
            RingKind::Common => &self.common,
            RingKind::Kept => &self.kept,
        }
    }

    /// Returns the chunks of an entity in a ring.
    pub(super) fn chunks_of(&self, entity: EntityId, kind: RingKind) -> Vec<ChunkIndex> {
        let Some(log) = self.entities.get(&entity) else { return Vec::new() };
        let chunks = match kind {
            RingKind::Common => &log.common,
            RingKind::Kept => &log.kept,
        };
        chunks.iter().copied().collect()
    }

    /// Returns the path of an entity, if it has recorded something itself.
    pub(super) fn path_of(&self, entity: EntityId) -> Option<Arc<str>> {
        self.entities.get(&entity)?.path.clone()
    }

    /// Instant of the latest station of all.
    pub(super) const fn latest_at(&self) -> i64 {
        self.latest_at
    }

    /// Returns the latest entity that recorded this path.
    pub(super) fn entity_at(&self, key: &PathKey) -> Option<EntityId> {
        let entity = *self.by_path.get(&self.path_hasher.hash_one(key))?;
        self.path_of(entity)?.eq_ignore_ascii_case(key.as_str()).then_some(entity)
    }

    /// Returns the instant of the latest station of an entity that was dropped.
    pub(super) fn dropped_at_of(&self, entity: EntityId) -> i64 {
        let log = self.entities.get(&entity);
        log.map_or(self.forgotten_at, |log| log.dropped_at)
    }

    /// Whether no station of a message was dropped while it is in the second ring.
    pub(super) fn keeps_all_of(&self, (entity, sequence): Place) -> bool {
        self.entities.get(&entity).is_some_and(|log| sequence.0 > log.refused_max)
    }

    /// Returns the instant of the latest duplicate in an entity whose station was dropped.
    pub(super) fn duplicate_dropped_at_of(&self, entity: EntityId) -> i64 {
        self.entities.get(&entity).map_or(i64::MIN, |log| log.duplicate_dropped_at)
    }
}

impl EntityLog {
    /// Creates the log of an entity. If it was forgotten before, its stations until then are
    /// missing.
    const fn new(forgotten_at: i64) -> Self {
        Self {
            path: None,
            common: VecDeque::new(),
            kept: VecDeque::new(),
            notable: BTreeSet::new(),
            refused_max: 0,
            dropped_at: forgotten_at,
            duplicate_dropped_at: i64::MIN,
        }
    }

    fn note_dropped(&mut self, entry: &Entry) {
        self.dropped_at = self.dropped_at.max(entry.at);
        if entry.kind == StationKind::Duplicate {
            self.duplicate_dropped_at = self.duplicate_dropped_at.max(entry.at);
        }
    }
}

/// Removes the oldest chunk, and memory that few chunks no longer need.
fn pop(chunks: &mut VecDeque<ChunkIndex>) {
    chunks.pop_front();
    if chunks.len() < chunks.capacity() / 4 {
        chunks.shrink_to(2 * chunks.len());
    }
}

//! Follows a message through entities, in both directions, and makes the answer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::entry::{Entry, Place, cause_of, lock_end_of};
use super::query::{Journey, LockEnd, MessagePlace, STATION_COUNT_MAX, Station, StationKind};
use super::state::{RingKind, State};
use super::{CHUNKS_AT_ONCE, Journeys, Reading, Sighting};
use crate::actor::directory::Directory;
use crate::clock::Clock;
use crate::findings::Holder;
use crate::ids::{EntityId, SequenceNumber};
use crate::path::PathKey;
use crate::survey::ReadableKeys;
use crate::time::{TimeSpan, Timestamp};

/// Time after which the search for an id ends.
const SEARCH_TIME: TimeSpan = TimeSpan::from_ms(250);
/// Time after which messages that others lead to are no longer read.
const WALK_TIME: TimeSpan = TimeSpan::from_ms(250);
/// Time after which messages with the id that the reader asked for are no longer read. At least one
/// is read in any case.
const ASKED_TIME: TimeSpan = TimeSpan::from_ms(1_000);
/// Maximum number of dropped duplicates in an answer.
const DUPLICATE_COUNT_MAX: usize = 100;

/// Start of a walk.
pub(crate) enum Start<'a> {
    /// This message.
    Message(Place),
    /// All messages with this id, in one entity or in all.
    Id { id: &'a str, only: Option<EntityId> },
}

/// Entities, and the keys that the reader may read.
pub(crate) struct Reach<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) readable: &'a ReadableKeys,
    /// Path of the question, which the reader may read even if its entity is deleted.
    pub(crate) own: Option<&'a PathKey>,
    pub(crate) clock: &'a dyn Clock,
}

/// Stations that were found, and the messages that are still to be read.
struct Walk<'a> {
    reach: &'a Reach<'a>,
    /// Paths that were looked up, if the reader may read them.
    paths: HashMap<EntityId, Option<Arc<str>>>,
    /// Paths of all entities, once an entity without a recorded path is met.
    directory_paths: Option<HashMap<EntityId, Arc<str>>>,
    seen: HashSet<Place>,
    next: VecDeque<Visit>,
    found: Vec<Found>,
    duplicates: Vec<Sighting>,
    since: i64,
    is_cut: bool,
    hidden_count: u64,
}

/// A message to read.
struct Visit {
    place: Place,
    /// Distance from the start: negative for earlier messages.
    level: i64,
    /// Instant of the station that led to it.
    at: i64,
}

/// A station, and the level of its message.
struct Found {
    level: i64,
    entity: EntityId,
    entry: Entry,
}

impl Journeys {
    /// Returns the journey of a message.
    pub(crate) async fn walk(&self, start: Start<'_>, reach: &Reach<'_>) -> Journey {
        let mut walk = Walk {
            reach,
            paths: HashMap::new(),
            directory_paths: None,
            seen: HashSet::new(),
            next: VecDeque::new(),
            found: Vec::new(),
            duplicates: Vec::new(),
            since: self.started_at.ticks(),
            is_cut: false,
            hidden_count: 0,
        };
        let is_by_number = matches!(start, Start::Message(_));
        match start {
            Start::Message(place) if self.readable_path(place.0, &mut walk).is_some() => {
                walk.visit(place, 0, 0);
            }
            Start::Message(_) => {}
            Start::Id { id, only } => self.find_id(id, only, &mut walk).await,
        }
        // Stations of the same instant stay in the order of the beginnings of their messages.
        walk.next.make_contiguous().sort_by_key(|visit| visit.at);
        let (mut asked, begun_at) = (walk.next.len(), reach.clock.now());
        while let Some(visit) = walk.next.pop_front() {
            self.read_message(visit, is_by_number, &mut walk).await;
            asked = asked.saturating_sub(1);
            let time = if asked == 0 { WALK_TIME } else { ASKED_TIME };
            let is_late = reach.clock.now() >= begun_at.plus(time);
            if !walk.next.is_empty() && (is_late || walk.found.len() >= STATION_COUNT_MAX) {
                walk.is_cut = true;
                break;
            }
        }
        self.answer(walk)
    }

    /// Reads a message.
    async fn read_message(
        &self,
        Visit { place, level, .. }: Visit,
        is_by_number: bool,
        walk: &mut Walk<'_>,
    ) {
        let (entity, _) = place;
        let Reading { entries, has_kept, is_cut } = self.entries_of(place).await;
        walk.is_cut |= is_cut;
        let first = entries.first().filter(|entry| entry.kind.is_first());
        let begins_at = first.map(|entry| entry.at);
        if first.is_none() || has_kept && !self.state().keeps_all_of(place) {
            walk.since = walk.since.max(self.state().dropped_at_of(entity));
        }
        let id_hash = entries.iter().find(|it| it.kind.has_id()).map_or(0, |it| it.link);
        for entry in entries {
            if let Some(other) = entry.other(entity).filter(|(_, number)| number.0 > 0) {
                let level = if entry.is_from_other() { level - 1 } else { level + 1 };
                self.follow(other, (level, entry.at), walk);
            }
            walk.add(level, entity, entry);
        }
        if is_by_number && level == 0 && id_hash != 0 {
            let Reading { entries, is_cut, .. } = self.duplicates_of(entity, id_hash).await;
            walk.is_cut |= is_cut;
            for entry in entries {
                walk.add(level, entity, entry);
            }
            let dropped_at = self.state().duplicate_dropped_at_of(entity);
            if begins_at.is_some_and(|begins_at| begins_at <= dropped_at) {
                walk.since = walk.since.max(dropped_at);
            }
        }
    }

    /// Finds all messages with an id, and their duplicates.
    async fn find_id(&self, id: &str, only: Option<EntityId>, walk: &mut Walk<'_>) {
        let id_hash = self.hash_of(id);
        let clock = walk.reach.clock;
        let until = clock.now().plus(SEARCH_TIME);
        walk.since = walk.since.max(self.state().dropped_at);
        for kind in [RingKind::Common, RingKind::Kept] {
            let mut from = 0;
            while let Some(found) = self.entries_with(id_hash, kind, from) {
                for (entity, entry) in found {
                    if only.is_none_or(|only| only == entity) {
                        self.add_sighting((entity, entry), walk);
                    }
                }
                if clock.now() >= until {
                    walk.is_cut = true;
                    return;
                }
                from += CHUNKS_AT_ONCE;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Adds a station with the id that the reader asked for. An entity that the reader may not read
    /// is not even counted: the count would show that the id exists there.
    fn add_sighting(&self, (entity, entry): Sighting, walk: &mut Walk<'_>) {
        if self.readable_path(entity, walk).is_none() {
            return;
        }
        if entry.kind == StationKind::Duplicate {
            walk.add(0, entity, entry);
        } else {
            walk.visit((entity, SequenceNumber(entry.sequence)), 0, entry.at);
        }
    }

    /// Follows a link of a message that the reader may read.
    fn follow(&self, place: Place, (level, at): (i64, i64), walk: &mut Walk<'_>) {
        if self.readable_path(place.0, walk).is_some() {
            walk.visit(place, level, at);
        } else if walk.is_new(place) {
            walk.hidden_count += 1;
        }
    }

    /// Returns the path of an entity that the reader may read. An entity that no longer exists has
    /// the path that it recorded.
    fn readable_path(&self, entity: EntityId, walk: &mut Walk<'_>) -> Option<Arc<str>> {
        let Walk { reach, paths, directory_paths, .. } = walk;
        let Reach { directory, readable, own, .. } = reach;
        let path = paths.entry(entity).or_insert_with(|| {
            let recorded = self.state().path_of(entity);
            let path = recorded.or_else(|| {
                let all = directory_paths.get_or_insert_with(|| directory.paths());
                all.get(&entity).cloned()
            })?;
            let key = PathKey::fold(&path);
            (*own == Some(&key) || readable.contains(&key)).then_some(path)
        });
        path.clone()
    }

    fn answer(&self, mut walk: Walk<'_>) -> Journey {
        let mut found = std::mem::take(&mut walk.found);
        // The nearest messages were read first.
        walk.is_cut |= found.len() + walk.duplicates.len() > STATION_COUNT_MAX;
        found.truncate(STATION_COUNT_MAX);
        let duplicates = walk.duplicates.drain(..).take(STATION_COUNT_MAX - found.len());
        found.extend(duplicates.map(|(entity, entry)| Found { level: 0, entity, entry }));
        found.sort_by_key(|found| (found.entry.at, found.level));
        let (mut clients, mut stations) = (HashMap::new(), Vec::with_capacity(found.len()));
        for Found { entity, entry, .. } in found {
            let Some(path) = self.readable_path(entity, &mut walk) else { continue };
            let other = entry.other(entity).and_then(|(entity, sequence)| {
                let path = self.readable_path(entity, &mut walk)?;
                Some(MessagePlace { path, sequence })
            });
            let place = MessagePlace { path, sequence: SequenceNumber(entry.sequence) };
            let state = self.state();
            let client = clients
                .entry(client_of(&entry))
                .or_insert_with_key(|receiver| state.clients.client((*receiver)?, &self.clients));
            stations.push(station(&entry, (place, other), client.clone(), &state));
        }
        Journey {
            stations,
            complete_since: Timestamp::from_ticks(walk.since),
            is_cut: walk.is_cut,
            hidden_count: walk.hidden_count,
        }
    }
}

impl Walk<'_> {
    /// Reads a message later, unless it is read already.
    fn visit(&mut self, place: Place, level: i64, at: i64) {
        if self.is_new(place) {
            self.next.push_back(Visit { place, level, at });
        }
    }

    /// Whether the walk meets a message for the first time, and has room for it.
    fn is_new(&mut self, place: Place) -> bool {
        if self.seen.contains(&place) {
            return false;
        }
        if self.seen.len() >= STATION_COUNT_MAX {
            self.is_cut = true;
            return false;
        }
        self.seen.insert(place)
    }

    /// Adds a station, unless it is there. A renewal that follows another one only counts.
    fn add(&mut self, level: i64, entity: EntityId, entry: Entry) {
        if let Some(last) = self.found.last_mut()
            && entry.kind == StationKind::Renewed
            && last.entity == entity
            && last.entry.sequence == entry.sequence
            && last.entry.continues_with(&entry)
        {
            last.entry.count = last.entry.count.saturating_add(entry.count);
            last.entry.at = entry.at;
            return;
        }
        // A step of a job notes it again if its results change within the same instant.
        let is_again = |last: &Found| last.entity == entity && last.entry == entry;
        if entry.kind == StationKind::Job && self.found.last().is_some_and(is_again) {
            return;
        }
        if entry.kind != StationKind::Duplicate {
            self.found.push(Found { level, entity, entry });
        } else if self.duplicates.contains(&(entity, entry)) {
            // It was found by its number and by its id.
        } else if self.duplicates.len() < DUPLICATE_COUNT_MAX {
            self.duplicates.push((entity, entry));
        } else {
            self.is_cut = true;
        }
    }
}

/// Returns the receiver of a station.
const fn client_of(entry: &Entry) -> Option<u32> {
    match entry.kind {
        StationKind::Delivered
        | StationKind::Renewed
        | StationKind::Abandoned
        | StationKind::LockEnded
        | StationKind::Released
        | StationKind::Deferred
        | StationKind::DeadLettered
        | StationKind::Completed
        | StationKind::Received
            if entry.actor != 0 =>
        {
            Some(entry.actor)
        }
        _ => None,
    }
}

/// Makes a station for the reader.
fn station(
    entry: &Entry,
    (place, other): (MessagePlace, Option<MessagePlace>),
    client: Option<Holder>,
    state: &State,
) -> Station {
    let is = |kinds: &[StationKind]| kinds.contains(&entry.kind);
    // A rule belongs to the subscription, so a reader of the topic may not know it.
    let has_rule =
        is(&[StationKind::CopiedFrom]) || is(&[StationKind::CopiedTo]) && other.is_some();
    let is_copy = is(&[StationKind::CopiedTo, StationKind::CopiedFrom]);
    let is_hop = is_copy
        || is(&[StationKind::ForwardedTo, StationKind::ForwardedFrom, StationKind::ForwardedIn]);
    let has_count = is(&[StationKind::Renewed])
        || entry.count > 0
            && is(&[
                StationKind::Delivered,
                StationKind::Abandoned,
                StationKind::LockEnded,
                StationKind::Deferred,
                StationKind::DeadLettered,
            ]);
    let is_end = is(&[StationKind::LockEnded, StationKind::Released]);
    let due_at = || Timestamp::from_ticks(entry.link.cast_signed());
    Station {
        at: Timestamp::from_ticks(entry.at),
        place,
        kind: entry.kind,
        other,
        hop: (is_hop && entry.detail > 0).then_some(entry.detail),
        rule: has_rule.then(|| state.rules.name(entry.count, entry.at)).flatten(),
        client,
        count: has_count.then_some(u32::from(entry.count)),
        cause: (entry.kind == StationKind::DeadLettered).then(|| cause_of(entry.detail)).flatten(),
        lock_end: lock_end_of(entry.detail).filter(|end| is_end && *end != LockEnd::Settled),
        job: (entry.kind == StationKind::Job).then(|| state.jobs.job(entry.actor)).flatten(),
        due_at: (entry.kind == StationKind::Rescheduled).then(due_at),
    }
}

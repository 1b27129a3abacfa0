//! Journeys: the stations of messages, kept in memory within bounds (CON-29, CON-30).
//!
//! ```text
//!  changes, events of a step ─► translate ─► buffer of the shell ─► first ring ─► second ring
//!                                             handed over once a turn    │  makes room   │
//!                                                                        └──► walk ◄─────┘
//! ```
//!
//! `translate` is the pure function from a step to its stations, `entry` their packed form, `ring`
//! and `state` keep them, `names` has the names of rules, jobs and clients, and `walk` follows a
//! message through entities. Both entities of a hop or copy have a station that names the other, so
//! that an answer needs no index. The lock is taken for up to 256 stations of a turn, and by readers
//! for a few chunks at a time.

mod entry;
mod hash;
mod names;
pub(crate) mod query;
mod ring;
mod state;
#[cfg(test)]
mod tests;
pub(crate) mod translate;
mod walk;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::entry::Noted;
use self::entry::{Entry, Place};
pub(crate) use self::names::RuleRound;
use self::query::{STATION_COUNT_MAX, StationKind};
use self::ring::Chunk;
use self::state::{RingKind, State};
pub(crate) use self::walk::{Reach, Start};
use crate::clients::Clients;
use crate::ids::{EntityId, JobId};
use crate::machine::event::low_half;
use crate::message::hash_of_id;
use crate::path::PathKey;
use crate::time::Timestamp;

/// Number of chunks that a reader examines under one lock: about 2,000 stations.
const CHUNKS_AT_ONCE: usize = 64;
/// Number of stations that are added under one lock.
const STATIONS_AT_ONCE: usize = 256;

/// Number of stations at the beginning of a message that an answer has if others are left out.
const FIRST_COUNT: usize = 50;

/// A station in its entity.
type Sighting = (EntityId, Entry);

/// Stations of an entity that were read.
#[derive(Default)]
struct Reading {
    entries: Vec<Entry>,
    /// Whether the second ring had some.
    has_kept: bool,
    /// Whether stations in the middle are left out.
    is_cut: bool,
}

impl Reading {
    /// Leaves out stations in the middle if there are more than an answer may have.
    fn cut(&mut self) {
        if let Some(excess) = self.entries.len().checked_sub(STATION_COUNT_MAX)
            && excess > 0
        {
            self.entries.drain(FIRST_COUNT..FIRST_COUNT + excess);
            self.is_cut = true;
        }
    }
}

/// Settings of journeys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JourneysConfig {
    /// Maximum memory for the stations of all messages.
    pub common_bytes_max: u64,
    /// Maximum memory for messages that failed, were dead-lettered, forwarded more than once or
    /// touched by an operator, which keep their stations longer.
    pub kept_bytes_max: u64,
}

impl JourneysConfig {
    /// Maximum memory for names of rules, jobs and clients.
    pub const NAME_BYTES_MAX: u64 = 6 << 20;

    /// Maximum memory in all.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.common_bytes_max + self.kept_bytes_max + Self::NAME_BYTES_MAX
    }
}

impl Default for JourneysConfig {
    fn default() -> Self {
        Self { common_bytes_max: 16 << 20, kept_bytes_max: 48 << 20 }
    }
}

/// The journeys of a broker.
pub(crate) struct Journeys {
    state: Mutex<State>,
    clients: Arc<Clients>,
    id_key: [u8; 16],
    started_at: Timestamp,
}

impl Journeys {
    /// Creates empty journeys. `id_key` is the key of the hashes of message ids.
    pub(crate) fn new(
        config: &JourneysConfig,
        clients: Arc<Clients>,
        id_key: [u8; 16],
        started_at: Timestamp,
    ) -> Self {
        let state = State::new((config.common_bytes_max, config.kept_bytes_max));
        Self { state: Mutex::new(state), clients, id_key, started_at }
    }

    /// The key of the hashes of message ids.
    pub(crate) const fn id_key(&self) -> &[u8; 16] {
        &self.id_key
    }

    /// Adds the stations of a turn of an entity, with numbers of rules of this round. Returns the
    /// current round.
    pub(crate) fn add(
        &self,
        (entity, path): (EntityId, &Arc<str>),
        noted: &mut [Noted],
        round: RuleRound,
    ) -> RuleRound {
        let mut current = round;
        for some in noted.chunks_mut(STATIONS_AT_ONCE) {
            let unknown = {
                let mut state = self.state();
                current = state.rules.round();
                if current != round {
                    some.iter_mut().for_each(Noted::forget_rule);
                }
                state.add(some);
                state.set_path(entity, path);
                state.clients.unknown_in(some)
            };
            for receiver in unknown {
                let facts = self.clients.holder(self.clients.latest_receiver(receiver));
                self.state().clients.note(receiver, facts);
            }
        }
        current
    }

    /// Returns the current round of the numbers of rules.
    pub(crate) fn rule_round(&self) -> RuleRound {
        self.state().rules.round()
    }

    /// Returns the number of the name of a rule, and its round.
    pub(crate) fn rule_number(&self, name: &str) -> (u16, RuleRound) {
        let mut state = self.state();
        let latest_at = state.latest_at();
        state.rules.number(name, latest_at)
    }

    /// Returns the latest entity that had this path and recorded a station of its own. It may be
    /// deleted.
    pub(crate) fn entity_at(&self, key: &PathKey) -> Option<EntityId> {
        self.state().entity_at(key)
    }

    /// Returns the number of a job.
    pub(crate) fn job_number(&self, job: JobId) -> u32 {
        self.state().jobs.number(job)
    }

    /// Returns the stations of a message in their order.
    async fn entries_of(&self, (entity, sequence): Place) -> Reading {
        let is_wanted = |entry: &Entry| entry.sequence == sequence.0;
        let mut common = self.entries(entity, RingKind::Common, is_wanted).await;
        let mut all = self.entries(entity, RingKind::Kept, is_wanted).await;
        // Stations that move meanwhile are read twice. Neither list is longer than an answer.
        all.entries.retain(|entry| !common.entries.contains(entry));
        all.has_kept = !all.entries.is_empty();
        all.entries.append(&mut common.entries);
        // A chunk that is used again meanwhile is read too early; a renewal has its last instant.
        all.entries.sort_by_key(|entry| entry.at);
        all.is_cut |= common.is_cut;
        all.cut();
        all
    }

    /// Returns the stations of the duplicates that an entity dropped.
    async fn duplicates_of(&self, entity: EntityId, id_hash: u64) -> Reading {
        let is_wanted =
            |entry: &Entry| entry.kind == StationKind::Duplicate && entry.link == id_hash;
        self.entries(entity, RingKind::Common, is_wanted).await
    }

    async fn entries(
        &self,
        entity: EntityId,
        kind: RingKind,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Reading {
        let chunks = self.state().chunks_of(entity, kind);
        let mut found = Reading::default();
        for some in chunks.chunks(CHUNKS_AT_ONCE) {
            {
                let state = self.state();
                let chunks = some.iter().filter_map(|index| state.ring(kind).chunk(*index));
                let entries = chunks.flat_map(|chunk| chunk.entries_of(entity));
                found.entries.extend(entries.filter(|entry| is_wanted(entry)).copied());
            }
            found.cut();
            tokio::task::yield_now().await;
        }
        found
    }

    /// Returns the next stations with the hash of an id, from a chunk on; none after the last.
    fn entries_with(&self, id_hash: u64, kind: RingKind, from: usize) -> Option<Vec<Sighting>> {
        let state = self.state();
        let ring = state.ring(kind);
        if from >= ring.len() {
            return None;
        }
        let mut found = Vec::new();
        for index in from..from + CHUNKS_AT_ONCE {
            let chunk = u32::try_from(index).ok().and_then(|index| ring.chunk(index));
            let Some((entity, entries)) = chunk.map(Chunk::all) else { break };
            let with_id = entries.iter().filter(|it| it.kind.has_id() && it.link == id_hash);
            found.extend(with_id.map(|entry| (entity, *entry)));
        }
        Some(found)
    }

    fn hash_of(&self, id: &str) -> u64 {
        low_half(hash_of_id(id, &self.id_key))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

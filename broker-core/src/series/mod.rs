//! Series: counts, gauges and times of each entity and of the namespace over time (CON-31, CON-32).
//!
//! ```text
//!  arbiters ─► LiveGauges, Flows ─► sample, each second ─► Track: rows of 1 s, 1 min, 15 min
//!                                                            ▲            │
//!                                              read at start ┘            ├─► answers
//!                                                                         └─► disk
//! ```
//!
//! A sample reads published values, so that no entity gets mail. Values that are not known are gaps:
//! before the start, during a pause of the process, and where rows were dropped for room. `track`
//! has the rows of an entity, `ring` its rows by resolution, `row` their packed form, and `disk` the
//! files.

mod answer;
mod disk;
pub(crate) mod query;
mod ring;
mod row;
#[cfg(test)]
mod tests;
mod track;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_model::inspect::Readings;
use tokio::task::JoinHandle;

use self::answer::Rows;
use self::disk::{FILE_COUNT, FileToWrite, StoredRows, WRITE_EVERY};
use self::query::{Resolution, Series, SeriesColumn, SeriesQuery};
use self::row::{GaugeValues, Row};
use self::track::{Idle, Track};
use crate::actor::directory::Directory;
use crate::clock::Clock;
use crate::command::Counts;
use crate::description::EntityKind;
use crate::error::Rejection;
use crate::flows::FlowTotals;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::telemetry::LiveGauges;
use crate::time::{TimeSpan, Timestamp};

/// Number of the busiest entities, which have a row for each second.
const FINE_COUNT_MAX: usize = 100;
/// Number of entities among which one keeps its rows of seconds, so that a small change of rank
/// costs no history.
const FINE_COUNT_KEPT: usize = 120;
/// Memory for an idle entity: its place in the table, and its packed values.
const IDLE_BYTES: u64 = 80;
const _: () = assert!(size_of::<(EntityId, Entry)>() <= 48, "an idle entity takes under 100 bytes");

/// Number of the namespace in the files.
const NAMESPACE: u64 = u64::MAX;

/// Settings of series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesConfig {
    /// Paths of entities that have rows of 1 s before busier ones; the first 100 count.
    pub pinned: Vec<String>,
    /// Directory for rows of 1 min and 15 min; without one, they are lost with the broker.
    pub directory: Option<PathBuf>,
    /// Maximum memory. The files take at most as much.
    pub bytes_max: u64,
}

impl Default for SeriesConfig {
    fn default() -> Self {
        Self { pinned: Vec::new(), directory: None, bytes_max: 128 << 20 }
    }
}

/// The series of a broker.
pub(crate) struct SeriesCollector {
    /// None if series are off.
    config: Option<SeriesConfig>,
    state: Mutex<State>,
    /// Held while files are written. Whether the final ones are written, which older ones do not
    /// replace.
    is_final: Arc<Mutex<bool>>,
}

#[derive(Default)]
struct State {
    entries: HashMap<EntityId, Entry>,
    /// Sums over all entities; none before the first sample.
    namespace: Option<Track>,
    sums: FlowTotals,
    /// Second of the last sample.
    second: u64,
    /// Number of entities with a row for each second.
    fine_count: usize,
    /// Memory of all tracks and idle entities, as of the last minute plus later tracks.
    bytes: u64,
    /// Whether the files are read, so that samples can begin.
    is_ready: bool,
    /// Rows of the files whose entity has no sample yet.
    stored: StoredRows,
    /// Number of the next file to write, and the second from which on it is due.
    next_file: (u64, u64),
}

/// Seconds of a sample, and of the previous sample if there was one.
struct Seconds {
    second: u64,
    previous: Option<u64>,
}

#[derive(Clone)]
enum Entry {
    Idle(Idle),
    Busy(Box<Track>),
}

impl SeriesCollector {
    pub(crate) fn new(config: Option<SeriesConfig>) -> Self {
        Self { config, state: Mutex::default(), is_final: Arc::default() }
    }

    /// Reads the files, then samples all entities each second and writes the files in turn.
    pub(crate) async fn run(&self, directory: &Directory, clock: &dyn Clock) {
        let Some(config) = &self.config else { return std::future::pending().await };
        let mut stored = StoredRows::new();
        if let Some(path) = config.directory.clone() {
            let read = tokio::task::spawn_blocking(move || disk::read(&path)).await;
            stored = read.unwrap_or_default();
        }
        self.state().begin(stored);
        let mut written = None::<JoinHandle<()>>;
        loop {
            let now = clock.now();
            self.sample(directory, now);
            // Samples do not wait for the disk; the next file waits for the previous file.
            if written.as_ref().is_none_or(JoinHandle::is_finished)
                && let Some(path) = config.directory.as_deref()
                && let Some(file) = self.state().due_file(path)
            {
                let is_final = Arc::clone(&self.is_final);
                written = Some(tokio::task::spawn_blocking(move || file.carry_out(&is_final)));
            }
            let next = TimeSpan::from_seconds(1).ticks();
            clock.sleep_until(Timestamp::from_ticks((now.ticks() / next + 1) * next)).await;
        }
    }

    /// Writes all files, at the end of the broker.
    pub(crate) fn write_all(&self) {
        let Some(path) = self.config.as_ref().and_then(|config| config.directory.as_deref()) else {
            return;
        };
        let mut is_final = self.is_final.lock().unwrap_or_else(PoisonError::into_inner);
        *is_final = true;
        if self.state().is_ready {
            for number in 0..FILE_COUNT {
                let file = self.state().file(path, number);
                file.write();
            }
        }
    }

    /// Samples all entities, unless this second has a sample.
    fn sample(&self, directory: &Directory, now: Timestamp) {
        let Some(config) = &self.config else { return };
        let second = seconds_of(now);
        let mut state = self.state();
        if !state.is_ready || second <= state.second {
            return;
        }
        let is_first = state.namespace.is_none();
        let minute = |second: u64| second / Resolution::Minute.seconds();
        let is_new_minute = minute(second) != minute(state.second);
        let previous = std::mem::replace(&mut state.second, second);
        let seconds = Seconds { second, previous: (!is_first).then_some(previous) };
        let mut sums = GaugeValues::default();
        directory.for_each(|id, kind, observed| {
            let gauges = state.sample_entity((id, kind), observed, &seconds, config);
            add_gauges(&mut sums, &gauges);
        });
        let State { namespace, sums: totals, stored, .. } = &mut *state;
        let namespace = namespace.get_or_insert_with(|| {
            let mut track = Track::new(second, FlowTotals::default(), false);
            track.set_fine(true);
            if let Some(rows) = stored.remove(&NAMESPACE) {
                track.restore(&rows);
            }
            // Rows of entities that no longer exist.
            stored.clear();
            track
        });
        namespace.sample(second, Some(totals), sums);
        if is_new_minute {
            state.tidy(directory, config);
        }
    }

    /// Answers a question about an entity, or without a path about the namespace.
    pub(crate) fn find(
        &self,
        directory: &Directory,
        path: &str,
        query: &SeriesQuery,
        now: Timestamp,
    ) -> Result<Series, Rejection> {
        if self.config.is_none() {
            let detail = "series are switched off; set `console.series` and restart the broker";
            return Err(Rejection::invalid_operation(detail));
        }
        self.sample(directory, now);
        let id = match path {
            "" => None,
            path => {
                let entry = directory.get(&PathKey::fold(path));
                Some(entry.ok_or_else(|| Rejection::entity_not_found(path))?.id)
            }
        };
        let state = self.state();
        if !state.is_ready {
            let detail = "the files of series are being read; try again in a moment";
            return Err(Rejection::server_busy(detail));
        }
        let busy = |entry: &Entry| match entry {
            Entry::Busy(track) => Rows::Busy(track.clone()),
            Entry::Idle(idle) => Rows::Idle(idle.clone()),
        };
        // Copied, so that the sampler does not wait for the answer.
        let rows = match id {
            Some(id) => state.entries.get(&id).map(busy),
            None => state.namespace.clone().map(|track| Rows::Busy(Box::new(track))),
        };
        drop(state);
        answer::answer(rows.as_ref(), query, now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, stored: StoredRows) {
        self.bytes = stored.values().map(|rows| rows.len() as u64).sum();
        (self.stored, self.is_ready) = (stored, true);
    }

    /// Returns the next file if it is due.
    fn due_file(&mut self, path: &Path) -> Option<FileToWrite> {
        let (number, due) = self.next_file;
        if self.second < due {
            return None;
        }
        self.next_file = ((number + 1) % FILE_COUNT, self.second + WRITE_EVERY);
        // The first files have nothing new right after the start.
        (due > 0).then(|| self.file(path, number))
    }

    fn file(&self, path: &Path, number: u64) -> FileToWrite {
        let mut file = FileToWrite::new(path, number);
        let mut rows = Vec::new();
        let ids = self.entries.iter().filter(|(EntityId(id), _)| id % FILE_COUNT == number);
        for (EntityId(id), entry) in ids {
            rows.clear();
            match entry {
                Entry::Busy(track) => track.write(&mut rows),
                Entry::Idle(idle) => idle.write(self.second, &mut rows),
            }
            file.add(*id, &rows);
        }
        if let Some(namespace) =
            self.namespace.as_ref().filter(|_| NAMESPACE % FILE_COUNT == number)
        {
            rows.clear();
            namespace.write(&mut rows);
            file.add(NAMESPACE, &rows);
        }
        file
    }

    /// Samples an entity, and adds its new messages to the sums. Returns its gauges.
    fn sample_entity(
        &mut self,
        (id, kind): (EntityId, EntityKind),
        observed: &LiveGauges,
        seconds: &Seconds,
        config: &SeriesConfig,
    ) -> GaugeValues {
        let now = values_of(kind, observed);
        let (second, is_first) = (seconds.second, seconds.previous.is_none());
        let Self { entries, sums, fine_count, bytes, stored, .. } = self;
        let entry = entries.entry(id).or_insert_with(|| {
            // An entity that appears later is new, and had no messages.
            let before = if is_first { now } else { Row::default() };
            let since = if is_first { second } else { second - 1 };
            *bytes += IDLE_BYTES;
            let stored = stored.remove(&id.0).unwrap_or_default();
            Entry::Idle(Idle::new(since, !is_first, &before, &stored))
        });
        match entry {
            Entry::Busy(track) => {
                if track.latest().counts == now.counts {
                    track.sample(second, None, now.gauges);
                } else {
                    let totals = totals_of(&now, observed);
                    add_growth(sums, track.latest(), &totals);
                    track.sample(second, Some(&totals), now.gauges);
                }
            }
            Entry::Idle(idle) => {
                let before = idle.values();
                if before == now {
                    return now.gauges;
                }
                let totals = totals_of(&now, observed);
                // Times are known only from the first delivery on; later ones begin here.
                let is_fresh = before.counts.get(SeriesColumn::Delivered as usize) == Some(&0);
                let mut start = if is_fresh { FlowTotals::default() } else { totals.clone() };
                start.counts = before.counts;
                add_growth(sums, &start, &totals);
                if *bytes + size_of::<Track>() as u64 > config.bytes_max {
                    *idle = Idle::new(second, false, &now, &[]);
                    return now.gauges;
                }
                let is_fine = *fine_count < FINE_COUNT_MAX;
                *fine_count += usize::from(is_fine);
                let mut track =
                    Track::of_idle(idle, seconds.previous.unwrap_or(second), start, is_fine);
                *bytes += track.bytes();
                track.sample(second, Some(&totals), now.gauges);
                *entry = Entry::Busy(Box::new(track));
            }
        }
        now.gauges
    }

    /// Does the work of each minute: forgets deleted entities, chooses the entities with a row for
    /// each second, and drops rows for room.
    fn tidy(&mut self, directory: &Directory, config: &SeriesConfig) {
        let mut existing = HashSet::with_capacity(directory.len());
        directory.for_each(|id, _, _| {
            existing.insert(id);
        });
        self.entries.retain(|id, _| existing.contains(id));
        let pinned = config.pinned.iter().take(FINE_COUNT_MAX);
        let pinned = pinned.filter_map(|path| directory.get(&PathKey::fold(path)));
        let pinned: HashSet<EntityId> = pinned.map(|entry| entry.id).collect();
        let (second, quiet_max) = (self.second, Resolution::QuarterHour.keep_seconds());
        for entry in self.entries.values_mut() {
            if let Entry::Busy(track) = entry {
                track.age();
                if track.changed_at + quiet_max < second {
                    *entry = Entry::Idle(Idle::new(track.changed_at, false, &track.values(), &[]));
                }
            }
        }
        let mut tracks: Vec<(EntityId, &mut Track)> = Vec::new();
        let mut idle_bytes = 0;
        for (id, entry) in &mut self.entries {
            match entry {
                Entry::Busy(track) => tracks.push((*id, &mut **track)),
                Entry::Idle(idle) => {
                    // Idle entities are the least active.
                    if self.bytes > config.bytes_max {
                        self.bytes = self.bytes.saturating_sub(idle.bytes());
                        idle.drop_stored();
                    }
                    idle_bytes += IDLE_BYTES + idle.bytes();
                }
            }
        }
        tracks.sort_unstable_by_key(|(id, track)| {
            (Reverse(pinned.contains(id)), Reverse(track.activity), *id)
        });
        self.fine_count = choose_fine(&mut tracks);
        let others = idle_bytes + self.namespace.as_ref().map_or(0, Track::bytes);
        let (bytes, dropped) = make_room(&mut tracks, others, config.bytes_max);
        for id in dropped {
            if let Some(entry) = self.entries.get_mut(&id)
                && let Entry::Busy(track) = entry
            {
                *entry = Entry::Idle(Idle::new(second, false, &track.values(), &[]));
            }
        }
        self.bytes = bytes;
    }
}

/// Chooses the tracks with a row for each second; the busiest come first. Returns their number.
fn choose_fine(tracks: &mut [(EntityId, &mut Track)]) -> usize {
    for (place, (_, track)) in tracks.iter_mut().enumerate() {
        let place_max = if track.is_fine { FINE_COUNT_KEPT } else { FINE_COUNT_MAX };
        track.set_fine(place < place_max);
    }
    tracks.iter().filter(|(_, track)| track.is_fine).count()
}

/// Drops rows until all tracks and `others` take at most `bytes_max`: of the least active entities,
/// which come last, first old minutes and then the finest rows (CON-32). Returns the memory, and the
/// entities whose tracks must be dropped too.
fn make_room(
    tracks: &mut [(EntityId, &mut Track)],
    others: u64,
    bytes_max: u64,
) -> (u64, Vec<EntityId>) {
    let mut bytes = others + tracks.iter().map(|(_, track)| track.bytes()).sum::<u64>();
    for (_, track) in tracks.iter_mut().rev() {
        if bytes <= bytes_max {
            break;
        }
        bytes -= track.shorten();
    }
    for place in 0..track::RESOLUTION_COUNT {
        for (_, track) in tracks.iter_mut().rev() {
            if bytes <= bytes_max {
                return (bytes, Vec::new());
            }
            bytes -= track.drop_rows(place);
        }
    }
    let mut dropped = Vec::new();
    for (id, track) in tracks.iter().rev() {
        if bytes <= bytes_max {
            break;
        }
        bytes -= track.bytes();
        dropped.push(*id);
    }
    (bytes, dropped)
}

/// Counts since the broker started, and gauges.
fn values_of(kind: EntityKind, observed: &LiveGauges) -> Row {
    let Readings { counts, size_bytes, oldest_at, last_sequence, locks, .. } = observed.readings();
    let mut row = Row::default();
    if let Some(flows) = observed.flows() {
        row.counts = flows.counts();
    }
    // The topic writes the copies of its subscriptions, which give each a number.
    if kind == EntityKind::Subscription
        && let Some(accepted) = row.counts.first_mut()
    {
        *accepted = last_sequence.0;
    }
    let dead_letters = counts.dead_letter + counts.transfer_dead_letter;
    let oldest_at = oldest_at.map_or(0, |at| at.unix_ms().max(1).unsigned_abs());
    let Counts { active, deferred, scheduled, .. } = counts;
    row.gauges = [active, locks, deferred, scheduled, dead_letters, size_bytes, oldest_at];
    row
}

fn totals_of(values: &Row, observed: &LiveGauges) -> FlowTotals {
    let mut totals = FlowTotals { counts: values.counts, ..FlowTotals::default() };
    if let Some(flows) = observed.flows() {
        (totals.waits, totals.locks) = (flows.waits.buckets(), flows.locks.buckets());
    }
    totals
}

/// Adds the growth between two readings to the sums of the namespace.
fn add_growth(sums: &mut FlowTotals, before: &FlowTotals, after: &FlowTotals) {
    for ((sum, before), after) in sums.counts.iter_mut().zip(before.counts).zip(after.counts) {
        *sum = sum.saturating_add(after.saturating_sub(before));
    }
    for (sums, before, after) in [
        (&mut sums.waits, &before.waits, &after.waits),
        (&mut sums.locks, &before.locks, &after.locks),
    ] {
        for ((sum, before), after) in sums.iter_mut().zip(before).zip(after) {
            *sum = sum.wrapping_add(after.wrapping_sub(*before));
        }
    }
}

/// Adds the gauges of an entity; the oldest message is the oldest of all.
fn add_gauges(sums: &mut GaugeValues, gauges: &GaugeValues) {
    let ([sums @ .., oldest], [others @ .., other]) = (sums, gauges);
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum = sum.saturating_add(*other);
    }
    if *other > 0 && (*oldest == 0 || *other < *oldest) {
        *oldest = *other;
    }
}

/// Whole seconds since 1970.
fn seconds_of(at: Timestamp) -> u64 {
    u64::try_from(at.unix_ms().div_euclid(1_000)).unwrap_or_default()
}

fn instant_of(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX))
}

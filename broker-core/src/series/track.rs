//! Rows of an entity, or of the namespace, in three resolutions.

use super::query::Resolution;
use super::ring::Ring;
use super::row::{GaugeValues, Row, read_number};
use crate::flows::{FlowTotals, percentiles};

/// Number of resolutions.
pub(super) const RESOLUTION_COUNT: usize = Resolution::ALL.len();
/// Time for which rows of a minute are kept when room is needed, for an entity that is not among the
/// busiest.
const MINUTES_OF_OTHERS: u64 = 6 * 3_600;

/// Rows of an entity that had messages.
#[derive(Debug, Clone)]
pub(super) struct Track {
    stages: [Stage; RESOLUTION_COUNT],
    /// Counts at the last sample.
    latest: FlowTotals,
    gauges: GaugeValues,
    /// Counts at the start of the slots of a minute and of 15 minutes.
    starts: [FlowTotals; RESOLUTION_COUNT - 1],
    /// Messages in the last minutes, halved each minute.
    pub(super) activity: u64,
    recent: u64,
    /// Second of the last change.
    pub(super) changed_at: u64,
    /// Whether it has a row for each second.
    pub(super) is_fine: bool,
    /// Whether its rows of a minute were shortened for room.
    is_short: bool,
}

/// The open slot of a resolution.
#[derive(Debug, Clone)]
struct Stage {
    ring: Ring,
    slot: u64,
    /// Whether the counts at its start are known.
    is_whole: bool,
}

/// An entity without activity: since when, and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Idle {
    /// Second since which the values are known, and have not changed.
    pub(super) since: u64,
    /// Whether the entity was created then, so that it had no messages before.
    pub(super) is_new: bool,
    /// The values, then the stored rows from before the start of the broker, if there are any.
    packed: Box<[u8]>,
}

/// Rows of 1 min and 15 min.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CoarseRows([Ring; RESOLUTION_COUNT - 1]);

impl Default for CoarseRows {
    fn default() -> Self {
        let [_, minute, quarter] = Resolution::ALL;
        Self([Ring::new(minute.seconds()), Ring::new(quarter.seconds())])
    }
}

impl CoarseRows {
    /// Reads the stored form up to a second; nothing if it is damaged. Later rows come from a clock
    /// that was ahead, and would leave no place for new ones.
    fn parse(mut bytes: &[u8], second: u64) -> Self {
        let mut rows = Self::default();
        let [_, resolutions @ ..] = Resolution::ALL;
        for (ring, resolution) in rows.0.iter_mut().zip(resolutions) {
            let seconds = resolution.seconds();
            let Some(mut read) = Ring::parse(seconds, &mut bytes) else {
                return Self::default();
            };
            read.keep_until(second / seconds, resolution.keep_seconds() / seconds);
            *ring = read;
        }
        rows
    }
}

impl Idle {
    /// Creates an idle entity with its values, and its stored rows.
    pub(super) fn new(since: u64, is_new: bool, values: &Row, stored: &[u8]) -> Self {
        let mut packed = Vec::new();
        if !(values.is_quiet(&GaugeValues::default()) && stored.is_empty()) {
            values.write(&GaugeValues::default(), &mut packed);
            packed.extend_from_slice(stored);
        }
        Self { since, is_new, packed: packed.into() }
    }

    /// Counts since the broker started, and gauges.
    pub(super) fn values(&self) -> Row {
        self.parts().0
    }

    /// Rows from before the start of the broker.
    fn stored(&self) -> CoarseRows {
        match self.parts().1 {
            [] => CoarseRows::default(),
            stored => CoarseRows::parse(stored, self.since),
        }
    }

    fn parts(&self) -> (Row, &[u8]) {
        let mut rest = &*self.packed;
        let mask = read_number(&mut rest).and_then(|mask| u32::try_from(mask).ok());
        let row = mask.and_then(|mask| Row::read(mask, &GaugeValues::default(), &mut rest));
        (row.unwrap_or_default(), rest)
    }

    /// Memory of the values and of the stored rows.
    pub(super) const fn bytes(&self) -> u64 {
        self.packed.len() as u64
    }

    /// Forgets the stored rows.
    pub(super) fn drop_stored(&mut self) {
        *self = Self::new(self.since, self.is_new, &self.values(), &[]);
    }

    /// Calls `visit` with each known row of a resolution in the slots `from..until`.
    pub(super) fn read(
        &self,
        resolution: Resolution,
        (from, until): (u64, u64),
        mut visit: impl FnMut(u64, &Row),
    ) {
        let place = (resolution as usize).checked_sub(1);
        if let Some(ring) = place.and_then(|place| self.stored().0.get(place).cloned()) {
            ring.read(from, until, &mut visit);
        }
        let row = Row { gauges: self.values().gauges, ..Row::default() };
        for slot in from.max(self.first_slot(resolution))..until {
            visit(slot, &row);
        }
    }

    /// Appends the stored form, with the rows until a second.
    pub(super) fn write(&self, second: u64, out: &mut Vec<u8>) {
        let mut rows = self.stored();
        let values = Row { gauges: self.values().gauges, ..Row::default() };
        let [_, resolutions @ ..] = Resolution::ALL;
        for (ring, resolution) in rows.0.iter_mut().zip(resolutions) {
            let keep = resolution.keep_seconds() / ring.seconds();
            let end = second / ring.seconds();
            let first = self.first_slot(resolution).max(end.saturating_sub(keep));
            if first < end {
                ring.push(first, end - first, &values, keep);
            }
            ring.write(out);
        }
    }

    /// First slot whose values are known.
    pub(super) const fn first_slot(&self, resolution: Resolution) -> u64 {
        let seconds = resolution.seconds();
        if self.is_new { self.since / seconds } else { self.since.div_ceil(seconds) }
    }
}

impl Track {
    /// Creates a track that begins at a second. `is_whole` means that the counts at the start of
    /// each slot are the same.
    pub(super) fn new(second: u64, totals: FlowTotals, is_whole: bool) -> Self {
        Self {
            stages: Resolution::ALL.map(|resolution| {
                let seconds = resolution.seconds();
                let is_whole = is_whole || second.is_multiple_of(seconds);
                Stage { ring: Ring::new(seconds), slot: second / seconds, is_whole }
            }),
            starts: [totals.clone(), totals.clone()],
            latest: totals,
            gauges: GaugeValues::default(),
            activity: 0,
            recent: 0,
            changed_at: second,
            is_fine: false,
            is_short: false,
        }
    }

    /// Continues an idle entity, whose values were unchanged until the second of the last sample.
    pub(super) fn of_idle(idle: &Idle, second: u64, totals: FlowTotals, is_fine: bool) -> Self {
        let mut track = Self::new(second, totals, false);
        track.is_fine = is_fine;
        let values = Row { gauges: idle.values().gauges, ..Row::default() };
        track.gauges = values.gauges;
        let mut stored = idle.stored();
        for (place, resolution) in Resolution::ALL.into_iter().enumerate() {
            let keep = track.keep(place);
            let Some(stage) = track.stages.get_mut(place) else { continue };
            if let Some(ring) = place.checked_sub(1).and_then(|place| stored.0.get_mut(place)) {
                std::mem::swap(&mut stage.ring, ring);
            }
            let first = idle.first_slot(resolution).max(stage.slot.saturating_sub(keep));
            stage.is_whole |= idle.first_slot(resolution) <= stage.slot;
            if (place > 0 || is_fine) && first < stage.slot {
                stage.ring.push(first, stage.slot - first, &values, keep);
            }
        }
        track
    }

    /// Number of slots that are kept.
    fn keep(&self, place: usize) -> u64 {
        match place {
            1 if self.is_short => MINUTES_OF_OTHERS / Resolution::Minute.seconds(),
            _ => {
                let resolution = Resolution::ALL.get(place);
                resolution.map_or(0, |resolution| resolution.keep_seconds() / resolution.seconds())
            }
        }
    }

    /// Counts at the last sample.
    pub(super) const fn latest(&self) -> &FlowTotals {
        &self.latest
    }

    /// Counts at the last sample, and gauges.
    pub(super) fn values(&self) -> Row {
        Row { counts: self.latest.counts, gauges: self.gauges, ..Row::default() }
    }

    /// Takes the values at a second, and closes the slots that have ended. `totals` is `None` if the
    /// counts have not changed.
    pub(super) fn sample(&mut self, second: u64, totals: Option<&FlowTotals>, gauges: GaugeValues) {
        let counts = |totals: &FlowTotals| totals.counts.iter().sum::<u64>();
        if totals.is_some() || gauges != self.gauges {
            self.changed_at = second;
        }
        let added = totals.map_or(0, |now| counts(now).saturating_sub(counts(&self.latest)));
        self.recent = self.recent.saturating_add(added);
        let fine = totals.map_or_else(
            || Row { gauges, ..Row::default() },
            |now| between(&self.latest, now, gauges),
        );
        self.gauges = gauges;
        if let Some(totals) = totals {
            self.latest = totals.clone();
        }
        // A sample that comes late closes no slot: its counts belong to several. A second is no harm.
        let is_in_time = second <= self.second() + 2;
        let keeps: [u64; RESOLUTION_COUNT] = std::array::from_fn(|place| self.keep(place));
        for (place, (stage, keep)) in self.stages.iter_mut().zip(keeps).enumerate() {
            let slot = second / stage.ring.seconds();
            if slot <= stage.slot {
                continue;
            }
            let is_in_time = is_in_time || second.is_multiple_of(stage.ring.seconds());
            let is_next = is_in_time && slot == stage.slot + 1;
            let start = place.checked_sub(1).and_then(|place| self.starts.get_mut(place));
            if is_next && stage.is_whole && (place > 0 || self.is_fine) {
                let row = match &start {
                    None => fine,
                    Some(start) => between(start, &self.latest, gauges),
                };
                stage.ring.push(stage.slot, 1, &row, keep);
            }
            stage.is_whole = is_in_time;
            stage.slot = slot;
            if let Some(start) = start {
                start.clone_from(&self.latest);
            }
        }
    }

    /// Second of the last sample.
    fn second(&self) -> u64 {
        self.stages.first().map_or(0, |stage| stage.slot)
    }

    /// Updates the activity, once a minute.
    pub(super) const fn age(&mut self) {
        self.activity = (self.activity / 2).saturating_add(self.recent);
        self.recent = 0;
    }

    /// Sets whether each second gets a row.
    pub(super) fn set_fine(&mut self, is_fine: bool) {
        self.is_fine = is_fine;
        if is_fine {
            self.is_short = false;
        } else {
            self.drop_rows(0);
        }
    }

    /// Drops rows of a minute that only the busiest entities keep. Returns their memory.
    pub(super) fn shorten(&mut self) -> u64 {
        if self.is_fine {
            return 0;
        }
        self.is_short = true;
        let minute = Resolution::Minute as usize;
        let keep = self.keep(minute);
        let Some(stage) = self.stages.get_mut(minute) else { return 0 };
        let bytes = stage.ring.bytes();
        stage.ring.keep_from(stage.slot.saturating_sub(keep));
        bytes - stage.ring.bytes()
    }

    /// Whether rows of a resolution are kept for a span of seconds.
    pub(super) fn keeps(&self, place: usize, seconds: u64) -> bool {
        let length = Resolution::ALL.get(place).map_or(1, |it| it.seconds());
        // The span may begin within the slot before.
        (place > 0 || self.is_fine) && (self.keep(place) + 1).saturating_mul(length) >= seconds
    }

    /// Calls `visit` with each known row of a resolution in the slots `from..until`.
    pub(super) fn read(&self, place: usize, from: u64, until: u64, visit: impl FnMut(u64, &Row)) {
        let Some(stage) = self.stages.get(place) else { return };
        let oldest = stage.slot.saturating_sub(self.keep(place));
        stage.ring.read(from.max(oldest), until, visit);
    }

    /// Drops all rows of a resolution. Returns their memory.
    pub(super) fn drop_rows(&mut self, place: usize) -> u64 {
        let Some(stage) = self.stages.get_mut(place) else { return 0 };
        let bytes = stage.ring.bytes();
        stage.ring.clear();
        bytes
    }

    /// Restores rows that were stored.
    pub(super) fn restore(&mut self, stored: &[u8]) {
        let rings = CoarseRows::parse(stored, self.second()).0;
        for (stage, ring) in self.stages.iter_mut().skip(1).zip(rings) {
            stage.ring = ring;
        }
    }

    /// Appends the stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for stage in self.stages.iter().skip(1) {
            stage.ring.write(out);
        }
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let rings: u64 = self.stages.iter().map(|stage| stage.ring.bytes()).sum();
        size_of::<Self>() as u64 + rings
    }
}

fn between(before: &FlowTotals, after: &FlowTotals, gauges: GaugeValues) -> Row {
    let mut counts = after.counts;
    for (count, before) in counts.iter_mut().zip(before.counts) {
        *count = count.saturating_sub(before);
    }
    let waits = percentiles(&before.waits, &after.waits);
    Row { counts, gauges, waits, locks: percentiles(&before.locks, &after.locks) }
}

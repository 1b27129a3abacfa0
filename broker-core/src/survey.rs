//! Counts and rates of all entities at one moment (CON-04).
//!
//! A survey loads the atomic values that each entity publishes after its turns, so no entity gets
//! mail. It is taken on demand and shared for a second, or until an entity comes or goes. Rates
//! follow from the growth between two surveys: nothing is counted while nobody looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use peeklock_model::inspect::{EntitySetup, ROW_COUNT_MAX, Readings, RowKey};
use tokio::sync::Mutex;

use crate::actor::directory::Directory;
use crate::clock::Clock;
use crate::description::{EntityKind, EntityStatus};
use crate::findings::{
    EntityCondition, EntityOrder, EntityPage, EntityQuery, EntityRow, EntityTotals, Rates,
};
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::series::query::SeriesColumn;
use crate::telemetry::LiveGauges;
use crate::time::{TimeSpan, Timestamp};

/// Age at which a survey is replaced.
const AGE_MAX: TimeSpan = TimeSpan::from_seconds(1);
/// Maximum time over which rates are averaged; an older survey gives none.
const RATE_TIME_MAX: TimeSpan = TimeSpan::from_seconds(10);
/// Number of entities that are read between two yields.
pub(crate) const READ_AT_ONCE: usize = 1_024;
/// Text between the key of a topic and the name of a subscription.
pub(crate) const SUBSCRIPTIONS: &str = "/subscriptions/";

/// All entities of a broker with their counts at one moment.
pub(crate) struct Survey {
    /// Time of the counts.
    pub(crate) taken_at: Timestamp,
    /// The entities in the order of their keys.
    pub(crate) entities: Vec<SurveyedEntity>,
}

/// An entity in a survey.
pub(crate) struct SurveyedEntity {
    /// Id of the entity; a path that is created again gets another.
    pub(crate) id: EntityId,
    /// Key of the path.
    pub(crate) key: PathKey,
    /// Counts and rates.
    pub(crate) row: EntityRow,
    /// Destinations, times and rules.
    pub(crate) setup: Arc<EntitySetup>,
    /// Its published values.
    pub(crate) observed: Arc<LiveGauges>,
    /// Number of messages forwarded since the broker started.
    forwarded: u64,
    /// Messages forwarded per second; `None` until the counts were read twice.
    pub(crate) forward_rate: Option<f64>,
}

/// Keys of the entities that a reader may read; `None` for all entities.
pub(crate) struct ReadableKeys(pub(crate) Option<HashSet<PathKey>>);

/// The last survey of a broker, with the number of entities before it.
#[derive(Default)]
pub(crate) struct Surveys {
    last: Mutex<Option<(usize, Arc<Survey>)>>,
}

#[cfg(test)]
impl SurveyedEntity {
    /// Returns an entity without destinations.
    pub(crate) fn of(id: EntityId, row: EntityRow) -> Self {
        let (key, setup, observed) = (PathKey::fold(&row.path), Arc::default(), Arc::default());
        Self { id, key, row, setup, observed, forwarded: 0, forward_rate: None }
    }
}

impl ReadableKeys {
    /// Every entity.
    pub(crate) const ALL: Self = Self(None);

    /// No entity.
    pub(crate) fn none() -> Self {
        Self(Some(HashSet::new()))
    }

    /// Whether the reader may read all entities, including future ones.
    pub(crate) const fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the reader may read an entity.
    pub(crate) fn contains(&self, key: &PathKey) -> bool {
        self.0.as_ref().is_none_or(|keys| keys.contains(key))
    }
}

impl EntityTotals {
    /// Adds an entity.
    pub(crate) fn add(&mut self, row: &EntityRow) {
        let Readings { counts, size_bytes, receivers, locks, .. } = &row.readings;
        let sums = &mut self.counts;
        for (sum, count) in [
            (&mut sums.active, counts.active),
            (&mut sums.deferred, counts.deferred),
            (&mut sums.scheduled, counts.scheduled),
            (&mut sums.dead_letter, counts.dead_letter),
            (&mut sums.transfer, counts.transfer),
            (&mut sums.transfer_dead_letter, counts.transfer_dead_letter),
            (&mut sums.delayed, counts.delayed),
            (&mut self.locks, *locks),
            (&mut self.size_bytes, *size_bytes),
            (&mut self.receivers, *receivers),
        ] {
            *sum = sum.saturating_add(count);
        }
        if let Some(Rates { accepted, removed }) = row.rates {
            let sum = self.rates.get_or_insert(Rates { accepted: 0.0, removed: 0.0 });
            sum.accepted += accepted;
            sum.removed += removed;
        }
    }
}

impl Surveys {
    /// Returns a survey that is less than a second old and has the entities that were just created.
    /// One caller takes a new one, others wait for it. After a creation or deletion, the caller gets
    /// a survey of its own with the rates of the shared one.
    pub(crate) async fn latest(&self, directory: &Directory, clock: &dyn Clock) -> Arc<Survey> {
        let mut last = self.last.lock().await;
        let (now, count) = (clock.now(), directory.len());
        let is_young = |survey: &Survey| now.since(survey.taken_at) < AGE_MAX;
        if let Some((count_before, shared)) = last.as_ref().filter(|(_, last)| is_young(last)) {
            if *count_before == count {
                return Arc::clone(shared);
            }
            let mut own = Survey::take(directory, now).await;
            own.keep_rates(shared).await;
            return Arc::new(own);
        }
        let mut survey = Survey::take(directory, now).await;
        let earlier = last.take_if(|(_, last)| now.since(last.taken_at) <= RATE_TIME_MAX);
        if let Some((_, earlier)) = earlier {
            survey.set_rates(&earlier).await;
        }
        Arc::clone(&last.insert((count, Arc::new(survey))).1)
    }
}

impl Survey {
    /// Reads all entities, without rates.
    pub(crate) async fn take(directory: &Directory, now: Timestamp) -> Self {
        let mut entities = Vec::with_capacity(directory.len());
        for kind in [EntityKind::Queue, EntityKind::Topic, EntityKind::Subscription] {
            let paths = directory.list(kind, "", 0, usize::MAX);
            for some in paths.chunks(READ_AT_ONCE) {
                entities.extend(some.iter().filter_map(|path| read(directory, kind, path)));
                tokio::task::yield_now().await;
            }
        }
        let mut survey = Self { taken_at: now, entities };
        survey.add_subscription_sizes();
        // The kinds are sorted already, so that this merges three runs.
        survey.entities.sort_by(|a, b| a.key.cmp(&b.key));
        survey
    }

    /// Adds the sizes of subscriptions to their topics.
    fn add_subscription_sizes(&mut self) {
        let mut sizes: HashMap<String, u64> = HashMap::new();
        let of_kind = |kind| move |entity: &&mut SurveyedEntity| entity.row.kind == kind;
        for entity in self.entities.iter_mut().filter(of_kind(EntityKind::Subscription)) {
            if let Some((topic, _)) = entity.key.as_str().rsplit_once(SUBSCRIPTIONS) {
                let size = sizes.entry(topic.to_owned()).or_default();
                *size = size.saturating_add(entity.row.total_size);
            }
        }
        for entity in self.entities.iter_mut().filter(of_kind(EntityKind::Topic)) {
            let size = sizes.get(entity.key.as_str()).copied().unwrap_or_default();
            entity.row.total_size = entity.row.total_size.saturating_add(size);
        }
    }

    /// Sets the rates since an earlier survey.
    async fn set_rates(&mut self, earlier: &Self) {
        let passed = self.taken_at.since(earlier.taken_at);
        for some in self.entities.chunks_mut(READ_AT_ONCE) {
            for entity in some {
                let before = earlier.get(&entity.key).filter(|before| before.id == entity.id);
                entity.row.rates = before.and_then(|before| {
                    Rates::between(&before.row.readings, &entity.row.readings, passed)
                });
                let forwarded = before
                    .filter(|_| entity.row.rates.is_some())
                    .map(|before| entity.forwarded.saturating_sub(before.forwarded));
                entity.forward_rate = forwarded.map(|count| per_second(count, passed));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes the rates of another survey of the same second.
    async fn keep_rates(&mut self, other: &Self) {
        for some in self.entities.chunks_mut(READ_AT_ONCE) {
            for entity in some {
                let same = other.get(&entity.key).filter(|same| same.id == entity.id);
                entity.row.rates = same.and_then(|same| same.row.rates);
                entity.forward_rate = same.and_then(|same| same.forward_rate);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the entity with this key.
    pub(crate) fn get(&self, key: &PathKey) -> Option<&SurveyedEntity> {
        self.entities.get(self.place(key)?)
    }

    /// Returns the place of the entity with this key.
    pub(crate) fn place(&self, key: &PathKey) -> Option<usize> {
        self.entities.binary_search_by(|entity| entity.key.cmp(key)).ok()
    }

    /// Returns a page of the readable entities that a query selects.
    pub(crate) async fn page(&self, query: &EntityQuery, readable: &ReadableKeys) -> EntityPage {
        let part = query.path.as_deref().map(str::to_ascii_lowercase);
        // The places are in the order of the keys, so that they decide between equal values.
        let mut selected: Vec<(i64, usize)> = Vec::new();
        let mut totals = EntityTotals::default();
        for (chunk, some) in self.entities.chunks(READ_AT_ONCE).enumerate() {
            for (place, entity) in some.iter().enumerate() {
                let is_selected = query.kind.is_none_or(|kind| kind == entity.row.kind)
                    && part.as_deref().is_none_or(|part| entity.key.as_str().contains(part))
                    && query.conditions.iter().all(|it| entity.row.meets(*it))
                    && readable.contains(&entity.key);
                if is_selected {
                    totals.add(&entity.row);
                    let place = chunk * READ_AT_ONCE + place;
                    selected.push((entity.row.value(query.order), place));
                }
            }
            tokio::task::yield_now().await;
        }
        selected.sort_unstable();
        if query.is_descending {
            selected.reverse();
        }
        let total = selected.len() as u64;
        let entity_at = |place: usize| self.entities.get(place);
        let start = query.after.as_ref().map_or(0, |after| {
            selected.partition_point(|(value, place)| {
                let name = entity_at(*place).map_or("", |entity| entity.key.as_str());
                let (row, after) = ((*value, name), (after.value, &*after.name));
                if query.is_descending { row >= after } else { row <= after }
            })
        });
        let count_max = query.count_max.clamp(1, ROW_COUNT_MAX) as usize;
        let rest = selected.get(start..).unwrap_or_default();
        let shown = rest.iter().take(count_max).filter_map(|(_, place)| entity_at(*place));
        let entities: Vec<EntityRow> = shown.map(|entity| entity.row.clone()).collect();
        let last = entities.last().filter(|_| rest.len() > count_max);
        let next = last.map(|row| row.key(query.order));
        EntityPage { entities, total, totals, counted_at: self.taken_at, next }
    }
}

/// Reads an entity, unless it was deleted meanwhile.
fn read(directory: &Directory, kind: EntityKind, path: &Arc<str>) -> Option<SurveyedEntity> {
    let key = PathKey::fold(path);
    let entry = directory.get(&key).filter(|entry| entry.kind == kind)?;
    let readings = entry.observed.readings();
    let total_size = readings.size_bytes;
    let row = EntityRow { path: entry.path, kind, readings, total_size, rates: None };
    let forwarded = entry.observed.flows().map_or(0, |flows| {
        flows.counts().get(SeriesColumn::ForwardedOut as usize).copied().unwrap_or_default()
    });
    let setup = entry.observed.setup();
    let (id, observed) = (entry.id, entry.observed);
    Some(SurveyedEntity { id, key, row, setup, observed, forwarded, forward_rate: None })
}

/// A count over a time as a rate.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal")]
fn per_second(count: u64, passed: TimeSpan) -> f64 {
    count as f64 / passed.as_seconds_f64()
}

impl Rates {
    /// Returns the rates between two readings of an entity; none if no time has passed.
    fn between(before: &Readings, after: &Readings, passed: TimeSpan) -> Option<Self> {
        if passed <= TimeSpan::ZERO {
            return None;
        }
        let accepted = after.last_sequence.0.saturating_sub(before.last_sequence.0);
        let stored = before.counts.total().saturating_add(accepted);
        let removed = stored.saturating_sub(after.counts.total());
        Some(Self { accepted: per_second(accepted, passed), removed: per_second(removed, passed) })
    }
}

/// Whether a number is over 80 % of its maximum.
pub(crate) fn is_high(count: u64, max: u64) -> bool {
    u128::from(count) * 5 > u128::from(max) * 4
}

impl EntityRow {
    /// Whether a condition holds.
    #[must_use]
    pub fn meets(&self, condition: EntityCondition) -> bool {
        let Self { kind, readings, total_size, rates, .. } = self;
        let Readings { counts, receivers, size_bytes_max, status, .. } = readings;
        match condition {
            EntityCondition::HasDeadLetters => counts.dead_letter + counts.transfer_dead_letter > 0,
            EntityCondition::Grows => rates.is_some_and(|rates| rates.accepted > rates.removed),
            EntityCondition::HasNoReceiver => *kind != EntityKind::Topic && *receivers == 0,
            EntityCondition::IsDisabled => *status != EntityStatus::Active,
            EntityCondition::IsNearlyFull => {
                *size_bytes_max > 0 && is_high(*total_size, *size_bytes_max)
            }
        }
    }

    /// Returns the value of a column for sorting.
    #[must_use]
    pub fn value(&self, order: EntityOrder) -> i64 {
        let Self { kind, readings, total_size, rates, .. } = self;
        let Readings { counts, oldest_at, receivers, locks, size_bytes_max, status, .. } = readings;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        match order {
            EntityOrder::Path => 0,
            EntityOrder::Kind => *kind as i64,
            EntityOrder::Status => *status as i64,
            EntityOrder::Active => number(counts.active),
            EntityOrder::Deferred => number(counts.deferred),
            EntityOrder::Scheduled => number(counts.scheduled),
            EntityOrder::DeadLetter => number(counts.dead_letter),
            EntityOrder::Transfer => number(counts.transfer),
            EntityOrder::TransferDeadLetter => number(counts.transfer_dead_letter),
            EntityOrder::Delayed => number(counts.delayed),
            EntityOrder::Total => number(counts.total()),
            EntityOrder::Locked => number(*locks),
            EntityOrder::Size => number(*total_size),
            EntityOrder::SizeMax => number(*size_bytes_max),
            EntityOrder::Receivers => number(*receivers),
            EntityOrder::Oldest => oldest_at.map_or(i64::MAX, Timestamp::ticks),
            EntityOrder::Accepted => rates.map_or(-1, |rates| thousandths(rates.accepted)),
            EntityOrder::Removed => rates.map_or(-1, |rates| thousandths(rates.removed)),
        }
    }

    /// Returns the position of the row in a list with this order.
    #[must_use]
    pub fn key(&self, order: EntityOrder) -> RowKey {
        let name = PathKey::fold(&self.path).as_str().into();
        RowKey { value: self.value(order), name }
    }
}

/// A rate as a whole number of thousandths, for sorting.
#[expect(clippy::cast_possible_truncation, reason = "float casts saturate, which is meant")]
fn thousandths(rate: f64) -> i64 {
    (rate * 1_000.0) as i64
}

#[cfg(test)]
mod tests;

//! Lists of the whole namespace: entities with their counts, clients, and the schedule of all
//! entities (CON-04, CON-24, CON-28). A reader sees the part that it may read (CON-73).

use std::cmp::Reverse;
use std::sync::Arc;

use super::Access;
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::description::EntityKind;
use crate::error::BrokerError;
use crate::inspect::{
    ChecksPage, ChecksQuery, ClientPage, ClientQuery, EntityPage, EntityQuery, MuteChange, Series,
    SeriesQuery, Timeline, TimelineOf, TimelineQuery, Topology, TopologyQuery,
};
use crate::management::Managed;
use crate::path::PathKey;
use crate::survey::ReadableKeys;
use crate::time::TimeSpan;

/// Maximum number of entities that a timeline of the namespace counts.
const TIMELINE_ENTITIES_MAX: usize = 1_000;
/// Time after which a timeline of the namespace counts no further entity.
const TIMELINE_TIME: TimeSpan = TimeSpan::from_ms(250);

impl Access {
    /// Lists entities with their counts and rates. No entity is asked.
    pub(super) async fn entity_page(
        &self,
        query: &EntityQuery,
        readable: &ReadableKeys,
    ) -> EntityPage {
        self.broker.survey().await.page(query, readable).await
    }

    /// Lists clients with their links on entities that the reader may read. A reader of the whole
    /// namespace also sees clients without links.
    pub(super) async fn client_page(
        &self,
        query: &ClientQuery,
        readable: &ReadableKeys,
    ) -> ClientPage {
        self.broker.shared.clients.page(query, readable).await
    }

    /// Counts the messages of all entities by instant. The entities with the most messages come
    /// first; the others are counted as omitted when the time or the number of entities is used up.
    pub(super) async fn namespace_timeline(
        &self,
        query: TimelineQuery,
        readable: &ReadableKeys,
    ) -> Result<Timeline, BrokerError> {
        let survey = self.broker.survey().await;
        let mut entities: Vec<(u64, Arc<str>)> = Vec::new();
        for entity in survey.entities.iter().filter(|entity| readable.contains(&entity.key)) {
            let counts = &entity.row.readings.counts;
            let count = match (query.of, entity.row.kind) {
                (TimelineOf::Scheduled, _) => counts.scheduled,
                (TimelineOf::Expiring, EntityKind::Topic) => 0,
                (TimelineOf::Expiring, _) => counts.active,
            };
            if count > 0 {
                entities.push((count, Arc::clone(&entity.row.path)));
            }
        }
        entities.sort_by_key(|(count, _)| Reverse(*count));
        let TimelineQuery { from, slot, slot_count, .. } = query;
        let counts = vec![0; usize::from(slot_count)];
        let mut sum = Timeline { from, slot, counts, before: 0, later: 0, omitted_entities: 0 };
        let until = self.broker.now().plus(TIMELINE_TIME);
        for (place, (_, path)) in entities.iter().enumerate() {
            if place == TIMELINE_ENTITIES_MAX || self.broker.now() >= until {
                sum.omitted_entities = (entities.len() - place) as u64;
                break;
            }
            let timeline = match self.timeline(path, query).await {
                Ok(timeline) => timeline,
                // Deleted meanwhile.
                Err(error) if error.condition() == Condition::EntityNotFound => continue,
                Err(error) => return Err(error),
            };
            sum.before += timeline.before;
            sum.later += timeline.later;
            for (sum, count) in sum.counts.iter_mut().zip(timeline.counts) {
                *sum += count;
            }
        }
        Ok(sum)
    }

    /// Returns the values of an entity, or of the namespace, over time. No entity is asked.
    pub(super) fn series(&self, path: &str, query: &SeriesQuery) -> Result<Series, BrokerError> {
        let (broker, now) = (&self.broker, self.broker.now());
        let series = broker.shared.series.find(&broker.shared.directory, path, query, now);
        series.map_err(|rejection| broker.refuse(rejection, path))
    }

    /// Returns entities and their destinations as nodes and edges. No entity is asked.
    pub(super) async fn topology(
        &self,
        query: &TopologyQuery,
        readable: &ReadableKeys,
    ) -> Result<Topology, BrokerError> {
        let survey = self.broker.survey().await;
        let hop_count_max = self.broker.settings().limits.hop_count_max;
        let topology = survey.topology(query, readable, hop_count_max).await;
        topology.map_err(|rejection| self.broker.refuse(rejection, ""))
    }

    /// Returns the findings of the last check. No entity is asked.
    pub(super) async fn checks(
        &self,
        query: &ChecksQuery,
        readable: &ReadableKeys,
    ) -> Result<ChecksPage, BrokerError> {
        let shared = &self.broker.shared;
        let page = shared.checks.page(shared, query, readable).await;
        page.map_err(|rejection| self.broker.refuse(rejection, ""))
    }

    /// Mutes a finding, or ends this. The right was checked before.
    pub(super) async fn mute(&self, path: &str, mute: MuteChange) -> Result<Managed, BrokerError> {
        let shared = &self.broker.shared;
        let changed = match mute {
            MuteChange::Mute { kind, reason } => {
                shared.checks.mute(shared, path, kind, reason).await
            }
            MuteChange::Unmute { kind } => shared.checks.unmute(path, kind).await,
        };
        changed.map(|()| Managed::Done).map_err(|rejection| self.broker.refuse(rejection, path))
    }

    /// Returns the entities on which an action is granted. Call it before the request waits for its
    /// turn, since a refusal may take its time (SEC-26).
    pub(super) async fn readable(&self, action: Action) -> Result<ReadableKeys, BrokerError> {
        let all = || {
            let kinds = [EntityKind::Queue, EntityKind::Topic, EntityKind::Subscription];
            let paths = kinds.map(|kind| self.broker.paths_of(kind, "", 0, usize::MAX));
            paths.into_iter().flatten().collect()
        };
        let granted = self.granted_paths("", action, all).await?;
        let keys = granted.map(|paths| paths.iter().map(|path| PathKey::fold(path)).collect());
        Ok(ReadableKeys(keys))
    }
}

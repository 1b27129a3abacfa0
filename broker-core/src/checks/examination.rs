//! A check of the broker and all entities, with its findings (CON-39).

use std::collections::HashMap;
use std::sync::Arc;

use super::finding::{Fault, Finding, FindingKey, Findings, Values};
use super::report::CheckKind;
use super::watched::Watched;
use super::{ChecksConfig, TIMES_ENTITY_COUNT_MAX, WATCHED_ENTITY_COUNT_MAX};
use crate::description::EntityKind;
use crate::findings::EntityCondition;
use crate::flows::{Flows, bucket_micros};
use crate::ids::EntityId;
use crate::series::query::SeriesColumn;
use crate::shared::Shared;
use crate::store::Shortage;
use crate::survey::{READ_AT_ONCE, ReadableKeys, SUBSCRIPTIONS, Survey, SurveyedEntity, is_high};
use crate::time::{TimeSpan, Timestamp};
use crate::topology::query::EdgeKind;
use crate::topology::{Graph, GraphNode};

/// Maximum number of other names in a finding.
const OTHERS_MAX: usize = 8;
/// The disk is nearly full if it has room for less than this.
const ROOM_MIN: u64 = 1 << 30;
/// Difference of the clocks from which on the clock of the machine was set.
const CLOCK_STEP_MIN: TimeSpan = TimeSpan::from_seconds(2);

/// A check and its findings.
pub(super) struct Examination<'a> {
    pub(super) shared: &'a Shared,
    pub(super) config: &'a ChecksConfig,
    pub(super) survey: &'a Survey,
    /// Instants since which earlier checks have found the same.
    pub(super) known: &'a HashMap<FindingKey, Timestamp>,
    pub(super) now: Timestamp,
    pub(super) findings: Findings,
}

impl Examination<'_> {
    /// Checks the broker and all entities.
    pub(super) async fn run(&mut self, watched: &mut HashMap<EntityId, Watched>, is_first: bool) {
        self.check_broker();
        tokio::task::yield_now().await;
        let survey = self.survey;
        let mut receivers: HashMap<&str, u64> = HashMap::new();
        let mut times_count = watched.values().filter(|one| one.times.has_start()).count();
        for some in survey.entities.chunks(READ_AT_ONCE) {
            for entity in some {
                if entity.row.kind == EntityKind::Subscription
                    && let Some((topic, _)) = entity.key.as_str().rsplit_once(SUBSCRIPTIONS)
                {
                    *receivers.entry(topic).or_default() += entity.row.readings.receivers;
                }
                self.check_course(entity, watched, is_first, &mut times_count);
            }
            tokio::task::yield_now().await;
        }
        for some in survey.entities.chunks(READ_AT_ONCE) {
            for entity in some {
                let own = entity.row.readings.receivers;
                let of_all = receivers.get(entity.key.as_str()).map_or(own, |sum| sum + own);
                self.check_state(entity, of_all);
            }
            tokio::task::yield_now().await;
        }
        self.check_forwarding().await;
        // Deleted entities were not checked.
        watched.retain(|_, one| one.checked_at == self.now && !one.is_idle());
    }

    fn add(&mut self, kind: CheckKind, path: &Arc<str>, detail: String) {
        self.add_since(kind, path, self.now, detail);
    }

    fn add_since(&mut self, kind: CheckKind, path: &Arc<str>, since: Timestamp, detail: String) {
        let values = Values::Own(detail.into());
        self.add_finding(Finding { kind, path: Arc::clone(path), since, values });
    }

    fn add_finding(&mut self, mut finding: Finding) {
        if let Some(known) = self.known.get(&finding.key()) {
            finding.since = finding.since.min(*known);
        }
        self.findings.add(finding);
    }

    /// Checks of the broker, which have no path.
    fn check_broker(&mut self) {
        let none: Arc<str> = "".into();
        let config = self.config;
        if config.admits_anonymous_machines && self.shared.allows_anonymous() {
            let detail = "an address is not loopback, and clients need no credentials".to_owned();
            self.add(CheckKind::AnonymousBeyondLoopback, &none, detail);
        }
        if let Some(shortage) = self.shared.store.shortage(ROOM_MIN) {
            let is_short = match &shortage {
                Shortage::Disk { .. } | Shortage::DatabaseDisk | Shortage::DatabaseTables => true,
                // A small store is nearly full from 80 % on.
                Shortage::Capacity { stored_bytes, capacity_bytes, .. }
                | Shortage::Database { stored_bytes, capacity_bytes }
                | Shortage::Memory { stored_bytes, capacity_bytes } => {
                    is_high(*stored_bytes, *capacity_bytes)
                }
                // The probe reports it.
                Shortage::DatabaseAway { .. } => false,
            };
            if is_short {
                self.add(CheckKind::DiskNearlyFull, &none, shortage.to_string());
            }
        }
        let step = self.shared.clock.offset();
        if step.ticks().unsigned_abs() >= CLOCK_STEP_MIN.ticks().unsigned_abs() {
            let seconds = step.as_seconds_f64();
            let detail = format!("the clock of the machine is {seconds:+.0} s from the broker's");
            self.add(CheckKind::ClockStep, &none, detail);
        }
        let counts = self.shared.clients.count_by_transport();
        let high = config.connection_count_max.iter().filter_map(|(transport, max)| {
            let count = counts.get(transport).copied().unwrap_or_default();
            is_high(count, *max).then(|| format!("{transport} has {count} of {max} connections"))
        });
        let high: Vec<String> = high.collect();
        if !high.is_empty() {
            self.add(CheckKind::ManyConnections, &none, high.join(", "));
        }
    }

    /// Checks of values over time.
    fn check_course(
        &mut self,
        entity: &SurveyedEntity,
        all: &mut HashMap<EntityId, Watched>,
        is_first: bool,
        times_count: &mut usize,
    ) {
        let flows = entity.observed.flows();
        // Read before the counts, so that a message that leaves meanwhile counts later.
        let dead_lettered = flows.map_or(0, Flows::dead_lettered);
        let counts = entity.observed.counts();
        let (active, dead_letters) =
            (counts.active, counts.dead_letter + counts.transfer_dead_letter);
        let is_empty = flows.is_none() && active == 0 && dead_letters == 0;
        let is_unknown = !all.contains_key(&entity.id);
        if is_unknown && (is_empty || all.len() >= WATCHED_ENTITY_COUNT_MAX) {
            return;
        }
        let delivered = flows.map_or(0, |flows| {
            flows.counts().get(SeriesColumn::Delivered as usize).copied().unwrap_or_default()
        });
        let watched = all.entry(entity.id).or_insert_with(|| match is_first {
            true => Watched::starting(dead_letters, active, delivered),
            // An entity that appears later was empty.
            false => Watched::default(),
        });
        let (row, now) = (&entity.row, self.now);
        watched.checked_at = now;
        let was_delivered = watched.note_delivered(delivered);
        let is_read = watched.note_dead_lettered(dead_lettered, dead_letters);
        watched.dead_letters.note(dead_letters, is_read, now);
        let is_served = was_delivered || row.readings.receivers > 0;
        watched.backlog.note(active, is_served || entity.setup.forward_to.is_some(), now);
        if let Some(flows) = flows {
            let has_room = *times_count < TIMES_ENTITY_COUNT_MAX;
            let lock = entity.setup.lock_duration;
            *times_count += usize::from(watched.times.judge(flows, lock, now, has_room));
        }
        let unread = watched.dead_letters.since(now);
        let unreceived = watched.backlog.since(now);
        let expiring = watched.times.expiring_locks();
        let long_wait = watched.times.long_wait(entity.setup.time_to_live);
        let path = &row.path;
        if let Some(since) = unread {
            let detail = format!("{dead_letters} dead letters");
            self.add_since(CheckKind::DeadLettersUnread, path, since, detail);
        }
        if let Some(since) = unreceived.filter(|_| row.kind != EntityKind::Topic) {
            let detail = format!("{active} active messages, no receiver");
            self.add_since(CheckKind::BacklogWithoutReceiver, path, since, detail);
        }
        if let Some(locks) = expiring.filter(|_| row.kind != EntityKind::Topic) {
            let limit = entity.setup.lock_duration.as_seconds_f64();
            let (expired, ended) = (locks.expired, locks.ended);
            let detail = format!("{expired} of {ended} locks expired; LockDuration: {limit} s");
            self.add(CheckKind::LockTooShort, path, detail);
        }
        if let Some(bucket) = long_wait.filter(|_| row.kind != EntityKind::Topic) {
            let limit = entity.setup.time_to_live.as_seconds_f64();
            let least = bucket.checked_sub(1).map_or(0.0, |below| seconds(bucket_micros(below)));
            let detail = format!("p95 of the wait: over {least:.1} s; time to live: {limit} s");
            self.add(CheckKind::TimeToLiveTooShort, path, detail);
        }
    }

    /// Checks of counts and settings. `receivers` includes the subscriptions of a topic.
    fn check_state(&mut self, entity: &SurveyedEntity, receivers: u64) {
        let row = &entity.row;
        if row.meets(EntityCondition::IsNearlyFull) {
            let (size, max) = (row.total_size, row.readings.size_bytes_max);
            let detail = format!("{size} of {max} bytes");
            self.add(CheckKind::NearlyFull, &row.path, detail);
        }
        let max = self.shared.settings.limits.receiver_count_max as u64;
        if row.kind != EntityKind::Subscription && is_high(receivers, max) {
            let detail = format!("{receivers} of {max} receivers");
            self.add(CheckKind::ManyReceivers, &row.path, detail);
        }
        if entity.setup.defaults_among_others.is_empty() {
            return;
        }
        let prefix = format!("{}{SUBSCRIPTIONS}", entity.key.as_str());
        let survey = self.survey;
        let first = survey.entities.partition_point(|one| one.key.as_str() < prefix.as_str());
        let own = survey.entities.iter().skip(first);
        let own = own.take_while(|one| one.key.as_str().starts_with(&prefix));
        for subscription in own {
            if entity.setup.defaults_among_others.binary_search(&subscription.id).is_ok() {
                let detail = "`$Default` selects every message, so the other rules decide nothing";
                let path = &subscription.row.path;
                self.add(CheckKind::DefaultRuleAmongOthers, path, detail.to_owned());
            }
        }
    }

    /// Checks of destinations, circles and chains.
    async fn check_forwarding(&mut self) {
        let graph = Graph::of(self.survey, &ReadableKeys::ALL).await;
        self.check_destinations(&graph);
        tokio::task::yield_now().await;
        self.check_chains(&graph);
    }

    fn check_destinations(&mut self, graph: &Graph<'_>) {
        for edge in graph.edges.iter().filter(|edge| edge.kind != EdgeKind::Subscription) {
            let (Some(from), Some(to)) = (graph.node(edge.from), graph.node(edge.to)) else {
                continue;
            };
            let property = match edge.kind {
                EdgeKind::DeadLetterForward => "ForwardDeadLetteredMessagesTo",
                EdgeKind::Forward | EdgeKind::Subscription => "ForwardTo",
            };
            let (kind, fault) = match &to {
                GraphNode::Entity(entity) if entity.row.readings.status.allows_send() => continue,
                GraphNode::Entity(entity) => {
                    let fault = Fault::Disabled(entity.row.readings.status);
                    (CheckKind::DestinationDisabled, fault)
                }
                GraphNode::Other(_) => match to.scheme() {
                    Some(scheme) if self.shared.forwarders.get(scheme).is_some() => continue,
                    Some(_) => (CheckKind::DestinationMissing, Fault::NoForwarder),
                    None => (CheckKind::DestinationMissing, Fault::Absent),
                },
            };
            let (path, since) = (Arc::clone(from.name()), self.now);
            let values = Values::Destination { property, name: Arc::clone(to.name()), fault };
            self.add_finding(Finding { kind, path, since, values });
        }
    }

    fn check_chains(&mut self, graph: &Graph<'_>) {
        let structure = graph.links().structure();
        let name = |place: usize| graph.node(place).map(|node| Arc::clone(node.name()));
        for circle in &structure.circles {
            let mut names = circle.iter().copied().filter_map(name);
            if let Some(path) = names.next() {
                let others = names.take(OTHERS_MAX).collect();
                let values = Values::Circle { count: circle.len(), others };
                let (kind, since) = (CheckKind::ForwardCircle, self.now);
                self.add_finding(Finding { kind, path, since, values });
            }
        }
        let hops_max = u32::from(self.shared.settings.limits.hop_count_max);
        for (start, way) in structure.ways.iter().enumerate() {
            if way.hops <= hops_max || way.has_link_before {
                continue;
            }
            let mut names = structure.chain(start).filter_map(name);
            if let Some(path) = names.next() {
                let others = names.take(OTHERS_MAX).collect();
                let (hops, count) = (way.hops, structure.chain(start).count());
                let values = Values::Chain { hops, hops_max, count, others };
                let (kind, since) = (CheckKind::ChainTooLong, self.now);
                self.add_finding(Finding { kind, path, since, values });
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a duration is shown with one decimal")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1_000_000.0
}

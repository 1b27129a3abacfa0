//! Names of all metrics, and their counters.
//!
//! Counters and histograms go through the `metrics` facade and have no entity label. Gauges of
//! single entities are read from [`LiveGauges`] at scrape time (DESIGN section 5).

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use peeklock_model::inspect::{EntitySetup, Readings};

use crate::change::{DeadLetterCause, Removal};
use crate::command::Counts;
use crate::description::EntityStatus;
use crate::flows::Flows;
use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// Messages stored (active or scheduled).
pub const ACCEPTED: &str = "peeklock_messages_accepted_total";
/// Messages handed to receivers.
pub const DELIVERED: &str = "peeklock_messages_delivered_total";
/// Messages handed to receivers after an earlier delivery had failed; included in [`DELIVERED`].
pub const REDELIVERED: &str = "peeklock_messages_redelivered_total";
/// Deliveries that ended without a settlement: by the end of a lock or of a connection.
pub const LAPSED: &str = "peeklock_deliveries_lapsed_total";
/// Failures that a retry policy did not delay, because the broker already kept the maximum of
/// waiting messages (RTY-32).
pub const UNDELAYED: &str = "peeklock_retries_undelayed_total";
/// Messages removed, by `reason`.
pub const REMOVED: &str = "peeklock_messages_removed_total";
/// Messages dead-lettered, by `cause`.
pub const DEAD_LETTERED: &str = "peeklock_messages_dead_lettered_total";
/// Scheduled messages enqueued.
pub const MATERIALISED: &str = "peeklock_messages_materialised_total";
/// Messages received and deleted without reaching a client.
pub const UNDELIVERED: &str = "peeklock_messages_undelivered_total";
/// Messages sent settled that could not be stored (SND-18).
pub const DROPPED: &str = "peeklock_messages_dropped_total";
/// Rejections and failures answered, by `condition`.
pub const REJECTED: &str = "peeklock_rejections_total";
/// Refused tokens, by `cause`.
pub const UNAUTHORIZED: &str = "peeklock_tokens_refused_total";
/// Failed TLS handshakes, by `cause`.
pub const HANDSHAKES_REFUSED: &str = "peeklock_tls_handshakes_refused_total";
/// Connections closed before their client showed its protocol, by `transport` and `cause`.
pub const UNOPENED: &str = "peeklock_connections_unopened_total";
/// Entities rebuilt after a failure.
pub const REBUILT: &str = "peeklock_entity_rebuilds_total";
/// Seconds from submission of a batch until it is durable.
pub const COMMIT_SECONDS: &str = "peeklock_store_commit_seconds";

/// Upper bounds of its buckets: from a commit without a disk to a stalled one.
pub const COMMIT_SECONDS_BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// 1 while the broker can work; a gauge read at scrape time.
pub const READY: &str = "peeklock_ready";
/// 1 while the process stands by for another broker over the same store; a gauge read at scrape time.
pub const STANDBY: &str = "peeklock_standby";
/// Seconds that are left of the lease; a gauge read at scrape time, only with a lease.
pub const LEASE_SECONDS: &str = "peeklock_lease_seconds";
/// Shards that this broker owns, by `state`; a gauge read at scrape time, only with a lease.
pub const SHARDS: &str = "peeklock_shards";
/// Seconds by which the time of the store is ahead of the clock of the broker; a gauge read at scrape
/// time, only with a lease.
pub const CLOCK_OFFSET_SECONDS: &str = "peeklock_clock_offset_seconds";
/// Seconds from the renewal that found the shards free until this broker had opened them, by
/// `reason`.
pub const TAKEOVER_SECONDS: &str = "peeklock_takeover_seconds";
/// Leases that were over before they were renewed.
pub const SUSPENSIONS: &str = "peeklock_suspensions_total";
/// Appends that the store refused because another broker owns the shards.
pub const FENCED: &str = "peeklock_appends_fenced_total";
/// Messages of an entity by `state`; a gauge read at scrape time, like the three below.
pub const ENTITY_MESSAGES: &str = "peeklock_entity_messages";
/// Active messages of an entity that wait for another attempt (RTY-11).
pub const ENTITY_MESSAGES_DELAYED: &str = "peeklock_entity_messages_delayed";
/// Sum of stored sizes of an entity.
pub const ENTITY_SIZE_BYTES: &str = "peeklock_entity_size_bytes";

/// Time in seconds that the oldest available message of an entity has waited.
pub const ENTITY_OLDEST_AGE: &str = "peeklock_entity_oldest_available_age_seconds";
/// 1 while the store refuses new messages (QUO-05); a gauge read at scrape time.
pub const STORE_FULL: &str = "peeklock_store_full";
/// Bytes of the store on its medium; a gauge read at scrape time.
pub const STORE_BYTES: &str = "peeklock_store_bytes";
/// Open connections, by `transport`.
pub const CONNECTIONS: &str = "peeklock_connections";

/// Describes the metrics for the exporter. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(ACCEPTED, "Messages stored, active or scheduled");
    describe_counter!(DELIVERED, "Messages handed to receivers");
    describe_counter!(REDELIVERED, "Messages handed to receivers after a failed delivery");
    describe_counter!(LAPSED, "Deliveries that ended without an answer of their receiver");
    describe_counter!(
        UNDELAYED,
        "Failures that a retry policy did not delay because its limit was reached"
    );
    describe_counter!(REMOVED, "Messages removed, by reason");
    describe_counter!(DEAD_LETTERED, "Messages dead-lettered, by cause");
    describe_counter!(MATERIALISED, "Scheduled messages enqueued");
    describe_counter!(UNDELIVERED, "Messages received and deleted without reaching a client");
    describe_counter!(DROPPED, "Messages sent settled that could not be stored");
    describe_counter!(REJECTED, "Rejected and failed requests, by condition");
    describe_counter!(UNAUTHORIZED, "Refused callers, by cause");
    describe_counter!(HANDSHAKES_REFUSED, "Failed TLS handshakes, by cause");
    describe_counter!(UNOPENED, "Connections closed before their client showed its protocol");
    describe_counter!(REBUILT, "Entities rebuilt after a failure");
    describe_counter!(SUSPENSIONS, "Leases that were over before they were renewed");
    describe_counter!(FENCED, "Appends refused because another broker owns the shards");
    describe_gauge!(
        TAKEOVER_SECONDS,
        metrics::Unit::Seconds,
        "Time until this broker had opened shards that it took over, by reason"
    );
    describe_gauge!(CONNECTIONS, "Open connections, by transport");
    describe_histogram!(COMMIT_SECONDS, metrics::Unit::Seconds, "Time until a batch is durable");
}

/// Counts of message events in one turn of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounts {
    /// Messages stored.
    pub accepted: u64,
    /// Scheduled messages enqueued.
    pub materialised: u64,
    /// Messages handed to receivers.
    pub delivered: u64,
    /// Messages among them whose earlier delivery had failed.
    pub redelivered: u64,
    /// Messages removed, by reason.
    pub removed: [u64; Removal::COUNT],
    /// Messages dead-lettered, by cause.
    pub dead_lettered: [u64; DeadLetterCause::COUNT],
    /// Deliveries that ended without a settlement.
    pub lapsed: u64,
    /// Failures that a retry policy did not delay because its limit was reached (RTY-32).
    pub undelayed: u64,
    /// Messages among the accepted ones that another entity forwarded.
    pub arrived: u64,
    /// Failed deliveries whose message stays.
    pub returned: u64,
    /// Messages dropped as duplicates.
    pub duplicates: u64,
}

impl TurnCounts {
    /// Adds the counts of another machine in the same turn.
    pub(crate) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.materialised += other.materialised;
        self.delivered += other.delivered;
        self.redelivered += other.redelivered;
        self.lapsed += other.lapsed;
        self.undelayed += other.undelayed;
        self.arrived += other.arrived;
        self.returned += other.returned;
        self.duplicates += other.duplicates;
        for (sum, one) in self.removed.iter_mut().zip(other.removed) {
            *sum += one;
        }
        for (sum, one) in self.dead_lettered.iter_mut().zip(other.dead_lettered) {
            *sum += one;
        }
    }
}

/// Counters of an arbiter, looked up once.
pub(crate) struct Telemetry {
    accepted: Counter,
    delivered: Counter,
    redelivered: Counter,
    lapsed: Counter,
    undelayed: Counter,
    materialised: Counter,
    removed: [Counter; Removal::COUNT],
    dead_lettered: [Counter; DeadLetterCause::COUNT],
    pub(crate) commit_seconds: Histogram,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        Self {
            accepted: counter!(ACCEPTED),
            delivered: counter!(DELIVERED),
            redelivered: counter!(REDELIVERED),
            lapsed: counter!(LAPSED),
            undelayed: counter!(UNDELAYED),
            materialised: counter!(MATERIALISED),
            removed: Removal::NAMES.map(|reason| counter!(REMOVED, "reason" => reason)),
            dead_lettered: DeadLetterCause::NAMES
                .map(|cause| counter!(DEAD_LETTERED, "cause" => cause)),
            commit_seconds: histogram!(COMMIT_SECONDS),
        }
    }

    /// Adds the counts of a turn, with at most one increment per kind.
    pub(crate) fn count(&self, turn: &TurnCounts) {
        let single = [
            (&self.accepted, turn.accepted),
            (&self.delivered, turn.delivered),
            (&self.redelivered, turn.redelivered),
            (&self.lapsed, turn.lapsed),
            (&self.undelayed, turn.undelayed),
            (&self.materialised, turn.materialised),
        ];
        let removed = self.removed.iter().zip(turn.removed);
        let dead_lettered = self.dead_lettered.iter().zip(turn.dead_lettered);
        for (counter, count) in single.into_iter().chain(removed).chain(dead_lettered) {
            if count > 0 {
                counter.increment(count);
            }
        }
    }
}

/// Counts messages that left their entity permanently and reached no client (RCV-02).
pub fn count_undelivered(count: u64) {
    counter!(UNDELIVERED).increment(count);
}

/// Counts a message that its sender considers stored, but that is not (SND-18).
pub fn count_dropped() {
    counter!(DROPPED).increment(1);
}

/// Counts an answer with an error.
pub(crate) fn count_rejection(condition: crate::condition::Condition) {
    counter!(REJECTED, "condition" => condition.name()).increment(1);
}

/// Counts a refused caller by cause.
pub(crate) fn count_unauthorized(cause: &'static str) {
    counter!(UNAUTHORIZED, "cause" => cause).increment(1);
}

/// Counts a failed TLS handshake.
pub fn count_refused_handshake(cause: &'static str) {
    counter!(HANDSHAKES_REFUSED, "cause" => cause).increment(1);
}

/// Counts a connection closed before its client showed its protocol.
pub fn count_unopened(transport: &'static str, cause: &'static str) {
    counter!(UNOPENED, "transport" => transport, "cause" => cause).increment(1);
}

/// An open connection; counted until it is dropped.
pub struct ConnectionCount(Gauge);

impl ConnectionCount {
    /// Counts a connection of a transport.
    #[must_use]
    pub fn by(transport: &'static str) -> Self {
        let connections = gauge!(CONNECTIONS, "transport" => transport);
        connections.increment(1.0);
        Self(connections)
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Counts a lease that was over before it was renewed.
pub(crate) fn count_suspension() {
    counter!(SUSPENSIONS).increment(1);
}

/// Counts an append that the store refused because another broker owns the shards.
pub(crate) fn count_fenced() {
    counter!(FENCED).increment(1);
}

/// Notes the duration of a takeover.
pub(crate) fn note_takeover(reason: &'static str, seconds: f64) {
    gauge!(TAKEOVER_SECONDS, "reason" => reason).set(seconds);
}

/// Counts one rebuild.
pub(crate) fn count_rebuild() {
    counter!(REBUILT).increment(1);
}

/// Gauges of an entity, written by its actor after each turn and read from any thread.
#[derive(Debug, Default)]
pub struct LiveGauges {
    active: AtomicU64,
    deferred: AtomicU64,
    scheduled: AtomicU64,
    dead_letter: AtomicU64,
    transfer: AtomicU64,
    transfer_dead_letter: AtomicU64,
    delayed: AtomicU64,
    size_bytes: AtomicU64,
    /// In ticks; 0 means none.
    oldest_at: AtomicI64,
    last_sequence: AtomicU64,
    receivers: AtomicU64,
    locks: AtomicU64,
    size_bytes_max: AtomicU64,
    /// Place in [`EntityStatus::ALL`].
    status: AtomicU8,
    sessions: AtomicU64,
    /// Counts since the broker started; empty until the first message.
    flows: OnceLock<Box<Flows>>,
    /// Properties as of the last change.
    setup: RwLock<Arc<EntitySetup>>,
}

/// Gauges of an entity at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gauges {
    /// Path of the entity.
    pub path: Arc<str>,
    /// Numbers of messages.
    pub counts: Counts,
    /// Sum of the stored sizes in bytes.
    pub size_bytes: u64,
    /// Time of enqueueing of the oldest available message, if there is one.
    pub oldest_at: Option<Timestamp>,
}

impl Gauges {
    /// Number of states.
    pub const STATE_COUNT: usize = 6;

    /// Reads the gauges of observed entities, from [`crate::Broker::observed`].
    #[must_use]
    pub fn of(observed: Vec<(Arc<str>, Arc<LiveGauges>)>) -> Vec<Self> {
        let gauges = observed.into_iter().map(|(path, observed)| {
            let (counts, size_bytes) = (observed.counts(), observed.size_bytes());
            Self { path, counts, size_bytes, oldest_at: observed.oldest_at() }
        });
        gauges.collect()
    }

    /// Returns the `count` entities with the most messages, in descending order; equal ones keep
    /// their order.
    #[must_use]
    pub fn largest(mut all: Vec<Self>, count: usize) -> Vec<Self> {
        all.sort_by_key(|entity| std::cmp::Reverse(entity.counts.total()));
        all.truncate(count);
        all
    }

    /// Seconds that the oldest available message has waited; 0 if there is none.
    #[must_use]
    pub fn oldest_age_seconds(&self, now: Timestamp) -> f64 {
        let age = self.oldest_at.map_or(TimeSpan::ZERO, |at| now.since(at));
        age.max(TimeSpan::ZERO).as_seconds_f64()
    }

    /// Messages by state; delayed messages are included in active ones.
    #[must_use]
    pub const fn states(&self) -> [(&'static str, u64); Self::STATE_COUNT] {
        let counts = &self.counts;
        [
            ("active", counts.active),
            ("deferred", counts.deferred),
            ("scheduled", counts.scheduled),
            ("dead_letter", counts.dead_letter),
            ("transfer", counts.transfer),
            ("transfer_dead_letter", counts.transfer_dead_letter),
        ]
    }
}

/// A running session actor; counted until it is dropped.
pub(crate) struct SessionActorCount(Arc<LiveGauges>);

impl SessionActorCount {
    pub(crate) fn count(observed: &Arc<LiveGauges>) -> Self {
        observed.sessions.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(observed))
    }
}

impl Drop for SessionActorCount {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LiveGauges {
    /// Adds the counts of a turn, without the part of other machines of its tree. Only the arbiter
    /// of the entity calls this.
    pub(crate) fn add_flows(&self, turn: &TurnCounts, of_others: &TurnCounts) {
        if turn != of_others {
            self.flows_for_writing().add(turn, of_others);
        }
    }

    /// Notes how long a message waited until its first delivery.
    pub(crate) fn note_wait(&self, span: TimeSpan) {
        self.flows_for_writing().waits.note(span);
    }

    /// Notes how long messages were locked, and how many of these locks ended by their time.
    pub(crate) fn note_locks(&self, spans: &[TimeSpan], expired: u32) {
        for span in spans {
            self.flows_for_writing().locks.note(*span);
        }
        if expired > 0 {
            self.flows_for_writing().note_expired_locks(expired);
        }
    }

    fn flows_for_writing(&self) -> &Flows {
        self.flows.get_or_init(Box::default)
    }

    /// Counts since the broker started, if there were any.
    pub(crate) fn flows(&self) -> Option<&Flows> {
        self.flows.get().map(|flows| &**flows)
    }

    /// Publishes changed properties.
    pub(crate) fn publish_setup(&self, setup: Arc<EntitySetup>) {
        *self.setup.write().unwrap_or_else(PoisonError::into_inner) = setup;
    }

    /// Properties as of the last change.
    pub(crate) fn setup(&self) -> Arc<EntitySetup> {
        Arc::clone(&self.setup.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish(&self, readings: &Readings) {
        let Readings { counts, oldest_at, last_sequence, .. } = readings;
        let store = |value: &AtomicU64, now| value.store(now, Ordering::Relaxed);
        self.oldest_at.store(oldest_at.map_or(0, Timestamp::ticks), Ordering::Relaxed);
        store(&self.active, counts.active);
        store(&self.deferred, counts.deferred);
        store(&self.scheduled, counts.scheduled);
        store(&self.dead_letter, counts.dead_letter);
        store(&self.transfer, counts.transfer);
        store(&self.transfer_dead_letter, counts.transfer_dead_letter);
        store(&self.delayed, counts.delayed);
        store(&self.size_bytes, readings.size_bytes);
        store(&self.last_sequence, last_sequence.0);
        store(&self.receivers, readings.receivers);
        store(&self.locks, readings.locks);
        store(&self.size_bytes_max, readings.size_bytes_max);
        self.status.store(readings.status as u8, Ordering::Relaxed);
    }

    /// Live figures as of the last turn. For exact ones, query the entity.
    #[must_use]
    pub fn readings(&self) -> Readings {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let status = usize::from(self.status.load(Ordering::Relaxed));
        Readings {
            counts: self.counts(),
            size_bytes: self.size_bytes(),
            oldest_at: self.oldest_at(),
            last_sequence: SequenceNumber(load(&self.last_sequence)),
            receivers: load(&self.receivers),
            locks: load(&self.locks),
            size_bytes_max: load(&self.size_bytes_max),
            status: EntityStatus::ALL.get(status).copied().unwrap_or_default(),
        }
    }

    /// Counts as of the last turn, for gauges. For exact counts, query the entity.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            active: self.active.load(Ordering::Relaxed),
            deferred: self.deferred.load(Ordering::Relaxed),
            scheduled: self.scheduled.load(Ordering::Relaxed),
            dead_letter: self.dead_letter.load(Ordering::Relaxed),
            transfer: self.transfer.load(Ordering::Relaxed),
            transfer_dead_letter: self.transfer_dead_letter.load(Ordering::Relaxed),
            delayed: self.delayed.load(Ordering::Relaxed),
        }
    }

    /// Time of enqueueing of the oldest message that was available at the last turn.
    #[must_use]
    pub fn oldest_at(&self) -> Option<Timestamp> {
        let ticks = self.oldest_at.load(Ordering::Relaxed);
        (ticks > 0).then(|| Timestamp::from_ticks(ticks))
    }

    /// Number of running session actors: one for each held session, plus ending ones.
    #[must_use]
    pub fn session_actors(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Sum of the stored sizes in bytes as of the last turn.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }
}

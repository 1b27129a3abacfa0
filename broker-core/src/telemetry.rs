//! Every metric name, and the handles that count.
//!
//! Counters and histograms go through the `metrics` facade and have no entity label; gauges of
//! single entities are read from [`Observed`] at scrape time (DESIGN section 5).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::change::{DeadLetterCause, Removal};
use crate::command::Counts;
use crate::time::{TimeSpan, Timestamp};

/// Messages stored (active or scheduled).
pub const ACCEPTED: &str = "peeklock_messages_accepted_total";
/// Messages handed to receivers.
pub const DELIVERED: &str = "peeklock_messages_delivered_total";
/// Messages handed to receivers whose delivery had failed before; among those of [`DELIVERED`].
pub const REDELIVERED: &str = "peeklock_messages_redelivered_total";
/// Deliveries that ended without a word of their receiver: by the end of a lock, or of a connection.
pub const LAPSED: &str = "peeklock_deliveries_lapsed_total";
/// Failures that a retry policy did not delay, because the broker kept as many messages waiting as it may (RTY-32).
pub const UNDELAYED: &str = "peeklock_retries_undelayed_total";
/// Messages gone, by `reason`.
pub const REMOVED: &str = "peeklock_messages_removed_total";
/// Messages dead-lettered, by `cause`.
pub const DEAD_LETTERED: &str = "peeklock_messages_dead_lettered_total";
/// Scheduled messages enqueued.
pub const MATERIALISED: &str = "peeklock_messages_materialised_total";
/// Messages that were received and deleted, and written to nobody.
pub const UNDELIVERED: &str = "peeklock_messages_undelivered_total";
/// Messages that were sent settled and could not be stored (SND-18).
pub const DROPPED: &str = "peeklock_messages_dropped_total";
/// Rejections and failures answered, by `condition`.
pub const REJECTED: &str = "peeklock_rejections_total";
/// Tokens that were refused, by `cause`.
pub const UNAUTHORIZED: &str = "peeklock_tokens_refused_total";
/// TLS handshakes that came to nothing, by `cause`.
pub const HANDSHAKES_REFUSED: &str = "peeklock_tls_handshakes_refused_total";
/// Connections that were closed before their client had said what it speaks, by `transport` and `cause`.
pub const UNOPENED: &str = "peeklock_connections_unopened_total";
/// Entities rebuilt after a failure.
pub const REBUILT: &str = "peeklock_entity_rebuilds_total";
/// Seconds from submission of a batch until it is durable.
pub const COMMIT_SECONDS: &str = "peeklock_store_commit_seconds";

/// The upper bounds of its buckets: from a commit that needs no disk to one that stalls.
pub const COMMIT_SECONDS_BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// 1 while the broker can do its work; a gauge that is asked for.
pub const READY: &str = "peeklock_ready";
/// Messages of an entity by `state`; a gauge that is asked for, as the two below.
pub const ENTITY_MESSAGES: &str = "peeklock_entity_messages";
/// Active messages of an entity that wait for another attempt (RTY-11).
pub const ENTITY_MESSAGES_DELAYED: &str = "peeklock_entity_messages_delayed";
/// Sum of stored sizes of an entity.
pub const ENTITY_SIZE_BYTES: &str = "peeklock_entity_size_bytes";

/// For how long the oldest message of an entity has waited for a receiver.
pub const ENTITY_OLDEST_AGE: &str = "peeklock_entity_oldest_available_age_seconds";
/// 1 while the store refuses new messages (QUO-05); a gauge that is asked for.
pub const STORE_FULL: &str = "peeklock_store_full";
/// What the store has on its medium; a gauge that is asked for.
pub const STORE_BYTES: &str = "peeklock_store_bytes";
/// Connections that are open, by `transport`.
pub const CONNECTIONS: &str = "peeklock_connections";

/// Names and units for the exporter. Called once, after the recorder is installed.
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
    describe_gauge!(CONNECTIONS, "Open connections, by transport");
    describe_histogram!(COMMIT_SECONDS, metrics::Unit::Seconds, "Time until a batch is durable");
}

/// Counts of what happened to messages in one turn of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounts {
    /// Messages stored.
    pub accepted: u64,
    /// Scheduled messages enqueued.
    pub materialised: u64,
    /// Messages handed to receivers.
    pub delivered: u64,
    /// Among them those whose delivery had failed before.
    pub redelivered: u64,
    /// Messages gone, by reason.
    pub removed: [u64; Removal::COUNT],
    /// Messages dead-lettered, by cause.
    pub dead_lettered: [u64; DeadLetterCause::COUNT],
    /// Deliveries that ended without a word of their receiver.
    pub lapsed: u64,
    /// Failures that a retry policy did not delay for want of room (RTY-32).
    pub undelayed: u64,
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
        for (sum, one) in self.removed.iter_mut().zip(other.removed) {
            *sum += one;
        }
        for (sum, one) in self.dead_lettered.iter_mut().zip(other.dead_lettered) {
            *sum += one;
        }
    }
}

/// Handles of one arbiter, looked up once.
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

/// Counts messages that left their entity for good and were written to nobody (RCV-02).
pub fn count_undelivered(count: u64) {
    counter!(UNDELIVERED).increment(count);
}

/// Counts one message that its sender takes for stored and that is not (SND-18).
pub fn count_dropped() {
    counter!(DROPPED).increment(1);
}

/// Counts one answer that was an error.
pub(crate) fn count_rejection(condition: crate::condition::Condition) {
    counter!(REJECTED, "condition" => condition.name()).increment(1);
}

/// Counts one caller who may not do what he asks, because of what he has shown or has not.
pub(crate) fn count_unauthorized(cause: &'static str) {
    counter!(UNAUTHORIZED, "cause" => cause).increment(1);
}

/// Counts one TLS handshake that came to nothing.
pub fn count_refused_handshake(cause: &'static str) {
    counter!(HANDSHAKES_REFUSED, "cause" => cause).increment(1);
}

/// Counts one connection that was closed before its client had said what it speaks.
pub fn count_unopened(transport: &'static str, cause: &'static str) {
    counter!(UNOPENED, "transport" => transport, "cause" => cause).increment(1);
}

/// A connection that is open; counted as long as this is there.
pub struct Connected(Gauge);

impl Connected {
    /// Counts one more of a transport.
    #[must_use]
    pub fn by(transport: &'static str) -> Self {
        let connections = gauge!(CONNECTIONS, "transport" => transport);
        connections.increment(1.0);
        Self(connections)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Counts one rebuild.
pub(crate) fn count_rebuild() {
    counter!(REBUILT).increment(1);
}

/// The gauges of one entity, written by its actor after each turn and read by anybody.
#[derive(Debug, Default)]
pub struct Observed {
    active: AtomicU64,
    deferred: AtomicU64,
    scheduled: AtomicU64,
    dead_letter: AtomicU64,
    transfer: AtomicU64,
    transfer_dead_letter: AtomicU64,
    delayed: AtomicU64,
    size_bytes: AtomicU64,
    /// In ticks; 0, before anything was enqueued, stands for none.
    oldest_at: AtomicI64,
    sessions: AtomicU64,
}

/// The gauges of one entity, as they were at some moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gauges {
    /// Its path.
    pub path: Arc<str>,
    /// How many messages it has.
    pub counts: Counts,
    /// The sum of their stored sizes.
    pub size_bytes: u64,
    /// When the oldest message was enqueued that waits for a receiver, if one does.
    pub oldest_at: Option<Timestamp>,
}

impl Gauges {
    /// How many states there are.
    pub const STATE_COUNT: usize = 6;

    /// Of entities that were observed, that is, of [`crate::Broker::observed`].
    #[must_use]
    pub fn of(observed: Vec<(Arc<str>, Arc<Observed>)>) -> Vec<Self> {
        let gauges = observed.into_iter().map(|(path, observed)| {
            let (counts, size_bytes) = (observed.counts(), observed.size_bytes());
            Self { path, counts, size_bytes, oldest_at: observed.oldest_at() }
        });
        gauges.collect()
    }

    /// Of these entities so many with the most messages, in that order; those that are equally large stay in the order
    /// that they are in.
    #[must_use]
    pub fn largest(mut all: Vec<Self>, count: usize) -> Vec<Self> {
        all.sort_by_key(|entity| std::cmp::Reverse(entity.counts.total()));
        all.truncate(count);
        all
    }

    /// For how many seconds the oldest message has waited for a receiver; 0 if none does.
    #[must_use]
    pub fn oldest_age_seconds(&self, now: Timestamp) -> f64 {
        let age = self.oldest_at.map_or(TimeSpan::ZERO, |at| now.since(at));
        age.max(TimeSpan::ZERO).as_seconds_f64()
    }

    /// Its messages by their state; what is delayed is active.
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

/// An actor of a session that runs; counted as long as this is there.
pub(crate) struct SessionRunning(Arc<Observed>);

impl SessionRunning {
    pub(crate) fn count(observed: &Arc<Observed>) -> Self {
        observed.sessions.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(observed))
    }
}

impl Drop for SessionRunning {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Observed {
    pub(crate) fn publish(&self, counts: &Counts, size_bytes: u64, oldest_at: Option<Timestamp>) {
        let oldest_at = oldest_at.map_or(0, Timestamp::ticks);
        self.oldest_at.store(oldest_at, Ordering::Relaxed);
        self.active.store(counts.active, Ordering::Relaxed);
        self.deferred.store(counts.deferred, Ordering::Relaxed);
        self.scheduled.store(counts.scheduled, Ordering::Relaxed);
        self.dead_letter.store(counts.dead_letter, Ordering::Relaxed);
        self.transfer.store(counts.transfer, Ordering::Relaxed);
        self.transfer_dead_letter.store(counts.transfer_dead_letter, Ordering::Relaxed);
        self.delayed.store(counts.delayed, Ordering::Relaxed);
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
    }

    /// Counts as of the last turn; for gauges. Exact counts are asked of the entity.
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

    /// When the oldest message was enqueued that waited for a receiver as of the last turn.
    #[must_use]
    pub fn oldest_at(&self) -> Option<Timestamp> {
        let ticks = self.oldest_at.load(Ordering::Relaxed);
        (ticks > 0).then(|| Timestamp::from_ticks(ticks))
    }

    /// How many actors of sessions run: one for each session that is held, and those that are just ending.
    #[must_use]
    pub fn session_actors(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Sum of stored sizes as of the last turn.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }
}

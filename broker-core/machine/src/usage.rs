//! Instants of an entity's creation, last update and last use, and the deadline of its idle
//! deletion (TMP-07, TMP-08).

use crate::change::codec::Counters;
use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// Time after a start during which no entity is deleted (TMP-08).
const GRACE_AFTER_START: TimeSpan = TimeSpan::from_minutes(5);
/// Interval at which an entity due for deletion is reported again.
const REPORT_INTERVAL: TimeSpan = TimeSpan::from_seconds(30);
/// Maximum age of the last use in the store; half of the time that TMP-08 allows.
const STORED_EVERY: TimeSpan = TimeSpan::from_seconds(30);

/// Instants of the use of an entity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Instant of creation.
    pub(crate) created_at: Timestamp,
    /// Instant of the last change of its description.
    pub(crate) updated_at: Timestamp,
    /// Instant of the last use; [`Timestamp::NONE`] if there was none.
    pub(crate) last_at: Timestamp,
    /// The last use as stored.
    stored_at: Timestamp,
    /// Instant at which this broker opened the entity.
    started_at: Timestamp,
    reported_at: Option<Timestamp>,
}

impl Usage {
    /// Returns the usage of an entity that is created now.
    pub(crate) const fn starting(now: Timestamp) -> Self {
        Self {
            created_at: now,
            updated_at: now,
            last_at: Timestamp::NONE,
            stored_at: Timestamp::NONE,
            started_at: now,
            reported_at: None,
        }
    }

    /// Restarts the grace period after a start; the last use stays.
    pub(crate) const fn restart(&mut self, now: Timestamp) {
        self.started_at = now;
    }

    /// Returns the counters to store, with the sequence number given last.
    pub(crate) const fn counters(&self, last_sequence: SequenceNumber) -> Counters {
        Counters {
            last_sequence,
            created_at: self.created_at,
            updated_at: self.updated_at,
            last_used_at: self.last_at,
        }
    }

    /// Restores the stored counters.
    pub(crate) const fn restore(&mut self, counters: &Counters) {
        self.created_at = counters.created_at;
        self.updated_at = counters.updated_at;
        self.last_at = counters.last_used_at;
        self.stored_at = counters.last_used_at;
    }

    /// Instant of the last use of any kind. Creation and updates count as uses.
    pub(crate) fn last_of_any_kind(&self) -> Timestamp {
        self.last_at.max(self.created_at).max(self.updated_at)
    }

    /// Notes an activity that ends idleness.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.last_at = self.last_at.max(now);
        self.reported_at = None;
    }

    /// Whether the last use is newer than the store's, which is older than [`STORED_EVERY`].
    pub(crate) fn needs_storing(&self, now: Timestamp) -> bool {
        self.last_at > self.stored_at && now >= self.stored_at.plus(STORED_EVERY)
    }

    /// Records that the last use was stored.
    pub(crate) const fn stored(&mut self) {
        self.stored_at = self.last_at;
    }

    /// Instant at which the entity is reported idle: AutoDeleteOnIdle after `last_at`, its last use
    /// of any kind. The report comes at least [`GRACE_AFTER_START`] after the start, or
    /// AutoDeleteOnIdle after the start if AutoDeleteOnIdle is shorter than this grace. It also
    /// comes at least [`REPORT_INTERVAL`] after the last report.
    pub(crate) fn deadline(&self, last_at: Timestamp, allowed: TimeSpan) -> Timestamp {
        let grace = self.started_at.plus(GRACE_AFTER_START.min(allowed));
        let due = last_at.plus(allowed).max(grace);
        self.reported_at.map_or(due, |at| due.max(at.plus(REPORT_INTERVAL)))
    }

    /// Whether the entity was reported idle and not used since.
    pub(crate) const fn is_reported(&self) -> bool {
        self.reported_at.is_some()
    }

    /// Records the report.
    pub(crate) const fn report(&mut self, now: Timestamp) {
        self.reported_at = Some(now);
    }
}

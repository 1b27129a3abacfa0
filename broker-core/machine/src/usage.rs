//! When an entity was created, described anew and used, and when it has not been used for long enough to
//! be deleted (TMP-07, TMP-08).

use crate::change::codec::Counters;
use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// After a start nothing is deleted for this long (TMP-08).
const GRACE_AFTER_START: TimeSpan = TimeSpan::from_minutes(5);
/// How often an entity that is due for deletion says so again.
const REPORT_INTERVAL: TimeSpan = TimeSpan::from_seconds(30);
/// The last use on disk is at most this old; half of what TMP-08 allows.
const STORED_EVERY: TimeSpan = TimeSpan::from_seconds(30);

/// When an entity was used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// When the entity was created.
    pub(crate) created_at: Timestamp,
    /// The last change of its description.
    pub(crate) updated_at: Timestamp,
    /// The last use, [`Timestamp::NONE`] if there was none.
    pub(crate) last_at: Timestamp,
    /// What the store has of it.
    stored_at: Timestamp,
    /// When this broker took the entity over.
    started_at: Timestamp,
    reported_at: Option<Timestamp>,
}

impl Usage {
    /// Of an entity that is created now.
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

    /// Begins anew after a restart: the last use is as it was, the grace starts now.
    pub(crate) const fn restart(&mut self, now: Timestamp) {
        self.started_at = now;
    }

    /// What the store is to have of an entity that was used so and gave this number last.
    pub(crate) const fn counters(&self, last_sequence: SequenceNumber) -> Counters {
        Counters {
            last_sequence,
            created_at: self.created_at,
            updated_at: self.updated_at,
            last_used_at: self.last_at,
        }
    }

    /// Takes back what the store has.
    pub(crate) const fn restore(&mut self, counters: &Counters) {
        self.created_at = counters.created_at;
        self.updated_at = counters.updated_at;
        self.last_at = counters.last_used_at;
        self.stored_at = counters.last_used_at;
    }

    /// The last use of any kind: to be created and to be described anew are uses, too.
    pub(crate) fn last_of_any_kind(&self) -> Timestamp {
        self.last_at.max(self.created_at).max(self.updated_at)
    }

    /// Notes an activity that ends idleness.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.last_at = self.last_at.max(now);
        self.reported_at = None;
    }

    /// Whether the last use on disk is half a minute old.
    pub(crate) fn wants_storing(&self, now: Timestamp) -> bool {
        self.last_at > self.stored_at && now >= self.stored_at.plus(STORED_EVERY)
    }

    /// Takes note that the last use is in the store.
    pub(crate) const fn stored(&mut self) {
        self.stored_at = self.last_at;
    }

    /// When the entity will have been idle for as long as it may; `last_at` is its last use of any
    /// kind.
    pub(crate) fn deadline(&self, last_at: Timestamp, allowed: TimeSpan) -> Timestamp {
        let grace = self.started_at.plus(GRACE_AFTER_START.min(allowed));
        let due = last_at.plus(allowed).max(grace);
        self.reported_at.map_or(due, |at| due.max(at.plus(REPORT_INTERVAL)))
    }

    /// Whether the entity has said that it is idle, and was not used since.
    pub(crate) const fn is_reported(&self) -> bool {
        self.reported_at.is_some()
    }

    /// Notes that it has said so.
    pub(crate) const fn report(&mut self, now: Timestamp) {
        self.reported_at = Some(now);
    }
}

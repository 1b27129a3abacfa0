//! Idleness: when the queue was last used, and when it has not been used for long enough to be
//! deleted (TMP-07, TMP-09, TMP-14 to TMP-17).

use super::Queue;
use crate::effect::Effect;
use crate::entity::{Ctx, Step};
use crate::time::{TimeSpan, Timestamp};

/// After a start nothing is deleted for this long (TMP-08).
const GRACE_AFTER_START: TimeSpan = TimeSpan::from_minutes(5);
/// How often a queue that is due for deletion says so again.
const REPORT_INTERVAL: TimeSpan = TimeSpan::from_seconds(30);
/// The last use on disk is at most this old; half of what TMP-08 allows.
pub(super) const USE_STORED_EVERY: TimeSpan = TimeSpan::from_seconds(30);

/// When the queue was used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// The last use, [`Timestamp::NONE`] if there was none.
    pub(super) last_at: Timestamp,
    /// What the store has of it.
    pub(super) stored_at: Timestamp,
    /// When this broker took the queue over.
    started_at: Timestamp,
    reported_at: Option<Timestamp>,
}

impl Usage {
    pub(super) const fn starting(now: Timestamp) -> Self {
        Self {
            last_at: Timestamp::NONE,
            stored_at: Timestamp::NONE,
            started_at: now,
            reported_at: None,
        }
    }

    /// Begins anew after a restart: the last use is as it was, the grace starts now.
    pub(super) const fn restart(&mut self, now: Timestamp) {
        self.started_at = now;
    }

    /// The last activity as CNT-09 shows it.
    pub(super) const fn accessed_at(&self) -> Timestamp {
        self.last_at
    }
}

impl Queue {
    /// Notes an activity that ends idleness. Rejected operations and reads of descriptions and
    /// counts are none (TMP-17).
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.usage.last_at = self.usage.last_at.max(now);
        self.usage.reported_at = None;
    }

    /// Whether something lasting keeps the queue from being idle: forwarding (TMP-12), scheduled
    /// messages (TMP-14) and those that wait for their transfer, a waiting call, a link with credit, a session that is held or waited for (TMP-15).
    fn is_held_in_use(&self) -> bool {
        self.description.forward_to.is_some()
            || self.tally.counts.scheduled > 0
            || self.tally.counts.transfer > 0
            || !self.calls.is_empty()
            || self.sessions.as_ref().is_some_and(|sessions| sessions.has_receiver())
            || self.links.values().any(|link| link.credit() > 0)
    }

    /// When the queue will have been idle for AutoDeleteOnIdle.
    pub(super) fn idle_deadline(&self) -> Option<Timestamp> {
        let allowed = self.description.auto_delete_on_idle;
        if allowed.is_unlimited() || self.is_held_in_use() {
            return None;
        }
        let last_at = self.usage.last_at.max(self.created_at).max(self.updated_at);
        let grace = self.usage.started_at.plus(GRACE_AFTER_START.min(allowed));
        let due = last_at.plus(allowed).max(grace);
        Some(self.usage.reported_at.map_or(due, |at| due.max(at.plus(REPORT_INTERVAL))))
    }

    /// Whether the queue is due for deletion: reported idle, and not used since.
    #[must_use]
    pub fn is_idle_at(&self, now: Timestamp) -> bool {
        let allowed = self.description.auto_delete_on_idle;
        let last_at = self.usage.last_at.max(self.created_at).max(self.updated_at);
        self.usage.reported_at.is_some()
            && !allowed.is_unlimited()
            && !self.is_held_in_use()
            && last_at.plus(allowed) <= now
    }

    /// Says so when the queue has been idle for long enough.
    pub(super) fn report_idle(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        if self.idle_deadline().is_some_and(|due| due <= ctx.now) {
            self.usage.reported_at = Some(ctx.now);
            step.effects.push(Effect::IdleElapsed);
        }
    }
}

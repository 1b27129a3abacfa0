//! Idleness: no sends, no updates, no scheduled messages and none on their way, no use of the transfer
//! dead-letter queue or of any subscription (TMP-10, TMP-14, TMP-16).

use super::Topic;
use crate::effect::Effect;
use crate::time::Timestamp;
use crate::{Ctx, Step};

impl Topic {
    fn last_use(&self) -> Timestamp {
        let own = self.usage.last_at.max(self.created_at).max(self.updated_at);
        own.max(self.relatives.used_at)
    }

    /// When the topic will have been idle for AutoDeleteOnIdle. A subscription that is in use all the
    /// time is looked at again then.
    pub(super) fn idle_deadline(&self) -> Option<Timestamp> {
        let allowed = self.description.auto_delete_on_idle;
        if allowed.is_unlimited() || !self.slots.is_empty() || self.is_outbox_in_use() {
            return None;
        }
        Some(self.usage.deadline(self.last_use(), allowed))
    }

    /// Whether the topic is due for deletion: reported idle, and not used since.
    #[must_use]
    pub fn is_idle_at(&self, now: Timestamp) -> bool {
        let allowed = self.description.auto_delete_on_idle;
        self.usage.is_reported()
            && !allowed.is_unlimited()
            && self.slots.is_empty()
            && !self.is_outbox_in_use()
            && !self.relatives.is_held
            && self.last_use().plus(allowed) <= now
    }

    /// Says so when the topic has been idle for long enough.
    pub(super) fn report_idle(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        if self.idle_deadline().is_some_and(|due| due <= ctx.now) {
            self.usage.report(ctx.now);
            step.effects.push(Effect::IdleElapsed);
        }
    }
}

//! Detection of idle queues and topics: a machine reports once its AutoDeleteOnIdle has passed
//! without use (TMP-07, TMP-08). The namespace then deletes the entity.

use super::usage::Usage;
use super::{Ctx, StepOutput};
use crate::effect::Effect;
use crate::time::{TimeSpan, Timestamp};

/// A machine whose entity is deleted after AutoDeleteOnIdle without use.
pub(crate) trait IdleDetection {
    fn usage(&self) -> &Usage;

    fn usage_mut(&mut self) -> &mut Usage;

    /// Returns AutoDeleteOnIdle.
    fn idle_max(&self) -> TimeSpan;

    /// Instant of the last use of any kind.
    fn last_use(&self) -> Timestamp;

    /// Whether its own state keeps it in use, for example a waiting receiver or a scheduled
    /// message.
    fn is_in_use(&self) -> bool;

    /// Whether another machine keeps it in use, as subscriptions do with their topic. No event
    /// announces the end of that use, so it does not remove the deadline: the machine reports
    /// itself at each deadline, and [`Self::is_idle`] decides.
    fn is_in_use_by_others(&self) -> bool {
        false
    }

    /// Instant at which AutoDeleteOnIdle will have passed without use.
    fn idle_deadline(&self) -> Option<Timestamp> {
        let allowed = self.idle_max();
        if allowed.is_unlimited() || self.is_in_use() {
            return None;
        }
        Some(self.usage().deadline(self.last_use(), allowed))
    }

    /// Whether the entity is due for deletion: it was reported idle and not used since.
    fn is_idle(&self, now: Timestamp) -> bool {
        let allowed = self.idle_max();
        self.usage().is_reported()
            && !allowed.is_unlimited()
            && !self.is_in_use()
            && !self.is_in_use_by_others()
            && self.last_use().plus(allowed) <= now
    }

    /// Reports that the entity is idle, once its deadline has passed.
    fn report_idle(&mut self, ctx: &Ctx<'_>, step: &mut StepOutput) {
        if self.idle_deadline().is_some_and(|due| due <= ctx.now) {
            self.usage_mut().report(ctx.now);
            step.effects.push(Effect::IdleElapsed);
        }
    }
}

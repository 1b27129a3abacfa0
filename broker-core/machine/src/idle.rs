//! What queues and topics do alike when nobody uses them: they say so, once they have been idle for as long as they may
//! be (TMP-07, TMP-08).

use super::usage::Usage;
use super::{Ctx, Step};
use crate::effect::Effect;
use crate::time::{TimeSpan, Timestamp};

/// A machine that is deleted when it has been idle for AutoDeleteOnIdle.
pub(crate) trait Idles {
    fn usage(&self) -> &Usage;

    fn usage_mut(&mut self) -> &mut Usage;

    /// AutoDeleteOnIdle.
    fn idle_max(&self) -> TimeSpan;

    /// The last use of any kind.
    fn last_use(&self) -> Timestamp;

    /// Whether something lasting of its own keeps it from being idle.
    fn is_held(&self) -> bool;

    /// Whether something of others does, which it is not told the end of: it looks again when it would be due.
    fn is_held_by_others(&self) -> bool {
        false
    }

    /// When it will have been idle for long enough.
    fn idle_deadline(&self) -> Option<Timestamp> {
        let allowed = self.idle_max();
        if allowed.is_unlimited() || self.is_held() {
            return None;
        }
        Some(self.usage().deadline(self.last_use(), allowed))
    }

    /// Whether it is due for deletion: reported idle, and not used since.
    fn is_idle(&self, now: Timestamp) -> bool {
        let allowed = self.idle_max();
        self.usage().is_reported()
            && !allowed.is_unlimited()
            && !self.is_held()
            && !self.is_held_by_others()
            && self.last_use().plus(allowed) <= now
    }

    /// Says so when it has been idle for long enough.
    fn report_idle(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        if self.idle_deadline().is_some_and(|due| due <= ctx.now) {
            self.usage_mut().report(ctx.now);
            step.effects.push(Effect::IdleElapsed);
        }
    }
}

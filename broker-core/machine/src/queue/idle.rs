//! Use of a queue, for its idle deletion (TMP-07, TMP-09, TMP-14 to TMP-17). Operations that count
//! as use call `touch`; `machine/src/idle.rs` reads the result.

use super::Queue;
use crate::idle::IdleDetection;
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};
use crate::usage::Usage;

impl Queue {
    /// Records an activity that ends idleness. Rejected operations and reads of descriptions and
    /// counts are not activities (TMP-17).
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.usage.touch(now);
    }
}

impl IdleDetection for Queue {
    fn usage(&self) -> &Usage {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    fn idle_max(&self) -> TimeSpan {
        self.description.auto_delete_on_idle
    }

    fn last_use(&self) -> Timestamp {
        self.usage.last_of_any_kind()
    }

    /// Forwarding (TMP-12), scheduled messages (TMP-14), messages that wait for a transfer, a
    /// waiting call, a link with credit, and a session that is held or requested (TMP-15) keep the
    /// queue in use.
    fn is_in_use(&self) -> bool {
        self.description.forward_to.is_some()
            || self.tally.counts.scheduled > 0
            || self.tally.counts.transfer > 0
            || !self.calls.is_empty()
            || self.sessions.as_ref().is_some_and(|sessions| sessions.has_receiver())
            || SubQueue::ALL.into_iter().any(|which| !self.sub_queue(which).credited.is_empty())
    }
}

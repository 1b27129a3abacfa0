//! Use of a topic, for its idle deletion: sends, updates, scheduled messages and messages in
//! transfer, the transfer dead-letter queue, and all subscriptions (TMP-10, TMP-14, TMP-16).

use super::Topic;
use crate::idle::IdleDetection;
use crate::time::{TimeSpan, Timestamp};
use crate::usage::Usage;

impl IdleDetection for Topic {
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
        self.usage.last_of_any_kind().max(self.family_summary.used_at)
    }

    fn is_in_use(&self) -> bool {
        !self.slots.is_empty() || self.is_outbox_in_use()
    }

    /// Whether a subscription is permanently in use.
    fn is_in_use_by_others(&self) -> bool {
        self.family_summary.is_in_use
    }
}

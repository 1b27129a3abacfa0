//! Facts about a queue: counts, sizes, description, memory. The shell, management and metrics read
//! them; nothing here changes state.

use super::Queue;
use crate::MemoryUse;
use crate::command::{Counts, Described};
use crate::description::SubscriptionDescription;
use crate::time::Timestamp;

impl Queue {
    /// Message counts, in constant time (CNT-07).
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.tally.counts
    }

    /// Sum of the stored sizes (CNT-08).
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.tally.size_bytes
    }

    /// Instant at which the oldest message was enqueued that waits for a receiver: an available
    /// message, or one in a session without a holder. Takes logarithmic time in the number of
    /// messages.
    #[must_use]
    pub fn oldest_available_at(&self) -> Option<Timestamp> {
        let first = match &self.sessions {
            Some(sessions) => sessions.first_open().map(|(first, _)| first),
            None => self.main.available.first(),
        };
        Some(self.slots.get(first?)?.enqueued_at)
    }

    /// Number of links and waiting calls.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        let of_sessions = self.sessions.as_ref().map_or(0, |sessions| sessions.receiver_count());
        self.links.len() + self.calls.len() + of_sessions
    }

    /// Whether a message or a session is locked.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        let are_sessions_held =
            self.sessions.as_ref().is_some_and(|sessions| sessions.counts().locked > 0);
        !self.locks.is_empty() || are_sessions_held
    }

    /// Returns the description with runtime facts (CNT-01).
    pub(super) fn describe(&self) -> Described {
        Described {
            description: (*self.description).clone(),
            counts: self.tally.counts,
            size_bytes: self.tally.size_bytes,
            last_sequence: self.last_sequence,
            created_at: self.usage.created_at,
            updated_at: self.usage.updated_at,
            accessed_at: self.usage.last_at,
            sessions: self.sessions.as_ref().map(|sessions| sessions.counts()),
        }
    }

    /// Memory in units that the broker limits (QUO-08).
    pub(super) fn kept_in_memory(&self) -> MemoryUse {
        MemoryUse {
            messages: self.slots.len() as u64 + self.tally.overlay_count,
            sessions: self.sessions.as_ref().map_or(0, |sessions| sessions.counts().existing),
            duplicate_ids: self.duplicates.as_ref().map_or(0, |history| history.len() as u64)
                + self.peers.len() as u64,
            delayed: self.tally.counts.scheduled
                + self.tally.counts.deferred
                + self.delays.len() as u64,
            rules: 0,
            described_bytes: self.description.text_bytes()
                + self.subscription_description().map_or(0, SubscriptionDescription::text_bytes),
            judged_bytes: 0,
        }
    }
}

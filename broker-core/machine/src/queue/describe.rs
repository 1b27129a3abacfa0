//! Facts about a queue: counts, sizes, description, memory. The shell, management and metrics read
//! them; nothing here changes state.

use peeklock_model::inspect::{EntitySetup, Readings};

use super::Queue;
use crate::command::{Counts, Described};
use crate::description::SubscriptionDescription;
use crate::ids::SequenceNumber;
use crate::time::Timestamp;
use crate::{AcceptedMessages, MemoryUse};

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

    /// Live figures, in constant time (CON-04).
    #[must_use]
    pub fn readings(&self) -> Readings {
        let session_locks = self.sessions.as_ref().map_or(0, |sessions| sessions.counts().locked);
        let (size_bytes_max, status) = match self.subscription_description() {
            Some(subscription) => (0, subscription.status),
            None => (self.description.size_bytes_max(), self.description.status),
        };
        Readings {
            counts: self.tally.counts,
            size_bytes: self.tally.size_bytes,
            oldest_at: self.oldest_available_at(),
            last_sequence: self.last_sequence,
            receivers: self.receiver_count() as u64,
            locks: self.locks.len() as u64 + session_locks,
            size_bytes_max,
            status,
        }
    }

    /// Whether published properties are still in force (CON-38).
    #[must_use]
    pub fn has_setup(&self, setup: &EntitySetup) -> bool {
        let own = &self.description;
        setup.lock_duration == own.lock_duration
            && setup.time_to_live == own.default_message_time_to_live
            && setup.forward_to == own.forward_to
            && setup.forward_dead_letters_to == own.forward_dead_lettered_messages_to
    }

    /// Properties to publish (CON-38).
    #[must_use]
    pub fn setup(&self) -> EntitySetup {
        EntitySetup {
            lock_duration: self.description.lock_duration,
            time_to_live: self.description.default_message_time_to_live,
            forward_to: self.description.forward_to.clone(),
            forward_dead_letters_to: self.description.forward_dead_lettered_messages_to.clone(),
            ..EntitySetup::default()
        }
    }

    /// Returns the durable messages above a number, up to the first one that is not durable.
    pub(super) fn accepted_above(&self, seen: SequenceNumber) -> AcceptedMessages {
        let mut accepted = AcceptedMessages { last: seen, count: 0 };
        while accepted.last < self.last_sequence {
            let next = accepted.last.next();
            match self.slots.get(next) {
                // Stages are durable in their order, so that later messages are not durable either.
                Some(slot) if slot.is_in_flight() => break,
                Some(_) => accepted.count += 1,
                // Cancelled before it was durable.
                None => {}
            }
            accepted.last = next;
        }
        accepted
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
                + (self.peers.len() + self.receipts.len()) as u64,
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

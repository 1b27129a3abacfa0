//! Events of messages that are no changes: deliveries, ends of locks, duplicates. A restart forgets
//! them. The shell passes them, with the changes of a step, to the journeys of messages (CON-29). A
//! machine notes them only in a step whose output has `notes_events`.

use crate::change::Change;
use crate::ids::{ReceiverId, SequenceNumber};

/// Event of a message within a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageEvent {
    /// The message; 0 if it has no number.
    pub sequence: SequenceNumber,
    /// The receiver that holds or held the message, if it is known.
    pub holder: Option<ReceiverId>,
    /// Number of changes of the step before the event. The next change of the same message is its
    /// consequence.
    pub change_count: usize,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// The message was handed out.
    Delivered {
        /// Number of failed deliveries before.
        delivery_count: u32,
    },
    /// Its lock was renewed.
    Renewed,
    /// Its lock ended.
    LockEnded {
        /// The reason.
        end: LockEnd,
    },
    /// A message was dropped, because one with its id was sent before.
    Duplicate {
        /// Low half of the keyed hash of the id.
        id_hash: u64,
    },
}

/// Reason for which the lock of a message ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockEnd {
    /// A receiver settled the message.
    Settled,
    /// The time of the lock was over.
    TimeOver,
    /// The link of its holder ended.
    LinkEnded,
    /// The lock of its session ended.
    SessionEnded,
    /// An operator ended it.
    Operator,
}

impl MessageEvent {
    /// Creates an event after these changes.
    #[must_use]
    pub const fn after(
        changes: &[Change],
        sequence: SequenceNumber,
        holder: Option<ReceiverId>,
        kind: EventKind,
    ) -> Self {
        Self { sequence, holder, change_count: changes.len(), kind }
    }
}

/// Returns the low half of the hash of an id, which is enough for journeys.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
pub const fn low_half(id_hash: u128) -> u64 {
    id_hash as u64
}

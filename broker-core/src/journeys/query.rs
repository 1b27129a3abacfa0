//! Questions for the journey of a message, and their answers.

use std::sync::Arc;

pub use crate::change::DeadLetterCause;
use crate::findings::Holder;
use crate::ids::{JobId, SequenceNumber};
pub use crate::machine::event::LockEnd;
use crate::time::Timestamp;

/// Maximum number of stations in an answer (CON-29).
pub const STATION_COUNT_MAX: usize = 500;

/// Message whose journey is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JourneyQuery {
    /// The message with this number in the entity of the path.
    Sequence(SequenceNumber),
    /// All messages with this MessageId; with a path, only messages that were sent to its entity.
    MessageId(Box<str>),
}

/// The stations of a message, and of its copies before and after it (CON-29).
#[derive(Clone, PartialEq, Debug)]
pub struct Journey {
    /// The stations, the earliest first, at most [`STATION_COUNT_MAX`].
    pub stations: Vec<Station>,
    /// Instant since which no station of these messages is missing (CON-30).
    pub complete_since: Timestamp,
    /// Whether further stations are left out, since the answer is full or took too long.
    pub is_cut: bool,
    /// Number of links to entities that the reader may not read, or that no longer exist.
    pub hidden_count: u64,
}

/// A message in its entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessagePlace {
    /// Path of the entity.
    pub path: Arc<str>,
    /// Number of the message there.
    pub sequence: SequenceNumber,
}

/// An event in the life of a message.
#[derive(Clone, PartialEq, Debug)]
pub struct Station {
    /// Instant of the event, or of the last of several.
    pub at: Timestamp,
    /// The message; the number is 0 for a duplicate that got none.
    pub place: MessagePlace,
    /// Kind of the event.
    pub kind: StationKind,
    /// The other message of a copy, hop or materialisation.
    pub other: Option<MessagePlace>,
    /// Hop of a copy or of a forwarded message.
    pub hop: Option<u8>,
    /// Name of the rule that made a copy.
    pub rule: Option<Arc<str>>,
    /// The client that got, held or settled the message.
    pub client: Option<Holder>,
    /// Failed deliveries of the message until then, or the number of renewals.
    pub count: Option<u32>,
    /// Cause of dead-lettering.
    pub cause: Option<DeadLetterCause>,
    /// Reason for which a lock ended without a settlement.
    pub lock_end: Option<LockEnd>,
    /// Job of an operator.
    pub job: Option<JobId>,
    /// New instant of a scheduled message.
    pub due_at: Option<Timestamp>,
}

/// Kind of a station.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StationKind {
    /// A queue stored the message.
    Accepted,
    /// A topic published the message.
    Published,
    /// The message was stored for its instant.
    Scheduled,
    /// The message was stored until it can leave for the destination that its sender named.
    Pending,
    /// A message with the same id was dropped.
    Duplicate,
    /// The scheduled message became active under another number.
    MaterialisedTo,
    /// The message was scheduled under another number.
    MaterialisedFrom,
    /// A copy was made for a subscription.
    CopiedTo,
    /// The message is a copy of a published one.
    CopiedFrom,
    /// A client got the message.
    Delivered,
    /// The lock was renewed once or several times.
    Renewed,
    /// A client abandoned the message.
    Abandoned,
    /// The lock ended, and the delivery failed.
    LockEnded,
    /// The message was returned, and the delivery does not count.
    Released,
    /// A client deferred the message.
    Deferred,
    /// The message was dead-lettered.
    DeadLettered,
    /// The message went to another entity.
    ForwardedTo,
    /// The message came from another entity.
    ForwardedFrom,
    /// A forwarder delivered the message outside of the broker.
    ForwardedOut,
    /// The message came from another broker.
    ForwardedIn,
    /// The message went to another entity, which dropped it as a duplicate.
    DroppedAt,
    /// The message expired and was removed.
    Expired,
    /// A client completed the message.
    Completed,
    /// A client received the message and it was deleted.
    Received,
    /// The schedule of the message was cancelled.
    Cancelled,
    /// The message was deleted by number or in a batch.
    Deleted,
    /// A job of an operator acted on the message.
    Job,
    /// The deferred message became active.
    Undeferred,
    /// The scheduled message got another instant.
    Rescheduled,
    /// The undo of a job put the message back as it was.
    PutBack,
}

impl StationKind {
    /// Whether an entry of this kind has the hash of a message id.
    pub(super) const fn has_id(self) -> bool {
        matches!(
            self,
            Self::Accepted
                | Self::Published
                | Self::Scheduled
                | Self::Pending
                | Self::Duplicate
                | Self::ForwardedIn
        )
    }

    /// Whether a message begins with this entry. All entries of a message make room in their order,
    /// so none is missing while the first one is there.
    pub(super) const fn is_first(self) -> bool {
        matches!(
            self,
            Self::Accepted
                | Self::Published
                | Self::Scheduled
                | Self::Pending
                | Self::MaterialisedFrom
                | Self::CopiedFrom
                | Self::ForwardedFrom
                | Self::ForwardedIn
        )
    }

    /// Whether the message of this entry no longer exists under its number.
    pub(super) const fn is_last(self) -> bool {
        matches!(
            self,
            Self::MaterialisedTo
                | Self::ForwardedTo
                | Self::ForwardedOut
                | Self::DroppedAt
                | Self::Expired
                | Self::Completed
                | Self::Received
                | Self::Cancelled
                | Self::Deleted
        )
    }
}

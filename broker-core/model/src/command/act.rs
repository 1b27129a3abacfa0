//! One step of an operator's job: a deed on messages of a sub-queue that are named by number
//! (CON-12, CON-15). The console and the command line send it to an entity; a job repeats it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::ids::{JobId, SequenceNumber};
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of messages that one step acts on.
pub const ACT_COUNT_MAX: usize = 256;
/// Maximum number of jobs whose receipts an entity keeps.
pub const RECEIPT_COUNT_MAX: usize = 8;
/// Maximum bytes of the changes of an [`Edit`].
pub const EDIT_BYTES_MAX: u32 = 8 << 10;
/// Maximum bytes of a [`BodyEdit`].
pub const BODY_EDIT_BYTES_MAX: u32 = 16 << 10;
/// Maximum bytes of a body to which a merge patch is applied.
pub const PATCHED_BODY_BYTES_MAX: u32 = 256 << 10;
/// Age from which a receipt makes way for the receipt of another job.
pub const RECEIPT_AGE_MAX: TimeSpan = TimeSpan::from_days(1);

/// A deed on messages that are named by number. All messages of a step change in one batch of the
/// store, together with the receipt of the step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Act {
    /// Identity of the step. A step without one is carried out again when it is repeated.
    pub step: Option<JobStep>,
    /// The messages: 1 to [`ACT_COUNT_MAX`], none twice.
    pub sequences: Vec<SequenceNumber>,
    /// Change of each message.
    pub deed: Deed,
    /// Whether locks of others are broken, uncounted. Otherwise a locked message is left alone.
    pub breaks_locks: bool,
    /// Records of messages that a job keeps, so that it can be undone (CON-20). A message with
    /// another record, or without one here, stays. Absent if any message may change.
    pub kept: Option<BTreeMap<SequenceNumber, Bytes>>,
}

/// Identity of a step. The steps of a job have ascending numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobStep {
    /// The job.
    pub job: JobId,
    /// Number of the step in the job.
    pub number: u64,
}

/// Change of a message that an operator asks for. Delivery counts and numbers of the messages stay,
/// unless they leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Removes the message, in any state.
    Delete,
    /// Moves an active or deferred message of the main queue to the dead-letter queue (DLQ-07).
    DeadLetter {
        /// The dead-letter reason to set.
        reason: Option<Box<str>>,
        /// The dead-letter description to set.
        description: Option<Box<str>>,
    },
    /// Makes a deferred message active again, at its place in the queue.
    Undefer,
    /// Gives a scheduled message another instant. Its time to live counts from the new one.
    Reschedule(NewInstant),
    /// Sends an active message again, without the facts of its dead-lettering. It leaves when it is
    /// stored at its destination. Only a job sends messages.
    Resubmit {
        /// Queue, topic or subscription; absent if each message returns to the entity in which it
        /// was dead-lettered.
        to: Option<Box<str>>,
        /// Changes on the way.
        edit: Option<Arc<Edit>>,
    },
    /// Sends an active message to another queue, topic or subscription, as [`Deed::Resubmit`] does.
    /// It keeps the facts of its dead-lettering.
    Move {
        /// The queue, topic or subscription.
        to: Box<str>,
        /// Changes on the way.
        edit: Option<Arc<Edit>>,
    },
    /// Puts messages back as they were before another job (CON-20). Only a job does this.
    PutBack(Box<PutBack>),
    /// Writes the message to a file, and changes nothing (CON-22). Only a job does this, without a
    /// step of the entity.
    Export(ExportForm),
}

/// Form of a file of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportForm {
    /// A JSON object on each line: the whole message.
    Ndjson,
    /// A table of the messages without their bodies.
    Csv,
}

/// Messages of a step that puts them back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutBack {
    /// The job that is undone.
    pub undone: JobId,
    /// Its deed; absent in the description of a job. A message that exists returns only if it is
    /// still as the deed left it.
    pub deed: Option<Deed>,
    /// The messages, in the order of the numbers of the step; empty in the description of a job.
    pub originals: Vec<Original>,
}

/// A message before the deed of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Original {
    /// Its slot and session, as its record has them.
    pub record: Bytes,
    /// Its content, if the deed has removed it.
    pub content: Option<Bytes>,
    /// Its overlays, if the deed has removed it.
    pub overlays: Vec<Bytes>,
}

/// Changes of each message that a job sends, the same for all (CON-16). Everything else stays byte
/// for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// Application properties to set or remove, and broker properties to set or unset.
    pub changes: Overlay,
    /// Whether each message gets a new MessageId.
    pub new_id: bool,
    /// New body.
    pub body: Option<BodyEdit>,
}

/// New body of a message, in one data section. Its content type stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyEdit {
    /// Bytes that replace the body. The content encoding is removed.
    Whole(Bytes),
    /// JSON merge patch (RFC 7396) for the body.
    MergePatch(Box<str>),
}

/// Way of the messages of a step to their destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Queue, topic or subscription; absent if each message goes to the entity in which it was
    /// dead-lettered before it was forwarded.
    pub to: Option<Arc<str>>,
    /// Whether the facts of the dead-lettering are removed.
    pub is_resubmit: bool,
    /// Changes on the way.
    pub edit: Option<Arc<Edit>>,
}

/// New instant of a scheduled message. An instant that has passed delivers it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewInstant {
    /// This instant.
    At(Timestamp),
    /// The message's instant, moved to this much later.
    Later(TimeSpan),
    /// The message's instant, moved to this much earlier.
    Earlier(TimeSpan),
    /// The instant of the step.
    Now,
}

/// Result of a step for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ActResult {
    /// The deed is done.
    Done,
    /// The sub-queue has no such message.
    NotFound,
    /// A receiver holds the message under a lock, which the step does not break.
    Locked,
    /// The deed does not apply to the state of the message.
    WrongState,
    /// The message is about to change or to leave for another entity. A later step may succeed.
    Busy,
    /// The message is expired. It would be removed at once if it were active again.
    Expired,
    /// The header of the message has no room for reason and description.
    TooLarge,
    /// The message is on its way to its destination. A repetition of the step reports its result.
    Leaving,
    /// The destination does not exist, or the message names none.
    NoDestination,
    /// The status of the destination forbids sending.
    DestinationDisabled,
    /// The destination, or the broker, has no room for the message, or does not take it at present.
    /// A job waits for it.
    DestinationFull,
    /// The destination takes no message of this size.
    DestinationTooSmall,
    /// The destination requires sessions, and the message has none.
    NoSession,
    /// The destination detects duplicates, and has or had a message with this id.
    Duplicate,
    /// The destination does not take the message for another reason.
    Refused,
    /// The merge patch does not apply to the body: it is not data with JSON of at most
    /// [`PATCHED_BODY_BYTES_MAX`] bytes and 128 levels, or has a member twice that the patch
    /// changes.
    NotJson,
}

/// Result of a step for the message of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActedMessage {
    /// The number.
    pub sequence: SequenceNumber,
    /// The result.
    pub result: ActResult,
}

/// Durable result of the last step of a job in an entity. The answer to a repeated step comes from
/// here (CON-15).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The step.
    pub step: JobStep,
    /// Instant of the step.
    pub at: Timestamp,
    /// Sub-queue of its messages.
    pub sub_queue: SubQueue,
    /// Hash of its deed and of whether it breaks locks.
    pub deed_hash: u64,
    /// Way of its messages that are leaving. A message that is leaving and no longer exists is at
    /// its destination.
    pub route: Option<Route>,
    /// Its messages, in the order of the command.
    pub messages: Vec<ActedMessage>,
}

impl Edit {
    /// Bytes of the changes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let body = self.body.as_ref().map_or(0, |body| body.as_bytes().len() as u64);
        u64::from(self.changes.size_bytes()) + body
    }
}

impl Original {
    /// Bytes of its parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let overlays: usize = self.overlays.iter().map(Bytes::len).sum();
        (self.record.len() + self.content.as_ref().map_or(0, Bytes::len) + overlays) as u64
    }
}

impl BodyEdit {
    /// The new body, or the text of the patch.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::MergePatch(patch) => patch.as_bytes(),
        }
    }
}

impl NewInstant {
    /// Returns the new instant of a message that is scheduled for `current`.
    #[must_use]
    pub fn of(self, current: Timestamp, now: Timestamp) -> Timestamp {
        let at = match self {
            Self::At(at) => at,
            Self::Later(shift) => current.plus(shift),
            Self::Earlier(shift) => current.minus(shift),
            Self::Now => now,
        };
        at.max(now)
    }
}

impl ActResult {
    /// All results, in the order of their codes in receipts.
    pub const ALL: [Self; 16] = [
        Self::Done,
        Self::NotFound,
        Self::Locked,
        Self::WrongState,
        Self::Busy,
        Self::Expired,
        Self::TooLarge,
        Self::Leaving,
        Self::NoDestination,
        Self::DestinationDisabled,
        Self::DestinationFull,
        Self::DestinationTooSmall,
        Self::NoSession,
        Self::Duplicate,
        Self::Refused,
        Self::NotJson,
    ];
}

impl Deed {
    /// Bytes of the texts that the deed sets on each message.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        match self {
            Self::DeadLetter { reason, description } => {
                let bytes = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
                (bytes(reason) + bytes(description)) as u64
            }
            Self::Resubmit { edit, .. } | Self::Move { edit, .. } => {
                edit.as_ref().map_or(0, |edit| edit.bytes())
            }
            Self::PutBack(put_back) => put_back.originals.iter().map(Original::bytes).sum(),
            Self::Delete | Self::Undefer | Self::Reschedule(_) | Self::Export(_) => 0,
        }
    }

    /// Number of overlays of the messages that it puts back.
    #[must_use]
    pub fn overlay_count(&self) -> u64 {
        match self {
            Self::PutBack(put_back) => {
                put_back.originals.iter().map(|original| original.overlays.len() as u64).sum()
            }
            _ => 0,
        }
    }

    /// Whether only a job does it.
    #[must_use]
    pub const fn is_of_jobs(&self) -> bool {
        self.sends() || matches!(self, Self::PutBack(_) | Self::Export(_))
    }

    /// Whether the deed sends each message to a destination.
    #[must_use]
    pub const fn sends(&self) -> bool {
        matches!(self, Self::Resubmit { .. } | Self::Move { .. })
    }

    /// The destination that the deed names.
    #[must_use]
    pub fn destination(&self) -> Option<&str> {
        match self {
            Self::Resubmit { to, .. } => to.as_deref(),
            Self::Move { to, .. } => Some(to),
            Self::Delete
            | Self::DeadLetter { .. }
            | Self::Undefer
            | Self::Reschedule(_)
            | Self::PutBack(_)
            | Self::Export(_) => None,
        }
    }

    /// The changes that the deed makes on each message that it sends.
    #[must_use]
    pub const fn edit(&self) -> Option<&Arc<Edit>> {
        match self {
            Self::Resubmit { edit, .. } | Self::Move { edit, .. } => edit.as_ref(),
            Self::Delete
            | Self::DeadLetter { .. }
            | Self::Undefer
            | Self::Reschedule(_)
            | Self::PutBack(_)
            | Self::Export(_) => None,
        }
    }
}

//! What can happen to an entity: the durable facts of its state machine. (Data path, step 3.)
//!
//! A machine's `enact` is the only code that carries a change out, its `records` tells the store the
//! absolute value of every key the change touched, and its `restore` rebuilds the machine from those
//! values. Locks and demand are not here: they do not survive a restart (SET-27).

pub mod codec;

use std::sync::Arc;

use bytes::Bytes;

use crate::description::QueueDescription;
use crate::entity::peers::{PeerSource, Taking};
use crate::entity::slot::Slot;
use crate::ids::SequenceNumber;
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::time::Timestamp;

/// Whether an answer may rest on a change before it is synced (DESIGN D5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// Gates nothing; rides along or is flushed after 500 ms.
    Lazy,
    /// Answers wait for it, and the message it touches is offered to nobody before.
    Sync,
}

/// One durable fact.
#[derive(Clone, Debug)]
pub enum Change {
    /// A message was stored under a new number, scheduled or active.
    Accepted {
        /// Its number.
        sequence: SequenceNumber,
        /// Its slot.
        slot: Slot,
        /// The session it belongs to, in an entity that requires sessions.
        session: Option<Arc<str>>,
        /// Its content.
        content: Content,
    },
    /// A scheduled message became active under a new number (SCH-03).
    Materialised {
        /// The number it had while scheduled.
        from: SequenceNumber,
        /// The number it has now.
        to: SequenceNumber,
        /// When it was enqueued.
        enqueued_at: Timestamp,
        /// When it expires, from its own TTL.
        expires_at: Timestamp,
    },
    /// A message is gone.
    Removed {
        /// Its number.
        sequence: SequenceNumber,
        /// How many overlays go with it.
        overlay_count: u16,
        /// Why.
        reason: Removal,
    },
    /// A delivery failed by lock end or link end; the message is available or deferred as before.
    Counted {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
    },
    /// A message was abandoned; it is available or deferred as before.
    Abandoned {
        /// Its number.
        sequence: SequenceNumber,
        /// The stored count from now on.
        delivery_count: u32,
        /// Properties that were set.
        overlay: Option<Overlay>,
    },
    /// A message was set aside.
    Deferred {
        /// Its number.
        sequence: SequenceNumber,
        /// Properties that were set.
        overlay: Option<Overlay>,
    },
    /// A message moved into a sub-queue of its entity.
    DeadLettered {
        /// Its number, which it keeps (DLQ-12).
        sequence: SequenceNumber,
        /// The dead-letter or the transfer dead-letter queue.
        into: SubQueue,
        /// The stored count from now on.
        delivery_count: u32,
        /// Properties that the receiver set.
        properties: Option<Overlay>,
        /// The reason and description that the broker set (DLQ-14).
        verdict: Option<Overlay>,
        /// Why, for the metrics.
        cause: DeadLetterCause,
    },
    /// A message id was remembered for duplicate detection (DUP-01).
    IdRecorded {
        /// Start of the bucket it belongs to.
        bucket: Timestamp,
        /// Keyed hash of the id.
        id_hash: u128,
        /// When it was accepted.
        at: Timestamp,
        /// The number of the scheduled message, 0 if it was not scheduled (DUP-12).
        sequence: SequenceNumber,
    },
    /// A whole bucket of message ids is outside every window.
    IdsForgotten {
        /// Start of the bucket.
        bucket: Timestamp,
    },
    /// A message that another broker forwarded was taken, so that it is known when it comes again.
    PeerTaken {
        /// Where it came from.
        source: PeerSource,
        /// Which it was.
        taking: Taking,
    },
    /// What is known of a source at another broker makes room for that of a new one.
    PeerForgotten {
        /// The source.
        source: PeerSource,
    },
    /// The state of a session was set or cleared (SES-24).
    SessionStateSet {
        /// The session.
        session: Arc<str>,
        /// Its state from now on.
        state: Option<Bytes>,
        /// When.
        at: Timestamp,
    },
    /// The description was replaced.
    Described {
        /// The new one.
        description: Box<QueueDescription>,
        /// When.
        at: Timestamp,
    },
}

/// Why a message is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Removal {
    /// A receiver completed it.
    Completed,
    /// It was received in receive-and-delete mode.
    Received,
    /// It expired with dead-lettering switched off.
    Expired,
    /// It was scheduled and cancelled.
    Cancelled,
    /// It was removed by a batch delete or by number.
    Deleted,
}

/// Why a message was dead-lettered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DeadLetterCause {
    /// It expired with dead-lettering switched on (EXP-22).
    Expired,
    /// It failed as often as it may (SET-34).
    DeliveryCount,
    /// A receiver asked for it (SET-05).
    Application,
}

impl Removal {
    /// How many reasons there are.
    pub const COUNT: usize = 5;
    /// All reasons with their names in metrics, in the order of [`Removal::place`].
    pub const NAMES: [&'static str; Self::COUNT] =
        ["completed", "received", "expired", "cancelled", "deleted"];

    /// The place of the reason in a table of counts.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

impl DeadLetterCause {
    /// How many causes there are.
    pub const COUNT: usize = 3;
    /// All causes with their names in metrics, in the order of [`DeadLetterCause::place`].
    pub const NAMES: [&'static str; Self::COUNT] = ["expired", "delivery_count", "application"];

    /// The place of the cause in a table of counts.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

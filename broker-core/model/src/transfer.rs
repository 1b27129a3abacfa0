//! Transfers: what travels between two entities of one broker (DESIGN D9, file 10 of the spec).
//!
//! ```text
//!   source                                              destination
//!   freezes a list ──HandOver──► contents ──TransferIn──► checks of a send
//!     │  (in memory)                                      one batch: "arrived here" and "left there"
//!     │                                                       │ durable
//!   takes out what is gone, ◄──TransferOut──── Admissions ◄───┘
//!   refused ones to the TDLQ
//! ```
//!
//! Nothing of a transfer is stored at the source: until the batch of the destination is durable the
//! message is there, and from then on it is here. Who asks too early, because an answer was lost, asks
//! the store. That nothing lands after it was asked is the guard's work (`passage` of `peeklock-core`).

pub mod peer;

use std::sync::Arc;

use crate::command::{InboundMessage, MessageFacts};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::store::{Batch, Key};
use crate::time::TimeSpan;

/// Names a list of messages that one source has frozen, until it is told what became of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ListNumber(pub u64);

/// Where the records of a message lie that goes with its transfer.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its slot, whose content is the message.
    pub key: Key,
    /// Its overlays, in their order.
    pub overlays: Vec<Key>,
}

impl Origin {
    /// Removes what a message had where it came from.
    pub fn delete(&self, batch: &mut Batch) {
        batch.delete(&self.key);
        for key in &self.overlays {
            batch.delete(key);
        }
    }
}

/// A message on its way in from another entity.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The message; the sizes of its envelope count its overlays too.
    pub message: InboundMessage,
    /// What was set on it since it was sent.
    pub overlays: Vec<Overlay>,
    /// Its time to live, if an entity on its way has lowered it (EXP-16). The envelope has the same value.
    pub lowered_time_to_live: Option<TimeSpan>,
    /// Number at the original point of submission (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Transfers so far, this one included (FWD-13).
    pub hops: u8,
    /// Of the copies that one message may become, those that are not its own to make any more (FWD-33).
    pub copies_spent: u16,
    /// The entity in which it was dead-lettered, if it is forwarded from there (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
    /// What is removed when it has arrived.
    pub origin: Origin,
}

/// What a destination does with a list once it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// Refuses what has no room, and looks at the next: the source dead-letters what is refused.
    Refuse,
    /// Takes nothing more of the list: the source keeps it, in its order.
    Stop,
}

/// What a destination says of one message of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It is here now, or it was a duplicate (FWD-22); at its source it is gone.
    Accepted,
    /// It is not taken.
    NotAdmitted(Rejection),
    /// One before it was not taken, and it was not either.
    NotTried,
}

/// Reason of a message that would pass through more entities than it may (FWD-12).
pub const HOPS_EXCEEDED: &str = "MaxTransferHopCountExceeded";

/// What became of one message of a list, as its source is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Departure {
    /// It is at its destination, and its records here are gone.
    Taken,
    /// A forwarder has delivered it; its records are here still.
    Delivered,
    /// The destination, an entity of this broker, does not take it.
    NotAdmitted(Rejection),
    /// A forwarder will never take it (FWD-31).
    Refused {
        /// Becomes DeadLetterReason.
        reason: Box<str>,
        /// Becomes DeadLetterErrorDescription.
        description: Box<str>,
    },
    /// A forwarder could not hand it over, for no fault of the message.
    Postponed {
        /// When to try again; without it the broker decides.
        retry_after: Option<TimeSpan>,
    },
    /// A forwarder did not take it this time (FWD-32).
    Failed {
        /// What it said.
        why: Box<str>,
        /// When to try again; without it the broker decides.
        retry_after: Option<TimeSpan>,
    },
    /// One before it was not taken; it is offered again as soon as that one is out of its way.
    NotTried,
    /// Nothing is known of it; it is offered again, before later ones.
    Kept,
}

impl From<Admission> for Departure {
    fn from(admission: Admission) -> Self {
        match admission {
            Admission::Accepted => Self::Taken,
            Admission::NotAdmitted(rejection) => Self::NotAdmitted(rejection),
            Admission::NotTried => Self::NotTried,
        }
    }
}

/// A list that a machine has frozen, for its shell.
#[derive(Clone, Debug)]
pub struct HandOver<M = HandedOver> {
    /// Its name.
    pub list: ListNumber,
    /// The queue its messages leave.
    pub sub_queue: SubQueue,
    /// Where to, as it stands in the description or as the sender named it.
    pub destination: Arc<str>,
    /// The path of the source, in the case given at creation.
    pub source: Arc<str>,
    /// What the destination does once it is full.
    pub when_full: WhenFull,
    /// The messages, in their order.
    pub messages: Vec<M>,
}

/// A message of a frozen list.
#[derive(Clone, Copy, Debug)]
pub struct HandedOver {
    /// What the broker says about it.
    pub facts: MessageFacts,
    /// Transfers so far, the one to come not included.
    pub hops: u8,
    /// Copies that are not its own to make any more (FWD-33).
    pub copies_spent: u16,
    /// Whether it is never a duplicate (DUP-14).
    pub never_duplicate: bool,
    /// Its own time to live, as far as entities have let it have it.
    pub time_to_live: Option<TimeSpan>,
}

//! Transfers: the messages and answers between two entities of this broker (DESIGN D9, file 10 of
//! the spec).
//!
//! ```text
//!   source                                              destination
//!   freezes a list ──HandOver──► contents ──TransferIn──► checks of a send
//!     │  (in memory)                                      one batch: "arrived here" and "left there"
//!     │                                                       │ durable
//!   removes taken messages, ◄──EndTransfer──── Admissions ◄───┘
//!   refused ones to the TDLQ
//! ```
//!
//! The source stores nothing about a transfer: until the batch of the destination is durable, the
//! message is at the source, and from then on at the destination. If the answer is lost, the broker
//! asks the store. The guard (`claim` of `peeklock-core`) ensures that nothing arrives after that
//! question.

pub mod peer;

use std::sync::Arc;

use bytes::Bytes;

use crate::command::{InboundMessage, MessageFacts, Route};
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber};
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::store::{Batch, Key};
use crate::time::TimeSpan;

/// Name of a list of frozen messages at one source, until the source learns their results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ListNumber(pub u64);

/// Keys of the records of a transferred message at its source.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Number of the shard of the source.
    pub shard: u16,
    /// Its slot; the content of that record is the message.
    pub key: Key,
    /// Its overlays, in their order.
    pub overlays: Box<[Key]>,
    /// Contents that the destination stores again instead of referring to these records.
    pub contents: Option<Box<OriginContents>>,
}

/// Contents that the destination of a transfer stores again.
#[derive(Clone, Debug)]
pub struct OriginContents {
    /// The message, if a job changed its body or the store does not share contents between shards.
    pub content: Option<Bytes>,
    /// The overlays that it has at its destination, in their order.
    pub overlays: Vec<Bytes>,
}

impl Origin {
    /// Writes a record with the content of the message.
    pub fn put_content(&self, key: &Key, batch: &mut Batch, write: impl FnOnce(&mut Vec<u8>)) {
        match self.stored_content() {
            Some(content) => batch.put_with_content(key, content.clone(), write),
            None => batch.put_content_of(key, &self.key, write),
        }
    }

    /// The content of the message, if the destination stores it again.
    #[must_use]
    pub fn stored_content(&self) -> Option<&Bytes> {
        self.contents.as_ref()?.content.as_ref()
    }

    /// Writes a record for each overlay of the message. `key_of` returns its key.
    pub fn put_overlays(&self, key_of: impl Fn(u16) -> Key, batch: &mut Batch) {
        match &self.contents {
            Some(contents) => {
                for (index, overlay) in (0..).zip(&contents.overlays) {
                    batch.put_with_content(&key_of(index), overlay.clone(), |_| {});
                }
            }
            None => {
                for (index, overlay) in (0..).zip(&self.overlays) {
                    batch.put_content_of(&key_of(index), overlay, |_| {});
                }
            }
        }
    }

    /// Deletes the records at the source.
    pub fn delete(&self, batch: &mut Batch) {
        for key in std::iter::once(&self.key).chain(&self.overlays) {
            batch.delete_in(self.shard, key);
        }
    }
}

/// A message that comes from another entity.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The message; the sizes of its envelope count its overlays too.
    pub message: InboundMessage,
    /// Overlays set on it since it was sent.
    pub overlays: Vec<Overlay>,
    /// Its time to live, if an earlier entity has lowered it (EXP-16). The envelope has the same
    /// value.
    pub lowered_time_to_live: Option<TimeSpan>,
    /// Number at the original point of submission (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Number of transfers, this one included (FWD-13).
    pub hops: u8,
    /// Copies that the original message has made already, or that other copies may still make; the
    /// limit minus this is left to this message (FWD-33).
    pub copies_spent: u16,
    /// The entity in which it was dead-lettered, if it is forwarded from there (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
    /// The records to delete at the source.
    pub origin: Origin,
    /// Facts of a message that a job sends.
    pub resent: Option<Resent>,
}

impl Arrival {
    /// Whether a job sends the message to one subscription, without its rules.
    #[must_use]
    pub const fn is_for_one(&self) -> bool {
        matches!(self.resent, Some(Resent { only: Some(_), .. }))
    }

    /// Bytes of the content and properties that a job has changed, which the destination stores
    /// again.
    #[must_use]
    pub fn changed_bytes(&self) -> u64 {
        match (&self.resent, &self.origin.contents) {
            (Some(_), Some(contents)) => {
                let parts = contents.content.iter().chain(&contents.overlays);
                parts.map(|part| part.len() as u64).sum()
            }
            _ => 0,
        }
    }
}

/// Facts of a message that a job of an operator sends (CON-16, CON-17). It arrives as a new
/// message, except that its destination refuses a duplicate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resent {
    /// The entity that it leaves.
    pub from: EntityId,
    /// Its bytes there, for which it needs no additional room.
    pub size: u32,
    /// The only subscription that gets it, if the destination is a topic.
    pub only: Option<EntityId>,
}

/// Reaction of a destination that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The destination refuses each message that exceeds its quota and continues with the next. The
    /// source dead-letters refused messages.
    Refuse,
    /// The destination stops at the first message that exceeds its quota. The source keeps the rest
    /// in order.
    Stop,
}

/// Answer of a destination for one message of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// The destination has it, or it was a duplicate (FWD-22). Its records at the source are
    /// deleted.
    Accepted,
    /// The destination does not admit it.
    NotAdmitted(Rejection),
    /// It is a duplicate that a job sends, so it stays at its source (CON-17).
    Duplicate,
    /// An earlier message was not admitted, so this one was not examined.
    NotTried,
}

/// Dead-letter reason of a message that exceeds the limit of hops (FWD-12).
pub const HOPS_EXCEEDED: &str = "MaxTransferHopCountExceeded";

/// Result for one message of a list, as its source receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Departure {
    /// The destination has it, and its records at the source are deleted.
    Taken,
    /// A forwarder has delivered it; its records at the source still exist.
    Delivered,
    /// The destination, an entity of this broker, does not admit it.
    NotAdmitted(Rejection),
    /// It is a duplicate that a job sends.
    Duplicate,
    /// The merge patch of a job does not apply to its body.
    NotJson,
    /// A forwarder will never take it (FWD-31).
    Refused {
        /// Becomes DeadLetterReason.
        reason: Box<str>,
        /// Becomes DeadLetterErrorDescription.
        description: Box<str>,
    },
    /// A forwarder could not deliver it, for a reason that is not in the message.
    Postponed {
        /// Delay before the next attempt; without it the broker decides.
        retry_after: Option<TimeSpan>,
    },
    /// A forwarder failed to deliver it this time (FWD-32).
    Failed {
        /// The forwarder's reason.
        why: Box<str>,
        /// Delay before the next attempt; without it the broker decides.
        retry_after: Option<TimeSpan>,
    },
    /// An earlier message was not taken; this one is offered again once that message no longer
    /// blocks it.
    NotTried,
    /// Its result is unknown; it is offered again, before later messages.
    Unknown,
}

impl From<Admission> for Departure {
    fn from(admission: Admission) -> Self {
        match admission {
            Admission::Accepted => Self::Taken,
            Admission::NotAdmitted(rejection) => Self::NotAdmitted(rejection),
            Admission::Duplicate => Self::Duplicate,
            Admission::NotTried => Self::NotTried,
        }
    }
}

/// A list that a machine has frozen, for its shell.
#[derive(Clone, Debug)]
pub struct HandOver<M = HandedOverMessage> {
    /// Name of the list.
    pub list: ListNumber,
    /// Sub-queue that the messages leave.
    pub sub_queue: SubQueue,
    /// Destination, as written in the description or by the sender.
    pub destination: Arc<str>,
    /// The path of the source, in the case given at creation.
    pub source: Arc<str>,
    /// Reaction of the destination when it is full.
    pub when_full: WhenFull,
    /// Way of messages that a job sends. The destination is empty if the route names none.
    pub route: Option<Route>,
    /// The messages, in their order.
    pub messages: Vec<M>,
}

/// A message of a frozen list.
#[derive(Clone, Copy, Debug)]
pub struct HandedOverMessage {
    /// Facts about the message.
    pub facts: MessageFacts,
    /// Number of transfers, without the coming one.
    pub hops: u8,
    /// Copies that the original message has made already, or that other copies may still make
    /// (FWD-33).
    pub copies_spent: u16,
    /// Whether it is never a duplicate (DUP-14).
    pub never_duplicate: bool,
    /// Its own time to live, lowered by the entities that it has passed.
    pub time_to_live: Option<TimeSpan>,
}

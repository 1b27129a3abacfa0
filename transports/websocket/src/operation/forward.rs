//! What another broker forwards.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome, PeerArrival};
use peeklock_core::entity::peers::PeerSource;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::path::SubQueue;
use serde::{Deserialize, Serialize};

use super::send::inbound;
use super::{Expect, FailedSend, Notice, unexpected};
use crate::connection::{Asked, Conversation, Done};
use crate::error::FrameError;
use crate::frame::message::Outgoing;
use crate::frame::text::{Guid, Instant};
use crate::frame::wire::{Announced, Reader, Wire};
use crate::frame::{bodies, json, wire_choice};

/// Which messages of an entity are forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Forwarding {
    Messages,
    DeadLetters,
}

wire_choice!(Forwarding, "forwarding", [Messages, DeadLetters]);

bodies! {
    struct Forward {
        link: u32,
        source: ForwardSource,
        #[serde(deserialize_with = "json::bounded")]
        messages: Vec<ForwardedMessage>,
    }

    struct ForwardSource {
        /// The id of the broker.
        broker: Guid,
        /// The id of the entity there.
        entity: u64,
        forwarding: Forwarding,
    }

    struct Forwarded {
        /// Of so many, from the first on, it is said what became; those behind were not looked at.
        tried: u32,
        /// All others of them are stored, or were before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedSend>,
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ForwardedMessage {
    /// Its number at the source.
    pub(crate) sequence_number: u64,
    /// Its number where it was first sent to.
    pub(crate) enqueued_sequence_number: u64,
    /// When it was enqueued at the source.
    pub(crate) enqueued_time_utc: Instant,
    /// Transfers so far, this one included.
    pub(crate) hops: u8,
    /// The entity in which it was dead-lettered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letter_source: Option<String>,
    /// Whether a broker made its message id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) never_duplicate: bool,
    /// Of the copies that it may become over all its hops, those that are not its own to make (FWD-33).
    #[serde(default, skip_serializing_if = "is_none_spent")]
    pub(crate) copies_spent: u32,
    pub(crate) message: Outgoing,
}

const fn is_none_spent(copies: &u32) -> bool {
    *copies == 0
}

/// In the byte that says what is special about a message: it is never a duplicate.
const NEVER_DUPLICATE: u8 = 1;
/// In the same byte: the count of copies follows.
const COPIES_FOLLOW: u8 = 2;

/// What goes before the message itself, and all that it takes to pass over it.
fn read_special(reader: &mut Reader<'_>) -> Result<(bool, u32), FrameError> {
    let special = u8::read(reader)?;
    if special > NEVER_DUPLICATE | COPIES_FOLLOW {
        return Err(FrameError::BadValue("neverDuplicate"));
    }
    let copies_spent = match special & COPIES_FOLLOW {
        0 => 0,
        // One message has one form: none is said by the byte alone.
        _ => match u32::read(reader)? {
            0 => return Err(FrameError::BadValue("copiesSpent")),
            copies => copies,
        },
    };
    Ok((special & NEVER_DUPLICATE != 0, copies_spent))
}

impl Wire for ForwardedMessage {
    const BYTES_MIN: usize = 8 + 8 + 8 + 1 + 1 + 1 + <Outgoing as Wire>::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        self.sequence_number.write(out);
        self.enqueued_sequence_number.write(out);
        self.enqueued_time_utc.write(out);
        self.hops.write(out);
        self.dead_letter_source.write(out);
        let copies_follow = if self.copies_spent > 0 { COPIES_FOLLOW } else { 0 };
        (u8::from(self.never_duplicate) | copies_follow).write(out);
        if self.copies_spent > 0 {
            self.copies_spent.write(out);
        }
        self.message.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let sequence_number = u64::read(reader)?;
        let enqueued_sequence_number = u64::read(reader)?;
        let enqueued_time_utc = Instant::read(reader)?;
        let hops = u8::read(reader)?;
        let dead_letter_source = Option::read(reader)?;
        let (never_duplicate, copies_spent) = read_special(reader)?;
        Ok(Self {
            sequence_number,
            enqueued_sequence_number,
            enqueued_time_utc,
            hops,
            dead_letter_source,
            never_duplicate,
            copies_spent,
            message: Outgoing::read(reader)?,
        })
    }

    fn skim(reader: &mut Reader<'_>, announced: &mut Announced) -> Result<(), FrameError> {
        u64::skim(reader, announced)?;
        u64::skim(reader, announced)?;
        Instant::skim(reader, announced)?;
        u8::skim(reader, announced)?;
        Option::<String>::skim(reader, announced)?;
        read_special(reader)?;
        Outgoing::skim(reader, announced)
    }
}

impl Conversation {
    /// Takes messages over from another broker. Who says how many hops they made must have the Manage
    /// right (FWD-13).
    pub(super) fn forward(&mut self, asked: Asked, forward: Forward) -> Done {
        if self.sender(forward.link)?.destination.is_some() {
            let detail = "a forwarded message cannot be sent via another entity";
            return Err(Rejection::invalid_operation(detail).into());
        }
        let source = PeerSource {
            broker: forward.source.broker.0,
            entity: EntityId(forward.source.entity),
            sub_queue: match forward.source.forwarding {
                Forwarding::Messages => SubQueue::Main,
                Forwarding::DeadLetters => SubQueue::DeadLetter,
            },
        };
        let arrivals = forward.messages.into_iter().map(|one| {
            if one.hops == 0 {
                return Err(Rejection::out_of_range("a forwarded message has at least one hop"));
            }
            let mut message = inbound(&self.engine.broker, one.message)?;
            if one.never_duplicate {
                message = self.engine.broker.inbound_with_assigned_id(message.content);
            }
            Ok(PeerArrival {
                message,
                sequence: SequenceNumber(one.sequence_number),
                enqueued_at: one.enqueued_time_utc.0,
                enqueued_sequence: SequenceNumber(one.enqueued_sequence_number),
                hops: one.hops,
                // What does not fit is more than any broker allows.
                copies_spent: u16::try_from(one.copies_spent).unwrap_or(u16::MAX),
                dead_letter_source: one.dead_letter_source.map(Arc::from),
            })
        });
        let messages = arrivals.collect::<Result<Vec<PeerArrival>, Rejection>>()?;
        let command = Command::TransferFromPeer { source, messages };
        self.command(asked, forward.link, command, Expect::One(Self::forwarded))
    }

    fn forwarded(&mut self, _: u32, outcome: Outcome, path: &str) -> Result<Notice, Rejection> {
        let Outcome::TakenOver(results) = outcome else { return Err(unexpected()) };
        let tried = u32::try_from(results.len()).unwrap_or(u32::MAX);
        let mut failed = Vec::new();
        for (index, result) in (0..).zip(results) {
            if let Err(rejection) = result {
                failed.push(FailedSend { index, error: self.wire_error(rejection, path) });
            }
        }
        Ok(Notice::Forwarded(Forwarded { tried, failed }))
    }
}

//! Takes over messages that another broker forwards. `operation.rs` calls it. Repeated messages are
//! recognized, so a list can be sent again after a lost connection.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome, PeerArrival};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::machine::peers::PeerSource;
use peeklock_core::path::SubQueue;
use serde::{Deserialize, Serialize};

use super::send::inbound;
use super::{FailedSend, Notice, PendingAnswer, unexpected};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::error::FrameError;
use crate::frame::message::SentMessage;
use crate::frame::text::{Guid, Instant};
use crate::frame::wire::{Reader, RequestCost, Wire};
use crate::frame::{bodies, json, wire_choice};

/// Kind of forwarding that the messages come from.
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
        /// Id of the forwarding broker.
        broker: Guid,
        /// Id of the source entity there.
        entity: u64,
        forwarding: Forwarding,
    }

    struct Forwarded {
        /// Number of messages that were tried, in order from the first.
        tried: u32,
        /// Failed messages; all other tried messages are stored, now or by an earlier request.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedSend>,
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ForwardedMessage {
    /// Sequence number at the source.
    pub(crate) sequence_number: u64,
    /// Sequence number at the entity to which it was first sent.
    pub(crate) enqueued_sequence_number: u64,
    /// Enqueue time at the source.
    pub(crate) enqueued_time_utc: Instant,
    /// Number of transfers until now, including this one.
    pub(crate) hops: u8,
    /// Entity in which it was dead-lettered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letter_source: Option<String>,
    /// Whether a broker has made its message id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) never_duplicate: bool,
    /// Part of the limit of copies over all hops that is used by other copies (FWD-33).
    #[serde(default, skip_serializing_if = "is_none_spent")]
    pub(crate) copies_spent: u32,
    pub(crate) message: SentMessage,
}

const fn is_none_spent(copies: &u32) -> bool {
    *copies == 0
}

/// Flag: the message is never a duplicate.
const NEVER_DUPLICATE: u8 = 1;
/// Flag: the count of used copies follows.
const COPIES_FOLLOW: u8 = 2;

/// Reads the flags and the count before the message; skipping a message needs no more.
fn read_special(reader: &mut Reader<'_>) -> Result<(bool, u32), FrameError> {
    let special = u8::read(reader)?;
    if special > NEVER_DUPLICATE | COPIES_FOLLOW {
        return Err(FrameError::BadValue("neverDuplicate"));
    }
    let copies_spent = match special & COPIES_FOLLOW {
        0 => 0,
        // Each message has exactly one form: a count of zero is expressed by the flags only.
        _ => match u32::read(reader)? {
            0 => return Err(FrameError::BadValue("copiesSpent")),
            copies => copies,
        },
    };
    Ok((special & NEVER_DUPLICATE != 0, copies_spent))
}

impl Wire for ForwardedMessage {
    const BYTES_MIN: usize = 8 + 8 + 8 + 1 + 1 + 1 + <SentMessage as Wire>::BYTES_MIN;

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
            message: SentMessage::read(reader)?,
        })
    }

    fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
        u64::skim(reader, cost)?;
        u64::skim(reader, cost)?;
        Instant::skim(reader, cost)?;
        u8::skim(reader, cost)?;
        Option::<String>::skim(reader, cost)?;
        read_special(reader)?;
        SentMessage::skim(reader, cost)
    }
}

impl Conversation {
    /// Takes messages over from another broker. The client needs the Manage right, since it asserts
    /// the number of hops (FWD-13).
    pub(super) fn forward(&mut self, admitted: AdmittedRequest, forward: Forward) -> Done {
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
                // A value that does not fit exceeds the limit of every broker.
                copies_spent: u16::try_from(one.copies_spent).unwrap_or(u16::MAX),
                dead_letter_source: one.dead_letter_source.map(Arc::from),
            })
        });
        let messages = arrivals.collect::<Result<Vec<PeerArrival>, Rejection>>()?;
        let command = Command::TransferFromPeer { source, messages };
        self.command(admitted, forward.link, command, PendingAnswer::One(Self::forwarded))
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

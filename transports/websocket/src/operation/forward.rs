//! What another broker forwards.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome, PeerArrival};
use peeklock_core::entity::peers::PeerSource;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::path::SubQueue;
use serde::{Deserialize, Serialize};

use super::{Expect, FailedSend, Notice, unexpected};
use crate::connection::{Asked, Conversation, Done};
use crate::error::FrameError;
use crate::frame::message::Outgoing;
use crate::frame::text::{Guid, Instant};
use crate::frame::wire::{Reader, Wire};
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

    struct ForwardedMessage {
        /// Its number at the source.
        sequence_number: u64,
        /// Its number where it was first sent to.
        enqueued_sequence_number: u64,
        /// When it was enqueued at the source.
        enqueued_time_utc: Instant,
        /// Transfers so far, this one included.
        hops: u8,
        /// The entity in which it was dead-lettered.
        #[serde(skip_serializing_if = "Option::is_none")]
        dead_letter_source: Option<String>,
        /// Whether a broker made its message id.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        never_duplicate: bool,
        message: Outgoing,
    }

    struct Forwarded {
        /// Of so many, from the first on, it is said what became; those behind were not looked at.
        tried: u32,
        /// All others of them are stored, or were before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedSend>,
    }
}

impl Conversation {
    /// Takes messages over from another broker. Who says how many hops they made must have the Manage
    /// right (FWD-13).
    pub(super) fn forward(&mut self, asked: Asked, forward: Forward) -> Done {
        if self.sender(forward.link)?.destination.is_some() {
            let detail = "what a broker forwards is not sent by way of another entity";
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
                return Err(Rejection::out_of_range("a forwarded message has made a hop at least"));
            }
            let mut message = self.inbound(one.message)?;
            if one.never_duplicate {
                message.envelope.let_never_be_duplicate();
            }
            Ok(PeerArrival {
                message,
                sequence: SequenceNumber(one.sequence_number),
                enqueued_at: one.enqueued_time_utc.0,
                enqueued_sequence: SequenceNumber(one.enqueued_sequence_number),
                hops: one.hops,
                copies_spent: 0,
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

//! Forwards messages to another broker in lists. Each message is stored once, even if it is handed
//! over several times.

use std::sync::Arc;

use peeklock_core::command::ReceiveMode;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::machine::peers::PeerSource;
use peeklock_core::message::Content;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::core::Link;
use super::{ClientOptions, driver};
use crate::frame::LIST_COUNT_MAX;
use crate::frame::message::SentMessage;
use crate::frame::text::{Guid, Instant};
use crate::operation::{
    FailedSend, Forward, ForwardSource, ForwardedMessage, Forwarding, Notice, Operation, Role,
};

/// A message that one broker forwards to another.
#[derive(Clone, Debug)]
pub struct PeerMessage {
    /// Sequence number at its source.
    pub sequence: SequenceNumber,
    /// Sequence number that it first had (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Enqueue time at its source.
    pub enqueued_at: Timestamp,
    /// Number of transfers until now, including this one (FWD-13).
    pub hops: u8,
    /// Part of the limit of copies over all hops that is used by other copies (FWD-33).
    pub copies_spent: u16,
    /// Entity in which it was dead-lettered, if dead letters are forwarded (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
    /// Whether it is never a duplicate, because a broker made its message id (DUP-14).
    pub never_duplicate: bool,
    /// The sent content with all later changes.
    pub content: Content,
}

/// Hands messages of a source over to one queue; needs the Manage right (FWD-13).
pub struct PeerSender {
    link: Link,
    source: PeerSource,
}

impl PeerSender {
    /// Connects in order to hand messages of a source over to a queue of another broker, each once
    /// (FWD-13). Must be called inside a tokio runtime, on which it starts a task.
    ///
    /// # Errors
    /// Same as [`connect`](super::connect).
    pub async fn connect(
        url: &str,
        options: ClientOptions,
        path: &str,
        source: PeerSource,
    ) -> Result<Self, BrokerError> {
        let core = driver::start(url, options).await?;
        let link = core.attach(path, Role::Sender, ReceiveMode::PeekLock)?;
        Ok(Self { link, source })
    }

    /// Hands a list over and waits for the outcome: one result per message, up to and including the
    /// first message that is refused. A message that an earlier call handed over is not stored
    /// again, and counts as taken.
    ///
    /// Hand over one list at a time: that keeps the order, and the broker remembers only the last
    /// list.
    ///
    /// # Errors
    /// Fails if the whole list was refused, for instance with `EntityNotFound` or `Unauthorized`,
    /// or if it is unknown whether it was taken (`CommunicationProblem`). In the latter case, hand
    /// it over again.
    pub async fn forward(
        &self,
        messages: Vec<PeerMessage>,
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let count = messages.len();
        if count > LIST_COUNT_MAX {
            let detail = format!(
                "a list has {count} messages, the limit is {LIST_COUNT_MAX}; send several lists"
            );
            return Err(self.link.core.refuse(Rejection::argument(detail), &self.link.path));
        }
        let source = ForwardSource {
            broker: Guid(self.source.broker),
            entity: self.source.entity.0,
            forwarding: match self.source.sub_queue {
                SubQueue::Main | SubQueue::TransferDeadLetter => Forwarding::Messages,
                SubQueue::DeadLetter => Forwarding::DeadLetters,
            },
        };
        let messages = messages.into_iter().map(wire).collect();
        let forward = Forward { link: self.link.number, source, messages };
        let Notice::Forwarded(forwarded) = self.link.call(Operation::Forward(forward)).await?
        else {
            return Err(self.link.unexpected());
        };
        let tried = usize::try_from(forwarded.tried).unwrap_or(usize::MAX).min(count);
        let mut results: Vec<Result<(), BrokerError>> = (0..tried).map(|_| Ok(())).collect();
        for FailedSend { index, error } in forwarded.failed {
            let place = usize::try_from(index).ok().and_then(|index| results.get_mut(index));
            if let Some(place) = place {
                *place = Err(error.into_error());
            }
        }
        Ok(results)
    }
}

fn wire(message: PeerMessage) -> ForwardedMessage {
    ForwardedMessage {
        sequence_number: message.sequence.0,
        enqueued_sequence_number: message.enqueued_sequence.0,
        enqueued_time_utc: Instant(message.enqueued_at),
        hops: message.hops,
        dead_letter_source: message.dead_letter_source.as_deref().map(str::to_owned),
        never_duplicate: message.never_duplicate,
        copies_spent: message.copies_spent.into(),
        message: SentMessage::Content(message.content.as_bytes().clone()),
    }
}

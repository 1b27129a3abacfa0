//! Operations of a transaction and their results (TXN-02). A topic or queue applies them at commit.
//! Either all operations take effect or none.

use std::sync::Arc;

use bytes::Bytes;

use crate::command::{Command, InboundMessage, SessionCommand, Settlement};
use crate::error::Rejection;
use crate::ids::{EntityId, LockToken, ReceiverId, SequenceNumber};
use crate::path::SubQueue;
use crate::time::Timestamp;

/// One operation of a transaction and its sub-queue (TXN-14).
#[derive(Clone, Debug)]
pub struct Part {
    /// The subscription, in a transaction that a topic commits (TXN-08).
    pub member: Option<EntityId>,
    /// The sub-queue of the entity.
    pub sub_queue: SubQueue,
    /// The operation to run at commit.
    pub operation: Operation,
    /// The numbers that its messages got when the operation was issued, in their order. A message
    /// with 0 gets its number at the commit. Empty if all do (SCH-13).
    pub numbers: Vec<SequenceNumber>,
}

/// An operation that may belong to a transaction (TXN-02).
#[derive(Clone, Debug)]
pub enum Operation {
    /// Stores one message, now or for its scheduled instant.
    Send {
        /// The message.
        message: InboundMessage,
    },
    /// Stores messages that form a batch of their own, with its size limit (SND-30).
    SendBatch {
        /// The messages, in the order in which they are numbered.
        messages: Vec<InboundMessage>,
    },
    /// Stores messages for transfer to another entity (TXN-09).
    SendVia {
        /// The path of the destination.
        destination: Arc<str>,
        /// The messages, in their order.
        messages: Vec<InboundMessage>,
    },
    /// Settles one locked message: complete, abandon, defer or dead-letter.
    Settle {
        /// The lock.
        token: LockToken,
        /// The decision.
        settlement: Settlement,
    },
    /// Prolongs a lock, starting at the commit.
    RenewLock {
        /// The lock.
        token: LockToken,
    },
    /// Cancels scheduled messages, all or none (SCH-05).
    CancelScheduled {
        /// Their numbers.
        sequences: Vec<SequenceNumber>,
    },
    /// Sets or clears the state of a session (SES-24).
    SetSessionState {
        /// The link that holds the session.
        receiver: ReceiverId,
        /// The state; `None` clears it.
        state: Option<Bytes>,
    },
}

/// Result of a part of a committed transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartOutcome {
    /// The message is settled, the schedule cancelled, or the state set.
    Done,
    /// The message is stored under this number; 0 for a dropped duplicate, or, if it was to be
    /// scheduled, the number of the scheduled message that it repeats (DUP-02, DUP-12).
    Accepted(SequenceNumber),
    /// The numbers of a batch, in its order.
    AcceptedBatch(Vec<SequenceNumber>),
    /// The messages wait for their transfer to another entity, under these numbers (TXN-10).
    Pending(Vec<SequenceNumber>),
    /// The new end of the lock.
    Renewed(Timestamp),
}

impl Operation {
    /// Converts a command to an operation.
    ///
    /// # Errors
    /// `InvalidOperation` for a command that may not belong to a transaction (TXN-02).
    pub fn of(command: Command) -> Result<Self, Rejection> {
        match command {
            Command::Send { message } => Ok(Self::Send { message }),
            Command::SendBatch { messages } => Ok(Self::SendBatch { messages }),
            Command::SendVia { destination, messages } => {
                Ok(Self::SendVia { destination, messages })
            }
            Command::Settle { token, settlement } if !matches!(settlement, Settlement::Release) => {
                Ok(Self::Settle { token, settlement })
            }
            Command::RenewLock { token } => Ok(Self::RenewLock { token }),
            Command::CancelScheduled { sequences } => Ok(Self::CancelScheduled { sequences }),
            Command::InSession { receiver, command: SessionCommand::SetState { state } } => {
                Ok(Self::SetSessionState { receiver, state })
            }
            _ => Err(Rejection::invalid_operation(
                "only send, schedule, cancel, complete, abandon, defer, dead-letter, renew of a message lock and set of a \
                 session state can be part of a transaction",
            )),
        }
    }

    /// Whether a command that names a transaction is carried out immediately, outside the
    /// transaction: it only reads, or it renews a lock that may expire before the commit (TXN-02).
    #[must_use]
    pub const fn is_outside(command: &Command) -> bool {
        matches!(
            command,
            Command::Peek { .. }
                | Command::PeekSession { .. }
                | Command::ListSessions { .. }
                | Command::Inspect(_)
                | Command::RenewLock { .. }
                | Command::InSession {
                    command: SessionCommand::GetState | SessionCommand::Renew,
                    ..
                }
        )
    }

    /// Returns the messages that the operation stores.
    #[must_use]
    pub const fn messages(&self) -> &[InboundMessage] {
        match self {
            Self::Send { message } => std::slice::from_ref(message),
            Self::SendBatch { messages } | Self::SendVia { messages, .. } => messages.as_slice(),
            Self::Settle { .. }
            | Self::RenewLock { .. }
            | Self::CancelScheduled { .. }
            | Self::SetSessionState { .. } => &[],
        }
    }

    /// Returns the name of the operation for messages to people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Send { .. } => "send",
            Self::SendBatch { .. } => "send of a batch",
            Self::SendVia { .. } => "send to another entity",
            Self::Settle { settlement, .. } => match settlement {
                Settlement::Complete => "complete",
                Settlement::Abandon { .. } => "abandon",
                Settlement::Defer { .. } => "defer",
                Settlement::DeadLetter { .. } => "dead-letter",
                Settlement::Release => "release",
            },
            Self::RenewLock { .. } => "renew lock",
            Self::CancelScheduled { .. } => "cancel",
            Self::SetSessionState { .. } => "set session state",
        }
    }

    /// Number of messages, locks or states that the operation concerns.
    #[must_use]
    pub const fn count(&self) -> u64 {
        match self {
            Self::Send { .. }
            | Self::Settle { .. }
            | Self::RenewLock { .. }
            | Self::SetSessionState { .. } => 1,
            Self::CancelScheduled { sequences } => sequences.len() as u64,
            Self::SendBatch { messages } | Self::SendVia { messages, .. } => messages.len() as u64,
        }
    }

    /// Bytes of its messages, properties, numbers and state.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Send { .. } | Self::SendBatch { .. } | Self::SendVia { .. } => {
                self.messages().iter().map(|message| u64::from(message.envelope.size)).sum()
            }
            Self::Settle { settlement, .. } => settlement.bytes(),
            Self::RenewLock { .. } => 0,
            Self::CancelScheduled { sequences } => size_of_val(sequences.as_slice()) as u64,
            Self::SetSessionState { state, .. } => {
                state.as_ref().map_or(0, |state| state.len() as u64)
            }
        }
    }
}

/// Returns the rejection with the name of the failed operation in front of its detail.
pub fn in_transaction(operation: &str, rejection: &Rejection) -> Rejection {
    Rejection::new(rejection.condition(), format!("{operation}: {}", rejection.detail()))
}

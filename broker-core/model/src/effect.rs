//! What follows from a command: answers and deliveries, and when each may leave. (Data path, step 5.)

use crate::command::{MachineOutcome, MessageFacts};
use crate::error::Rejection;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::transfer::HandOver;

/// When an effect may leave the broker (DESIGN D5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// At once: it promises nothing that is not durable already.
    Open,
    /// After every change staged so far is durable.
    Commit,
}

/// One consequence of a command or of time.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The answer to a command that had to wait.
    Answer {
        /// Which command.
        ticket: Ticket,
        /// Its answer.
        result: Result<MachineOutcome, Rejection>,
        /// When it may leave.
        gate: Gate,
    },
    /// A message for a receiver link.
    Deliver {
        /// The link.
        receiver: ReceiverId,
        /// The message.
        facts: MessageFacts,
        /// When it may leave: under a lock at once, removed ones after their removal.
        gate: Gate,
    },
    /// A link is closed by the entity.
    Detached {
        /// The link.
        receiver: ReceiverId,
        /// Why.
        reason: Rejection,
    },
    /// A session is held no more: its lock has ended, in whatever way.
    SessionEnded {
        /// Who held it.
        receiver: ReceiverId,
    },
    /// Messages leave for another entity. They are durable and frozen until
    /// [`crate::command::Command::TransferOut`] says what became of them.
    HandOver(Box<HandOver>),
    /// The entity has been idle for its whole AutoDeleteOnIdle (TMP-07).
    IdleElapsed,
    /// The entity needs the contents of messages, and gets them by `Machine::loaded`.
    Load {
        /// The messages, in the order in which it gets their contents.
        sequences: Vec<SequenceNumber>,
        /// How many bytes that is.
        bytes: u64,
    },
}

/// How a command is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With this outcome.
    Now(MachineOutcome, Gate),
    /// By a later [`Effect::Answer`].
    Later,
}

impl Answer {
    /// An answer that rests on changes and leaves with them.
    #[must_use]
    pub const fn after_commit(outcome: MachineOutcome) -> Self {
        Self::Now(outcome, Gate::Commit)
    }
}

//! Consequences of a command or of time: answers and deliveries, and the gate that each passes
//! before it leaves the broker. (Data path, step 5.)

use crate::command::{MachineOutcome, MessageFacts};
use crate::error::Rejection;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::transfer::HandOver;

/// Condition under which an effect may leave the broker (DESIGN D5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// At once: it depends on nothing that is not durable yet.
    Open,
    /// After every change staged until then is durable.
    Commit,
}

/// One consequence of a command or of time.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The answer to a command that had to wait.
    Answer {
        /// Ticket of the command.
        ticket: Ticket,
        /// Its answer.
        result: Result<MachineOutcome, Rejection>,
        /// Condition under which it may leave.
        gate: Gate,
    },
    /// A message for a receiver link.
    Deliver {
        /// The link.
        receiver: ReceiverId,
        /// The message.
        facts: MessageFacts,
        /// Open for a delivery under a lock; a removed message leaves after its removal is durable.
        gate: Gate,
    },
    /// The entity closed a link.
    Detached {
        /// The link.
        receiver: ReceiverId,
        /// Reason for the client.
        reason: Rejection,
    },
    /// A session lock ended, for any reason.
    SessionEnded {
        /// The receiver that held it.
        receiver: ReceiverId,
    },
    /// Messages leave for another entity. They are durable, and stay frozen until
    /// [`crate::command::Command::EndTransfer`] reports their results.
    HandOver(Box<HandOver>),
    /// The entity has been idle for its whole AutoDeleteOnIdle (TMP-07).
    IdleElapsed,
    /// The entity needs the contents of messages. The shell passes them to `Machine::loaded`.
    Load {
        /// The messages, in the order in which the entity expects their contents.
        sequences: Vec<SequenceNumber>,
        /// Total size of the contents in bytes.
        bytes: u64,
    },
}

/// Reply of a machine to a command.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The outcome, and its gate.
    Now(MachineOutcome, Gate),
    /// A later [`Effect::Answer`] has the outcome.
    Later,
}

impl Answer {
    /// Returns an answer that depends on staged changes and waits until they are durable.
    #[must_use]
    pub const fn after_commit(outcome: MachineOutcome) -> Self {
        Self::Now(outcome, Gate::Commit)
    }
}

//! Commands for the holder of a session, and the filter for lists of sessions. Links of sessions
//! and list requests send them to the queue.

use bytes::Bytes;

use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// A command that requires the lock of a session.
#[derive(Clone, Debug)]
pub enum SessionCommand {
    /// Opens the link again, without credit, after the entity has closed the link and left the
    /// session to its holder (ENT-24, ENT-25). Answer: [`super::Outcome::Done`].
    Attach,
    /// Receives as [`super::Command::Receive`] does, from the session and in the mode of its
    /// receiver (SES-21).
    Receive {
        /// At least 1 and at most this many messages.
        count_max: u32,
        /// No further message once this many bytes are taken; the first always fits (RCV-13).
        bytes_max: u64,
        /// Maximum time to wait for the first message; zero never waits (RCV-10).
        wait: TimeSpan,
    },
    /// Receives as [`super::Command::ReceiveDeferred`] does; the messages must belong to the
    /// session (DEF-08).
    ReceiveDeferred {
        /// The numbers.
        sequences: Vec<SequenceNumber>,
    },
    /// Prolongs the session lock, and with it all message locks under it (SES-12, SES-14).
    /// Answer: [`super::Outcome::Renewed`].
    Renew,
    /// Reads the state of the session (SES-24). Answer: [`super::Outcome::SessionState`].
    GetState,
    /// Replaces the state of the session, or clears it (SES-24). Answer: [`super::Outcome::Done`].
    SetState {
        /// The new state.
        state: Option<Bytes>,
    },
    /// Deletes as [`super::Command::DeleteBatch`] does, in the session (DEL-07). Answer:
    /// [`super::Outcome::Deleted`].
    DeleteBatch {
        /// Maximum number of messages.
        count_max: u32,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
}

/// Selection of sessions for a list (SES-29).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFilter {
    /// All existing sessions (SES-04).
    All,
    /// Sessions with active messages.
    WithActiveMessages,
    /// Sessions whose state was set after this instant. The last possible instant selects sessions
    /// with active messages or a state.
    StateSetAfter(Timestamp),
}

//! What the holder of a session may ask, and which sessions are listed.

use bytes::Bytes;

use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// What the holder of a session may ask.
#[derive(Clone, Debug)]
pub enum SessionCommand {
    /// Opens the link again, without credit, after the entity has closed it and left the session to
    /// its holder (ENT-24, ENT-25). Answer: [`super::Outcome::Done`].
    Attach,
    /// As [`super::Command::Receive`], from the session, in the mode of its receiver (SES-21).
    Receive {
        /// At least 1 and at most this many messages.
        count_max: u32,
        /// No further message once this many bytes are taken; the first always fits (RCV-13).
        bytes_max: u64,
        /// How long to wait for the first message; zero never waits (RCV-10).
        wait: TimeSpan,
    },
    /// As [`super::Command::ReceiveDeferred`]; the messages must be of the session (DEF-08).
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
    /// As [`super::Command::DeleteBatch`], in the session (DEL-07). Answer: [`super::Outcome::Deleted`].
    DeleteBatch {
        /// At most this many.
        count_max: u32,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
}

/// Which sessions are listed (SES-29).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFilter {
    /// All that exist (SES-04).
    All,
    /// Those that have active messages.
    WithActiveMessages,
    /// Those whose state was set after this instant; with the last of all instants those that have active messages or a
    /// state.
    StateSetAfter(Timestamp),
}

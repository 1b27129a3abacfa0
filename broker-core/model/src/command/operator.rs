//! Commands of an operator about messages and sessions that others may hold. The console and the
//! command line send them to an entity.

use bytes::Bytes;

use super::Act;
use crate::ids::{JobId, SequenceNumber};

/// Maximum number of locks that one command ends.
pub const BROKEN_LOCK_COUNT_MAX: usize = 500;

/// A command that requires no lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperatorCommand {
    /// Ends locks of messages, regardless of their holders (CON-26). Messages without a lock are
    /// skipped. Answer: [`super::Outcome::LocksBroken`].
    BreakLocks {
        /// The messages, at most [`BROKEN_LOCK_COUNT_MAX`].
        sequences: Vec<SequenceNumber>,
        /// Whether the deliveries count as failed.
        counts: bool,
    },
    /// Ends the lock of a session, and with it the locks of its messages (CON-26). Answer:
    /// [`super::Outcome::LocksBroken`], with 0 if the session is not held.
    BreakSession {
        /// The session.
        session: Box<str>,
        /// Whether the deliveries under the lock count as failed.
        counts: bool,
    },
    /// Replaces or clears the state of a session that is not held (CON-27). Answer:
    /// [`super::Outcome::Done`].
    SetSessionState {
        /// The session; it need not exist.
        session: Box<str>,
        /// The new state.
        state: Option<Bytes>,
    },
    /// Acts on messages that are named by number (CON-12). A repeated step of a job changes nothing
    /// (CON-15). Answer: [`super::Outcome::Acted`].
    Act(Box<Act>),
    /// Forgets the receipt of a job that has ended. Answer: [`super::Outcome::Done`].
    ForgetJob(JobId),
}

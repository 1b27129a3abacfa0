//! What the conversation remembers of what it asks, and how answers of one request are put together.

use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::time::Timestamp;

use super::transaction::{Committing, Joining};
use crate::frame::{FailedRange, FailedSend, WireError};

/// What is awaited, and what of it has come.
pub(super) enum Expect {
    /// That it is done.
    Done,
    /// The numbers of messages sent each by itself.
    Sent(Sent),
    /// The numbers of a batch.
    Batch,
    /// Which messages of another broker were taken over.
    Forwarded,
    /// That messages are settled.
    Settled(Keyed),
    /// The ends of prolonged locks.
    Renewed { keyed: Keyed, until: Option<Timestamp> },
    /// How many messages were deleted.
    Deleted,
    /// The end of the prolonged lock of a link's session.
    SessionRenewed { link: u32 },
    /// The state of a session.
    SessionState,
    /// That operations would be carried out, for a transaction.
    Joined(Joining),
    /// That a transaction is carried out.
    Committed(Committing),
    /// The answer that the transport itself makes.
    Own,
}

/// The answers of messages sent by one request.
pub(super) struct Sent {
    pub(super) numbers: Vec<u64>,
    pub(super) left: usize,
    pub(super) failed: Vec<FailedSend>,
}

/// The answers of settlements or renewals of one request.
pub(super) struct Keyed {
    pub(super) link: u32,
    /// Delivery numbers, or places in the list of tokens.
    pub(super) keys: Vec<u32>,
    pub(super) tokens: Vec<LockToken>,
    pub(super) left: usize,
    pub(super) failed: Vec<FailedRange>,
}

impl Keyed {
    /// Notes a failure; neighbours that failed alike are told together.
    pub(super) fn fail(
        &mut self,
        key: u32,
        rejection: &Rejection,
        make: impl FnOnce(&Rejection) -> WireError,
    ) {
        if let Some(last) = self.failed.last_mut()
            && last.to.checked_add(1) == Some(key)
            && last.error.condition == rejection.condition().name()
        {
            last.to = key;
            return;
        }
        self.failed.push(FailedRange { from: key, to: key, error: make(rejection) });
    }
}

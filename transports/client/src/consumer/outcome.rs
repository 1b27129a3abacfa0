//! What a handler's outcome does to its message, and what is done instead when the broker refuses that.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use crate::Refusal;
use crate::port::Settlement;

/// For how long a message rests in a dead-letter queue that is to be dead-lettered, which it cannot be there (DLQ-07), or
/// that cannot be read: nothing bounds how often it comes there (SET-38), and at once it would come without end.
const NOT_AGAIN_FOR: TimeSpan = TimeSpan::from_minutes(1);

/// The lock ended under a handler, and the most likely causes.
const LOCK_ENDED: &str = "a settlement was refused because the lock ended before the handler did; \
    a handler that blocks its thread, for example with `std::thread::sleep` or synchronous I/O, \
    prevents lock renewal: use await or `spawn_blocking` instead";

/// What a handler has come to; a panic abandons its message.
pub(crate) async fn outcome_of(
    handling: impl Future<Output = Result<(), Refusal>>,
) -> Result<(), Refusal> {
    let outcome = AssertUnwindSafe(handling).catch_unwind().await;
    outcome
        .unwrap_or_else(|_| {
            tracing::warn!("a handler panicked; its message is abandoned");
            Err(Refusal::abandon())
        })
        .inspect_err(Refusal::log)
}

/// What becomes of a message that cannot be read: it fails, until it is a dead letter (SET-35).
pub(super) fn unread(sub_queue: SubQueue) -> Refusal {
    match sub_queue {
        SubQueue::Main => Refusal::abandon(),
        SubQueue::DeadLetter | SubQueue::TransferDeadLetter => Refusal::retry_after(NOT_AGAIN_FOR),
    }
}

/// A settlement that is not answered yet.
pub(super) struct Tried {
    token: LockToken,
    /// What is tried next if this is refused, the message being locked still.
    instead: Option<Settlement>,
    /// Whether nobody minds that the lock is gone.
    may_be_gone: bool,
}

impl Tried {
    /// What a handler's outcome does to its message, and the settlement.
    pub(super) fn outcome(token: LockToken, outcome: Result<(), Refusal>) -> (Self, Settlement) {
        let may_be_gone = matches!(outcome, Err(Refusal::AlreadySettled));
        let settlement = outcome.into();
        (Self { may_be_gone, ..Self::settlement(token, &settlement) }, settlement)
    }

    /// A message goes back that no handler has got.
    pub(super) const fn give_back(token: LockToken) -> (Self, Settlement) {
        (Self { token, instead: None, may_be_gone: true }, Settlement::Release)
    }

    /// Whose settlement it is.
    pub(super) const fn token(&self) -> LockToken {
        self.token
    }

    fn settlement(token: LockToken, settlement: &Settlement) -> Self {
        Self { token, instead: instead_of(settlement), may_be_gone: false }
    }

    /// Says that it was refused, and why; returns what is to be tried instead, if anything is.
    pub(super) fn refused(self, path: &str, error: &BrokerError) -> Option<(Self, Settlement)> {
        let Self { token, instead, may_be_gone } = self;
        let (condition, sequence_number) = (error.condition(), token.sequence().0);
        let is_gone = matches!(condition, Condition::MessageLockLost | Condition::SessionLockLost);
        if is_gone && may_be_gone {
            tracing::debug!(path, sequence_number, %condition, %error, "settled already");
            return None;
        }
        if is_gone {
            tracing::warn!(path, sequence_number, %condition, %error, "{LOCK_ENDED}");
        } else {
            tracing::warn!(path, sequence_number, %condition, %error, "a settlement was refused");
        }
        // Where it came too late, or may have been carried out, the message is delivered again, or gone (SET-25).
        let settlement = instead.filter(|_| !is_gone && !error.retryable())?;
        Some((Self::settlement(token, &settlement), settlement))
    }
}

/// What becomes of a message of which the broker refuses what was decided: left alone it would come again each time
/// that its lock has run out.
const fn instead_of(settlement: &Settlement) -> Option<Settlement> {
    let delay = match settlement {
        Settlement::Complete | Settlement::Release => return None,
        Settlement::Abandon { properties, delay: None } if properties.is_empty() => return None,
        Settlement::Abandon { .. } | Settlement::Defer { .. } => None,
        Settlement::DeadLetter { .. } => Some(NOT_AGAIN_FOR),
    };
    Some(Settlement::Abandon { properties: Vec::new(), delay })
}

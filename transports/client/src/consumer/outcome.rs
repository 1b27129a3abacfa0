//! Settlements that follow from a handler's outcome, and the fallback if the broker refuses one.
//! The loops in `queue.rs` and `sessions.rs` use them.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use crate::Refusal;
use crate::port::Settlement;

/// Delay for an unreadable message, or a refused dead-lettering, in a dead-letter queue (DLQ-07).
/// The number of deliveries there is unlimited (SET-38), so without a delay the message would be
/// delivered in an endless loop.
const REDELIVERY_DELAY: TimeSpan = TimeSpan::from_minutes(1);

/// Log text for a settlement after the end of the lock, with the likely causes.
const LOCK_ENDED: &str = "a settlement was refused because the lock ended before the handler did; \
    a handler that blocks its thread, for example with `std::thread::sleep` or synchronous I/O, \
    prevents lock renewal: use await or `spawn_blocking` instead";

/// Awaits a handler and returns its outcome; a panic abandons its message with the text of the
/// panic.
///
/// # Errors
/// The refusal of the handler.
pub async fn outcome_of(
    handling: impl Future<Output = Result<(), Refusal>>,
) -> Result<(), Refusal> {
    match AssertUnwindSafe(handling).catch_unwind().await {
        Ok(outcome) => outcome.inspect_err(Refusal::log),
        Err(payload) => {
            let panic = text_of(&*payload);
            tracing::warn!(panic, "a handler panicked; its message is abandoned");
            Err(Refusal::abandon().with_error(format_args!("the handler panicked: {panic}")))
        }
    }
}

/// Returns the text of a panic.
fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("its payload is no text")
}

/// Returns the refusal for an unreadable message: a failed delivery, until it is dead-lettered
/// (SET-35). While the store is not available, the delivery does not count.
pub(super) fn unreadable(sub_queue: SubQueue, reason: &Rejection) -> Refusal {
    let detail = reason.detail();
    if reason.condition() == Condition::ServerBusy {
        tracing::warn!(detail, "a message is given back");
        return Refusal::release();
    }
    tracing::error!(detail, "a message is abandoned");
    match sub_queue {
        SubQueue::Main => Refusal::abandon(),
        SubQueue::DeadLetter | SubQueue::TransferDeadLetter => {
            Refusal::retry_after(REDELIVERY_DELAY)
        }
    }
}

/// A settlement without an answer yet.
pub(super) struct PendingSettlement {
    token: LockToken,
    /// Fallback if the broker refuses the settlement while the message is locked.
    fallback: Option<Settlement>,
    /// Whether a lost lock is expected.
    expects_lost_lock: bool,
}

impl PendingSettlement {
    /// Returns the settlement for a handler's outcome.
    pub(super) fn outcome(
        token: LockToken,
        outcome: Result<(), Refusal>,
        reports_errors: bool,
    ) -> (Self, Settlement) {
        let expects_lost_lock = matches!(outcome, Err(Refusal::AlreadySettled));
        let settlement = Settlement::of(outcome, reports_errors);
        (Self { expects_lost_lock, ..Self::settlement(token, &settlement) }, settlement)
    }

    /// Returns the release of a message that no handler has received.
    pub(super) const fn give_back(token: LockToken) -> (Self, Settlement) {
        (Self { token, fallback: None, expects_lost_lock: true }, Settlement::Release)
    }

    /// Returns the lock of the message.
    pub(super) const fn token(&self) -> LockToken {
        self.token
    }

    fn settlement(token: LockToken, settlement: &Settlement) -> Self {
        Self { token, fallback: fallback_for(settlement), expects_lost_lock: false }
    }

    /// Logs the refusal of the settlement. Returns the fallback, if any.
    pub(super) fn refused(self, path: &str, error: &BrokerError) -> Option<(Self, Settlement)> {
        let Self { token, fallback, expects_lost_lock } = self;
        let (condition, sequence_number) = (error.condition(), token.sequence().0);
        let is_gone = matches!(condition, Condition::MessageLockLost | Condition::SessionLockLost);
        if is_gone && expects_lost_lock {
            tracing::debug!(path, sequence_number, %condition, %error, "settled already");
            return None;
        }
        if is_gone {
            tracing::warn!(path, sequence_number, %condition, %error, "{LOCK_ENDED}");
        } else {
            tracing::warn!(path, sequence_number, %condition, %error, "a settlement was refused");
        }
        // After a late or possibly successful settlement the message is delivered again or gone, so
        // nothing is tried (SET-25).
        let settlement = fallback.filter(|_| !is_gone && !error.retryable())?;
        Some((Self::settlement(token, &settlement), settlement))
    }
}

/// Returns the fallback for a refused settlement. Without it the message would be delivered again
/// each time its lock expires.
const fn fallback_for(settlement: &Settlement) -> Option<Settlement> {
    let delay = match settlement {
        Settlement::Complete | Settlement::Release => return None,
        Settlement::Abandon { properties, delay: None } if properties.is_empty() => return None,
        Settlement::Abandon { .. } | Settlement::Defer { .. } => None,
        Settlement::DeadLetter { .. } => Some(REDELIVERY_DELAY),
    };
    Some(Settlement::Abandon { properties: Vec::new(), delay })
}

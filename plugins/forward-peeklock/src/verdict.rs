//! Verdicts for the other broker's errors. `route.rs` calls these functions for each message that
//! was not accepted.

use std::time::Duration;

use peeklock_core::condition::Condition;
use peeklock_core::contract::Verdict;
use peeklock_core::error::BrokerError;
use peeklock_core::path::SubQueue;

/// Time until a dead letter is offered again to a destination that does not accept it (FWD-28).
const DEAD_LETTER_RETRY: Duration = Duration::from_secs(30);

/// Returns the verdict for a message that was not accepted. `None` if the error is unrelated to the
/// message, which is then offered again without counting an attempt.
pub fn of_error(error: &BrokerError, to: &str, sub_queue: SubQueue) -> Option<Verdict> {
    let condition = error.condition();
    let said = format!("{to}: {}", error.detail());
    let failed = |retry_after| Verdict::Failed { why: said.as_str().into(), retry_after };
    match condition {
        // The other broker or the network is temporarily unavailable.
        Condition::ServerBusy
        | Condition::OperationCancelled
        | Condition::CommunicationProblem
        | Condition::ServiceTimeout => None,
        // FWD-15, FWD-23: no retry would succeed.
        Condition::EntityNotFound
        | Condition::EntityDisabled
        | Condition::QuotaExceeded
        | Condition::MessageSizeExceeded
        | Condition::ArgumentError
        | Condition::ArgumentOutOfRange
        | Condition::InvalidOperation
        | Condition::MaxTransferCopiesExceeded
        | Condition::SessionIdIsNull => {
            let may_change =
                [Condition::EntityNotFound, Condition::EntityDisabled, Condition::QuotaExceeded];
            if sub_queue == SubQueue::DeadLetter && may_change.contains(&condition) {
                return Some(failed(Some(DEAD_LETTER_RETRY)));
            }
            Some(Verdict::Refused {
                reason: condition.reason_code().into(),
                description: format!("the message was refused by {said}").into(),
            })
        }
        // The operator may fix the cause, such as a token or a version.
        _ => Some(failed(None)),
    }
}

/// Returns the verdict for an error about a whole list. Refuses the list only if the queue is
/// absent or disabled.
pub fn of_list_error(error: &BrokerError, to: &str, sub_queue: SubQueue) -> Option<Verdict> {
    let condition = error.condition();
    match condition {
        Condition::EntityNotFound | Condition::EntityDisabled => of_error(error, to, sub_queue),
        _ if of_error(error, to, sub_queue).is_none() => None,
        _ => Some(Verdict::Failed {
            why: format!("{to}: {}", error.detail()).into(),
            retry_after: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use peeklock_core::error::Rejection;
    use peeklock_core::ids::TrackingId;
    use peeklock_core::time::Timestamp;

    use super::*;

    fn error(condition: Condition) -> BrokerError {
        let rejection = Rejection::new(condition, "no luck");
        BrokerError::new(rejection, TrackingId(1), "orders", Timestamp::NONE)
    }

    fn reason(condition: Condition, sub_queue: SubQueue) -> Option<String> {
        match of_error(&error(condition), "b:1/q", sub_queue) {
            Some(Verdict::Refused { reason, description }) => {
                assert_eq!(&*description, "the message was refused by b:1/q: no luck");
                Some(reason.into())
            }
            _ => None,
        }
    }

    /// FWD-15, FWD-23, FWD-33, DLQ-21: the reasons are the same as for a local transfer.
    #[test]
    fn permanent_errors_are_refused_with_the_reason_of_a_transfer() {
        for (condition, expected) in [
            (Condition::EntityNotFound, "MessagingEntityNotFound"),
            (Condition::EntityDisabled, "MessagingEntityDisabled"),
            (Condition::QuotaExceeded, "QuotaExceeded"),
            (Condition::MessageSizeExceeded, "MessageSizeExceeded"),
            (Condition::InvalidOperation, "InvalidOperation"),
            (Condition::MaxTransferCopiesExceeded, "MaxTransferCopiesExceeded"),
            (Condition::SessionIdIsNull, "Session ID is null."),
        ] {
            assert_eq!(reason(condition, SubQueue::Main).as_deref(), Some(expected));
        }
    }

    /// FWD-28: dead letters wait until the destination accepts them.
    #[test]
    fn dead_letters_wait_for_an_absent_destination() {
        for condition in
            [Condition::EntityNotFound, Condition::EntityDisabled, Condition::QuotaExceeded]
        {
            let verdict = of_error(&error(condition), "b:1/q", SubQueue::DeadLetter);
            let Some(Verdict::Failed { retry_after, .. }) = verdict else { panic!("{verdict:?}") };
            assert_eq!(retry_after, Some(Duration::from_secs(30)));
        }
        assert!(reason(Condition::MessageSizeExceeded, SubQueue::DeadLetter).is_some());
    }

    /// An outage of the other broker dead-letters nothing.
    #[test]
    fn outages_are_not_counted_as_attempts() {
        for condition in
            [Condition::ServerBusy, Condition::CommunicationProblem, Condition::OperationCancelled]
        {
            assert_eq!(of_error(&error(condition), "b", SubQueue::Main), None);
            assert_eq!(of_list_error(&error(condition), "b", SubQueue::Main), None);
        }
    }

    /// FWD-32: errors that the operator can fix count as attempts, and do not refuse a message
    /// immediately.
    #[test]
    fn a_list_is_refused_only_if_the_queue_is_not_there() {
        for condition in
            [Condition::Unauthorized, Condition::ArgumentError, Condition::InternalError]
        {
            let verdict = of_list_error(&error(condition), "b", SubQueue::Main);
            assert!(matches!(verdict, Some(Verdict::Failed { .. })), "{condition}: {verdict:?}");
        }
        let verdict = of_list_error(&error(Condition::EntityNotFound), "b", SubQueue::Main);
        assert!(matches!(verdict, Some(Verdict::Refused { .. })), "{verdict:?}");
    }
}

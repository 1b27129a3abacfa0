//! Errors of the broker on the wire (AMQP-90).

use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;

use crate::error::{AmqpError, condition};

/// An error as it is refused, rejected or answered with.
pub(super) fn of(error: &BrokerError) -> AmqpError {
    let condition = error.condition();
    let name = condition.amqp().unwrap_or(condition::INTERNAL_ERROR);
    if condition == Condition::EntityNotFound {
        // Only with these words some clients take it for final.
        let text = format!("The messaging entity '{}' could not be found. {error}", error.entity());
        return AmqpError::new(name, text);
    }
    AmqpError::new(name, error.to_string())
}

/// The error with which a live link ends because of its entity or of rights (AMQP-79): clients attach anew and
/// are refused with the condition itself. A lapsed session lock is said as it is (AMQP-74).
pub(super) fn of_live_link(error: &BrokerError) -> AmqpError {
    if error.condition() == Condition::SessionLockLost {
        return of(error);
    }
    let is_transient = error.condition().retryable();
    AmqpError::new(condition::DETACH_FORCED, error.to_string()).transient(is_transient)
}

/// Refuses a feature that the broker does not offer over AMQP.
pub(super) fn not_offered(feature: &str) -> AmqpError {
    AmqpError::new(condition::NOT_IMPLEMENTED, format!("{feature} not supported over AMQP yet"))
}

//! Errors of the broker as errors of AMQP (AMQP-90). Every refusal of the server passes it, so that
//! SDKs see the condition and whether a retry can help.

use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;

use crate::error::{AmqpError, condition};

/// Converts an error for a refusal, a rejection or an answer.
pub(super) fn of(error: &BrokerError) -> AmqpError {
    let condition = error.condition();
    let name = condition.amqp().unwrap_or(condition::INTERNAL_ERROR);
    if condition == Condition::EntityNotFound {
        // Some clients treat the error as permanent only with these words.
        let text = format!("The messaging entity '{}' could not be found. {error}", error.entity());
        return AmqpError::new(name, text);
    }
    AmqpError::new(name, error.to_string())
}

/// Converts the error with which an attached link ends because of its entity or its rights
/// (AMQP-79). Clients attach again, and the refusal has the actual condition. A lost session lock
/// keeps its own condition (AMQP-74).
pub(super) fn of_live_link(error: &BrokerError) -> AmqpError {
    if error.condition() == Condition::SessionLockLost {
        return of(error);
    }
    let is_transient = error.condition().retryable();
    AmqpError::new(condition::DETACH_FORCED, error.to_string()).transient(is_transient)
}

/// Makes the error for a feature that the broker does not support over AMQP.
pub(super) fn not_offered(feature: &str) -> AmqpError {
    AmqpError::new(condition::NOT_IMPLEMENTED, format!("{feature} not supported over AMQP yet"))
}

//! Messages and errors as scenarios see them.

use bytes::Bytes;
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::Transfer;
use peeklock_amqp_testing::client::Delivered;
use peeklock_core::command::MessageState;
use peeklock_core::condition::Condition;
use peeklock_core::ids::{LockToken, TrackingId};
use peeklock_core::message::{Message, Value};
use peeklock_core::time::Timestamp;

use crate::subject::{Refusal, Seen};

/// The token that is the tag of a delivery (AMQP-54).
pub fn token_of(transfer: &Transfer) -> LockToken {
    let mut bytes: [u8; 16] = transfer.delivery_tag.unwrap().as_slice().try_into().unwrap();
    for part in [0..4, 4..6, 6..8] {
        bytes[part].reverse();
    }
    LockToken(u128::from_be_bytes(bytes))
}

/// A message with the broker's annotations.
pub fn seen(message: Bytes, token: Option<LockToken>) -> Seen {
    let delivered = Delivered::read(message).unwrap();
    let instant = |name| match delivered.annotation(name) {
        Some(Value::Timestamp(ms)) => Some(Timestamp::from_unix_ms(ms)),
        None => None,
        other => panic!("{name} is {other:?}"),
    };
    let number = |name| match delivered.annotation(name) {
        Some(Value::I64(number)) => Some(u64::try_from(number).unwrap()),
        None => None,
        other => panic!("{name} is {other:?}"),
    };
    let state = match delivered.annotation("x-opt-message-state") {
        None if instant("x-opt-peeklock-delayed-until").is_some() => MessageState::Delayed,
        None => MessageState::Active,
        Some(Value::I32(1)) => MessageState::Deferred,
        Some(Value::I32(2)) => MessageState::Scheduled,
        other => panic!("state is {other:?}"),
    };
    let dead_letter_source = match delivered.annotation("x-opt-deadletter-source") {
        Some(Value::String(path)) => Some(path),
        None => None,
        other => panic!("source is {other:?}"),
    };
    let enqueued_at = instant("x-opt-enqueued-time").unwrap();
    let mut message = delivered.content.decode().unwrap();
    // The time to live of its header, or the difference of its two instants if it is too long for a
    // header (AMQ-19).
    let ttl = message.time_to_live;
    message.application_properties.sort_by(|left, right| left.0.cmp(&right.0));
    Seen {
        message,
        sequence: number("x-opt-sequence-number").unwrap(),
        enqueued_sequence: number("x-opt-enqueue-sequence-number").unwrap_or_default(),
        enqueued_at,
        expires_at: ttl.map(|ttl| enqueued_at.plus(ttl)),
        // The broker sends the number of earlier deliveries.
        delivery_count: delivered.delivery_count + u32::from(token.is_some()),
        state,
        lock_token: token.map(|token| token.to_string()),
        // A peeked message has year 1, as in the cloud.
        locked_until: instant("x-opt-locked-until").filter(|at| *at != Timestamp::NONE),
        dead_letter_source,
    }
}

/// An error of the broker: each of its conditions has a symbol of its own (file 19).
pub fn refusal(error: &AmqpError) -> Refusal {
    let name = error.condition();
    let condition = Condition::all().find(|one| one.amqp().is_some_and(|symbol| symbol == name));
    Refusal {
        condition: condition.map_or(name, |condition| condition.name()).to_owned(),
        retryable: condition.is_some_and(Condition::retryable),
        tracking_id: None,
        text: error.description().to_owned(),
    }
}

/// The error of an ended connection.
pub fn gone() -> Refusal {
    of_this_side(Condition::CommunicationProblem, "the connection is over")
}

/// The error for an illegal answer of the broker.
pub fn unexpected(what: &str) -> Refusal {
    of_this_side(Condition::InternalError, what)
}

/// The error for a name that is not in a complete list.
pub fn absent(what: &str) -> Refusal {
    of_this_side(Condition::EntityNotFound, what)
}

fn of_this_side(condition: Condition, text: &str) -> Refusal {
    let (id, at) = (TrackingId(0), Timestamp::NONE);
    Refusal {
        condition: condition.name().to_owned(),
        retryable: condition.retryable(),
        tracking_id: None,
        text: format!("{text} TrackingId:{id}, Entity:, Timestamp:{at}"),
    }
}

/// The body of a message without bytes.
const NO_BYTES: [u8; 5] = [0x00, 0x53, 0x75, 0xa0, 0x00];

/// Encodes a message. A message without a body gets an empty one, which the standard requires.
pub fn encoded(message: &Message) -> Vec<u8> {
    let bytes = message.encode().as_bytes().to_vec();
    if bytes.is_empty() { NO_BYTES.to_vec() } else { bytes }
}

/// A batch of messages (AMQP-42).
pub fn batch(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend_from_slice(&NO_BYTES[..3]);
        Value::Binary(encoded(message).into()).encode_to(&mut bytes);
    }
    if messages.is_empty() { NO_BYTES.to_vec() } else { bytes }
}

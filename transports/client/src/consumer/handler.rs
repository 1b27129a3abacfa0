//! Who consumes, what it gets, and what it answers.

use std::ops::Deref;
use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::limits::Limits;
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;
use tokio::time::error::Elapsed;

use crate::port::Settlement;
use crate::{BodyError, Received, SessionReceiver};

/// Who is given messages. Functions that return a future are handlers, and so are the recipients of actors
/// (the feature `actix`).
pub trait Handler<D>: Send + Sync + 'static {
    /// What is at work on one of them. When it panics, the message is abandoned.
    type Handling: Future<Output = Result<(), Refusal>> + Send + 'static;

    /// Gives it a message; its outcome settles the message.
    fn handle(&self, delivery: D) -> Self::Handling;

    /// Whether it takes no message any more: then the consumer ends, and says that.
    fn is_gone(&self) -> bool {
        false
    }
}

impl<D, H, F> Handler<D> for H
where
    H: Fn(D) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Refusal>> + Send + 'static,
{
    type Handling = F;

    fn handle(&self, delivery: D) -> F {
        self(delivery)
    }
}

/// A message for a handler, which answers `Ok` to complete it, or says what else becomes of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The message.
    pub message: Received,
}

/// A message of a session for a handler, which answers `Ok` to complete it, or says what else becomes of it.
/// The next message of the session comes when this one is settled, so an abandoned one comes again before it
/// (SES-20).
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionDelivery {
    /// The message.
    pub message: Received,
    /// Its session, which the consumer holds: for the state of it (SES-24). What is received or settled
    /// over it is no more the consumer's.
    pub session: Arc<SessionReceiver>,
}

/// What becomes of a message that a handler does not complete.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Available again, at once unless the entity has a retry policy; counted as a failed delivery (SET-03,
    /// RTY-17).
    Abandon {
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Available again after a delay, whatever the retry policy of the entity; counted as a failed delivery
    /// (RTY-01).
    AbandonWithDelay {
        /// For how long nobody gets it.
        delay: TimeSpan,
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer,
    /// Moved to the dead-letter queue (SET-05). Of texts that are too long the beginning is kept.
    DeadLetter {
        /// Why, for programs.
        reason: String,
        /// Why, for people.
        description: String,
    },
    /// Available again as if it had not been delivered; not counted (SET-32).
    Release,
    /// Nothing more: the handler has settled it itself, alone or in a transaction. If it has not, the message is
    /// available again, as with `Release`.
    AlreadySettled,
}

impl Refusal {
    /// Available again, counted as a failed delivery (SET-03).
    #[must_use]
    pub const fn abandon() -> Self {
        Self::Abandon { properties: Vec::new() }
    }

    /// Available again after so long, counted as a failed delivery (RTY-01).
    #[must_use]
    pub const fn retry_after(delay: TimeSpan) -> Self {
        Self::AbandonWithDelay { delay, properties: Vec::new() }
    }

    /// Moved to the dead-letter queue (SET-05), with a reason for programs and a description for people.
    #[must_use]
    pub fn dead_letter(reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self::DeadLetter { reason: reason.into(), description: description.into() }
    }
}

/// A body that is not what the handler reads never will be: dead-lettered for the reason `BodyNotReadable`.
impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// The same, for who reads the body by himself.
impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// What a broker refuses may go well at the next attempt: abandoned. MaxDeliveryCount bounds how often.
impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        tracing::warn!(%error, "a handler gives its message back");
        Self::abandon()
    }
}

/// The same for what a handler has to do with the world.
impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        tracing::warn!(%error, "a handler gives its message back");
        Self::abandon()
    }
}

/// The same for what took too long.
impl From<Elapsed> for Refusal {
    fn from(error: Elapsed) -> Self {
        tracing::warn!(%error, "a handler gives its message back");
        Self::abandon()
    }
}

/// Why a message is dead-lettered whose body its handler cannot read.
const BODY_NOT_READABLE: &str = "BodyNotReadable";

impl From<Result<(), Refusal>> for Settlement {
    fn from(outcome: Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self::Complete,
            Err(Refusal::Abandon { properties }) => Self::Abandon { properties, delay: None },
            Err(Refusal::AbandonWithDelay { delay, properties }) => {
                Self::Abandon { properties, delay: Some(delay) }
            }
            Err(Refusal::Defer) => Self::Defer { properties: Vec::new() },
            Err(Refusal::DeadLetter { reason, description }) => {
                let limits = Limits::default();
                Self::DeadLetter {
                    reason: Some(cut(reason, limits.dead_letter_reason_chars_max)),
                    description: Some(cut(description, limits.dead_letter_description_chars_max)),
                    properties: Vec::new(),
                }
            }
            // Where it is settled, this is refused and changes nothing.
            Err(Refusal::Release | Refusal::AlreadySettled) => Self::Release,
        }
    }
}

/// The beginning of a text (SET-11).
fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
    }
    text
}

impl Deref for Delivery {
    type Target = Received;

    fn deref(&self) -> &Received {
        &self.message
    }
}

impl Deref for SessionDelivery {
    type Target = Received;

    fn deref(&self) -> &Received {
        &self.message
    }
}

//! Outcome of a handler that does not complete its message, and the settlement that follows from it.

use std::fmt;

use peeklock_core::error::BrokerError;
use peeklock_core::limits::Limits;
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;
use tokio::time::error::Elapsed;

use crate::port::Settlement;
use crate::{BodyError, WriteError};

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
    /// Available again, counted as a failed delivery, because of an error: what `?` makes of one. The consumer logs the
    /// error with the queue, the sequence number and the id of the message, also if an actor has returned it.
    Failed {
        /// The error.
        error: String,
    },
}

impl Refusal {
    /// Available again, counted as a failed delivery (SET-03).
    #[must_use]
    pub const fn abandon() -> Self {
        Self::Abandon { properties: Vec::new() }
    }

    /// Available again after so long, counted as a failed delivery (RTY-01).
    #[must_use]
    pub fn retry_after(delay: impl Into<TimeSpan>) -> Self {
        Self::AbandonWithDelay { delay: delay.into(), properties: Vec::new() }
    }

    /// Available again as if it had not been delivered, not counted (SET-32).
    #[must_use]
    pub const fn release() -> Self {
        Self::Release
    }

    /// Nothing more: the handler has settled it itself, alone or in a transaction. That this is answered by `Err` means no
    /// failure, only that it is not the outcome that settles.
    #[must_use]
    pub const fn already_settled() -> Self {
        Self::AlreadySettled
    }

    /// Available again, counted as a failed delivery, because of an error, which is logged.
    #[must_use]
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed { error: error.to_string() }
    }

    /// Logs the error, if there is one.
    pub(crate) fn log(&self) {
        if let Self::Failed { error } = self {
            tracing::warn!(%error, "a handler returned its message unsettled");
        }
    }

    /// Set aside, to be received by number (DEF-01).
    #[must_use]
    pub const fn defer() -> Self {
        Self::Defer
    }

    /// Moved to the dead-letter queue (SET-05), with a reason for programs and a description for people.
    #[must_use]
    pub fn dead_letter(reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self::DeadLetter { reason: reason.into(), description: description.into() }
    }
}

/// The last line of a handler that has settled its message itself, alone or in a transaction: nothing is left to do.
///
/// It is `Err(Refusal::already_settled())`. The outcome `Ok` asks the consumer to complete the message; this one asks for
/// nothing, and is no failure.
///
/// ```
/// # use peeklock_client::{Delivery, Refusal, already_settled};
/// async fn work(order: Delivery) -> Result<(), Refusal> {
///     order.complete().await?;
///     // What is done from here on is done once.
///     already_settled()
/// }
/// ```
///
/// # Errors
/// Always, with [`Refusal::AlreadySettled`].
pub const fn already_settled() -> Result<(), Refusal> {
    Err(Refusal::AlreadySettled)
}

/// A body that is not what the handler reads never will be: dead-lettered for the reason `BodyNotReadable`.
impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// The same, for who reads the body by himself. The error does not tell whether something was read or written, nor of what:
/// a `?` behind other JSON of yours, such as `serde_json::to_vec`, dead-letters the message for `BodyNotReadable` too. What
/// is sent is written by [`json_message`](crate::json_message) or [`job_message`](crate::job_message), whose error is a
/// [`WriteError`], or goes through `map_err`:
///
/// ```
/// # use peeklock_client::{Delivery, Refusal};
/// # async fn work(_: Delivery) -> Result<(), Refusal> {
/// let receipt = serde_json::to_vec(&["two coffees"])
///     .map_err(|error| Refusal::dead_letter("ReceiptNotWritable", error.to_string()))?;
/// # drop(receipt);
/// # Ok(())
/// # }
/// ```
impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// What a handler wants to send and cannot write it cannot write the next time either: the message that it has is
/// dead-lettered for the reason `BodyNotWritable`.
impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        Self::dead_letter(BODY_NOT_WRITABLE, error.to_string())
    }
}

/// What a broker refuses may go well at the next attempt: abandoned. MaxDeliveryCount bounds how often.
impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self::failed(error)
    }
}

/// The same for I/O of the handler.
impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}

/// The same for a timeout.
impl From<Elapsed> for Refusal {
    fn from(error: Elapsed) -> Self {
        Self::failed(error)
    }
}

/// Why a message is dead-lettered whose body its handler cannot read.
const BODY_NOT_READABLE: &str = "BodyNotReadable";
/// Why one is whose handler cannot write what it sends for it.
const BODY_NOT_WRITABLE: &str = "BodyNotWritable";

impl From<Result<(), Refusal>> for Settlement {
    fn from(outcome: Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self::Complete,
            Err(Refusal::Abandon { properties }) => Self::Abandon { properties, delay: None },
            Err(Refusal::AbandonWithDelay { delay, properties }) => {
                Self::Abandon { properties, delay: Some(delay) }
            }
            Err(Refusal::Failed { .. }) => Self::Abandon { properties: Vec::new(), delay: None },
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

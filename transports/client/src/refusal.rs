//! Outcome of a handler that does not complete its message, and the settlement that follows from
//! it. Handlers return it as their error.

use std::error::Error;
use std::fmt;

use peeklock_core::command::{LAST_ERROR_BYTES_MAX, LAST_ERROR_PROPERTY, bounded_error};
use peeklock_core::error::BrokerError;
use peeklock_core::limits::Limits;
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;
use tokio::time::error::Elapsed;

use crate::port::Settlement;
use crate::{BodyError, WriteError};

/// Settlement of a message that its handler does not complete.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Available again, immediately unless the entity has a retry policy; counted as a failed
    /// delivery (SET-03, RTY-17).
    Abandon {
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Available again after a delay that overrides the entity's retry policy; counted as a failed
    /// delivery (RTY-01).
    AbandonWithDelay {
        /// Delay before redelivery.
        delay: TimeSpan,
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer,
    /// Moved to the dead-letter queue (SET-05). Texts that are too long are truncated.
    DeadLetter {
        /// Reason, for programs.
        reason: String,
        /// Description, for people.
        description: String,
    },
    /// Available again as if it had not been delivered; not counted (SET-32).
    Release,
    /// Nothing more to do: the handler has settled the message itself, directly or in a
    /// transaction. If it has not, the message is released, as with `Release`.
    AlreadySettled,
    /// Available again, counted as a failed delivery, because of an error: the conversion of most
    /// errors by `?`. The consumer logs the error with the queue, the sequence number and the id of
    /// the message, also for an actor. The message carries the error as its property
    /// `peeklock-last-error` (SET-42).
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

    /// Available again after this delay, counted as a failed delivery (RTY-01).
    #[must_use]
    pub fn retry_after(delay: impl Into<TimeSpan>) -> Self {
        Self::AbandonWithDelay { delay: delay.into(), properties: Vec::new() }
    }

    /// Available again as if it had not been delivered, not counted (SET-32).
    #[must_use]
    pub const fn release() -> Self {
        Self::Release
    }

    /// Nothing more to do: the handler has settled the message itself, directly or in a
    /// transaction. This `Err` is not a failure; it only differs from the outcome that completes
    /// the message.
    #[must_use]
    pub const fn already_settled() -> Self {
        Self::AlreadySettled
    }

    /// Available again, counted as a failed delivery, because of an error, which is logged and left
    /// on the message (SET-42). An error of `anyhow` or `eyre` includes its sources.
    #[must_use]
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed { error: format!("{error:#}") }
    }

    /// As [`Refusal::failed`], with the sources of the error. `?` uses it for errors of the broker,
    /// I/O errors and timeouts.
    ///
    /// ```
    /// # use peeklock_client::{Delivery, Refusal};
    /// async fn work(order: Delivery) -> Result<(), Refusal> {
    ///     let cups = std::str::from_utf8(order.body()).map_err(Refusal::from_error)?;
    ///     println!("{cups} cups");
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn from_error(error: impl Error) -> Self {
        Self::Failed { error: text_with_sources(&error) }
    }

    /// Adds an error to an abandon with or without delay, to be left on the message (SET-42). Other
    /// refusals are unchanged.
    #[must_use]
    pub fn with_error(mut self, error: impl fmt::Display) -> Self {
        if let Self::Abandon { properties } | Self::AbandonWithDelay { properties, .. } = &mut self
        {
            properties.retain(|(key, _)| key != LAST_ERROR_PROPERTY);
            properties.push(last_error(&format!("{error:#}")));
        }
        self
    }

    /// Logs the error of [`Refusal::Failed`].
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

/// Returns the outcome of a handler that has settled its message itself, directly or in a
/// transaction.
///
/// It is `Err(Refusal::already_settled())`. The outcome `Ok` asks the consumer to complete the
/// message; this one asks for nothing, and is not a failure.
///
/// ```
/// # use peeklock_client::{Delivery, Refusal, already_settled};
/// async fn work(order: Delivery) -> Result<(), Refusal> {
///     order.complete().await?;
/// // From here on, each action happens only once.
///     already_settled()
/// }
/// ```
///
/// # Errors
/// Always returns [`Refusal::AlreadySettled`].
pub const fn already_settled() -> Result<(), Refusal> {
    Err(Refusal::AlreadySettled)
}

/// Dead-letters the message for the reason `BodyNotReadable`, because a retry cannot succeed.
impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// Dead-letters the message for the reason `BodyNotReadable`, for handlers that parse the body
/// themselves. The error does not show whether JSON was read or written: `?` after other JSON, such
/// as `serde_json::to_vec`, also dead-letters the message for `BodyNotReadable`. Write messages
/// with [`json_message`](crate::json_message) or [`job_message`](crate::job_message), whose error
/// is a [`WriteError`], or use `map_err`:
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

/// Dead-letters the handler's message for the reason `BodyNotWritable`, because a retry would
/// produce the same value.
impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        Self::dead_letter(BODY_NOT_WRITABLE, error.to_string())
    }
}

/// Abandons the message: a retry may succeed. MaxDeliveryCount bounds the number of attempts.
impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self::from_error(error)
    }
}

/// Abandons the message after an I/O error of the handler.
impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::from_error(error)
    }
}

/// Abandons the message after a timeout.
impl From<Elapsed> for Refusal {
    fn from(error: Elapsed) -> Self {
        Self::from_error(error)
    }
}

/// Reason for dead-lettering a message whose body its handler cannot read.
const BODY_NOT_READABLE: &str = "BodyNotReadable";
/// Maximum number of sources of an error.
const SOURCE_COUNT_MAX: usize = 32;
/// Reason for dead-lettering a message for which its handler cannot write another one.
const BODY_NOT_WRITABLE: &str = "BodyNotWritable";

impl From<Result<(), Refusal>> for Settlement {
    fn from(outcome: Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self::Complete,
            Err(Refusal::Abandon { properties }) => Self::Abandon { properties, delay: None },
            Err(Refusal::AbandonWithDelay { delay, properties }) => {
                Self::Abandon { properties, delay: Some(delay) }
            }
            Err(Refusal::Failed { error }) => {
                Self::Abandon { properties: vec![last_error(&error)], delay: None }
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
            // Refused without effect if the message is already settled.
            Err(Refusal::Release | Refusal::AlreadySettled) => Self::Release,
        }
    }
}

impl Settlement {
    /// Returns the settlement of an outcome, without its error for a consumer that reports none
    /// (SET-46).
    pub(crate) fn of(outcome: Result<(), Refusal>, reports_errors: bool) -> Self {
        let mut settlement = Self::from(outcome);
        if !reports_errors && let Self::Abandon { properties, .. } = &mut settlement {
            properties.retain(|(key, _)| key != LAST_ERROR_PROPERTY);
        }
        settlement
    }
}

/// Returns the property with an error.
fn last_error(error: &str) -> (String, Value) {
    (LAST_ERROR_PROPERTY.to_owned(), Value::String(bounded_error(error).into_owned()))
}

/// Returns the text of an error with the texts of its sources, until it is longer than a message
/// carries.
fn text_with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    for _ in 0..SOURCE_COUNT_MAX {
        let Some(cause) = source.filter(|_| text.len() <= LAST_ERROR_BYTES_MAX) else { break };
        let cause_text = cause.to_string();
        // The texts of many errors end with the text of their source.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Returns the beginning of a text (SET-11).
fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
    }
    text
}

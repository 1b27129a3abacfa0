//! Forwarder that writes messages into the broker's log: one event per message, at the level of the
//! destination, and the message is done. It is the smallest forwarder; copy it to start your own.
//!
//! A queue with `ForwardTo` = `log://info` keeps nothing: each message becomes a line with its
//! entity, number, id, subject, size and hops. The body and the properties are not written, because
//! a log has other readers than a queue.
//!
//! ```
//! # mod peeklock { pub use peeklock_core::*; pub use peeklock_forward_log as forward_log; }
//! use peeklock::contract::Forwarder as _;
//! use peeklock::forward_log::LogForwarder;
//!
//! assert!(LogForwarder.check("log://debug").is_ok());
//! assert!(LogForwarder.check("log://loudly").is_err());
//! ```
//!
//! Parts of a forwarder:
//!
//! 1. [`Forwarder`]: its name, its schemes, and the validation of destinations. The broker calls
//!    `check` when an entity is created or updated, so `check` must neither connect nor wait
//!    (FWD-02).
//! 2. [`Route`]: a connection from one source to one destination, with its own thread. It returns a
//!    verdict per message; the broker handles hops, retries and the transfer dead-letter queue
//!    (FWD-31).
//! 3. One line in `src/registry.rs`, or a call of `Broker::builder` in a program that embeds the
//!    broker.

use async_trait::async_trait;
use peeklock_core::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock_core::error::Rejection;
use tracing::Level;

#[cfg(test)]
mod tests;

/// The only scheme.
const SCHEME: &str = "log";

/// Forwards to `log://error`, `log://warn`, `log://info`, `log://debug` and `log://trace`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogForwarder;

impl Forwarder for LogForwarder {
    fn name(&self) -> &'static str {
        SCHEME
    }

    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    fn check(&self, destination: &str) -> Result<(), Rejection> {
        level(destination).map(|_| ())
    }

    fn route(&self, destination: &str, source: Source) -> Result<Box<dyn Route>, Rejection> {
        Ok(Box::new(LogRoute { level: level(destination)?, source }))
    }
}

/// Route from one entity into the log.
struct LogRoute {
    level: Level,
    source: Source,
}

#[async_trait]
impl Route for LogRoute {
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        messages.iter().map(|message| self.write(message)).collect()
    }
}

impl LogRoute {
    fn write(&self, outgoing: &Outgoing) -> Verdict {
        let message = match outgoing.message() {
            Ok(message) => message,
            // Cannot happen for a message that was sent, and a retry would not help.
            Err(error) => {
                return Verdict::Refused {
                    reason: "UnreadableMessage".into(),
                    description: error.to_string().into(),
                };
            }
        };
        let id = message.message_id.map(|id| id.to_string()).unwrap_or_default();
        // The macro needs the level as a constant.
        macro_rules! event {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    entity = format_args!("{}{}", self.source.path, self.source.sub_queue.suffix()),
                    sequence_number = outgoing.facts.sequence.0,
                    message_id = id,
                    subject = message.subject,
                    bytes = outgoing.facts.size,
                    hops = outgoing.hops,
                    "message forwarded to the log"
                )
            };
        }
        match self.level {
            Level::ERROR => event!(Level::ERROR),
            Level::WARN => event!(Level::WARN),
            Level::INFO => event!(Level::INFO),
            Level::DEBUG => event!(Level::DEBUG),
            Level::TRACE => event!(Level::TRACE),
        }
        Verdict::Delivered
    }
}

/// Parses the level of a destination, ignoring case.
fn level(destination: &str) -> Result<Level, Rejection> {
    let named = destination.split_once("://").map(|(_, level)| level.to_ascii_lowercase());
    match named.as_deref() {
        Some("error") => Ok(Level::ERROR),
        Some("warn") => Ok(Level::WARN),
        Some("info") => Ok(Level::INFO),
        Some("debug") => Ok(Level::DEBUG),
        Some("trace") => Ok(Level::TRACE),
        _ => Err(Rejection::argument(format!(
            "{destination:?} does not name a level of the log: write log://error, log://warn, \
             log://info, log://debug or log://trace"
        ))),
    }
}

//! Forwards messages into the log of the broker: one event for each, at the level that the
//! destination names, and the message is done. The smallest forwarder; start yours from a copy.
//!
//! A queue with `ForwardTo` = `log://info` keeps nothing: each message becomes a line with its entity,
//! number, id, subject, size and hops. What was sent, body and properties, is not written: a log is
//! read by others than a queue.
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
//! What a forwarder consists of:
//!
//! 1. [`Forwarder`]: its name, its schemes, and whether a destination makes sense. `check` is asked when
//!    an entity is created or updated, so it neither connects nor waits (FWD-02).
//! 2. [`Route`]: the way from one source to one destination, with a thread of its own. It says what became
//!    of each message; hops, retries and the transfer dead-letter queue are the broker's (FWD-31).
//! 3. One line in `src/registry.rs`, or a call of `Broker::builder` where a program embeds the broker.

use async_trait::async_trait;
use peeklock_core::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock_core::error::Rejection;
use tracing::Level;

#[cfg(test)]
mod tests;

/// The one scheme.
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

/// The way from one entity into the log.
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
            // Never the case for what was sent; and if it were, it would not be better next time.
            Err(error) => {
                return Verdict::Refused {
                    reason: "UnreadableMessage".into(),
                    description: error.to_string().into(),
                };
            }
        };
        let id = message.message_id.map(|id| id.to_string()).unwrap_or_default();
        // The macro wants the level as a constant.
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

/// The level that a destination names, in any case.
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

//! A connection with one session, and what is heard on it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_amqp::performative::{Close, Detach, End, Performative};
use peeklock_amqp_testing::client::Session;

use super::AmqpFault;
use super::wire::Wire;

/// An older connection may be one that the broker gives up, since nothing is said on it meanwhile (AMQP-06).
const IDLE_MAX: Duration = Duration::from_secs(120);

/// A connection on which one thing is done at a time.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) session: Session,
    pub(super) used_at: Instant,
}

impl Connection {
    /// Returns when something was read or written.
    pub(super) async fn turn(&mut self) -> Result<(), AmqpFault> {
        self.wire.turn().await
    }

    /// What the broker said that is here.
    ///
    /// # Errors
    /// When it has ended something and says why.
    pub(super) fn hear(&mut self) -> Result<Option<(Performative, Bytes)>, AmqpFault> {
        let Some((_, performative, payload)) = self.wire.frames.hear()? else { return Ok(None) };
        self.session.heard(&performative);
        match performative {
            Performative::Detach(Detach { error: Some(error), .. })
            | Performative::End(End { error: Some(error) })
            | Performative::Close(Close { error: Some(error) }) => Err(error.into()),
            performative => Ok(Some((performative, payload))),
        }
    }

    /// What the broker says next.
    pub(super) async fn answer(&mut self) -> Result<(Performative, Bytes), AmqpFault> {
        loop {
            if let Some(heard) = self.hear()? {
                return Ok(heard);
            }
            self.turn().await?;
        }
    }

    /// Whether the broker has heard of it lately.
    pub(super) fn is_fresh(&self) -> bool {
        self.used_at.elapsed() < IDLE_MAX
    }

    /// Records the end of a use: the connection is idle from this instant.
    pub(super) fn rest(&mut self) {
        self.used_at = Instant::now();
        self.wire.frames.rest();
    }
}

//! A connection with one session, and the performatives received on it. The files of this folder
//! add one activity each.

use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_amqp::performative::{Close, Detach, End, Performative};
use peeklock_amqp_testing::client::Session;

use super::AmqpFault;
use super::wire::Wire;

/// Maximum idle time of a connection for reuse: the broker may close an older one, because it is
/// silent meanwhile (AMQP-06).
const IDLE_MAX: Duration = Duration::from_secs(120);

/// A connection with one activity at a time.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) session: Session,
    pub(super) used_at: Instant,
}

impl Connection {
    /// Ready after bytes were read or written.
    pub(super) async fn turn(&mut self) -> Result<(), AmqpFault> {
        self.wire.turn().await
    }

    /// Returns the next performative that has arrived.
    ///
    /// # Errors
    /// With the reason, if the broker has ended the link, session or connection.
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

    /// Waits for the next performative.
    pub(super) async fn answer(&mut self) -> Result<(Performative, Bytes), AmqpFault> {
        loop {
            if let Some(heard) = self.hear()? {
                return Ok(heard);
            }
            self.turn().await?;
        }
    }

    /// Whether the connection was used within [`IDLE_MAX`].
    pub(super) fn is_fresh(&self) -> bool {
        self.used_at.elapsed() < IDLE_MAX
    }

    /// Records the end of a use: the connection is idle from this instant.
    pub(super) fn rest(&mut self) {
        self.used_at = Instant::now();
        self.wire.frames.rest();
    }
}

//! A connection with one session: its windows, and what is heard on it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_amqp::performative::{Close, Detach, End, Performative};
use peeklock_amqp::serial::room;

use super::AmqpFault;
use super::wire::Wire;

/// Room that the broker is told of for messages. Credit is what bounds them.
pub(super) const INCOMING_WINDOW: u32 = i32::MAX.cast_unsigned();
/// An older connection may be one that the broker gives up, since nothing is said on it meanwhile (AMQP-06).
const IDLE_MAX: Duration = Duration::from_secs(120);

/// A connection on which one thing is done at a time.
pub(super) struct Connection {
    pub(super) wire: Wire,
    /// How many bytes of a message go into one frame.
    pub(super) part_bytes: usize,
    /// The id of the next frame of a message to the broker, and the first that it has no room for.
    pub(super) next_outgoing_id: u32,
    pub(super) outgoing_up_to: u32,
    /// The id of the next message to the broker.
    pub(super) next_delivery_id: u32,
    /// The id of the next frame of a message from the broker.
    pub(super) next_incoming_id: u32,
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
        let Some((performative, payload)) = self.wire.take()? else { return Ok(None) };
        match &performative {
            Performative::Transfer(_) => {
                self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
            }
            Performative::Flow(flow) => {
                let next_id = flow.next_incoming_id.unwrap_or(0);
                self.outgoing_up_to = next_id.wrapping_add(flow.incoming_window);
            }
            Performative::Detach(Detach { error: Some(error), .. })
            | Performative::End(End { error: Some(error) })
            | Performative::Close(Close { error: Some(error) }) => {
                return Err(error.clone().into());
            }
            _ => {}
        }
        Ok(Some((performative, payload)))
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

    /// How many more frames of messages the broker has room for.
    pub(super) fn outgoing_room(&self) -> usize {
        usize::try_from(room(self.next_outgoing_id, self.outgoing_up_to)).unwrap_or(usize::MAX)
    }

    /// Whether the broker has heard of it lately.
    pub(super) fn is_fresh(&self) -> bool {
        self.used_at.elapsed() < IDLE_MAX
    }

    /// Nothing is done on it for now.
    pub(super) fn rest(&mut self) {
        self.used_at = Instant::now();
        self.wire.rest();
    }
}

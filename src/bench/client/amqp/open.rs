//! Opening: header, connection and session are said at once, as the standard lets it (AMQP 2.4.1), and the
//! answers heard in turn.

use std::time::Instant;

use peeklock_amqp::frame::FRAME_BYTES_MIN;
use peeklock_amqp::frame::header::Protocol;
use peeklock_amqp::performative::{Begin, Open, Performative};

use super::AmqpFault;
use super::connection::{Connection, INCOMING_WINDOW};
use super::wire::{FRAME_BYTES_MAX, Wire};

/// A frame has no more than this beside the part of a message: its header and a transfer.
const TRANSFER_BYTES_MAX: u32 = 64;

impl Connection {
    /// A connection with a session.
    pub(super) async fn open(address: &str) -> Result<Self, AmqpFault> {
        let mut wire = Wire::connect(address).await?;
        wire.raw(&Protocol::Amqp.header());
        let open = Open {
            container_id: "peeklock-bench".into(),
            max_frame_size: Some(FRAME_BYTES_MAX),
            ..Open::default()
        };
        wire.frame(&open, &[]);
        let begin = Begin {
            incoming_window: INCOMING_WINDOW,
            outgoing_window: INCOMING_WINDOW,
            ..Begin::default()
        };
        wire.frame(&begin, &[]);
        let header = loop {
            if let Some(header) = wire.header() {
                break header;
            }
            wire.turn().await?;
        };
        if Protocol::read(header) != Some(Protocol::Amqp) {
            return Err(AmqpFault::Header);
        }
        let mut connection = Self {
            wire,
            part_bytes: 0,
            next_outgoing_id: 0,
            outgoing_up_to: 0,
            next_delivery_id: 0,
            next_incoming_id: 0,
            used_at: Instant::now(),
        };
        let opened = match connection.answer().await? {
            (Performative::Open(open), _) => open,
            (other, _) => return Err(AmqpFault::unexpected(other)),
        };
        let begun = match connection.answer().await? {
            (Performative::Begin(begin), _) => begin,
            (other, _) => return Err(AmqpFault::unexpected(other)),
        };
        let frame_bytes = opened.max_frame_size.unwrap_or(FRAME_BYTES_MAX).max(FRAME_BYTES_MIN);
        let part_bytes = frame_bytes.min(FRAME_BYTES_MAX) - TRANSFER_BYTES_MAX;
        connection.part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        connection.outgoing_up_to = begun.incoming_window;
        connection.next_incoming_id = begun.next_outgoing_id;
        connection.rest();
        Ok(connection)
    }
}

//! Messages that clients send: transfers, in one frame or many (AMQP 2.6.14).
//!
//! Nothing of a message is kept here but how large it is so far: its parts are told as they come.

use bytes::Bytes;

use super::{Link, Stage};
use crate::connection::{Connection, Event, Fate, Fault, Part, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::performative::{DeliveryTag, Role, Transfer};

/// A message of which not all frames came.
#[derive(Debug)]
pub(crate) struct IncomingMessage {
    id: u32,
    tag: DeliveryTag,
    message_format: u32,
    settled: bool,
    bytes: u64,
    /// It is too large: what comes of it is passed over.
    oversized: bool,
}

impl Connection {
    pub(crate) fn take_transfer(
        &mut self,
        channel: u16,
        transfer: Transfer,
        payload: Bytes,
    ) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let handle = transfer.handle;
        let link = session.link_at(channel, handle);
        let first = link.is_ok_and(|(_, link)| link.assembly.is_none());
        session.count_frame(first)?;
        let (id, link) = session.link_at(channel, handle)?;
        match link.stage {
            Stage::Left | Stage::Leaving { .. } => {
                self.open_window(channel);
                return Ok(());
            }
            Stage::Asked => {
                let text = "link is not accepted yet";
                let error = AmqpError::new(condition::TRANSFER_LIMIT_EXCEEDED, text);
                return Err(Fault::Link(id, error));
            }
            Stage::Attached => {}
        }
        let piece = link.piece(&transfer, payload).map_err(|error| Fault::Link(id, error))?;
        let ends = matches!(piece.fate, Fate::Whole | Fate::TooLarge(_));
        session.incoming.unanswered += u32::from(ends && !piece.settled);
        let delivery = ReceivedId { session: id.session, id: piece.id };
        if !piece.silent {
            let Piece { tag, message_format, settled, payload, fate, .. } = piece;
            let state = transfer.state;
            let part = Part { delivery, tag, message_format, settled, state, payload, fate };
            self.events.push_back(Event::Received { link: id, part });
        }
        self.open_window(channel);
        Ok(())
    }
}

/// What a frame is of a message.
struct Piece {
    id: u32,
    tag: DeliveryTag,
    message_format: u32,
    settled: bool,
    payload: Bytes,
    fate: Fate,
    /// That it is void was told before.
    silent: bool,
}

impl Link {
    /// What a frame is.
    fn piece(&mut self, transfer: &Transfer, payload: Bytes) -> Result<Piece, AmqpError> {
        if self.role != Role::Sender {
            return Err(AmqpError::new(condition::NOT_ALLOWED, "transfer from a receiver"));
        }
        if transfer.resume {
            return Err(AmqpError::new(
                condition::NOT_IMPLEMENTED,
                "resuming deliveries is not supported",
            ));
        }
        let mut assembly = match self.assembly.take() {
            Some(assembly) => assembly.continued(transfer)?,
            None => {
                // Credit is not held against a client (AMQP-40).
                self.credit = self.credit.saturating_sub(1);
                self.delivery_count = self.delivery_count.wrapping_add(1);
                IncomingMessage::begun(transfer)?
            }
        };
        assembly.settled |= transfer.settled.unwrap_or(false);
        assembly.bytes = assembly.bytes.saturating_add(payload.len() as u64);
        let was_oversized = assembly.oversized;
        assembly.oversized |= assembly.bytes > self.taken_bytes_max;
        let IncomingMessage { id, tag, message_format, settled, bytes, oversized } = assembly;
        let ends = transfer.aborted || !transfer.more;
        let fate = match (oversized, ends) {
            _ if transfer.aborted => Fate::Void,
            (true, true) => Fate::TooLarge(bytes),
            (true, false) => Fate::Void,
            (false, false) => Fate::More,
            (false, true) => Fate::Whole,
        };
        if !ends {
            self.assembly = Some(assembly);
        }
        let payload = if oversized || transfer.aborted { Bytes::new() } else { payload };
        let silent = was_oversized && fate == Fate::Void;
        Ok(Piece { id, tag, message_format, settled, payload, fate, silent })
    }
}

impl IncomingMessage {
    /// A message of which this is the first frame. What a first frame must say is said (AMQP 2.7.5).
    fn begun(transfer: &Transfer) -> Result<Self, AmqpError> {
        let (Some(id), Some(tag)) = (transfer.delivery_id, transfer.delivery_tag) else {
            return Err(AmqpError::invalid_field(
                "the first transfer of a delivery needs delivery-id and delivery-tag",
            ));
        };
        let message_format = transfer.message_format.unwrap_or(0);
        Ok(Self { id, tag, message_format, settled: false, bytes: 0, oversized: false })
    }

    /// The same with one more frame, which may repeat who it is, but not be somebody else (AMQP-31).
    fn continued(self, transfer: &Transfer) -> Result<Self, AmqpError> {
        let same = transfer.delivery_id.is_none_or(|id| id == self.id)
            && transfer.delivery_tag.is_none_or(|tag| tag == self.tag)
            && transfer.message_format.is_none_or(|format| format == self.message_format);
        if same {
            return Ok(self);
        }
        Err(AmqpError::invalid_field("transfer of another delivery before the last one has ended"))
    }
}

//! Messages from clients: transfers in one frame or many (AMQP 2.6.14), and credit in both
//! directions with drain and echo (AMQP 2.6.7, AMQP-40, AMQP-48 to AMQP-53).
//!
//! The link keeps only the current size of a message: its parts are reported as they arrive, and
//! the server joins them in an [`Assembly`].

use bytes::{Bytes, BytesMut};

use super::{Link, LinkStage};
use crate::connection::{Connection, Continuation, Event, Fault, LinkId, MessagePart, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::performative::{DeliveryTag, Flow, Role, Transfer};
use crate::serial::distance;

/// A message of which more frames will arrive.
#[derive(Debug)]
pub(crate) struct IncomingMessage {
    id: u32,
    tag: DeliveryTag,
    message_format: u32,
    settled: bool,
    bytes: u64,
    /// Whether the message is too large, so that its further parts are dropped.
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
        let first = link.is_ok_and(|(_, link)| link.incoming.is_none());
        session.count_frame(first)?;
        let (id, link) = session.link_at(channel, handle)?;
        match link.stage {
            LinkStage::DetachSent | LinkStage::DetachReceived { .. } => {
                self.open_window(channel);
                return Ok(());
            }
            LinkStage::Requested => {
                let text = "link is not accepted yet";
                let error = AmqpError::new(condition::TRANSFER_LIMIT_EXCEEDED, text);
                return Err(Fault::Link(id, error));
            }
            LinkStage::Attached => {}
        }
        let piece = link.piece(&transfer, payload).map_err(|error| Fault::Link(id, error))?;
        let ends = matches!(piece.continuation, Continuation::Whole | Continuation::TooLarge(_));
        session.incoming.unanswered += u32::from(ends && !piece.settled);
        let delivery = ReceivedId { session: id.session, id: piece.id };
        if !piece.silent {
            let Piece { tag, message_format, settled, payload, continuation, .. } = piece;
            let state = transfer.state;
            let part = MessagePart {
                delivery,
                tag,
                message_format,
                settled,
                state,
                payload,
                continuation,
            };
            self.events.push_back(Event::Received { link: id, part });
        }
        self.open_window(channel);
        Ok(())
    }
}

/// Result of a frame of a message.
struct Piece {
    id: u32,
    tag: DeliveryTag,
    message_format: u32,
    settled: bool,
    payload: Bytes,
    continuation: Continuation,
    /// Whether no event follows, because an earlier frame has already reported the message as void.
    silent: bool,
}

impl Link {
    /// Handles one frame.
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
        let mut incoming = match self.incoming.take() {
            Some(incoming) => incoming.continued(transfer)?,
            None => {
                // Exceeding the credit is not an error (AMQP-40).
                self.credit = self.credit.saturating_sub(1);
                self.delivery_count = self.delivery_count.wrapping_add(1);
                IncomingMessage::begun(transfer)?
            }
        };
        incoming.settled |= transfer.settled.unwrap_or(false);
        incoming.bytes = incoming.bytes.saturating_add(payload.len() as u64);
        let was_oversized = incoming.oversized;
        incoming.oversized |= incoming.bytes > self.accepted_bytes_max;
        let IncomingMessage { id, tag, message_format, settled, bytes, oversized } = incoming;
        let ends = transfer.aborted || !transfer.more;
        let continuation = match (oversized, ends) {
            _ if transfer.aborted => Continuation::Void,
            (true, true) => Continuation::TooLarge(bytes),
            (true, false) => Continuation::Void,
            (false, false) => Continuation::More,
            (false, true) => Continuation::Whole,
        };
        if !ends {
            self.incoming = Some(incoming);
        }
        let payload = if oversized || transfer.aborted { Bytes::new() } else { payload };
        let silent = was_oversized && continuation == Continuation::Void;
        Ok(Piece { id, tag, message_format, settled, payload, continuation, silent })
    }
}

impl IncomingMessage {
    /// Begins a message with its first frame, which must have an id and a tag (AMQP 2.7.5).
    fn begun(transfer: &Transfer) -> Result<Self, AmqpError> {
        let (Some(id), Some(tag)) = (transfer.delivery_id, transfer.delivery_tag) else {
            return Err(AmqpError::invalid_field(
                "the first transfer of a delivery needs delivery-id and delivery-tag",
            ));
        };
        let message_format = transfer.message_format.unwrap_or(0);
        Ok(Self { id, tag, message_format, settled: false, bytes: 0, oversized: false })
    }

    /// Continues a message with another frame. The frame may repeat the identity of the delivery,
    /// but not change it (AMQP-31).
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

/// Property of a flow that requests deliveries as part of a transaction (AMQP 4.4.3).
const TXN_ID: &str = "txn-id";

impl Connection {
    /// Handles a flow of the client for a link. Credit fields of a sending client are ignored
    /// (AMQP-40).
    pub(crate) fn take_link_flow(
        &mut self,
        channel: u16,
        handle: u32,
        flow: &Flow,
    ) -> Result<(), Fault> {
        let first = self.config.initial_delivery_count;
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let (id, link) = session.link_at(channel, handle)?;
        if matches!(link.stage, LinkStage::DetachSent | LinkStage::DetachReceived { .. }) {
            return Ok(());
        }
        let is_transactional =
            flow.properties.as_ref().is_some_and(|properties| properties.get(TXN_ID).is_some());
        if link.role == Role::Receiver && is_transactional {
            // Its deliveries would not be part of the transaction that the client expects.
            let text = "a transaction cannot acquire messages; receive them, and settle them in \
                the transaction";
            return Err(Fault::Link(id, AmqpError::new(condition::NOT_IMPLEMENTED, text)));
        }
        if link.role == Role::Receiver {
            if let Some(credit) = flow.link_credit {
                // Deliveries that the client had not counted yet use up this credit (AMQP-50).
                let counted = flow.delivery_count.unwrap_or(first);
                let uncounted = distance(counted, link.delivery_count);
                // The credit is reduced by that number of deliveries. The last delivery that the
                // credit allows is not computed: it may be further away than the half of the
                // numbers over which serial numbers can be compared.
                link.credit = credit.saturating_add_signed(uncounted.saturating_neg());
            }
            link.drain = flow.drain;
            if link.is_attached() {
                self.report_credit(id);
            }
        }
        if flow.echo {
            self.echo(id);
        }
        Ok(())
    }

    /// Reports the client's credit. A drain without credit is answered immediately (AMQP-51).
    pub(super) fn report_credit(&mut self, id: LinkId) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let (credit, drain) = (link.credit, link.drain && link.credit > 0);
        let done = link.drain && !drain;
        self.events.push_back(Event::Credit { link: id, credit, drain });
        if done {
            self.drained(id);
        }
    }

    /// Answers a drain after all available messages were sent, and takes back the remaining credit
    /// (AMQP-51). The flow has a credit of 0 and the drain flag, since some clients look for the
    /// credit and others for the flag (AMQP-48).
    pub fn drained(&mut self, id: LinkId) {
        let Some(link) = self.link_mut(id).filter(|link| link.is_attached() && link.drain) else {
            return;
        };
        link.delivery_count = link.delivery_count.wrapping_add(link.credit);
        link.credit = 0;
        link.drain = false;
        let (handle, count) = (link.handle, link.delivery_count);
        self.send_link_flow(id.session.channel, handle, (count, 0), true);
    }

    /// Sets the credit of a link on which the client sends (AMQP-40).
    pub fn grant(&mut self, id: LinkId, credit: u32) {
        let sends = |link: &&mut super::Link| link.is_attached() && link.role == Role::Sender;
        let Some(link) = self.link_mut(id).filter(sends) else {
            return;
        };
        link.credit = credit;
        let (handle, state) = (link.handle, (link.delivery_count, credit));
        self.send_link_flow(id.session.channel, handle, state, false);
    }

    /// Remaining credit of a link.
    #[must_use]
    pub fn credit(&mut self, id: LinkId) -> u32 {
        self.link_mut(id).map_or(0, |link| link.credit)
    }

    /// Writes the state of a link on the client's request, unless the answer to a drain reports it
    /// (AMQP-52).
    fn echo(&mut self, id: LinkId) {
        if let Some(link) = self.link_mut(id).filter(|link| link.is_attached() && !link.drain) {
            let (handle, state) = (link.handle, (link.delivery_count, link.credit));
            self.send_link_flow(id.session.channel, handle, state, false);
        }
    }
}

/// A joined message is copied to a buffer of exact size if its buffer has more unused bytes than
/// this and the message is small.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// Above this size, unused bytes of the buffer were never written, so they cost no memory.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// Joins the parts of a message as they arrive, so that the message is in memory once. The link
/// limits the size: the connection reports no more parts of a message that is too large (AMQP-43).
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// The only part, while there is one.
    first: Bytes,
    joined: BytesMut,
}

impl Assembly {
    /// Appends the next part.
    pub fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = part;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&part);
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the whole message; a single part is not copied.
    #[must_use]
    pub fn join(self) -> Bytes {
        if self.joined.is_empty() {
            return self.first;
        }
        let spare = self.joined.capacity() - self.joined.len();
        if spare > SPARE_BYTES_MAX && self.joined.len() <= COPIED_BYTES_MAX {
            return Bytes::copy_from_slice(&self.joined);
        }
        self.joined.freeze()
    }
}

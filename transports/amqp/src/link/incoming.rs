//! Messages that clients send: transfers, in one frame or many (AMQP 2.6.14). And credit, both ways, with drain and echo
//! (AMQP 2.6.7, AMQP-40, AMQP-48 to AMQP-53).
//!
//! Nothing of a message is kept here but how large it is so far: its parts are told as they come.

use bytes::{Bytes, BytesMut};

use super::{Link, Stage};
use crate::connection::{Connection, Event, Fate, Fault, LinkId, Part, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::performative::{DeliveryTag, Flow, Role, Transfer};
use crate::serial::distance;

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

/// By what a client asks that what it is delivered be part of a transaction (AMQP 4.4.3).
const TXN_ID: &str = "txn-id";

impl Connection {
    /// A client's flow of a link. Where the client sends, what it says of credit means nothing (AMQP-40).
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
        if matches!(link.stage, Stage::Left | Stage::Leaving { .. }) {
            return Ok(());
        }
        let is_transactional =
            flow.properties.as_ref().is_some_and(|properties| properties.get(TXN_ID).is_some());
        if link.role == Role::Receiver && is_transactional {
            // What it gets would be no part of the transaction that it believes in.
            let text = "a transaction cannot acquire messages; receive them, and settle them in \
                the transaction";
            return Err(Fault::Link(id, AmqpError::new(condition::NOT_IMPLEMENTED, text)));
        }
        if link.role == Role::Receiver {
            if let Some(credit) = flow.link_credit {
                // What was sent since the client has counted is of this credit (AMQP-50).
                let counted = flow.delivery_count.unwrap_or(first);
                let uncounted = distance(counted, link.delivery_count);
                // Not by where it ends: so much credit may reach further than serial numbers tell apart.
                link.credit = credit.saturating_add_signed(uncounted.saturating_neg());
            }
            link.drain = flow.drain;
            if link.is_attached() {
                self.tell_credit(id);
            }
        }
        if flow.echo {
            self.echo(id);
        }
        Ok(())
    }

    /// Tells of a client's credit. A drain of no credit is done at once (AMQP-51).
    pub(super) fn tell_credit(&mut self, id: LinkId) {
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

    /// What could be sent of a drain was sent: what credit is left is given back (AMQP-51). The flow says
    /// both that none is left and that it is about the drain, which different clients look for (AMQP-48).
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

    /// Grants a client's sender so much credit in all (AMQP-40).
    pub fn grant(&mut self, id: LinkId, credit: u32) {
        let sends = |link: &&mut super::Link| link.is_attached() && link.role == Role::Sender;
        let Some(link) = self.link_mut(id).filter(sends) else {
            return;
        };
        link.credit = credit;
        let (handle, state) = (link.handle, (link.delivery_count, credit));
        self.send_link_flow(id.session.channel, handle, state, false);
    }

    /// How much credit a link has left.
    #[must_use]
    pub fn credit(&mut self, id: LinkId) -> u32 {
        self.link_mut(id).map_or(0, |link| link.credit)
    }

    /// The state of a link that its client asks for, unless the answer to a drain has told it, or will
    /// (AMQP-52).
    fn echo(&mut self, id: LinkId) {
        if let Some(link) = self.link_mut(id).filter(|link| link.is_attached() && !link.drain) {
            let (handle, state) = (link.handle, (link.delivery_count, link.credit));
            self.send_link_flow(id.session.channel, handle, state, false);
        }
    }
}

/// What is joined with more room than this left over is copied into just as much as it needs, if that is little.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// Above this, room that was never written to costs no memory.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// The parts of a message, joined as they come, so that it is in memory once. How large it may get is the link's
/// to say: the connection gives no more parts of one that is too large (AMQP-43).
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// The only part, as long as there is one.
    first: Bytes,
    joined: BytesMut,
}

impl Assembly {
    /// The next part.
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

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole; a single part is not copied.
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

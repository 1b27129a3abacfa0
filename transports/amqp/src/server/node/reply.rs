//! Links on which a client receives replies to its requests (AMQP-21, AMQP-22, AMQP-81). Replies
//! are sent settled, and a limited number waits for credit.

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Compound, Fields, Measure, Sink};
use peeklock_words::amqp::{code, descriptor};

use super::Node;
use crate::connection::LinkId;
use crate::error::{AmqpError, condition};
use crate::link::Delivery;
use crate::performative::{Attach, DeliveryTag};
use crate::server::conversation::Conversation;
use crate::server::deleted::DeletedMessages;
use crate::server::work::ReplyAddress;
use crate::terminus::Target;

/// Maximum number of replies of a connection that wait for credit or windows.
const WAITING_MAX: usize = 256;
/// Position of correlation-id in the properties (AMQP 3.2.4).
const CORRELATION_ID: usize = 5;

/// A reply to a request.
pub(in crate::server) struct Reply {
    /// Encoded reply in consecutive pieces.
    pub(in crate::server) pieces: Vec<Bytes>,
    /// Guard of the messages in it that were deleted on receipt.
    pub(in crate::server) deleted: Option<DeletedMessages>,
}

/// A link on which a client receives replies.
pub(in crate::server) struct Replies {
    pub(in crate::server) name: Box<str>,
    pub(in crate::server) target: Option<Box<str>>,
    /// Node that replies, in folded case.
    pub(in crate::server) node: Box<str>,
    /// Maximum reply size in bytes, if the client limits it.
    bytes_max: Option<u64>,
    waiting: VecDeque<Reply>,
    sent_count: u64,
    /// Account bytes of the reply whose frames are being written.
    sending_bytes: u64,
    /// Guard of the messages in that reply that were deleted on receipt.
    deleted: Option<DeletedMessages>,
    /// Number of running requests with replies on this link.
    awaited: usize,
    /// Whether too many replies wait.
    overflowed: bool,
}

impl Replies {
    /// Returns whether replies wait for the client's credit or windows.
    pub(in crate::server) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(in crate::server) fn of(attach: &Attach, node: Box<str>) -> Self {
        let target = attach.target.as_ref().and_then(Target::address).map(Into::into);
        Self {
            name: attach.name.clone(),
            target,
            node,
            bytes_max: attach.max_message_size.filter(|bytes| *bytes > 0),
            waiting: VecDeque::new(),
            sent_count: 0,
            sending_bytes: 0,
            deleted: None,
            awaited: 0,
            overflowed: false,
        }
    }

    /// Number of waiting replies.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Account bytes of its replies.
    pub(in crate::server) fn held_bytes(&self) -> u64 {
        self.sending_bytes + self.waiting.iter().map(Reply::bytes).sum::<u64>()
    }
}

impl Reply {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl From<Vec<Bytes>> for Reply {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self { pieces, deleted: None }
    }
}

/// Property names of a status, which differ between nodes (AMQP-21, AMQP-81).
pub(super) struct Names {
    pub(super) code: &'static str,
    pub(super) description: &'static str,
}

/// Writes the sections before the body of a reply: correlation id and status. Clients cast the
/// codes, so their types are fixed.
pub(super) fn head(
    reply: &mut impl Sink,
    reply_address: &ReplyAddress,
    names: &Names,
    status: i32,
    text: &str,
    error: Option<&str>,
) {
    // Some clients crash without a properties section (AMQP-81).
    let id = reply_address.message_id.as_ref().map(|id| &id.as_bytes()[..]);
    reply.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::PROPERTIES]);
    let mut measure = Measure::default();
    let count = correlated(&mut measure, id);
    write::compound(reply, Compound::List, measure.bytes, count);
    correlated(reply, id);
    let mut items = Vec::with_capacity(96 + text.len());
    write::text(&mut items, names.code);
    write::fixed(&mut items, code::INT, status.to_be_bytes());
    write::text(&mut items, names.description);
    write::text(&mut items, text);
    if let Some(error) = error {
        write::text(&mut items, "errorCondition");
        write::symbol(&mut items, error);
    }
    let count = if error.is_some() { 6 } else { 4 };
    reply.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::APPLICATION_PROPERTIES]);
    write::compound(reply, Compound::Map, items.len(), count);
    reply.put(&items);
}

/// Writes properties with only a correlation-id; returns the number of fields.
fn correlated<S: Sink>(sink: &mut S, id: Option<&[u8]>) -> usize {
    let mut fields = Fields::new(sink);
    for _ in 0..CORRELATION_ID {
        fields.field(None::<()>, |_, ()| {});
    }
    fields.field(id, |sink, id| sink.put(id));
    fields.count()
}

impl Conversation {
    /// Registers a request whose reply goes to a link.
    pub(super) fn await_reply(&mut self, to: LinkId) {
        if let Some(Node::Replies(replies)) = self.nodes.get_mut(&to) {
            replies.awaited += 1;
        }
    }

    /// Sends or queues the reply to a request. If its link is detached, deleted messages in it are
    /// lost.
    pub(super) fn reply(&mut self, reply_address: ReplyAddress, reply: Reply) {
        let waiting_count: usize = self.nodes.values().map(Node::waiting_replies).sum();
        let Some(Node::Replies(replies)) = self.nodes.get_mut(&reply_address.to) else { return };
        replies.awaited = replies.awaited.saturating_sub(1);
        if waiting_count < WAITING_MAX {
            self.engine.account.hold(reply.bytes());
            replies.waiting.push_back(reply);
        } else {
            replies.overflowed = true;
        }
    }

    /// Returns whether another request may run whose reply goes to this link: its credit suffices
    /// for the replies to all running requests and one more, and no reply waits.
    pub(super) fn takes_reply(&mut self, to: LinkId) -> bool {
        let Some(Node::Replies(replies)) = self.nodes.get(&to) else { return true };
        let (awaited, has_waiting) = (replies.awaited, replies.has_waiting());
        !has_waiting && usize::try_from(self.amqp.credit(to)).unwrap_or(usize::MAX) > awaited
    }

    /// Maximum size of a reply that the client accepts on its link, in bytes.
    pub(super) fn reply_bytes_max(&self, reply_address: &ReplyAddress) -> usize {
        match self.nodes.get(&reply_address.to) {
            Some(Node::Replies(replies)) => {
                let most = replies.bytes_max.unwrap_or(u64::MAX);
                usize::try_from(most).unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        }
    }

    /// Sends waiting replies while there is credit.
    pub(in crate::server) fn send_replies(&mut self, link: LinkId) {
        let Some(Node::Replies(replies)) = self.nodes.get_mut(&link) else { return };
        if replies.overflowed {
            let text = format!(
                "{WAITING_MAX} replies wait for credit or windows; grant credit or open the windows"
            );
            let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            self.amqp.detach(link, Some(error));
            return self.detach(link);
        }
        loop {
            if replies.sending_bytes > 0 && self.amqp.is_sent(link) {
                self.engine.account.release(std::mem::take(&mut replies.sending_bytes));
                // If the link is detached, it is unknown whether all frames were written. The guard
                // is dropped, and the messages in the reply count as lost.
                let deleted =
                    replies.deleted.take().filter(|_| self.amqp.is_sent_and_attached(link));
                self.outflow
                    .unflushed_deletions
                    .put(deleted, self.outflow.written_bytes + self.amqp.waiting_bytes() as u64);
            }
            if !self.amqp.can_send_settled(link) {
                break;
            }
            let Some(reply) = replies.waiting.pop_front() else { break };
            replies.sent_count += 1;
            replies.sending_bytes = reply.bytes();
            let Some(tag) = DeliveryTag::new(&replies.sent_count.to_be_bytes()) else { break };
            // Settled, since some clients never settle replies (AMQP-81).
            let delivery = Delivery { tag, settled: true, payload: reply.pieces };
            if self.amqp.send(link, delivery).is_err() {
                break;
            }
            replies.deleted = reply.deleted;
        }
    }
}

//! Where a client is answered what it asks (AMQP-21, AMQP-22, AMQP-81).

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
use crate::server::removed::Removed;
use crate::server::work::Asker;
use crate::terminus::Target;

/// Replies of one connection for which there is no credit, or no room in windows.
const WAITING_MAX: usize = 256;
/// The place of the correlation-id among the properties (AMQP 3.2.4).
const CORRELATION_ID: usize = 5;

/// A reply.
pub(in crate::server) struct Reply {
    /// Itself, in pieces that stand one behind the other.
    pub(in crate::server) pieces: Vec<Bytes>,
    /// The messages in it that are stored nowhere any more.
    pub(in crate::server) removed: Option<Removed>,
}

/// A link on which a client is answered.
pub(in crate::server) struct Replies {
    pub(in crate::server) name: Box<str>,
    pub(in crate::server) target: Option<Box<str>>,
    /// The node that answers, in folded case.
    pub(in crate::server) node: Box<str>,
    /// The largest reply that the client takes, if it says so.
    bytes_max: Option<u64>,
    waiting: VecDeque<Reply>,
    sent_count: u64,
    /// What the reply holds of the account of which not all frames are written.
    sending_bytes: u64,
    /// The messages in it that are stored nowhere any more.
    removed: Option<Removed>,
    /// Requests under way that will be answered here.
    awaited: usize,
    /// More was asked than is listened to.
    overflowed: bool,
}

impl Replies {
    /// Whether replies wait for the client's credit or windows.
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
            removed: None,
            awaited: 0,
            overflowed: false,
        }
    }

    /// How many replies wait.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// What of the account its replies hold.
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
        Self { pieces, removed: None }
    }
}

/// The names of a status, which differ between nodes (AMQP-21, AMQP-81).
pub(super) struct Names {
    pub(super) code: &'static str,
    pub(super) description: &'static str,
}

/// What stands before the body of a reply: whose it is, and what came of it. Codes are of exactly these types,
/// since clients cast them.
pub(super) fn head(
    reply: &mut impl Sink,
    asker: &Asker,
    names: &Names,
    status: i32,
    text: &str,
    error: Option<&str>,
) {
    // Some crash without a properties section (AMQP-81).
    let id = asker.message_id.as_ref().map(|id| &id.as_bytes()[..]);
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

/// Properties that have nothing but a correlation-id; how many fields they are.
fn correlated<S: Sink>(sink: &mut S, id: Option<&[u8]>) -> usize {
    let mut fields = Fields::new(sink);
    for _ in 0..CORRELATION_ID {
        fields.field(None::<()>, |_, ()| {});
    }
    fields.field(id, |sink, id| sink.put(id));
    fields.count()
}

impl Conversation {
    /// A request is to be answered on a link.
    pub(super) fn await_reply(&mut self, to: LinkId) {
        if let Some(Node::Replies(replies)) = self.nodes.get_mut(&to) {
            replies.awaited += 1;
        }
    }

    /// Answers a request. What was removed for it is lost where nobody listens.
    pub(super) fn reply(&mut self, asker: Asker, reply: Reply) {
        let waiting_count: usize = self.nodes.values().map(Node::waiting_replies).sum();
        let Some(Node::Replies(replies)) = self.nodes.get_mut(&asker.to) else { return };
        replies.awaited = replies.awaited.saturating_sub(1);
        if waiting_count < WAITING_MAX {
            self.engine.account.hold(reply.bytes());
            replies.waiting.push_back(reply);
        } else {
            replies.overflowed = true;
        }
    }

    /// Whether a link has credit for one more reply than will need it, and none waits for something else: what a
    /// client does not let be sent is not added to.
    pub(super) fn takes_reply(&mut self, to: LinkId) -> bool {
        let Some(Node::Replies(replies)) = self.nodes.get(&to) else { return true };
        let (awaited, has_waiting) = (replies.awaited, replies.has_waiting());
        !has_waiting && usize::try_from(self.amqp.credit(to)).unwrap_or(usize::MAX) > awaited
    }

    /// The largest reply that a client takes on a link.
    pub(super) fn reply_bytes_max(&self, asker: &Asker) -> usize {
        match self.nodes.get(&asker.to) {
            Some(Node::Replies(replies)) => {
                let most = replies.bytes_max.unwrap_or(u64::MAX);
                usize::try_from(most).unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        }
    }

    /// Sends replies that wait, as far as there is credit.
    pub(in crate::server) fn pump_replies(&mut self, link: LinkId) {
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
                // Of a link that is gone nobody knows how much was written.
                let removed = replies.removed.take().filter(|_| self.amqp.has_sent(link));
                self.outflow
                    .leaving
                    .put(removed, self.outflow.taken_bytes + self.amqp.waiting_bytes() as u64);
            }
            if !self.amqp.can_send_settled(link) {
                break;
            }
            let Some(reply) = replies.waiting.pop_front() else { break };
            replies.sent_count += 1;
            replies.sending_bytes = reply.bytes();
            let Some(tag) = DeliveryTag::new(&replies.sent_count.to_be_bytes()) else { break };
            // Settled: some clients never settle what they are answered (AMQP-81).
            let delivery = Delivery { tag, settled: true, payload: reply.pieces };
            if self.amqp.send(link, delivery).is_err() {
                break;
            }
            replies.removed = reply.removed;
        }
    }
}

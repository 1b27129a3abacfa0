//! Where a client is answered what it asks (AMQP-21, AMQP-22, AMQP-81).

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{code, descriptor};

use super::{Node, Request};
use crate::connection::LinkId;
use crate::error::{AmqpError, condition};
use crate::link::Delivery;
use crate::message::{list, section};
use crate::performative::{Attach, DeliveryTag};
use crate::server::conversation::Conversation;
use crate::terminus::Target;

/// Replies of one link for which there is no credit.
const WAITING_MAX: usize = 256;
/// The place of the correlation-id among the properties (AMQP 3.2.4).
const CORRELATION_ID: usize = 5;

/// A link on which a client is answered.
pub(in crate::server) struct Replies {
    pub(in crate::server) name: Box<str>,
    pub(in crate::server) target: Option<Box<str>>,
    waiting: VecDeque<Bytes>,
    sent_count: u64,
    /// More was asked than is listened to.
    overflowed: bool,
}

impl Replies {
    pub(in crate::server) fn of(attach: &Attach) -> Self {
        let target = attach.target.as_ref().and_then(Target::address).map(Into::into);
        let name = attach.name.clone();
        Self { name, target, waiting: VecDeque::new(), sent_count: 0, overflowed: false }
    }

    pub(super) fn push(&mut self, reply: Bytes) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(reply);
        } else {
            self.overflowed = true;
        }
    }
}

/// The names of a status, which differ between nodes (AMQP-21, AMQP-81).
pub(super) struct Names {
    pub(super) code: &'static str,
    pub(super) description: &'static str,
}

/// A reply: whose it is, what came of it, and a body.
pub(super) fn reply(
    request: &Request,
    names: &Names,
    status: i32,
    text: &str,
    body: impl FnOnce(&mut Vec<u8>),
) -> Bytes {
    let mut bytes = Vec::new();
    let mut properties = [None; CORRELATION_ID + 1];
    if let (Some(id), Some(field)) = (&request.message_id, properties.last_mut()) {
        *field = Some(&id.as_bytes()[..]);
    }
    list(&mut bytes, descriptor::PROPERTIES, &properties);
    section(&mut bytes, descriptor::APPLICATION_PROPERTIES, |items| {
        write::text(items, names.code);
        // Exactly this type: clients cast it.
        write::fixed(items, code::INT, status.to_be_bytes());
        write::text(items, names.description);
        write::text(items, text);
        4
    });
    bytes.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::VALUE]);
    body(&mut bytes);
    bytes.into()
}

impl Conversation {
    /// Sends replies that wait, as far as there is credit.
    pub(in crate::server) fn pump_replies(&mut self, link: LinkId) {
        let Some(Node::Replies(replies)) = self.nodes.get_mut(&link) else { return };
        if replies.overflowed {
            let text = format!("{WAITING_MAX} replies wait for credit: grant some, or ask less");
            let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            self.amqp.detach(link, Some(error));
            return self.detach(link);
        }
        while self.amqp.can_send(link) {
            let Some(reply) = replies.waiting.pop_front() else { break };
            replies.sent_count += 1;
            let Some(tag) = DeliveryTag::new(&replies.sent_count.to_be_bytes()) else { break };
            // Settled: some clients never settle what they are answered (AMQP-81).
            let delivery = Delivery { tag, settled: true, payload: vec![reply] };
            if self.amqp.send(link, delivery).is_err() {
                break;
            }
        }
    }
}

//! Requests in messages, and their replies in others (AMQP-22, AMQP-80). A request waits until its
//! reply has credit; number and bytes of waiting requests are limited.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::message::{Content, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::TransactionId;
use peeklock_words::amqp::{Reader, Scalar, descriptor};

use super::Node;
use crate::codec::value::Raw;
use crate::connection::{LinkId, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::link::Assembly;
use crate::message::fields_of;
use crate::server::conversation::Conversation;
use crate::server::work::ReplyAddress;
use crate::state::DeliveryState;

/// Credit of a link for requests.
pub(in crate::server) const REQUEST_CREDIT: u32 = 50;
/// Maximum number of requests of a link that wait for credit for their replies.
const WAITING_MAX: usize = 256;
/// Maximum length of the message-id of a request in bytes, which is kept until the reply. The
/// message-id of a message has at most 128 characters.
const ID_BYTES_MAX: usize = 1_024;
/// Maximum bytes of the waiting requests of a connection.
const WAITING_BYTES_MAX: u64 = 8 << 20;
/// Properties with the client's wait for a reply, in milliseconds (AMQP-80).
const TIMEOUTS: [&str; 2] = ["com.microsoft:server-timeout", "server-timeout"];

/// A link on which a client sends requests.
pub(in crate::server) struct Requests {
    pub(in crate::server) assembly: Assembly,
    /// Transaction of the incomplete request.
    pub(super) transaction: Option<TransactionId>,
    target: RequestTarget,
    /// Requests that wait until the link for their reply has credit, each with that link.
    waiting: VecDeque<(LinkId, NodeRequest)>,
    /// Bytes of the waiting requests, which count as incomplete messages.
    waiting_bytes: u64,
}

/// State of a link to a management node.
pub(in crate::server) struct Manager {
    /// Path of the entity.
    pub(in crate::server) path: Arc<str>,
    /// Link that holds messages received by number, after the first such message.
    pub(in crate::server) holder: Option<u32>,
}

impl Manager {
    pub(in crate::server) const fn of(path: Arc<str>) -> Self {
        Self { path, holder: None }
    }
}

/// Node that the requests address.
enum RequestTarget {
    Tokens,
    Management(Manager),
}

impl Requests {
    /// Makes a node for requests to `$cbs`.
    pub(in crate::server) fn of_tokens() -> Self {
        Self::to(RequestTarget::Tokens)
    }

    /// Makes a node for requests to a management node.
    pub(in crate::server) fn of_management(path: Arc<str>) -> Self {
        Self::to(RequestTarget::Management(Manager::of(path)))
    }

    fn to(target: RequestTarget) -> Self {
        Self {
            assembly: Assembly::default(),
            transaction: None,
            target,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    pub(in crate::server) const fn manager(&self) -> Option<&Manager> {
        match &self.target {
            RequestTarget::Management(manager) => Some(manager),
            RequestTarget::Tokens => None,
        }
    }

    pub(super) const fn manager_mut(&mut self) -> Option<&mut Manager> {
        match &mut self.target {
            RequestTarget::Management(manager) => Some(manager),
            RequestTarget::Tokens => None,
        }
    }

    /// Bytes that count as incomplete messages.
    pub(in crate::server) fn assembled_bytes(&self) -> u64 {
        self.assembly.len() as u64 + self.waiting_bytes
    }

    /// Number of waiting requests.
    pub(in crate::server) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Drops the incomplete request and the waiting ones.
    pub(super) fn forget_arriving(&mut self) {
        self.assembly = Assembly::default();
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Name of its node, in folded case.
    fn node(&self) -> Box<str> {
        match &self.target {
            RequestTarget::Management(manager) => management_node(&manager.path),
            RequestTarget::Tokens => TOKENS_NODE.into(),
        }
    }
}

/// Name of `$cbs` as a node.
pub(in crate::server) const TOKENS_NODE: &str = "$cbs";

/// Name of the management node of an entity.
pub(in crate::server) fn management_node(path: &str) -> Box<str> {
    format!("{}/$management", path.to_lowercase()).into()
}

/// A request of a client.
pub(in crate::server) struct NodeRequest {
    content: Content,
    /// Message-id with its type, which the reply repeats (AMQP-21).
    pub(in crate::server) message_id: Option<Raw>,
    pub(in crate::server) reply_to: Option<String>,
    /// Transaction that its transfer names (AMQ-26).
    pub(in crate::server) transaction: Option<TransactionId>,
    /// End of the client's wait for the reply, if it has one (AMQP-80).
    until: Option<Timestamp>,
}

impl NodeRequest {
    pub(super) fn read(whole: Bytes) -> Result<Self, AmqpError> {
        let content = Content::parse(whole)?;
        let fields = fields_of(content.sections().properties);
        let raw = |at: usize| {
            let field = fields.get(at).copied()?;
            let raw = Raw::encoded(|bytes| bytes.extend_from_slice(field));
            (raw.scalar() != Ok(Scalar::Null)).then_some(raw)
        };
        let message_id = raw(0);
        if message_id.as_ref().is_some_and(|id| id.as_bytes().len() > ID_BYTES_MAX) {
            let text = format!("message-id of a request has more than {ID_BYTES_MAX} bytes");
            return Err(AmqpError::invalid_field(text));
        }
        let reply_to = raw(4).and_then(|raw| match raw.scalar() {
            Ok(Scalar::Text(text) | Scalar::Symbol(text)) => Some(text.to_owned()),
            _ => None,
        });
        Ok(Self { message_id, reply_to, transaction: None, until: None, content })
    }

    /// Size in bytes.
    pub(in crate::server) fn bytes(&self) -> u64 {
        self.content.as_bytes().len() as u64
    }

    /// Returns the address of the reply: its link, and the data of the request that it repeats.
    fn reply_address(&self, to: LinkId) -> ReplyAddress {
        ReplyAddress { to, message_id: self.message_id.clone(), until: self.until }
    }

    /// Returns the client's wait for the reply; clients send it as integers of several types.
    pub(super) fn timeout(&self) -> Option<TimeSpan> {
        let ms = self.content.application_properties().find_map(|(key, value)| match value {
            _ if !TIMEOUTS.contains(&key) => None,
            Value::U32(ms) => Some(i64::from(ms)),
            Value::I32(ms) => Some(i64::from(ms)),
            Value::I64(ms) => Some(ms),
            Value::U64(ms) => i64::try_from(ms).ok(),
            _ => None,
        });
        ms.filter(|ms| *ms > 0).map(TimeSpan::from_ms)
    }

    /// Returns an application property that is text.
    pub(in crate::server) fn text(&self, name: &str) -> Option<String> {
        self.content.application_properties().find(|(key, _)| *key == name).and_then(
            |(_, value)| match value {
                Value::String(text) => Some(text),
                _ => None,
            },
        )
    }

    /// Returns the body if it is a single value.
    pub(in crate::server) fn body(&self) -> Option<Raw> {
        let body = self.content.as_bytes().slice_ref(self.content.sections().body);
        let mut reader = Reader::new(&body);
        if reader.section().ok()? != descriptor::VALUE {
            return None;
        }
        Raw::read(&body, &mut reader).ok()
    }
}

impl Conversation {
    /// Handles a complete request.
    pub(in crate::server) async fn handle_request(
        &mut self,
        link: LinkId,
        delivery: Option<ReceivedId>,
        transaction: Option<TransactionId>,
        whole: Bytes,
    ) {
        let bytes = whole.len() as u64;
        let request = match NodeRequest::read(whole) {
            Ok(request) => {
                let until = request.timeout().map(|wait| self.engine.broker.now().plus(wait));
                NodeRequest { transaction, until, ..request }
            }
            Err(error) => {
                self.mark_named_for_rollback(transaction);
                if let Some(delivery) = delivery {
                    self.amqp.dispose_received(delivery, DeliveryState::rejected(error.clone()));
                }
                self.amqp.detach(link, Some(error));
                return self.detach(link);
            }
        };
        let to = self.reply_link(link, &request);
        // The request is accepted before anything else is sent on the session (AMQP-32).
        if let Some(delivery) = delivery {
            self.amqp.dispose_received(delivery, DeliveryState::accepted());
        }
        let Some(Node::Requests(requests)) = self.nodes.get(&link) else { return };
        if requests.manager().is_none() {
            if let Some(to) = to {
                self.await_reply(to);
            }
            let reply_address = to.map(|to| request.reply_address(to));
            return self.handle_token_request(reply_address, &request).await;
        }
        let Some(to) = to else {
            self.mark_named_for_rollback(transaction);
            return tracing::debug!("a request is refused because no link receives its reply");
        };
        if requests.waiting.is_empty() && self.takes_reply(to) {
            return self.carry_out_request(link, to, &request).await;
        }
        if self.waiting_request_bytes().saturating_add(bytes) > WAITING_BYTES_MAX {
            let text = "too many bytes of requests wait for credit for their replies; grant credit";
            let busy = self.refuse(Rejection::new(Condition::ServerBusy, text), "");
            self.mark_named_for_rollback(transaction);
            self.await_reply(to);
            return self.answer_managed(request.reply_address(to), Err(busy));
        }
        let Some(Node::Requests(requests)) = self.nodes.get_mut(&link) else { return };
        if requests.waiting.len() >= WAITING_MAX {
            self.mark_named_for_rollback(transaction);
            let text =
                format!("{WAITING_MAX} requests wait for credit for their replies; grant credit");
            let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            self.amqp.detach(link, Some(error));
            return self.detach(link);
        }
        requests.waiting.push_back((to, request));
        requests.waiting_bytes += bytes;
        self.inflow.assembled_bytes += bytes;
        self.waiting_requests += 1;
    }

    /// Bytes of all waiting requests.
    fn waiting_request_bytes(&self) -> u64 {
        let bytes = |node: &Node| match node {
            Node::Requests(requests) => requests.waiting_bytes,
            _ => 0,
        };
        self.nodes.values().map(bytes).sum()
    }

    async fn carry_out_request(&mut self, link: LinkId, to: LinkId, request: &NodeRequest) {
        self.await_reply(to);
        self.manage(link, request.reply_address(to), request).await;
    }

    /// Carries out a waiting request whose reply now has credit. Returns whether there was one.
    pub(in crate::server) async fn carry_out_waiting(&mut self) -> bool {
        if self.waiting_requests == 0 {
            return false;
        }
        let fronts: Vec<(LinkId, LinkId)> = self
            .nodes
            .iter()
            .filter_map(|(link, node)| match node {
                Node::Requests(requests) => Some((*link, requests.waiting.front()?.0)),
                _ => None,
            })
            .collect();
        for (link, to) in fronts {
            if !self.takes_reply(to) {
                continue;
            }
            let Some(Node::Requests(requests)) = self.nodes.get_mut(&link) else { continue };
            let Some((to, request)) = requests.waiting.pop_front() else { continue };
            let bytes = request.content.as_bytes().len() as u64;
            requests.waiting_bytes -= bytes;
            self.inflow.assembled_bytes -= bytes;
            self.waiting_requests -= 1;
            if !matches!(self.nodes.get(&to), Some(Node::Replies(_))) {
                tracing::debug!(
                    "a request is dropped because the link for its reply no longer exists"
                );
                if let Some(id) = request.transaction {
                    self.mark_for_rollback(id);
                }
                return true;
            }
            self.carry_out_request(link, to, &request).await;
            return true;
        }
        false
    }

    /// Returns the link for the reply to a request (AMQP-22).
    fn reply_link(&self, link: LinkId, request: &NodeRequest) -> Option<LinkId> {
        let replies = || {
            self.nodes.iter().filter_map(|(id, node)| match node {
                Node::Replies(replies) => Some((*id, replies)),
                _ => None,
            })
        };
        let here = |id: &LinkId| id.session() == link.session();
        let newest = |matches: &dyn Fn(&super::Replies) -> bool| {
            let all = replies().filter(|(_, replies)| matches(replies)).map(|(id, _)| id);
            all.max_by_key(|id| (here(id), id.generation))
        };
        let Some(Node::Requests(requests)) = self.nodes.get(&link) else { return None };
        let node = requests.node();
        if let Some(to) = &request.reply_to {
            let is_there = |replies: &super::Replies| replies.target.as_deref() == Some(to);
            // If several links have this address, prefer the link of the node that gets the
            // request.
            let found = newest(&|replies| is_there(replies) && replies.node == node)
                .or_else(|| newest(&is_there))
                .or_else(|| newest(&|replies| &*replies.name == to));
            if found.is_some() {
                return found;
            }
        }
        let of_node = replies().filter(|(_, replies)| replies.node == node);
        of_node.map(|(id, _)| id).filter(here).max_by_key(|id| id.generation)
    }
}

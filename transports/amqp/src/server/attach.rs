//! Attaching of links to nodes, selected by the address in the `attach` (AMQP-33 to AMQP-38).
//! Senders and receivers are accepted only after their entity has answered.

use std::num::NonZero;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, ReceiveMode};
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::Rejection;
use peeklock_core::path::{Address, EntityAddress, Node as AddressNode, SubQueue};
use peeklock_core::request::Outcome;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_link::LinkRole;
use peeklock_link::pending::correlation;
use peeklock_words::amqp::{Scalar, write};

use super::conversation::Conversation;
use super::node::{
    Node, REQUEST_CREDIT, ReceiverNode, Replies, Requests, SenderNode, TOKENS_NODE, address_of,
    decoded, management_node,
};
use super::queue_session::SessionRequest;
use super::work::{ANSWERS, AttachKind, LinkRequest, PendingAnswer, PendingAttach, UnpaidWork};
use crate::codec::value::{Map, Raw, Symbols};
use crate::connection::LinkId;
use crate::error::{AmqpError, condition};
use crate::link::{Answer, Assembly};
use crate::performative::{Attach, Role, SenderSettleMode};
use crate::terminus::Target;

/// Bytes above the message size limit that a link accepts: room for the envelope of a batch. A
/// message that is slightly too large passes the link too, and its entity refuses it after it has
/// judged whether it accepts messages at all (SND-19).
const LEEWAY_BYTES: u64 = 128 << 10;
/// Property with the entity to which messages are sent through the link's entity (AMQP-96).
const DESTINATION: &str = "com.microsoft:transfer-destination-address";
/// Property with the kind of entity that the client expects (AMQP-37).
const ENTITY_TYPE: &str = "com.microsoft:entity-type";
/// Capability that JMS clients require before they schedule messages (AMQP-101).
const DELAYED_DELIVERY: &str = "DELAYED_DELIVERY";
/// Capabilities for transactions: within this broker, several at a time in a session, and across
/// sessions.
const TRANSACTIONS: &[&str] =
    &["amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"];
/// Minimum of the maximum request size of a management node, in bytes. It applies if the entity
/// takes smaller messages only, and is enough for a batch of messages to schedule, or for rules.
const REQUEST_BYTES_MAX: NonZero<u64> = NonZero::new(2 << 20).unwrap();
/// Distribution mode of browsers and durable subscriptions (AMQP-99).
const MODE_COPY: &str = "copy";

impl Conversation {
    pub(super) async fn attach(&mut self, link: LinkId, attach: &Attach) {
        if let Err(error) = self.try_attach(link, attach).await {
            self.nodes.remove(&link);
            self.amqp.refuse(link, error);
        }
    }

    async fn try_attach(&mut self, link: LinkId, attach: &Attach) -> Result<(), AmqpError> {
        if let (Role::Sender, Some(Target::Coordinator(_))) = (attach.role, &attach.target) {
            // Rights are checked for each send and settlement (AMQP-97).
            self.nodes.insert(link, Node::Coordinator(Assembly::default()));
            let answer = Answer::echo(attach).capable_of(attach.role, TRANSACTIONS);
            self.amqp.accept(link, answer);
            self.amqp.grant(link, REQUEST_CREDIT);
            self.begin_group(link.session());
            return Ok(());
        }
        let address = self.named(address_of(attach))?;
        match (address, attach.role) {
            (Address::Tokens, Role::Sender) => {
                let answer = Answer::echo(attach).capable_of(attach.role, &[]);
                self.attach_requests(link, answer, Requests::of_tokens());
                Ok(())
            }
            (Address::Tokens, Role::Receiver) => {
                self.attach_replies(link, attach, TOKENS_NODE.into());
                Ok(())
            }
            (Address::Entity(address), role) => match (&address.node, role) {
                (AddressNode::Entity, Role::Sender) => {
                    self.attach_inlet(link, attach, &address).await
                }
                (AddressNode::Entity, Role::Receiver) => {
                    self.attach_outlet(link, attach, &address).await
                }
                (AddressNode::Management, role) => {
                    let entity = self.manageable(&address).await?;
                    self.check_type(attach, &entity)?;
                    match role {
                        Role::Sender => self.attach_manager(link, attach, entity).await,
                        Role::Receiver => {
                            self.attach_replies(link, attach, management_node(entity.path()));
                        }
                    }
                    Ok(())
                }
                (AddressNode::Rule(_), _) => {
                    Err(self.refuse(Rejection::invalid_operation("a rule has no messages"), ""))
                }
            },
        }
    }

    fn attach_requests(&mut self, link: LinkId, answer: Answer, requests: Requests) {
        if self.amqp.accept(link, answer) {
            self.nodes.insert(link, Node::Requests(Box::new(requests)));
            self.amqp.grant(link, REQUEST_CREDIT);
        }
    }

    fn attach_replies(&mut self, link: LinkId, attach: &Attach, node: Box<str>) {
        self.nodes.insert(link, Node::Replies(Box::new(Replies::of(attach, node))));
        self.amqp.accept(link, Answer::echo(attach).capable_of(attach.role, &[]));
    }

    /// Requests may be as large as messages of the entity; a sub-queue takes no messages.
    async fn attach_manager(&mut self, link: LinkId, attach: &Attach, entity: Entity) {
        let answer = Answer::echo(attach).capable_of(attach.role, &[]);
        if entity.sub_queue() != SubQueue::Main {
            let requests = Requests::of_management(entity.path().into());
            return self.attach_requests(link, answer, requests);
        }
        let attaching = PendingAttach { link, entity, answer, kind: AttachKind::Requests };
        self.when_permitted(UnpaidWork::Attach(Box::new(attaching))).await;
    }

    /// Returns the entity of a management node if the client has any right on it. The rights of
    /// each operation are checked when it is carried out.
    async fn manageable(&mut self, address: &EntityAddress) -> Result<Entity, AmqpError> {
        let path = EntityAddress { node: AddressNode::Entity, ..address.clone() }.to_string();
        let purposes = [Action::Peek, Action::Send, Action::ReadRules];
        let found = self.access_at(&path).entity_for_any(&path, &purposes).await;
        found.map_err(|error| super::error::of(&error))
    }

    /// Attaches a sender: finds the entity, for which the client needs the right to send, and
    /// requests its size limit.
    async fn attach_inlet(
        &mut self,
        link: LinkId,
        attach: &Attach,
        address: &EntityAddress,
    ) -> Result<(), AmqpError> {
        let property = |name| attach.properties.as_ref().and_then(|map| map.get(name));
        let destination = match property(DESTINATION).as_ref().map(Raw::scalar) {
            None | Some(Ok(Scalar::Null)) => None,
            Some(Ok(Scalar::Text(path) | Scalar::Symbol(path))) => Some(path.to_owned()),
            Some(_) => {
                let text = format!("{DESTINATION} is not text");
                return Err(AmqpError::new(condition::INVALID_FIELD, text));
            }
        };
        let action = if destination.is_some() { Action::SendVia } else { Action::Send };
        let entity = self.entity(address, action).await?;
        self.check_type(attach, &entity)?;
        if entity.sub_queue() != SubQueue::Main || entity.kind() == EntityKind::Subscription {
            let text = "messages can only be sent to queues and topics";
            return Err(self.refuse(Rejection::invalid_operation(text), entity.path()));
        }
        let (entity, destination) = match destination {
            Some(path) => {
                let path = self.path_of_address(&path)?;
                let found = self.access_at(&path).transfer_destination(&path, &entity).await;
                let (entity, destination) = found.map_err(|error| super::error::of(&error))?;
                (entity, Some(destination))
            }
            None => (entity, None),
        };
        let wants_delay = attach.desired_capabilities.as_ref();
        let wants_delay = wants_delay.is_some_and(|wanted| wanted.contains(DELAYED_DELIVERY));
        let offered_capabilities = wants_delay.then(|| Symbols::new(&[DELAYED_DELIVERY]));
        let answer = Answer::echo(attach).capable_of(attach.role, capabilities(&entity));
        let answer = Answer { offered_capabilities, ..answer };
        let kind = AttachKind::Sender { destination };
        let attaching = PendingAttach { link, entity, answer, kind };
        self.when_permitted(UnpaidWork::Attach(Box::new(attaching))).await;
        Ok(())
    }

    /// Refuses a client that expects a queue but finds a topic, or the reverse. Topics and
    /// subscriptions count as the same kind, since the Java SDK calls both subscriptions.
    fn check_type(&self, attach: &Attach, entity: &Entity) -> Result<(), AmqpError> {
        let property = attach.properties.as_ref().and_then(|map| map.get(ENTITY_TYPE));
        let expected = match property.as_ref().map(Raw::scalar) {
            Some(Ok(Scalar::I32(number))) => i64::from(number),
            Some(Ok(Scalar::I64(number))) => number,
            Some(Ok(Scalar::U32(number))) => i64::from(number),
            // Other clients use the property for other values.
            _ => return Ok(()),
        };
        let is_queue = entity.kind() == EntityKind::Queue;
        let expected = match (expected, is_queue) {
            (0, false) => "a queue",
            (1 | 2, true) => "a topic or subscription",
            _ => return Ok(()),
        };
        let found = if is_queue { "a queue" } else { "a topic or subscription" };
        let text = format!(
            "the client expects {expected} (`{ENTITY_TYPE}`), but this is {found}; use a client \
             for {found}"
        );
        Err(self.refuse(Rejection::invalid_operation(text), entity.path()))
    }

    /// Parses an address in any of its forms (AMQP-33).
    fn named(&self, address: &str) -> Result<Address, AmqpError> {
        let address = decoded(address);
        Address::parse(&address).map_err(|rejection| self.refuse(rejection, &address))
    }

    /// Returns the path of the entity that an address names.
    fn path_of_address(&self, address: &str) -> Result<String, AmqpError> {
        match self.named(address)? {
            Address::Entity(address) => Ok(address.to_string()),
            Address::Tokens => Err(self.refuse(Rejection::entity_not_found(address), address)),
        }
    }

    /// Attaches a receiver; the client gets the answer when the entity has accepted.
    async fn attach_outlet(
        &mut self,
        link: LinkId,
        attach: &Attach,
        address: &EntityAddress,
    ) -> Result<(), AmqpError> {
        let source = attach.source.as_ref();
        if source.and_then(|source| source.distribution_mode.as_deref()) == Some(MODE_COPY) {
            return self.attach_browser(link, attach, address).await;
        }
        let wanted = SessionRequest::of(attach)?;
        let action = if wanted.is_some() { Action::AcceptSession } else { Action::Receive };
        let entity = self.entity(address, action).await?;
        self.check_type(attach, &entity)?;
        let mode = match attach.snd_settle_mode {
            Some(SenderSettleMode::Settled) => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        let answer = Answer::echo(attach).capable_of(attach.role, capabilities(&entity));
        let name = attach.name.clone();
        let kind = match wanted {
            Some(wanted) => AttachKind::Session { name, mode, wanted },
            None => AttachKind::Receiver { name, mode },
        };
        let attaching = PendingAttach { link, entity, answer, kind };
        self.when_permitted(UnpaidWork::Attach(Box::new(attaching))).await;
        Ok(())
    }

    /// Sends the request of a link to its entity. The entity's answer leads to the answer to the
    /// client.
    pub(super) async fn open(&mut self, attaching: PendingAttach, permit: Permit) {
        let permit = Arc::new(permit);
        let path: Arc<str> = attaching.entity.path().into();
        if matches!(attaching.kind, AttachKind::Receiver { .. } | AttachKind::Session { .. }) {
            let session = attaching.link.session();
            if let Err(rejection) = self.check_group(session, &attaching.entity).await {
                let error = self.refuse(rejection, &path);
                return self.amqp.refuse(attaching.link, error);
            }
        }
        match attaching.kind {
            AttachKind::Sender { .. } | AttachKind::Requests => {
                // A sender may know the size limit without a right to read the description.
                let entity = attaching.entity.as_broker();
                let expect = PendingAnswer::Described(Box::new(attaching));
                let slot = self.engine.links.add_unlinked_request(path, 0, Some(permit), expect);
                self.engine.links.submit_to(&entity, Command::Describe, correlation(slot, 0));
            }
            AttachKind::Receiver { name, mode } => {
                let PendingAttach { link, entity, answer, .. } = attaching;
                let number = self.number(link);
                self.engine.links.attach(number, entity, path, LinkRole::Receiver, mode);
                let receiver = ReceiverNode::new(number, name, answer);
                self.nodes.insert(link, Node::Receiver(Box::new(receiver)));
                let id = self.add_link_request(LinkRequest::Attach(link));
                self.engine.links.attach_flow(number, 0, id, permit);
            }
            AttachKind::Session { name, mode, wanted } => {
                let PendingAttach { link, entity, answer, .. } = attaching;
                let number = self.number(link);
                self.engine.links.attach(number, entity, path, LinkRole::Receiver, mode);
                let id = self.add_link_request(LinkRequest::Attach(link));
                let (session, wait) = wanted.session_and_wait();
                let wait =
                    if self.engine.stop_deadline().is_some() { TimeSpan::ZERO } else { wait };
                let mut receiver = ReceiverNode::new(number, name, answer);
                receiver.session_request = Some(wanted);
                self.nodes.insert(link, Node::Receiver(Box::new(receiver)));
                self.engine.links.accept(number, session, wait, 0, id, Some(permit));
            }
        }
    }

    /// Attaches a sender after the entity has returned its description.
    pub(super) fn described(
        &mut self,
        attaching: PendingAttach,
        result: Result<Outcome, Rejection>,
    ) {
        let PendingAttach { link, entity, answer, kind } = attaching;
        let kilobytes = match result {
            Ok(Outcome::Described(of)) => of.description.max_message_size_in_kilobytes,
            Ok(Outcome::TopicDescribed(of)) => of.description.max_message_size_in_kilobytes,
            // A subscription has no limit; its topic has one.
            Ok(Outcome::SubscriptionDescribed(_)) => u64::MAX >> 10,
            Ok(_) => {
                let error = self.refuse(Rejection::internal("unexpected answer"), entity.path());
                return self.amqp.refuse(link, error);
            }
            Err(rejection) => {
                let error = self.refuse(rejection, entity.path());
                return self.amqp.refuse(link, error);
            }
        };
        let most = self.listener.config.message_bytes_max;
        let of_entity = NonZero::new(kilobytes.saturating_mul(1 << 10)).unwrap_or(most);
        let bytes_max = of_entity.min(most);
        let destination = match kind {
            AttachKind::Sender { destination } => destination,
            AttachKind::Requests => {
                let answer = Answer {
                    message_bytes_max: Some(bytes_max.max(REQUEST_BYTES_MAX)),
                    leeway_bytes: LEEWAY_BYTES,
                    ..answer
                };
                let requests = Requests::of_management(entity.path().into());
                return self.attach_requests(link, answer, requests);
            }
            AttachKind::Receiver { .. } | AttachKind::Session { .. } => return,
        };
        let batch_max = self.engine.broker.settings().limits.batch_bytes_max.min(bytes_max.get());
        // As a long, since some clients read no other type (AMQP-37).
        let batch_max = i64::try_from(batch_max).unwrap_or(i64::MAX);
        let batch_max = Raw::encoded(|bytes| {
            write::fixed(bytes, peeklock_words::amqp::code::LONG, batch_max.to_be_bytes());
        });
        let properties = Map::of_symbols([("com.microsoft:max-message-batch-size", batch_max)]);
        let answer = Answer {
            message_bytes_max: Some(bytes_max),
            leeway_bytes: if of_entity <= most { LEEWAY_BYTES } else { 0 },
            properties: Some(properties),
            ..answer
        };
        if !self.amqp.accept(link, answer) {
            return;
        }
        let number = self.number(link);
        let path: Arc<str> = entity.path().into();
        self.engine.links.attach(number, entity, path, LinkRole::Sender, ReceiveMode::PeekLock);
        if let Some(destination) = destination {
            self.engine.links.send_via(number, destination);
        }
        let room_bytes = self.engine.broker.settings().limits.connection_inbound_bytes_max;
        let (sender, credit) = SenderNode::new(number, room_bytes, bytes_max.get());
        self.nodes.insert(link, Node::Sender(sender));
        self.note_root(link.session());
        self.amqp.grant(link, credit);
    }

    /// Accepts or refuses a receiver after the answer of its entity.
    pub(super) fn attached(&mut self, link: LinkId, path: &str, result: Result<(), Rejection>) {
        match result {
            Ok(()) => {
                let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
                let Some(answer) = receiver.answer.take() else { return };
                self.amqp.accept(link, answer);
                self.note_root(link.session());
            }
            Err(reason) => {
                if let Some(Node::Receiver(receiver)) = self.nodes.remove(&link) {
                    self.numbering.numbers.remove(&receiver.number);
                }
                self.note_root(link.session());
                let error = self.refuse(reason, path);
                self.amqp.refuse(link, error);
            }
        }
    }

    /// Accepts or refuses a receiver after a session was locked for it, or none was available.
    pub(super) fn session_accepted(
        &mut self,
        link: LinkId,
        path: &str,
        result: Result<(Arc<str>, Timestamp), Rejection>,
    ) {
        match result {
            Ok((session, until)) => {
                let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
                let Some(wanted) = receiver.session_request.take() else { return };
                let Some(answer) = receiver.answer.take() else { return };
                self.amqp.accept(link, wanted.complete_answer(answer, &session, until));
                self.note_root(link.session());
            }
            Err(reason) => self.attached(link, path, Err(reason)),
        }
    }

    pub(super) async fn entity(
        &mut self,
        address: &EntityAddress,
        purpose: Action,
    ) -> Result<Entity, AmqpError> {
        let path = address.to_string();
        let found = self.access_at(&path).entity(&path, purpose).await;
        found.map_err(|error| super::error::of(&error))
    }

    /// Assigns a number among the links of the engine.
    pub(super) fn number(&mut self, link: LinkId) -> u32 {
        loop {
            self.numbering.last_number = self.numbering.last_number.wrapping_add(1);
            let is_taken = self.numbering.numbers.contains_key(&self.numbering.last_number)
                || self.engine.links.get(self.numbering.last_number).is_some();
            if !is_taken && self.numbering.last_number < ANSWERS {
                self.numbering.numbers.insert(self.numbering.last_number, link);
                return self.numbering.last_number;
            }
        }
    }

    /// Handles the end of a link: the client has detached it, or it failed because of an error of
    /// the client.
    pub(super) fn detach(&mut self, link: LinkId) {
        match self.nodes.remove(&link) {
            Some(Node::Receiver(receiver)) => {
                let number = receiver.number;
                self.give_back(*receiver);
                self.forget(link, number);
            }
            Some(Node::Browser(browser)) => {
                self.engine.account.release(browser.held_bytes());
                self.forget(link, browser.number());
            }
            Some(Node::Sender(sender)) => {
                self.inflow.assembled_bytes -= sender.assembly.len() as u64;
                self.forget(link, sender.number);
            }
            Some(Node::Requests(requests)) => {
                self.inflow.assembled_bytes -= requests.assembled_bytes();
                self.waiting_requests -= requests.waiting_count();
                match requests.manager().and_then(|manager| manager.holder) {
                    // Locks of messages received through it outlive it (SET-31).
                    Some(number) => self.forget(link, number),
                    None => self.amqp.detach(link, None),
                }
            }
            Some(Node::Coordinator(assembly)) => {
                self.inflow.assembled_bytes -= assembly.len() as u64;
                self.roll_back_of(link);
                self.amqp.detach(link, None);
            }
            Some(Node::Replies(replies)) => {
                self.engine.account.release(replies.held_bytes());
                self.amqp.detach(link, None);
            }
            None => self.amqp.detach(link, None),
        }
    }

    fn forget(&mut self, link: LinkId, number: u32) {
        self.numbering.numbers.remove(&number);
        let id = self.add_link_request(LinkRequest::Detach(link));
        let end = peeklock_core::command::LinkEnd::Orderly;
        self.engine.links.detach(number, peeklock_link::PendingClose { id, end });
    }
}

/// Capabilities of the node of an entity. JMS clients read a subscription either as a queue or as a
/// topic.
fn capabilities(entity: &Entity) -> &'static [&'static str] {
    match entity.kind() {
        EntityKind::Queue => &["queue"],
        EntityKind::Topic => &["topic"],
        EntityKind::Subscription => &["queue", "topic"],
    }
}

//! What a link is attached to, by the address that the client wrote (AMQP-33 to AMQP-38).

use std::borrow::Cow;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::command::ReceiveMode;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::Rejection;
use peeklock_core::path::{Address, EntityAddress, Node as Place, SubQueue};
use peeklock_link::Role as LinkRole;
use peeklock_words::amqp::write;
use percent_encoding::percent_decode_str;

use super::conversation::{Asked, Conversation};
use super::node::{Inlet, Node, Outlet, Replies, Requests};
use crate::codec::value::{Map, Raw};
use crate::connection::LinkId;
use crate::error::{AmqpError, condition};
use crate::link::Answer;
use crate::performative::{Attach, Role, SenderSettleMode};
use crate::terminus::Target;

/// Credit of a client's sender (AMQP-40).
pub(super) const SENDER_CREDIT: u32 = 1_000;
/// Credit of a client that asks something.
pub(super) const REQUEST_CREDIT: u32 = 50;
/// The property by which a message is sent by way of the link's entity to another (AMQP-96).
const DESTINATION: &str = "com.microsoft:transfer-destination-address";
/// The filter that names a session (AMQP-70).
const SESSION_FILTER: &str = "com.microsoft:session-filter";
/// The filter of JMS (AMQP-99).
const MODE_COPY: &str = "copy";

impl Conversation {
    pub(super) async fn attach(&mut self, link: LinkId, attach: &Attach) {
        if let Err(error) = self.try_attach(link, attach).await {
            self.nodes.remove(&link);
            self.amqp.refuse(link, error);
        }
    }

    async fn try_attach(&mut self, link: LinkId, attach: &Attach) -> Result<(), AmqpError> {
        let address = match attach.role {
            Role::Sender => match &attach.target {
                Some(Target::Coordinator(_)) => return Err(not_offered("transactions are")),
                target => target.as_ref().and_then(Target::address),
            },
            Role::Receiver => attach.source.as_ref().and_then(|source| source.address()),
        };
        let address = address.unwrap_or_default();
        let address = percent_decode_str(address).decode_utf8().unwrap_or(Cow::Borrowed(address));
        let address =
            Address::parse(&address).map_err(|rejection| self.refuse(rejection, &address))?;
        match (address, attach.role) {
            (Address::Tokens, Role::Sender) => {
                self.nodes.insert(link, Node::Requests(Requests::default()));
                self.amqp.accept(link, Answer::echo(attach));
                self.amqp.grant(link, REQUEST_CREDIT);
                Ok(())
            }
            (Address::Tokens, Role::Receiver) => {
                self.nodes.insert(link, Node::Replies(Replies::of(attach)));
                self.amqp.accept(link, Answer::echo(attach));
                Ok(())
            }
            (Address::Entity(address), role) => match (&address.node, role) {
                (Place::Entity, Role::Sender) => self.attach_inlet(link, attach, &address).await,
                (Place::Entity, Role::Receiver) => self.attach_outlet(link, attach, &address).await,
                (Place::Management, _) => Err(not_offered("$management nodes are")),
                (Place::Rule(_), _) => {
                    Err(self.refuse(Rejection::invalid_operation("a rule has no messages"), ""))
                }
            },
        }
    }

    /// A client's sender: its entity is found, for who may send.
    async fn attach_inlet(
        &mut self,
        link: LinkId,
        attach: &Attach,
        address: &EntityAddress,
    ) -> Result<(), AmqpError> {
        if attach
            .properties
            .as_ref()
            .is_some_and(|properties| properties.get(DESTINATION).is_some())
        {
            return Err(not_offered("sending by way of another entity is"));
        }
        let entity = self.entity(address, Action::Send).await?;
        if entity.sub_queue() != SubQueue::Main || entity.kind() == EntityKind::Subscription {
            let text = "messages are sent to queues and topics, and not to this";
            return Err(self.refuse(Rejection::invalid_operation(text), entity.path()));
        }
        let number = self.number(link);
        let path: Arc<str> = entity.path().into();
        let mode = ReceiveMode::PeekLock;
        self.links.attach(number, entity, path, LinkRole::Sender, mode);
        self.nodes.insert(link, Node::Inlet(Inlet::new(number)));
        let bytes_max = self.site.config.message_bytes_max;
        // As a long: some read no other type (AMQP-37).
        let batch_max = i64::try_from(bytes_max.get()).unwrap_or(i64::MAX);
        let batch_max = Raw::encoded(|bytes| {
            write::fixed(bytes, peeklock_words::amqp::code::LONG, batch_max.to_be_bytes());
        });
        let properties = Map::of_symbols([("com.microsoft:max-message-batch-size", batch_max)]);
        let answer = Answer {
            message_bytes_max: Some(bytes_max),
            properties: Some(properties),
            ..Answer::echo(attach)
        };
        self.amqp.accept(link, answer);
        self.amqp.grant(link, SENDER_CREDIT);
        Ok(())
    }

    /// A client's receiver: answered when its entity has agreed.
    async fn attach_outlet(
        &mut self,
        link: LinkId,
        attach: &Attach,
        address: &EntityAddress,
    ) -> Result<(), AmqpError> {
        let source = attach.source.as_ref();
        let filters = source.and_then(|source| source.filter.as_ref());
        if filters.is_some_and(|filters| filters.get(SESSION_FILTER).is_some()) {
            return Err(not_offered("sessions are"));
        }
        if source.and_then(|source| source.distribution_mode.as_deref()) == Some(MODE_COPY) {
            return Err(not_offered("browsers and durable subscriptions are"));
        }
        // Without its filter it would get what it does not want (AMQP-99).
        if filters.is_some_and(|filters| filters.entries().next().is_some()) {
            return Err(not_offered("filters of links are"));
        }
        let entity = self.entity(address, Action::Receive).await?;
        let mode = match attach.snd_settle_mode {
            Some(SenderSettleMode::Settled) => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        // What this takes is paid for as any command is.
        let permit = Arc::new(self.budget.acquire(0).await);
        let number = self.number(link);
        let path: Arc<str> = entity.path().into();
        self.links.attach(number, entity, path, LinkRole::Receiver, mode);
        self.nodes.insert(link, Node::Outlet(Box::new(Outlet::new(number, Answer::echo(attach)))));
        let id = self.ask(Asked::Attach(link));
        self.links.attach_flow(number, 0, id, permit);
        Ok(())
    }

    /// An entity has said whether a receiver may be attached.
    pub(super) fn attached(&mut self, link: LinkId, path: &str, result: Result<(), Rejection>) {
        match result {
            Ok(()) => {
                let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
                let Some(answer) = outlet.answer.take() else { return };
                self.amqp.accept(link, answer);
            }
            Err(reason) => {
                if let Some(Node::Outlet(outlet)) = self.nodes.remove(&link) {
                    self.numbers.remove(&outlet.number);
                }
                let error = self.refuse(reason, path);
                self.amqp.refuse(link, error);
            }
        }
    }

    async fn entity(
        &mut self,
        address: &EntityAddress,
        purpose: Action,
    ) -> Result<Entity, AmqpError> {
        let path = address.to_string();
        let found = self.access_at(&path).entity(&path, purpose).await;
        found.map_err(|error| super::error::of(&error))
    }

    /// A number for a link among `Links`.
    fn number(&mut self, link: LinkId) -> u32 {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            let is_taken = self.numbers.contains_key(&self.last_number)
                || self.links.get(self.last_number).is_some();
            if !is_taken && self.last_number != u32::MAX {
                self.numbers.insert(self.last_number, link);
                return self.last_number;
            }
        }
    }

    /// A link is over: its client detaches it, or did what it may not do.
    pub(super) fn detach(&mut self, link: LinkId) {
        match self.nodes.remove(&link) {
            Some(Node::Outlet(outlet)) => {
                let number = outlet.number;
                self.give_back(*outlet);
                self.forget(link, number);
            }
            Some(Node::Inlet(inlet)) => {
                self.assembled_bytes -= inlet.assembly.len() as u64;
                self.forget(link, inlet.number);
            }
            Some(Node::Requests(requests)) => {
                self.assembled_bytes -= requests.assembly.len() as u64;
                self.amqp.detach(link, None);
            }
            Some(Node::Replies(_)) | None => self.amqp.detach(link, None),
        }
    }

    fn forget(&mut self, link: LinkId, number: u32) {
        self.numbers.remove(&number);
        let id = self.ask(Asked::Detach(link));
        let end = peeklock_core::command::LinkEnd::Orderly;
        self.links.detach(number, peeklock_link::Closing { id, end });
    }
}

fn not_offered(what: &str) -> AmqpError {
    AmqpError::new(condition::NOT_IMPLEMENTED, format!("{what} not offered over AMQP yet"))
}

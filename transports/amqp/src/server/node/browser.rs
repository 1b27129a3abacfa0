//! A queue, subscription or sub-queue at which a client looks (AMQP-99): what is there is sent settled, and stays.
//!
//! It sees what peek sees (PEK-03), and goes on behind what it has seen. Its entity is asked when there is credit and nothing waits, once
//! at a time; a drain ends when there is nothing more. It has a link of its entity, over which nothing is
//! delivered: by that it is told when its entity is gone or its client may not look any more (AMQP-79).

use std::collections::VecDeque;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::command::{Command, ReceiveMode, peeked_bytes};
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::path::EntityAddress;
use peeklock_core::request::Outcome;
use peeklock_link::Role;
use peeklock_link::pending::correlation;

use super::Node;
use crate::connection::LinkId;
use crate::error::AmqpError;
use crate::link::{Answer, Delivery};
use crate::performative::{Attach, DeliveryTag, SenderSettleMode};
use crate::server::conversation::Conversation;
use crate::server::deliver::{Shown, encoded, unreadable};
use crate::server::error::not_offered;
use crate::server::session::Wanted;
use crate::server::work::Expect;

/// How many messages an entity is asked for at once.
const COUNT_MAX: u32 = 64;
/// When a source goes that outlives its link: that of a durable subscription.
const NEVER: &str = "never";

/// A link on which a client looks.
pub(in crate::server) struct Browser {
    number: u32,
    entity: Entity,
    /// The first message that was not looked at.
    next: SequenceNumber,
    /// Messages that came and were not sent.
    waiting: VecDeque<Delivery>,
    /// What the message holds of the account of which not all frames are written.
    sending_bytes: u64,
    is_asked: bool,
    /// Whether there was nothing more when its entity was asked last.
    is_at_end: bool,
    /// Whether credit that is left then is to be given back.
    is_draining: bool,
}

impl Browser {
    pub(in crate::server) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether something waits until the client lets it be sent.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What of the account its messages hold.
    pub(in crate::server) fn held_bytes(&self) -> u64 {
        self.sending_bytes + self.waiting.iter().map(bytes_of).sum::<u64>()
    }
}

fn bytes_of(delivery: &Delivery) -> u64 {
    delivery.payload.iter().map(|piece| piece.len() as u64).sum()
}

impl Conversation {
    /// A client wants to look.
    pub(in crate::server) async fn attach_browser(
        &mut self,
        link: LinkId,
        attach: &Attach,
        address: &EntityAddress,
    ) -> Result<(), AmqpError> {
        let outlives = attach.source.as_ref().is_some_and(|source| {
            source.node.durable.unwrap_or(0) > 0
                || source.node.expiry_policy.as_deref() == Some(NEVER)
        });
        if outlives {
            return Err(not_offered("durable subscriptions are"));
        }
        if attach.snd_settle_mode == Some(SenderSettleMode::Unsettled) {
            return Err(not_offered("browsers that settle messages are"));
        }
        if Wanted::of(attach)?.is_some() {
            return Err(not_offered("browsers of a session are"));
        }
        let entity = self.entity(address, Action::Peek).await?;
        if entity.kind() == EntityKind::Topic {
            let text = "messages of a topic can only be peeked in its subscriptions";
            return Err(self.refuse(Rejection::invalid_operation(text), entity.path()));
        }
        let number = self.number(link);
        let path = entity.path().into();
        self.engine.links.attach(
            number,
            entity.clone(),
            path,
            Role::Browser,
            ReceiveMode::PeekLock,
        );
        let browser = Browser {
            number,
            entity,
            next: SequenceNumber(0),
            waiting: VecDeque::new(),
            sending_bytes: 0,
            is_asked: false,
            is_at_end: false,
            is_draining: false,
        };
        self.nodes.insert(link, Node::Browser(Box::new(browser)));
        self.amqp.accept(link, Answer::echo(attach));
        Ok(())
    }

    /// A client has said how much more it takes; there may be more to see by now.
    pub(super) fn browse(&mut self, link: LinkId, drain: bool) {
        if let Some(Node::Browser(browser)) = self.nodes.get_mut(&link) {
            browser.is_at_end = false;
            browser.is_draining = drain;
            self.look(link);
        }
    }

    /// Asks for more to see, if there is credit for it and nothing waits; a drain is over at the end.
    fn look(&mut self, link: LinkId) {
        let credit = self.amqp.credit(link);
        let Some(Node::Browser(browser)) = self.nodes.get_mut(&link) else { return };
        if browser.is_asked || (credit > 0 && !browser.waiting.is_empty()) {
            return;
        }
        if credit == 0 || browser.is_at_end {
            if std::mem::take(&mut browser.is_draining) {
                self.amqp.drained(link);
            }
            return;
        }
        browser.is_asked = true;
        let (entity, number) = (browser.entity.clone(), browser.number);
        let path = entity.path().into();
        let count_max = credit.min(COUNT_MAX);
        let permit = self.engine.budget.try_take(peeked_bytes(count_max)).map(Arc::new);
        // Without room for more it looks at one at a time, and needs none: so much each link has.
        let count_max = if permit.is_some() { count_max } else { 1 };
        let command = Command::Peek { from: browser.next, count_max };
        let slot = self.engine.links.ask_of(path, 0, permit, Expect::Seen { number });
        self.engine.links.submit_to(&entity, command, correlation(slot, 0));
    }

    /// What there is to see.
    pub(in crate::server) fn seen(
        &mut self,
        number: u32,
        path: &str,
        result: Result<Outcome, Rejection>,
    ) {
        let link = self.numbering.numbers.get(&number);
        let node = link.and_then(|link| self.nodes.get_mut(link));
        let Some(Node::Browser(browser)) = node else { return };
        browser.is_asked = false;
        let messages = match result {
            Ok(Outcome::Peeked(messages)) => messages,
            Ok(_) => return self.stopped(number, path, Rejection::internal("unexpected answer")),
            Err(reason) => return self.stopped(number, path, reason),
        };
        browser.is_at_end = messages.is_empty();
        for message in messages {
            let sequence = message.facts.sequence.0;
            let tag = DeliveryTag::new(&sequence.to_be_bytes());
            let (Some(payload), Some(tag)) = (encoded(&message, Shown::Peeked), tag) else {
                return self.stopped(number, path, unreadable());
            };
            browser.next = SequenceNumber(sequence.saturating_add(1));
            let delivery = Delivery { tag, settled: true, payload };
            self.engine.account.hold(bytes_of(&delivery));
            browser.waiting.push_back(delivery);
        }
    }

    /// Sends what waits, as far as there is credit.
    pub(in crate::server) fn pump_browser(&mut self, link: LinkId) {
        let Some(Node::Browser(browser)) = self.nodes.get_mut(&link) else { return };
        loop {
            if browser.sending_bytes > 0 && self.amqp.is_sent(link) {
                self.engine.account.release(std::mem::take(&mut browser.sending_bytes));
            }
            if !self.amqp.can_send_settled(link) {
                break;
            }
            let Some(delivery) = browser.waiting.pop_front() else { break };
            browser.sending_bytes = bytes_of(&delivery);
            if self.amqp.send(link, delivery).is_err() {
                break;
            }
        }
        self.look(link);
    }
}

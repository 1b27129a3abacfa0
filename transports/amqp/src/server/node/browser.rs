//! A queue, subscription or sub-queue that a client browses (AMQP-99): messages are sent settled,
//! and stay in the entity.
//!
//! A browser gets the same messages as a peek (PEK-03), and continues after the last one. It sends
//! one peek at a time, when there is credit and nothing waits. A drain ends when there are no more
//! messages. It has a link of its entity without deliveries, which reports that the entity was
//! deleted or that the client lost its right (AMQP-79).

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
use peeklock_link::LinkRole;
use peeklock_link::pending::correlation;

use super::Node;
use crate::connection::LinkId;
use crate::error::AmqpError;
use crate::link::{Answer, Delivery};
use crate::performative::{Attach, DeliveryTag, SenderSettleMode};
use crate::server::conversation::Conversation;
use crate::server::deliver::{MessageForm, encoded};
use crate::server::error::not_offered;
use crate::server::queue_session::SessionRequest;
use crate::server::work::PendingAnswer;

/// Maximum number of messages per peek.
const COUNT_MAX: u32 = 64;
/// Expiry policy of a source that outlives its link, such as a durable subscription.
const NEVER: &str = "never";

/// A link on which a client browses.
pub(in crate::server) struct Browser {
    number: u32,
    entity: Entity,
    /// First message that was not peeked yet.
    next: SequenceNumber,
    /// Messages that were peeked and not sent.
    waiting: VecDeque<Delivery>,
    /// Account bytes of the message whose frames are being written.
    sending_bytes: u64,
    is_asked: bool,
    /// Whether the last peek found no more messages.
    is_at_end: bool,
    /// Whether the remaining credit is returned when there are no more messages.
    is_draining: bool,
}

impl Browser {
    pub(in crate::server) const fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether a message waits for the client's credit or windows.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Account bytes of its messages.
    pub(in crate::server) fn held_bytes(&self) -> u64 {
        self.sending_bytes + self.waiting.iter().map(bytes_of).sum::<u64>()
    }
}

fn bytes_of(delivery: &Delivery) -> u64 {
    delivery.payload.iter().map(|piece| piece.len() as u64).sum()
}

impl Conversation {
    /// Attaches a browser.
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
        if SessionRequest::of(attach)?.is_some() {
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
            LinkRole::Browser,
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

    /// Handles new credit of the client; there may be new messages by now.
    pub(super) fn browse(&mut self, link: LinkId, drain: bool) {
        if let Some(Node::Browser(browser)) = self.nodes.get_mut(&link) {
            browser.is_at_end = false;
            browser.is_draining = drain;
            self.peek_more(link);
        }
    }

    /// Peeks for more messages if there is credit and nothing waits; ends a drain when there are no
    /// more.
    fn peek_more(&mut self, link: LinkId) {
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
        // Without room for more, it peeks one message at a time. Each link has room for that,
        // without a permit.
        let count_max = if permit.is_some() { count_max } else { 1 };
        let command = Command::Peek { from: browser.next, count_max };
        let slot =
            self.engine.links.add_unlinked_request(path, 0, permit, PendingAnswer::Seen { number });
        self.engine.links.submit_to(&entity, command, correlation(slot, 0));
    }

    /// Handles the answer to a peek.
    pub(in crate::server) fn handle_peeked(
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
            let (Some(payload), Some(tag)) = (encoded(&message, MessageForm::Peeked), tag) else {
                return self.stopped(number, path, message.unreadable());
            };
            browser.next = SequenceNumber(sequence.saturating_add(1));
            let delivery = Delivery { tag, settled: true, payload };
            self.engine.account.hold(bytes_of(&delivery));
            browser.waiting.push_back(delivery);
        }
    }

    /// Sends waiting messages while there is credit.
    pub(in crate::server) fn send_to_browser(&mut self, link: LinkId) {
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
        self.peek_more(link);
    }
}

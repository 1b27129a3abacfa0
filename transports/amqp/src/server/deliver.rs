//! Deliveries of entities: encoding and sending them to the client (AMQP-54 to AMQP-57). A delivery
//! waits in the receiver of its link until credit, windows and the socket allow it.

use bytes::Bytes;
use peeklock_core::command::{MessageState, ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Content, Overlay};
use peeklock_core::time::{TimeSpan, Timestamp};

use super::conversation::Conversation;
use super::node::{LostSession, Node, WaitingDelivery, return_at};
use super::work::LockedDelivery;
use crate::connection::LinkId;
use crate::link::Delivery;
use crate::message::{NO_LOCK_MS, Stamps, encode};
use crate::performative::DeliveryTag;

/// Time for which a receive-and-delete link is kept after its session lock was lost.
const LOST_SESSION_KEPT_FOR: TimeSpan = TimeSpan::from_seconds(5);

/// Form in which a message is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// For a delivery.
    Delivered,
    /// For a peek: without a lock, even if the message is locked (PEK-05).
    Peeked,
    /// For a peek without the body.
    PeekedWithoutBody,
}

/// Encodes a message in consecutive pieces; `None` if its content is not loaded or cannot be read.
pub(super) fn encoded(message: &ReceivedMessage, form: MessageForm) -> Option<Vec<Bytes>> {
    let content = Content::parse(message.content.loaded()?.clone()).ok()?;
    let content = match form {
        MessageForm::Delivered | MessageForm::Peeked => content,
        MessageForm::PeekedWithoutBody => without_body(&content)?,
    };
    let overlays = message
        .overlays
        .iter()
        .map(|overlay| Some(Overlay::from_bytes(overlay.loaded()?.clone())))
        .collect::<Option<Vec<_>>>()?;
    let facts = &message.facts;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let stamps = Stamps {
        delivery_count: facts.delivery_count,
        time_to_live_ms: facts.time_to_live.and_then(|ttl| match u32::try_from(ttl.as_ms()) {
            Ok(ms) => Some(ms),
            // A longer time to live becomes the maximum, next to the exact instants (AMQ-19).
            Err(_) => facts.expires_at.filter(|at| !at.is_never()).map(|_| u32::MAX),
        }),
        expires_at_ms: facts.expires_at.filter(|at| !at.is_never()).map(Timestamp::unix_ms),
        sequence_number: number(facts.sequence.0),
        enqueued_sequence_number: match facts.enqueued_sequence.0 {
            0 => None,
            first => Some(number(first)),
        },
        enqueued_at_ms: facts.enqueued_at.unix_ms(),
        locked_until_ms: match form {
            MessageForm::Delivered => facts.lock.map(|lock| lock.until.unix_ms()),
            MessageForm::Peeked | MessageForm::PeekedWithoutBody => Some(NO_LOCK_MS),
        },
        state: match facts.state {
            // A message that was scheduled keeps that state (PEK-05). The protocol has no state for
            // Delayed (RTY-12).
            MessageState::Active | MessageState::Delayed if facts.was_scheduled => 2,
            MessageState::Active | MessageState::Delayed => 0,
            MessageState::Deferred => 1,
            MessageState::Scheduled => 2,
        },
        delayed_until_ms: facts.delayed_until.map(Timestamp::unix_ms),
        dead_letter_source: Overlay::dead_letter_source_of(overlays.iter()),
        // Some clients read it from here first, some only from here (AMQP-54, AMQP-93).
        lock_token: facts.lock.map(|lock| lock.token.0),
        is_delivered: form == MessageForm::Delivered,
    };
    Some(encode(&content, &overlays, &stamps))
}

/// Returns the sections before the body.
fn without_body(content: &Content) -> Option<Content> {
    let sections = content.sections();
    let left_out = sections.body.len() + sections.footer.len();
    let whole = content.as_bytes();
    Content::parse(whole.slice(..whole.len().checked_sub(left_out)?)).ok()
}

/// Converts a lock token to the byte order of .NET (AMQP-54).
fn tag(token: LockToken) -> [u8; 16] {
    swap_dotnet_bytes(token.0.to_be_bytes())
}

/// Returns the lock token in a delivery tag.
pub(super) fn token_of(tag: &DeliveryTag) -> Option<LockToken> {
    let bytes = <[u8; 16]>::try_from(tag.as_slice()).ok()?;
    Some(LockToken(u128::from_be_bytes(swap_dotnet_bytes(bytes))))
}

/// Converts between the byte orders of the standard and of .NET.
fn swap_dotnet_bytes(mut bytes: [u8; 16]) -> [u8; 16] {
    for part in [0..4, 4..6, 6..8] {
        if let Some(part) = bytes.get_mut(part) {
            part.reverse();
        }
    }
    bytes
}

impl Conversation {
    /// Queues a message for a link. It holds `held_bytes` bytes of the account.
    pub(super) fn deliver(&mut self, number: u32, message: ReceivedMessage, held_bytes: u64) {
        let lock = message.facts.lock;
        let deleted = self.outflow.lost.guard(u64::from(lock.is_none()));
        let payload = encoded(&message, MessageForm::Delivered);
        let is_lost = payload.is_none();
        // As long as the tag of a locked delivery, which some clients require (AMQP-55).
        let sequence = u128::from(message.facts.sequence.0).to_be_bytes();
        let tag = DeliveryTag::new(&lock.map_or(sequence, |lock| tag(lock.token)));
        let link = self.numbering.numbers.get(&number).copied();
        let node = link.and_then(|link| self.nodes.get_mut(&link));
        let (Some(payload), Some(tag), Some(Node::Receiver(receiver))) = (payload, tag, node)
        else {
            self.engine.account.release(held_bytes);
            let token = lock.map(|lock| lock.token);
            token.and_then(|token| self.engine.links.remove_settled(token));
            match is_lost {
                true => self.engine.links.abandon_lost(number, &message.facts),
                false => self.engine.links.release_messages(number, token),
            }
            if link.is_some() {
                self.engine.links.break_flow(number);
                self.stopped(number, "", message.undeliverable());
            }
            return;
        };
        let delivery = Delivery { tag, settled: lock.is_none(), payload };
        let bytes = u64::from(message.facts.size);
        let expires_at = message.facts.expires_at;
        let at = self.engine.links.get(number);
        let of_session = at.is_some_and(|at| at.session().is_some());
        let is_beyond = at.is_some_and(|at| receiver.exceeds_credit(at.last()));
        let return_at =
            lock.filter(|_| !of_session).map(|lock| return_at(lock, self.engine.broker.now()));
        receiver.waiting.push_back(WaitingDelivery {
            delivery,
            lock,
            deleted,
            expires_at,
            return_at,
            bytes,
            held_bytes,
        });
        if let (true, Some(link)) = (is_beyond, link) {
            // The client took back the credit for this message while it was in transit.
            self.give_back_excess(link);
        }
    }

    /// Sends waiting deliveries and replies while credit, windows and the socket allow.
    pub(super) fn send_on_links(&mut self) {
        // The list is reused, since this runs after every event.
        let mut links = std::mem::take(&mut self.sending_links);
        links
            .extend(self.nodes.iter().filter(|(_, node)| node.is_sent_on()).map(|(link, _)| *link));
        for link in links.drain(..) {
            match self.nodes.get(&link) {
                Some(Node::Receiver(_)) => self.send_waiting(link),
                Some(Node::Browser(_)) => self.send_to_browser(link),
                Some(Node::Replies(_)) => self.send_replies(link),
                _ => {}
            }
        }
        self.sending_links = links;
    }

    fn send_waiting(&mut self, link: LinkId) {
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        let number = receiver.number;
        let now = self.engine.broker.now();
        let of_session = self.engine.links.get(number).is_some_and(|at| at.session().is_some());
        let mut sent_any = false;
        loop {
            if receiver.held_bytes > 0 && self.amqp.is_sent(link) {
                self.engine.account.release(std::mem::take(&mut receiver.held_bytes));
                // If the link is detached, it is unknown whether all frames were written. The guard
                // is dropped, and the message counts as lost.
                let deleted =
                    receiver.deleted.take().filter(|_| self.amqp.is_sent_and_attached(link));
                self.outflow
                    .unflushed_deletions
                    .put(deleted, self.outflow.written_bytes + self.amqp.waiting_bytes() as u64);
            }
            let is_settled =
                receiver.waiting.front().is_some_and(|waiting| waiting.delivery.settled);
            let can_send = match is_settled {
                true => self.amqp.can_send_settled(link),
                false => self.amqp.can_send(link),
            };
            if !can_send {
                break;
            }
            receiver.is_paused = false;
            let Some(waiting) = receiver.waiting.pop_front() else { break };
            let WaitingDelivery { delivery, lock, deleted, expires_at, bytes, held_bytes, .. } =
                waiting;
            if let Some(lock) = lock.filter(|lock| !of_session && lock.until <= now) {
                // The message waited too long for the client's windows, and another client may
                // receive it now.
                receiver.return_credit();
                self.engine.account.release(held_bytes);
                self.engine.links.remove_settled(lock.token);
                self.engine.links.record_received_bytes(number, bytes);
                sent_any = true;
                continue;
            }
            let Ok(sent) = self.amqp.send(link, delivery) else { break };
            receiver.held_bytes = held_bytes;
            receiver.deleted = deleted;
            self.engine.links.record_received_bytes(number, bytes);
            sent_any = true;
            receiver.last_sent = lock.map(|lock| lock.token);
            if let (Some(lock), Some(at)) = (lock, self.engine.links.get(number)) {
                let entity = at.entity.clone();
                let (token, until) = (lock.token, lock.until);
                let sent =
                    LockedDelivery { id: sent, number, entity, of_session, until, expires_at };
                self.locked_deliveries.insert(token, sent);
            }
        }
        if sent_any {
            self.engine.links.update_limits(number);
        }
        if self.answer_drain_if_lapsed(link) {
            return;
        }
        self.return_late(link);
        self.return_large(link);
        self.extend_entity_limit(link);
        if matches!(self.nodes.get(&link), Some(Node::Receiver(receiver)) if receiver.waiting.is_empty())
        {
            self.go_on_draining(link);
        }
    }

    /// Detaches a link after its entity has ended deliveries; the client may attach it again.
    pub(super) fn stopped(&mut self, number: u32, path: &str, reason: Rejection) {
        let Some(link) = self.numbering.numbers.get(&number).copied() else { return };
        let removes = self
            .engine
            .links
            .get(number)
            .is_some_and(|at| at.mode == ReceiveMode::ReceiveAndDelete);
        if removes
            && reason.condition() == Condition::SessionLockLost
            && let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link)
            && receiver.lost_session.is_none()
        {
            // There is nothing to settle. A client that receives until the lock ends gets the end
            // of its drain instead of an error.
            let until = self.engine.broker.now().plus(LOST_SESSION_KEPT_FOR);
            receiver.lost_session = Some(LostSession { reason, path: path.into(), until });
            return;
        }
        let error = super::error::of_live_link(&self.engine.broker.refuse(reason, path));
        self.amqp.detach(link, Some(error));
        self.detach(link);
    }
}

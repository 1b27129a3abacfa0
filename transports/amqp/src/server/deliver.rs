//! What entities deliver, as clients are sent it (AMQP-54 to AMQP-57).

use bytes::Bytes;
use peeklock_core::command::{MessageState, ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Content, Overlay};
use peeklock_core::time::{TimeSpan, Timestamp};

use super::conversation::Conversation;
use super::node::{Lapse, Node, Waiting, return_at};
use super::work::Sent;
use crate::connection::LinkId;
use crate::link::Delivery;
use crate::message::{NO_LOCK_MS, Stamps, encode};
use crate::performative::DeliveryTag;

/// How long a link that receives for good is kept after the lock of its session has lapsed.
const LAPSED_FOR: TimeSpan = TimeSpan::from_seconds(5);

/// How a message is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// As it is delivered.
    Delivered,
    /// As a peek shows it: without a lock, whether it has one or not (PEK-05).
    Peeked,
    /// The same without its body.
    PeekedWithoutBody,
}

/// A message in pieces; none if it is not here or cannot be read.
pub(super) fn encoded(message: &ReceivedMessage, shown: Shown) -> Option<Vec<Bytes>> {
    let content = Content::parse(message.content.loaded()?.clone()).ok()?;
    let content = match shown {
        Shown::Delivered | Shown::Peeked => content,
        Shown::PeekedWithoutBody => without_body(&content)?,
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
            // What lives longer has the most, beside its instants (AMQ-19).
            Err(_) => facts.expires_at.filter(|at| !at.is_never()).map(|_| u32::MAX),
        }),
        expires_at_ms: facts.expires_at.filter(|at| !at.is_never()).map(Timestamp::unix_ms),
        sequence_number: number(facts.sequence.0),
        enqueued_sequence_number: match facts.enqueued_sequence.0 {
            0 => None,
            first => Some(number(first)),
        },
        enqueued_at_ms: facts.enqueued_at.unix_ms(),
        locked_until_ms: match shown {
            Shown::Delivered => facts.lock.map(|lock| lock.until.unix_ms()),
            Shown::Peeked | Shown::PeekedWithoutBody => Some(NO_LOCK_MS),
        },
        state: match facts.state {
            // A message that was scheduled keeps that state (PEK-05); the protocol has no state for Delayed (RTY-12).
            MessageState::Active | MessageState::Delayed if facts.was_scheduled => 2,
            MessageState::Active | MessageState::Delayed => 0,
            MessageState::Deferred => 1,
            MessageState::Scheduled => 2,
        },
        delayed_until_ms: facts.delayed_until.map(Timestamp::unix_ms),
        dead_letter_source: Overlay::source_of(overlays.iter()),
        // Some clients look for it here first, some only (AMQP-54, AMQP-93).
        lock_token: facts.lock.map(|lock| lock.token.0),
        is_delivered: shown == Shown::Delivered,
    };
    Some(encode(&content, &overlays, &stamps))
}

/// What is told where a message has no content that could be.
pub(super) fn unreadable() -> Rejection {
    Rejection::internal("the content of a message cannot be read")
}

/// What stands before the body.
fn without_body(content: &Content) -> Option<Content> {
    let sections = content.sections();
    let left_out = sections.body.len() + sections.footer.len();
    let whole = content.as_bytes();
    Content::parse(whole.slice(..whole.len().checked_sub(left_out)?)).ok()
}

/// A lock token in the byte order of .NET (AMQP-54).
fn tag(token: LockToken) -> [u8; 16] {
    turned(token.0.to_be_bytes())
}

/// The lock token that a tag says.
pub(super) fn token_of(tag: &DeliveryTag) -> Option<LockToken> {
    let bytes = <[u8; 16]>::try_from(tag.as_slice()).ok()?;
    Some(LockToken(u128::from_be_bytes(turned(bytes))))
}

/// From the order of the standard to that of .NET, and back.
fn turned(mut bytes: [u8; 16]) -> [u8; 16] {
    for part in [0..4, 4..6, 6..8] {
        if let Some(part) = bytes.get_mut(part) {
            part.reverse();
        }
    }
    bytes
}

impl Conversation {
    /// A message came for a link; it holds so much of the account.
    pub(super) fn deliver(&mut self, number: u32, message: ReceivedMessage, held_bytes: u64) {
        let lock = message.facts.lock;
        let removed = self.outflow.lost.unless_written(u64::from(lock.is_none()));
        let payload = encoded(&message, Shown::Delivered);
        let is_lost = payload.is_none();
        // As long as that of a lock, which some clients insist on (AMQP-55).
        let sequence = u128::from(message.facts.sequence.0).to_be_bytes();
        let tag = DeliveryTag::new(&lock.map_or(sequence, |lock| tag(lock.token)));
        let link = self.numbering.numbers.get(&number).copied();
        let node = link.and_then(|link| self.nodes.get_mut(&link));
        let (Some(payload), Some(tag), Some(Node::Outlet(outlet))) = (payload, tag, node) else {
            self.engine.account.release(held_bytes);
            let token = lock.map(|lock| lock.token);
            token.and_then(|token| self.engine.links.settled(token));
            match is_lost {
                true => self.engine.links.lose(number, &message.facts),
                false => self.engine.links.give_back(number, token),
            }
            if link.is_some() {
                self.engine.links.break_flow(number);
                self.stopped(number, "", unreadable());
            }
            return;
        };
        let delivery = Delivery { tag, settled: lock.is_none(), payload };
        let bytes = u64::from(message.facts.size);
        let expires_at = message.facts.expires_at;
        let at = self.engine.links.get(number);
        let of_session = at.is_some_and(|at| at.session().is_some());
        let is_beyond = at.is_some_and(|at| outlet.is_beyond(at.last()));
        let return_at =
            lock.filter(|_| !of_session).map(|lock| return_at(lock, self.engine.broker.now()));
        outlet.waiting.push_back(Waiting {
            delivery,
            lock,
            removed,
            expires_at,
            return_at,
            bytes,
            held_bytes,
        });
        if let (true, Some(link)) = (is_beyond, link) {
            // It was on its way when its client took the credit for it back.
            self.give_back_beyond(link);
        }
    }

    /// Sends what waits, as far as credit, windows and the socket allow.
    pub(super) fn pump(&mut self) {
        // Kept from turn to turn, since there is one for each thing that happens.
        let mut links = std::mem::take(&mut self.pumped);
        links
            .extend(self.nodes.iter().filter(|(_, node)| node.is_sent_on()).map(|(link, _)| *link));
        for link in links.drain(..) {
            match self.nodes.get(&link) {
                Some(Node::Outlet(_)) => self.pump_outlet(link),
                Some(Node::Browser(_)) => self.pump_browser(link),
                Some(Node::Replies(_)) => self.pump_replies(link),
                _ => {}
            }
        }
        self.pumped = links;
    }

    fn pump_outlet(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        let number = outlet.number;
        let now = self.engine.broker.now();
        let of_session = self.engine.links.get(number).is_some_and(|at| at.session().is_some());
        let mut sent_any = false;
        loop {
            if outlet.held_bytes > 0 && self.amqp.is_sent(link) {
                self.engine.account.release(std::mem::take(&mut outlet.held_bytes));
                // Of a link that is gone nobody knows how much was written.
                let removed = outlet.removed.take().filter(|_| self.amqp.has_sent(link));
                self.outflow
                    .leaving
                    .put(removed, self.outflow.taken_bytes + self.amqp.waiting_bytes() as u64);
            }
            let is_settled = outlet.waiting.front().is_some_and(|waiting| waiting.delivery.settled);
            let can_send = match is_settled {
                true => self.amqp.can_send_settled(link),
                false => self.amqp.can_send(link),
            };
            if !can_send {
                break;
            }
            outlet.is_held_up = false;
            let Some(waiting) = outlet.waiting.pop_front() else { break };
            let Waiting { delivery, lock, removed, expires_at, bytes, held_bytes, .. } = waiting;
            if let Some(lock) = lock.filter(|lock| !of_session && lock.until <= now) {
                // It has waited for the client's windows for too long, and is somebody else's to receive.
                outlet.passed_over();
                self.engine.account.release(held_bytes);
                self.engine.links.settled(lock.token);
                self.engine.links.taken(number, bytes);
                sent_any = true;
                continue;
            }
            let Ok(sent) = self.amqp.send(link, delivery) else { break };
            outlet.held_bytes = held_bytes;
            outlet.removed = removed;
            self.engine.links.taken(number, bytes);
            sent_any = true;
            outlet.last_sent = lock.map(|lock| lock.token);
            if let (Some(lock), Some(at)) = (lock, self.engine.links.get(number)) {
                let entity = at.entity.clone();
                let (token, until) = (lock.token, lock.until);
                let sent = Sent { id: sent, number, entity, of_session, until, expires_at };
                self.sent.insert(token, sent);
            }
        }
        if sent_any {
            self.engine.links.limit(number);
        }
        if self.rests_after_lapse(link) {
            return;
        }
        self.return_late(link);
        self.return_large(link);
        self.let_further(link);
        if matches!(self.nodes.get(&link), Some(Node::Outlet(outlet)) if outlet.waiting.is_empty())
        {
            self.go_on_draining(link);
        }
    }

    /// An entity delivers nothing more to a link: it is detached, and its client may attach it anew.
    pub(super) fn stopped(&mut self, number: u32, path: &str, reason: Rejection) {
        let Some(link) = self.numbering.numbers.get(&number).copied() else { return };
        let removes = self
            .engine
            .links
            .get(number)
            .is_some_and(|at| at.mode == ReceiveMode::ReceiveAndDelete);
        if removes
            && reason.condition() == Condition::SessionLockLost
            && let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link)
            && outlet.lapsed.is_none()
        {
            // There is nothing to settle. Who waits as long as the lock lasts is told that there is nothing more.
            let until = self.engine.broker.now().plus(LAPSED_FOR);
            outlet.lapsed = Some(Lapse { reason, path: path.into(), until });
            return;
        }
        let error = super::error::of_live_link(&self.engine.broker.refuse(reason, path));
        self.amqp.detach(link, Some(error));
        self.detach(link);
    }
}

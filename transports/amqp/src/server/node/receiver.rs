//! A queue, subscription or sub-queue from which a client receives (AMQP-48 to AMQP-59): credit,
//! drain, and deliveries that the client does not take. The entity may deliver at most as much as
//! credit and window allow.

use std::collections::VecDeque;
use std::time::Instant;

use peeklock_core::Broker;
use peeklock_core::admission::Account;
use peeklock_core::command::LockGrant;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_link::Links;

use super::Node;
use crate::connection::LinkId;
use crate::link::{Answer, Delivery};
use crate::server::conversation::Conversation;
use crate::server::deleted::DeletedMessages;
use crate::server::queue_session::SessionRequest;
use crate::server::work::LinkRequest;

/// A link on which a client receives.
pub(in crate::server) struct ReceiverNode {
    pub(in crate::server) number: u32,
    /// Name of the link, which requests use.
    pub(in crate::server) name: Box<str>,
    /// Answer to the `attach`, until it is sent.
    pub(in crate::server) answer: Option<Answer>,
    /// Requested session, until it is locked.
    pub(in crate::server) session_request: Option<SessionRequest>,
    /// Deliveries that arrived and were not sent.
    pub(in crate::server) waiting: VecDeque<WaitingDelivery>,
    /// Account bytes of the delivery whose frames are being written.
    pub(in crate::server) held_bytes: u64,
    /// Guard of that delivery if it was deleted on receipt.
    pub(in crate::server) deleted: Option<DeletedMessages>,
    /// Number of the last delivery that the client's credit allows. It does not wrap, unlike the
    /// numbers on the wire (AMQP-09).
    client_limit: u64,
    /// Number of the last delivery that the entity may send.
    entity_limit: u64,
    drain: Drain,
    /// Whether waiting deliveries were given back. No more are requested until something can be
    /// sent.
    pub(in crate::server) is_paused: bool,
    /// Lock of the last locked delivery that was sent.
    pub(in crate::server) last_sent: Option<LockToken>,
    /// Set while the link has a large message: number of unsent bytes of the delivery that is being
    /// written, and the time at which this number last changed.
    stalled_large: Option<(usize, Instant)>,
    /// Set when the session lock is lost, until the link is detached for that reason.
    pub(in crate::server) lost_session: Option<LostSession>,
}

/// The lost session lock of a receive-and-delete link.
pub(in crate::server) struct LostSession {
    pub(in crate::server) reason: Rejection,
    pub(in crate::server) path: Box<str>,
    /// Time at which the link is detached, unless the client grants new credit before.
    pub(in crate::server) until: Timestamp,
}

/// State of a drain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drain {
    No,
    /// The entity was asked after this number of deliveries.
    Requested(u64),
    /// The entity must be asked again as soon as deliveries can be sent. Either it was not asked
    /// because nothing could be sent, or it delivered some and may have more, or its limit allowed
    /// it no delivery.
    Retry,
    /// There are no more deliveries; the client gets the answer after the waiting ones.
    Done,
}

/// Maximum number of deliveries of a link that are requested from the entity and not sent yet. It
/// bounds their memory if the client grants much credit.
const AHEAD_MAX: u64 = 1_024;

/// An unsent delivery is given back this long before its lock ends. If the lock is short, it is
/// given back when a quarter of the time is left that remained at its arrival.
const RETURN_BEFORE: TimeSpan = TimeSpan::from_seconds(2);

/// Returns the time at which a delivery that arrives now is given back if it cannot be sent. It is
/// before the end of the lock, which would count a delivery that nobody was sent (RCV-14).
pub(in crate::server) fn return_at(lock: LockGrant, now: Timestamp) -> Timestamp {
    lock.until.minus(RETURN_BEFORE.min(lock.until.since(now).divided_by(4)))
}

/// A delivery that was not sent.
pub(in crate::server) struct WaitingDelivery {
    pub(in crate::server) delivery: Delivery,
    pub(in crate::server) lock: Option<LockGrant>,
    /// Guard of the message, if it was deleted on receipt.
    pub(in crate::server) deleted: Option<DeletedMessages>,
    /// Expiry of the message.
    pub(in crate::server) expires_at: Option<Timestamp>,
    /// Time at which an unsent delivery is given back; `None` for a session lock.
    pub(in crate::server) return_at: Option<Timestamp>,
    /// Bytes that the delivery takes of the window of its link.
    pub(in crate::server) bytes: u64,
    /// Account bytes of the delivery.
    pub(in crate::server) held_bytes: u64,
}

impl ReceiverNode {
    pub(in crate::server) const fn new(number: u32, name: Box<str>, answer: Answer) -> Self {
        Self {
            number,
            name,
            answer: Some(answer),
            session_request: None,
            waiting: VecDeque::new(),
            held_bytes: 0,
            deleted: None,
            client_limit: 0,
            entity_limit: 0,
            drain: Drain::No,
            is_paused: false,
            last_sent: None,
            stalled_large: None,
            lost_session: None,
        }
    }

    /// Returns the last delivery that the entity may send after `sent` deliveries. It is within the
    /// client's credit, and at most `window` frames ahead, since further deliveries would be locked
    /// for nobody (RCV-14).
    fn allowed_up_to(&self, sent: u64, window: u32) -> u64 {
        let ahead = if self.is_paused { 0 } else { AHEAD_MAX.min(window.into()) };
        self.client_limit.min(sent.saturating_add(ahead))
    }

    /// Returns whether it holds a large message, of which only a single one is in memory at a time.
    fn has_large(&self) -> bool {
        self.held_bytes > Account::LARGE_BYTES
            || self.waiting.iter().any(|waiting| waiting.held_bytes > Account::LARGE_BYTES)
    }

    /// Time at which the first waiting delivery is given back.
    pub(in crate::server) fn return_at(&self) -> Option<Timestamp> {
        self.waiting.front()?.return_at
    }

    /// Returns whether delivery number `last` exceeds the client's credit.
    pub(in crate::server) const fn exceeds_credit(&self, last: u64) -> bool {
        last > self.client_limit
    }

    /// Returns the credit of a delivery that was allowed but not sent.
    pub(in crate::server) const fn return_credit(&mut self) {
        self.client_limit = self.client_limit.saturating_add(1);
    }
}

impl Conversation {
    /// Handles new credit of the client (AMQP-50).
    pub(in crate::server) fn credited(&mut self, link: LinkId, drain: bool) {
        // The current credit: some may be used up since the client sent the flow.
        let credit = self.amqp.credit(link);
        if self.has_lost_session(link) {
            // A drain is answered once no delivery waits any more.
            if credit > 0 && !drain {
                self.end_lost_session(link);
            }
            return;
        }
        match self.nodes.get_mut(&link) {
            Some(Node::Receiver(receiver)) => {
                let sent = sent(receiver, &self.engine.links);
                // Waiting deliveries use up this credit too.
                receiver.client_limit = sent.saturating_add(u64::from(credit));
                receiver.entity_limit = receiver.allowed_up_to(sent, self.amqp.window(link));
                let (number, up_to) = (receiver.number, receiver.entity_limit);
                self.engine.links.credit(number, up_to);
                self.give_back_excess(link);
                if drain {
                    self.drain(link);
                }
            }
            Some(Node::Browser(_)) => self.browse(link, drain),
            // No reply is available immediately.
            Some(Node::Replies(_)) if drain => self.amqp.drained(link),
            _ => {}
        }
    }

    /// If the session lock of a link is lost, answers a drain once no delivery waits any more,
    /// since no further ones arrive. Returns whether the lock is lost.
    pub(in crate::server) fn answer_drain_if_lapsed(&mut self, link: LinkId) -> bool {
        let Some(Node::Receiver(receiver)) = self.nodes.get(&link) else { return false };
        if receiver.lost_session.is_none() {
            return false;
        }
        if receiver.waiting.is_empty() && self.amqp.is_sent(link) {
            self.amqp.drained(link);
        }
        true
    }

    /// Returns whether the session lock of a link is lost and the link is still kept.
    fn has_lost_session(&self, link: LinkId) -> bool {
        matches!(self.nodes.get(&link), Some(Node::Receiver(receiver)) if receiver.lost_session.is_some())
    }

    /// Detaches a link whose session lock is lost.
    fn end_lost_session(&mut self, link: LinkId) {
        let Some(Node::Receiver(receiver)) = self.nodes.get(&link) else { return };
        let number = receiver.number;
        if let Some(LostSession { reason, path, .. }) = &receiver.lost_session {
            let (reason, path) = (reason.clone(), path.clone());
            self.stopped(number, &path, reason);
        }
    }

    /// Detaches links whose session lock is lost and whose clients granted no new credit in time.
    pub(in crate::server) fn end_lapses(&mut self) {
        let now = self.engine.broker.now();
        let is_due = |receiver: &ReceiverNode| {
            receiver.lost_session.as_ref().is_some_and(|it| it.until <= now)
        };
        let due: Vec<LinkId> = self
            .nodes
            .iter()
            .filter(|(_, node)| matches!(node, Node::Receiver(receiver) if is_due(receiver)))
            .map(|(link, _)| *link)
            .collect();
        due.into_iter().for_each(|link| self.end_lost_session(link));
    }

    /// Allows the entity more deliveries when half of the possible ones were sent, or all that were
    /// allowed.
    pub(in crate::server) fn extend_entity_limit(&mut self, link: LinkId) {
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        if receiver.entity_limit >= receiver.client_limit {
            return;
        }
        let sent = sent(receiver, &self.engine.links);
        let up_to = receiver.allowed_up_to(sent, self.amqp.window(link));
        let more = up_to.saturating_sub(receiver.entity_limit);
        let is_used_up = up_to == receiver.client_limit || receiver.entity_limit <= sent;
        if more >= AHEAD_MAX / 2 || (more > 0 && is_used_up) {
            receiver.entity_limit = up_to;
            let number = receiver.number;
            self.engine.links.credit(number, up_to);
        }
    }

    fn drain(&mut self, link: LinkId) {
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        if matches!(receiver.drain, Drain::Requested(_)) {
            // The answer to the running drain also answers this one.
            return;
        }
        if receiver.is_paused || self.amqp.window(link) == 0 {
            // Deliveries could not be sent now: they are requested later.
            receiver.drain = Drain::Retry;
            return;
        }
        let number = receiver.number;
        let last = self.engine.links.get(number).map_or(0, peeklock_link::Link::last);
        receiver.drain = Drain::Requested(last);
        let id = self.add_link_request(LinkRequest::Drain(link));
        if !matches!(self.engine.links.drain(number, id, None), Ok(None)) {
            self.numbering.link_requests.remove(&id);
            self.drained(link);
        }
    }

    /// Handles the end of a drain at the entity, which may have sent less than available for lack
    /// of room.
    pub(in crate::server) fn drained(&mut self, link: LinkId) {
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        let last = self.engine.links.get(receiver.number).map_or(0, peeklock_link::Link::last);
        receiver.drain = match receiver.drain {
            // The client still has credit. Either the entity delivered some and may have more, or
            // it was allowed none because `AHEAD_MAX` unsent deliveries were waiting.
            Drain::Requested(before)
                if last < receiver.client_limit
                    && (last > before || receiver.entity_limit <= before) =>
            {
                Drain::Retry
            }
            _ => Drain::Done,
        };
    }

    /// Continues or ends a drain after all waiting deliveries were sent.
    pub(in crate::server) fn go_on_draining(&mut self, link: LinkId) {
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        match receiver.drain {
            // The answer follows the last frame of the last delivery: the client expects none after
            // it.
            Drain::Done if !self.amqp.is_sent(link) => {}
            Drain::Done => {
                receiver.drain = Drain::No;
                self.amqp.drained(link);
                // The entity has dropped all credit. The client may have ended the drain meanwhile
                // with a new grant of credit, which still counts. So both limits are set again.
                let sent = sent(receiver, &self.engine.links);
                receiver.client_limit = sent.saturating_add(u64::from(self.amqp.credit(link)));
                receiver.entity_limit = receiver.allowed_up_to(sent, self.amqp.window(link));
                let (number, up_to) = (receiver.number, receiver.entity_limit);
                self.engine.links.credit(number, up_to);
            }
            Drain::Retry if receiver.is_paused || self.amqp.window(link) == 0 => {}
            Drain::Retry => {
                receiver.drain = Drain::No;
                let sent = sent(receiver, &self.engine.links);
                receiver.entity_limit = receiver.allowed_up_to(sent, self.amqp.window(link));
                let (number, up_to) = (receiver.number, receiver.entity_limit);
                self.engine.links.credit(number, up_to);
                self.drain(link);
            }
            Drain::No | Drain::Requested(_) => {}
        }
    }

    /// Gives back deliveries whose locks are about to end, and requests no more until something can
    /// be sent.
    pub(in crate::server) fn return_late(&mut self, link: LinkId) {
        let now = self.engine.broker.now();
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        let mut tokens = Vec::new();
        while receiver.return_at().is_some_and(|at| at <= now) {
            let Some(waiting) = receiver.waiting.pop_front() else { break };
            receiver.return_credit();
            self.engine.account.release(waiting.held_bytes);
            self.engine.links.record_received_bytes(receiver.number, waiting.bytes);
            tokens.extend(waiting.lock.map(|lock| lock.token));
        }
        if !tokens.is_empty() {
            self.pause(link, &tokens);
        }
    }

    /// Gives back deliveries whose credit the client has taken back, since they would stay hidden
    /// from other receivers until their locks end (AMQP-50). Deliveries in receive-and-delete mode
    /// cannot be given back.
    pub(in crate::server) fn give_back_excess(&mut self, link: LinkId) {
        let credit = usize::try_from(self.amqp.credit(link)).unwrap_or(usize::MAX);
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        let mut tokens = Vec::new();
        while receiver.waiting.len() > credit
            && let Some(waiting) = receiver.waiting.pop_back_if(|waiting| waiting.lock.is_some())
        {
            receiver.return_credit();
            self.engine.account.release(waiting.held_bytes);
            self.engine.links.record_received_bytes(receiver.number, waiting.bytes);
            tokens.extend(waiting.lock.map(|lock| lock.token));
        }
        if tokens.is_empty() {
            return;
        }
        // First, or they would be delivered again.
        receiver.entity_limit = receiver.client_limit;
        let (number, up_to) = (receiver.number, receiver.entity_limit);
        self.engine.links.credit(number, up_to);
        for token in &tokens {
            self.engine.links.remove_settled(*token);
        }
        self.engine.links.release_messages(number, tokens);
        self.engine.links.submit_groups();
    }

    /// Gives back a large message if the client has read no byte for the write timeout, since no
    /// other client gets a large message meanwhile. A partly sent one is aborted, and deliveries
    /// after it are given back too. Deliveries in receive-and-delete mode cannot be given back.
    pub(in crate::server) fn return_large(&mut self, link: LinkId) {
        let is_large = self.engine.account.large().is_some();
        let write_timeout = self.listener.config.write_timeout;
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        if !is_large || !receiver.has_large() {
            receiver.stalled_large = None;
            return;
        }
        let (left, now) = (self.amqp.unsent_bytes(link), Instant::now());
        let since = match receiver.stalled_large {
            Some((before, since)) if before == left => since,
            _ => now,
        };
        receiver.stalled_large = Some((left, since));
        if now.duration_since(since) < write_timeout {
            return;
        }
        let mut tokens = Vec::new();
        if receiver.held_bytes > Account::LARGE_BYTES {
            let begun =
                receiver.last_sent.filter(|token| self.locked_deliveries.remove(token).is_some());
            let Some(token) = begun else { return };
            self.amqp.abort(link);
            self.engine.account.release(std::mem::take(&mut receiver.held_bytes));
            tokens.push(token);
        }
        while let Some(waiting) = receiver.waiting.pop_front() {
            let Some(lock) = waiting.lock else {
                receiver.waiting.push_front(waiting);
                break;
            };
            receiver.return_credit();
            self.engine.account.release(waiting.held_bytes);
            self.engine.links.record_received_bytes(receiver.number, waiting.bytes);
            tokens.push(lock.token);
        }
        if !tokens.is_empty() {
            receiver.stalled_large = None;
            tracing::debug!("a large message is released because its client does not read it");
            self.pause(link, &tokens);
        }
    }

    /// Time at which a large message is given back if its client reads no byte until then.
    pub(in crate::server) fn large_due(&self) -> Option<Instant> {
        let stalled = self.nodes.values().filter_map(|node| match node {
            Node::Receiver(receiver) => receiver.stalled_large,
            _ => None,
        });
        let now = Instant::now();
        let due = stalled.map(|(_, since)| since + self.listener.config.write_timeout);
        // A time in the past was already handled, and that message cannot be given back.
        due.filter(|due| *due > now).min()
    }

    /// Gives deliveries back that cannot be sent, and requests no more until something can be sent.
    fn pause(&mut self, link: LinkId, tokens: &[LockToken]) {
        let Some(Node::Receiver(receiver)) = self.nodes.get_mut(&link) else { return };
        receiver.is_paused = true;
        receiver.entity_limit = sent(receiver, &self.engine.links);
        let (number, up_to) = (receiver.number, receiver.entity_limit);
        // First, or they would be delivered again.
        self.engine.links.credit(number, up_to);
        for token in tokens {
            self.engine.links.remove_settled(*token);
        }
        self.engine.links.release_messages(number, tokens.iter().copied());
        self.engine.links.submit_groups();
    }

    /// Gives back unsent deliveries (RCV-14). Deleted ones are lost.
    pub(in crate::server) fn give_back(&mut self, receiver: ReceiverNode) {
        self.engine.account.release(receiver.held_bytes);
        for waiting in receiver.waiting {
            self.engine.account.release(waiting.held_bytes);
            if let Some(lock) = waiting.lock {
                self.engine.links.remove_settled(lock.token);
                self.engine.links.release_messages(receiver.number, [lock.token]);
            }
        }
    }
}

/// Number of deliveries of a link that were sent.
fn sent<T>(receiver: &ReceiverNode, links: &Links<Broker, T>) -> u64 {
    let waiting = receiver.waiting.len() as u64;
    links.get(receiver.number).map_or(0, peeklock_link::Link::last).saturating_sub(waiting)
}

//! A queue, subscription or sub-queue from which a client receives (AMQP-48 to AMQP-59).

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
use crate::server::removed::Removed;
use crate::server::session::Wanted;
use crate::server::work::Asked;

/// A link on which a client receives.
pub(in crate::server) struct Outlet {
    pub(in crate::server) number: u32,
    /// Its name, by which requests name it.
    pub(in crate::server) name: Box<str>,
    /// What the `attach` is answered with, until it is.
    pub(in crate::server) answer: Option<Answer>,
    /// What it has asked for of a session, until it has one.
    pub(in crate::server) wanted: Option<Wanted>,
    /// Messages that came and were not sent.
    pub(in crate::server) waiting: VecDeque<Waiting>,
    /// What the message holds of the account of which not all frames are written.
    pub(in crate::server) held_bytes: u64,
    /// The same message, if it is stored nowhere any more.
    pub(in crate::server) removed: Option<Removed>,
    /// How far the client lets it be sent, and how far its entity was told: counted on, where numbers on the wire go
    /// round (AMQP-09).
    up_to: u64,
    let_up_to: u64,
    drain: Drain,
    /// Whether what waited was given back: nothing more is asked for until something can be sent.
    pub(in crate::server) is_held_up: bool,
    /// The lock of the last that was sent under one.
    pub(in crate::server) last_sent: Option<LockToken>,
    /// How much is left of a large message that it holds, and since when it is as much.
    still: Option<(usize, Instant)>,
    /// That the lock of its session has lapsed, until the link is detached for that.
    pub(in crate::server) lapsed: Option<Lapse>,
}

/// The lapsed lock of a session from which a link receives for good.
pub(in crate::server) struct Lapse {
    pub(in crate::server) reason: Rejection,
    pub(in crate::server) path: Box<str>,
    /// When the link is detached, unless its client asks for more before.
    pub(in crate::server) until: Timestamp,
}

/// What becomes of credit that is to be given back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drain {
    No,
    /// Its entity is asked, behind so many deliveries.
    Asked(u64),
    /// There was something: there may be more, for which there was no room.
    Again,
    /// There is nothing more; it is told behind what waits.
    Done,
}

/// Deliveries of one link that are asked for and not sent, whatever its credit: they take memory.
const AHEAD_MAX: u64 = 1_024;

/// How long before its lock ends a message is given back that could not be sent, at most: a quarter of what was left
/// of the lock, where that is less.
const RETURN_BEFORE: TimeSpan = TimeSpan::from_seconds(2);

/// When a message is given back that comes now, and cannot be sent: before its lock ends, which would count a
/// delivery that nobody was sent (RCV-14).
pub(in crate::server) fn return_at(lock: LockGrant, now: Timestamp) -> Timestamp {
    lock.until.minus(RETURN_BEFORE.min(lock.until.since(now).divided_by(4)))
}

/// A message that was not sent.
pub(in crate::server) struct Waiting {
    pub(in crate::server) delivery: Delivery,
    pub(in crate::server) lock: Option<LockGrant>,
    /// Itself, if it has no lock: it is stored nowhere any more.
    pub(in crate::server) removed: Option<Removed>,
    /// When the message expires.
    pub(in crate::server) expires_at: Option<Timestamp>,
    /// When it is given back if it was not sent; never, if its lock is that of a session.
    pub(in crate::server) return_at: Option<Timestamp>,
    /// What it counts for at its link.
    pub(in crate::server) bytes: u64,
    /// What it holds of the account.
    pub(in crate::server) held_bytes: u64,
}

impl Outlet {
    pub(in crate::server) const fn new(number: u32, name: Box<str>, answer: Answer) -> Self {
        Self {
            number,
            name,
            answer: Some(answer),
            wanted: None,
            waiting: VecDeque::new(),
            held_bytes: 0,
            removed: None,
            up_to: 0,
            let_up_to: 0,
            drain: Drain::No,
            is_held_up: false,
            last_sent: None,
            still: None,
            lapsed: None,
        }
    }

    /// How far its entity may send, when so many deliveries were sent: within the client's credit, and no more ahead
    /// than so many frames that the client takes. What is beyond would be locked for nobody (RCV-14).
    fn within(&self, sent: u64, window: u32) -> u64 {
        let ahead = if self.is_held_up { 0 } else { AHEAD_MAX.min(window.into()) };
        self.up_to.min(sent.saturating_add(ahead))
    }

    /// Whether it holds a message of which only one is in memory at a time.
    fn has_large(&self) -> bool {
        self.held_bytes > Account::LARGE_BYTES
            || self.waiting.iter().any(|waiting| waiting.held_bytes > Account::LARGE_BYTES)
    }

    /// When the first of what waits is to be given back.
    pub(in crate::server) fn return_at(&self) -> Option<Timestamp> {
        self.waiting.front()?.return_at
    }

    /// Whether the last of so many deliveries is more than the client lets be sent.
    pub(in crate::server) const fn is_beyond(&self, last: u64) -> bool {
        last > self.up_to
    }

    /// Something that was let be sent was not: it has used none of the client's credit.
    pub(in crate::server) const fn passed_over(&mut self) {
        self.up_to = self.up_to.saturating_add(1);
    }
}

impl Conversation {
    /// A client has said how much more it takes (AMQP-50).
    pub(in crate::server) fn credited(&mut self, link: LinkId, drain: bool) {
        // As much as is left now: some of it may have been used since the client said so.
        let credit = self.amqp.credit(link);
        if self.has_lapsed(link) {
            // A drain is answered where nothing waits any more.
            if credit > 0 && !drain {
                self.end_lapse(link);
            }
            return;
        }
        match self.nodes.get_mut(&link) {
            Some(Node::Outlet(outlet)) => {
                let sent = sent(outlet, &self.engine.links);
                // What waits here is of this credit.
                outlet.up_to = sent.saturating_add(u64::from(credit));
                outlet.let_up_to = outlet.within(sent, self.amqp.window(link));
                let (number, up_to) = (outlet.number, outlet.let_up_to);
                self.engine.links.credit(number, up_to);
                self.give_back_beyond(link);
                if drain {
                    self.drain(link);
                }
            }
            Some(Node::Browser(_)) => self.browse(link, drain),
            // There is nothing that could be said at once.
            Some(Node::Replies(_)) if drain => self.amqp.drained(link),
            _ => {}
        }
    }

    /// Whether a link has nothing more to receive, since the lock of its session has lapsed: a drain is over then.
    pub(in crate::server) fn rests_after_lapse(&mut self, link: LinkId) -> bool {
        let Some(Node::Outlet(outlet)) = self.nodes.get(&link) else { return false };
        if outlet.lapsed.is_none() {
            return false;
        }
        if outlet.waiting.is_empty() && self.amqp.is_sent(link) {
            self.amqp.drained(link);
        }
        true
    }

    /// Whether the lock of its session has lapsed for a link that is kept.
    fn has_lapsed(&self, link: LinkId) -> bool {
        matches!(self.nodes.get(&link), Some(Node::Outlet(outlet)) if outlet.lapsed.is_some())
    }

    /// Detaches a link since the lock of its session has lapsed.
    fn end_lapse(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get(&link) else { return };
        let number = outlet.number;
        if let Some(Lapse { reason, path, .. }) = &outlet.lapsed {
            let (reason, path) = (reason.clone(), path.clone());
            self.stopped(number, &path, reason);
        }
    }

    /// Detaches the links whose clients have asked for nothing since the lock of their session has lapsed.
    pub(in crate::server) fn end_lapses(&mut self) {
        let now = self.engine.broker.now();
        let is_due = |outlet: &Outlet| outlet.lapsed.as_ref().is_some_and(|it| it.until <= now);
        let due: Vec<LinkId> = self
            .nodes
            .iter()
            .filter(|(_, node)| matches!(node, Node::Outlet(outlet) if is_due(outlet)))
            .map(|(link, _)| *link)
            .collect();
        due.into_iter().for_each(|link| self.end_lapse(link));
    }

    /// Lets an entity send further when half of what it may be let send was sent, or all that it was let.
    pub(in crate::server) fn let_further(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        if outlet.let_up_to >= outlet.up_to {
            return;
        }
        let sent = sent(outlet, &self.engine.links);
        let up_to = outlet.within(sent, self.amqp.window(link));
        let more = up_to.saturating_sub(outlet.let_up_to);
        let is_used_up = up_to == outlet.up_to || outlet.let_up_to <= sent;
        if more >= AHEAD_MAX / 2 || (more > 0 && is_used_up) {
            outlet.let_up_to = up_to;
            let number = outlet.number;
            self.engine.links.credit(number, up_to);
        }
    }

    fn drain(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        if matches!(outlet.drain, Drain::Asked(_)) {
            // Its answer answers this one, too.
            return;
        }
        if outlet.is_held_up || self.amqp.window(link) == 0 {
            // What there is could not be sent: it is asked for when it can.
            outlet.drain = Drain::Again;
            return;
        }
        let number = outlet.number;
        let last = self.engine.links.get(number).map_or(0, peeklock_link::Link::last);
        outlet.drain = Drain::Asked(last);
        let id = self.ask(Asked::Drain(link));
        if !matches!(self.engine.links.drain(number, id, None), Ok(None)) {
            self.numbering.asked.remove(&id);
            self.drained(link);
        }
    }

    /// An entity has sent what it could of a drain. What it has sent may have been all that there was room for.
    pub(in crate::server) fn drained(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        let last = self.engine.links.get(outlet.number).map_or(0, peeklock_link::Link::last);
        outlet.drain = match outlet.drain {
            // Or it was let send nothing, since as much waited as the client takes.
            Drain::Asked(before)
                if last < outlet.up_to && (last > before || outlet.let_up_to <= before) =>
            {
                Drain::Again
            }
            _ => Drain::Done,
        };
    }

    /// Everything was sent that waited: a drain is over, or goes on.
    pub(in crate::server) fn go_on_draining(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        match outlet.drain {
            // Behind the last frame of what was sent: who drains expects nothing after it.
            Drain::Done if !self.amqp.is_sent(link) => {}
            Drain::Done => {
                outlet.drain = Drain::No;
                self.amqp.drained(link);
                // Its entity has forgotten all of it, and the client only what it had granted before it took the
                // drain back.
                let sent = sent(outlet, &self.engine.links);
                outlet.up_to = sent.saturating_add(u64::from(self.amqp.credit(link)));
                outlet.let_up_to = outlet.within(sent, self.amqp.window(link));
                let (number, up_to) = (outlet.number, outlet.let_up_to);
                self.engine.links.credit(number, up_to);
            }
            Drain::Again if outlet.is_held_up || self.amqp.window(link) == 0 => {}
            Drain::Again => {
                outlet.drain = Drain::No;
                let sent = sent(outlet, &self.engine.links);
                outlet.let_up_to = outlet.within(sent, self.amqp.window(link));
                let (number, up_to) = (outlet.number, outlet.let_up_to);
                self.engine.links.credit(number, up_to);
                self.drain(link);
            }
            Drain::No | Drain::Asked(_) => {}
        }
    }

    /// Gives back what has waited nearly as long as its lock lasts, and asks for nothing more until something can be
    /// sent.
    pub(in crate::server) fn return_late(&mut self, link: LinkId) {
        let now = self.engine.broker.now();
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        let mut tokens = Vec::new();
        while outlet.return_at().is_some_and(|at| at <= now) {
            let Some(waiting) = outlet.waiting.pop_front() else { break };
            outlet.passed_over();
            self.engine.account.release(waiting.held_bytes);
            self.engine.links.taken(outlet.number, waiting.bytes);
            tokens.extend(waiting.lock.map(|lock| lock.token));
        }
        if !tokens.is_empty() {
            self.hold_up(link, &tokens);
        }
    }

    /// Gives back what came for credit that its client has taken back since, which would be hidden from others until
    /// its lock ends (AMQP-50). What is received for good cannot be given back.
    pub(in crate::server) fn give_back_beyond(&mut self, link: LinkId) {
        let credit = usize::try_from(self.amqp.credit(link)).unwrap_or(usize::MAX);
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        let mut tokens = Vec::new();
        while outlet.waiting.len() > credit
            && let Some(waiting) = outlet.waiting.pop_back_if(|waiting| waiting.lock.is_some())
        {
            outlet.passed_over();
            self.engine.account.release(waiting.held_bytes);
            self.engine.links.taken(outlet.number, waiting.bytes);
            tokens.extend(waiting.lock.map(|lock| lock.token));
        }
        if tokens.is_empty() {
            return;
        }
        // Before they are given back, or they would come again.
        outlet.let_up_to = outlet.up_to;
        let (number, up_to) = (outlet.number, outlet.let_up_to);
        self.engine.links.credit(number, up_to);
        for token in &tokens {
            self.engine.links.settled(*token);
        }
        self.engine.links.give_back(number, tokens);
        self.engine.links.hand_over();
    }

    /// Gives back a large message whose client takes nothing of it for as long as it may take nothing at all: nobody
    /// else is sent a large one meanwhile. What is begun of it is aborted, and what waits behind it goes with it.
    /// Nothing that is received for good can be given back.
    pub(in crate::server) fn return_large(&mut self, link: LinkId) {
        let is_large = self.engine.account.large().is_some();
        let patience = self.site.config.write_timeout;
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        if !is_large || !outlet.has_large() {
            outlet.still = None;
            return;
        }
        let (left, now) = (self.amqp.unsent_bytes(link), Instant::now());
        let since = match outlet.still {
            Some((before, since)) if before == left => since,
            _ => now,
        };
        outlet.still = Some((left, since));
        if now.duration_since(since) < patience {
            return;
        }
        let mut tokens = Vec::new();
        if outlet.held_bytes > Account::LARGE_BYTES {
            let begun = outlet.last_sent.filter(|token| self.sent.remove(token).is_some());
            let Some(token) = begun else { return };
            self.amqp.abort(link);
            self.engine.account.release(std::mem::take(&mut outlet.held_bytes));
            tokens.push(token);
        }
        while let Some(waiting) = outlet.waiting.pop_front() {
            let Some(lock) = waiting.lock else {
                outlet.waiting.push_front(waiting);
                break;
            };
            outlet.passed_over();
            self.engine.account.release(waiting.held_bytes);
            self.engine.links.taken(outlet.number, waiting.bytes);
            tokens.push(lock.token);
        }
        if !tokens.is_empty() {
            outlet.still = None;
            tracing::debug!("a large message is released because its client does not read it");
            self.hold_up(link, &tokens);
        }
    }

    /// When a large message is given back, if its client takes nothing of it until then.
    pub(in crate::server) fn large_due(&self) -> Option<Instant> {
        let still = self.nodes.values().filter_map(|node| match node {
            Node::Outlet(outlet) => outlet.still,
            _ => None,
        });
        let now = Instant::now();
        let due = still.map(|(_, since)| since + self.site.config.write_timeout);
        // One that is past was asked about, and cannot be given back.
        due.filter(|due| *due > now).min()
    }

    /// Gives deliveries back that cannot go on, and asks for nothing more until something can be sent.
    fn hold_up(&mut self, link: LinkId, tokens: &[LockToken]) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        outlet.is_held_up = true;
        outlet.let_up_to = sent(outlet, &self.engine.links);
        let (number, up_to) = (outlet.number, outlet.let_up_to);
        // Before they are given back, or they would come again.
        self.engine.links.credit(number, up_to);
        for token in tokens {
            self.engine.links.settled(*token);
        }
        self.engine.links.give_back(number, tokens.iter().copied());
        self.engine.links.hand_over();
    }

    /// Gives back what was not sent (RCV-14). What was removed is lost with it.
    pub(in crate::server) fn give_back(&mut self, outlet: Outlet) {
        self.engine.account.release(outlet.held_bytes);
        for waiting in outlet.waiting {
            self.engine.account.release(waiting.held_bytes);
            if let Some(lock) = waiting.lock {
                self.engine.links.settled(lock.token);
                self.engine.links.give_back(outlet.number, [lock.token]);
            }
        }
    }
}

/// How many deliveries of a link were sent.
fn sent<T>(outlet: &Outlet, links: &Links<Broker, T>) -> u64 {
    let waiting = outlet.waiting.len() as u64;
    links.get(outlet.number).map_or(0, peeklock_link::Link::last).saturating_sub(waiting)
}

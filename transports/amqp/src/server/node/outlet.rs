//! A queue, subscription or sub-queue from which a client receives (AMQP-48 to AMQP-59).

use std::collections::VecDeque;

use peeklock_core::Broker;
use peeklock_core::command::LockGrant;
use peeklock_core::time::Timestamp;
use peeklock_link::Links;

use crate::connection::LinkId;
use crate::link::{Answer, Delivery};
use crate::server::conversation::{Asked, Conversation};
use crate::server::session::Wanted;

use super::Node;

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
    /// How far the client lets it be sent, and how far its entity was told: counted on, where numbers on the wire go
    /// round (AMQP-09).
    up_to: u64,
    let_up_to: u64,
    drain: Drain,
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

/// A message that was not sent.
pub(in crate::server) struct Waiting {
    pub(in crate::server) delivery: Delivery,
    pub(in crate::server) lock: Option<LockGrant>,
    /// When the message expires.
    pub(in crate::server) expires_at: Option<Timestamp>,
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
            up_to: 0,
            let_up_to: 0,
            drain: Drain::No,
        }
    }

    /// Something that was let be sent was not: it has used none of the client's credit.
    pub(in crate::server) const fn passed_over(&mut self) {
        self.up_to = self.up_to.saturating_add(1);
    }
}

impl Conversation {
    /// A client has said how much more it takes (AMQP-50).
    pub(in crate::server) fn credited(&mut self, link: LinkId, credit: u32, drain: bool) {
        match self.nodes.get_mut(&link) {
            Some(Node::Outlet(outlet)) => {
                let sent = sent(outlet, &self.links);
                // What waits here is of this credit.
                outlet.up_to = sent.saturating_add(u64::from(credit));
                outlet.let_up_to = outlet.up_to.min(sent.saturating_add(AHEAD_MAX));
                let (number, up_to) = (outlet.number, outlet.let_up_to);
                self.links.credit(number, up_to);
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

    /// Lets an entity send further when half of what it was let send was sent.
    pub(in crate::server) fn let_further(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        let up_to = outlet.up_to.min(sent(outlet, &self.links).saturating_add(AHEAD_MAX));
        let more = up_to.saturating_sub(outlet.let_up_to);
        if more >= AHEAD_MAX / 2 || (more > 0 && up_to == outlet.up_to) {
            outlet.let_up_to = up_to;
            let number = outlet.number;
            self.links.credit(number, up_to);
        }
    }

    fn drain(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        if matches!(outlet.drain, Drain::Asked(_)) {
            // Its answer answers this one, too.
            return;
        }
        let number = outlet.number;
        let last = self.links.get(number).map_or(0, peeklock_link::Link::last);
        outlet.drain = Drain::Asked(last);
        let id = self.ask(Asked::Drain(link));
        if !matches!(self.links.drain(number, id, None), Ok(None)) {
            self.asked.remove(&id);
            self.drained(link);
        }
    }

    /// An entity has sent what it could of a drain. What it has sent may have been all that there was room for.
    pub(in crate::server) fn drained(&mut self, link: LinkId) {
        let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) else { return };
        let last = self.links.get(outlet.number).map_or(0, peeklock_link::Link::last);
        outlet.drain = match outlet.drain {
            Drain::Asked(before) if last > before && last < outlet.up_to => Drain::Again,
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
                let sent = sent(outlet, &self.links);
                outlet.up_to = sent.saturating_add(u64::from(self.amqp.credit(link)));
                outlet.let_up_to = outlet.up_to.min(sent.saturating_add(AHEAD_MAX));
                let (number, up_to) = (outlet.number, outlet.let_up_to);
                self.links.credit(number, up_to);
            }
            Drain::Again => {
                outlet.drain = Drain::No;
                outlet.let_up_to =
                    outlet.up_to.min(sent(outlet, &self.links).saturating_add(AHEAD_MAX));
                let (number, up_to) = (outlet.number, outlet.let_up_to);
                self.links.credit(number, up_to);
                self.drain(link);
            }
            Drain::No | Drain::Asked(_) => {}
        }
    }

    /// Gives back what was not sent (RCV-14).
    pub(in crate::server) fn give_back(&mut self, outlet: Outlet) {
        self.account.release(outlet.held_bytes);
        for waiting in outlet.waiting {
            self.account.release(waiting.held_bytes);
            match waiting.lock {
                Some(lock) => {
                    self.links.settled(lock.token);
                    self.links.give_back(outlet.number, [lock.token]);
                }
                None => self.lost_count += 1,
            }
        }
    }
}

/// How many deliveries of a link were sent.
fn sent<T>(outlet: &Outlet, links: &Links<Broker, T>) -> u64 {
    let waiting = outlet.waiting.len() as u64;
    links.get(outlet.number).map_or(0, peeklock_link::Link::last).saturating_sub(waiting)
}

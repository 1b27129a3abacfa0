//! A queue, subscription or sub-queue from which a client receives (AMQP-48 to AMQP-59).

use std::collections::VecDeque;

use peeklock_core::command::LockGrant;

use crate::connection::LinkId;
use crate::link::{Answer, Delivery};
use crate::server::conversation::{Asked, Conversation};

use super::Node;

/// A link on which a client receives.
pub(in crate::server) struct Outlet {
    pub(in crate::server) number: u32,
    /// What the `attach` is answered with, until it is.
    pub(in crate::server) answer: Option<Answer>,
    /// Messages that came and were not sent.
    pub(in crate::server) waiting: VecDeque<Waiting>,
    /// What the message holds of the account of which not all frames are written.
    pub(in crate::server) held_bytes: u64,
    /// Its entity has said that a drain is done; it is told behind what waits.
    pub(in crate::server) drained: bool,
}

/// A message that was not sent.
pub(in crate::server) struct Waiting {
    pub(in crate::server) delivery: Delivery,
    pub(in crate::server) lock: Option<LockGrant>,
    /// What it counts for at its link.
    pub(in crate::server) bytes: u64,
    /// What it holds of the account.
    pub(in crate::server) held_bytes: u64,
}

impl Outlet {
    pub(in crate::server) const fn new(number: u32, answer: Answer) -> Self {
        let waiting = VecDeque::new();
        Self { number, answer: Some(answer), waiting, held_bytes: 0, drained: false }
    }
}

impl Conversation {
    /// A client has said how much more it takes (AMQP-50).
    pub(in crate::server) fn credited(&mut self, link: LinkId, credit: u32, drain: bool) {
        match self.nodes.get(&link) {
            Some(Node::Outlet(outlet)) => {
                let number = outlet.number;
                let waiting = u32::try_from(outlet.waiting.len()).unwrap_or(u32::MAX);
                let last = self.links.get(number).map_or(0, peeklock_link::Link::last);
                // What waits here is of this credit.
                let up_to = last.saturating_sub(waiting).saturating_add(credit);
                self.links.credit(number, up_to);
                if drain {
                    self.drain(link, number);
                }
            }
            // There is nothing that could be said at once.
            Some(Node::Replies(_)) if drain => self.amqp.drained(link),
            _ => {}
        }
    }

    fn drain(&mut self, link: LinkId, number: u32) {
        let id = self.ask(Asked::Drain(link));
        match self.links.drain(number, id, None) {
            Ok(None) => {}
            Ok(Some(_)) => {
                self.asked.remove(&id);
                self.drained(link);
            }
            // One is under way, and its answer answers this one.
            Err(_) => drop(self.asked.remove(&id)),
        }
    }

    /// What there was for a drain is here.
    pub(in crate::server) fn drained(&mut self, link: LinkId) {
        if let Some(Node::Outlet(outlet)) = self.nodes.get_mut(&link) {
            outlet.drained = true;
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

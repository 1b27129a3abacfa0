//! What is asked of entities: commands of links, requests that await answers, and the groups in which
//! commands go to the entities.

use std::sync::Arc;

use peeklock_core::command::{Command, InboundMessage, SessionCommand};
use peeklock_core::ids::Ticket;
use peeklock_core::permits::Permit;
use peeklock_core::request::{Reply, Request};

use super::{Engine, Expect, Inlet, Links};
use crate::link::Link;
use crate::pending::Pending;

impl<E> Link<E> {
    /// What sends a message over it: to the entity, or by way of it.
    pub fn send(&self, message: InboundMessage) -> Command {
        match &self.destination {
            None => Command::Send { message },
            Some(_) => self.send_batch(vec![message]),
        }
    }

    /// The same for messages of which all are stored or none.
    pub fn send_batch(&self, messages: Vec<InboundMessage>) -> Command {
        match &self.destination {
            None => Command::SendBatch { messages },
            Some(destination) => {
                Command::SendVia { destination: Arc::clone(destination), messages }
            }
        }
    }

    /// Something that only the holder of its session may ask.
    #[must_use]
    pub const fn in_session(&self, command: SessionCommand) -> Command {
        Command::InSession { receiver: self.receiver, command }
    }
}

impl<G: Engine, T> Links<G, T> {
    /// Adds a request of the transport's; returns its place.
    pub fn ask(&mut self, number: u32, id: u32, permit: Option<Arc<Permit>>, asked: T) -> usize {
        self.expect(id, number, Expect::Asked(asked), permit)
    }

    /// Adds a request of the transport's that is no link's.
    pub fn ask_of(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        asked: T,
    ) -> usize {
        let expect = Expect::Asked(asked);
        self.pending.insert(Pending { id, link: u32::MAX, path, expect, permit })
    }

    /// What the transport remembers of a request of its own: its id, its entity, and that.
    pub fn asked_mut(&mut self, slot: usize) -> Option<(u32, Arc<str>, &mut T)> {
        let Pending { id, path, expect: Expect::Asked(asked), .. } = self.pending.get_mut(slot)?
        else {
            return None;
        };
        Some((*id, Arc::clone(path), asked))
    }

    /// Takes it out, when all of it is answered.
    pub fn answered(&mut self, slot: usize) -> Option<Pending<T>> {
        let Pending { id, link, path, expect, permit } = self.pending.remove(slot)?;
        match expect {
            Expect::Asked(expect) => Some(Pending { id, link, path, expect, permit }),
            _ => None,
        }
    }

    /// Names for so many commands.
    pub fn tickets(&self, count: u64) -> Ticket {
        self.engine.tickets(count)
    }

    /// Puts a command into the group of its link.
    pub fn submit(&mut self, number: u32, command: Command, correlation: u64) -> Ticket {
        let ticket = self.engine.tickets(1);
        self.submit_as(number, ticket, command, correlation);
        ticket
    }

    /// The same under a name that was given before.
    pub fn submit_as(&mut self, number: u32, ticket: Ticket, command: Command, correlation: u64) {
        let Some(link) = self.links.get(&number) else { return };
        let reply = Reply::new(Arc::clone(&self.outlet), correlation, None);
        let request = Request { ticket, sub_queue: link.entity.sub_queue(), command, reply };
        match self.groups.iter_mut().find(|(of, _)| *of == number) {
            Some((_, group)) => group.push(request),
            None => self.groups.push((number, vec![request])),
        }
    }

    /// Asks something of an entity of no link, behind everything that was asked before.
    pub fn submit_to(&mut self, entity: &G::Entity, command: Command, correlation: u64) {
        self.hand_over();
        let reply = Reply::new(Arc::clone(&self.outlet), correlation, None);
        let (ticket, sub_queue) = (self.engine.tickets(1), entity.sub_queue());
        entity.submit(vec![Request { ticket, sub_queue, command, reply }]);
    }

    /// Puts what was collected into the inlets of the entities.
    pub fn hand_over(&mut self) {
        for (link, group) in self.groups.drain(..) {
            if let Some(link) = self.links.get(&link) {
                link.entity.submit(group);
            }
        }
    }

    pub(super) fn expect(
        &mut self,
        id: u32,
        number: u32,
        expect: Expect<T>,
        permit: Option<Arc<Permit>>,
    ) -> usize {
        let path = match self.links.get(&number) {
            Some(link) => Arc::clone(&link.path),
            None => "".into(),
        };
        self.pending.insert(Pending { id, link: number, path, expect, permit })
    }
}

//! The machine: links of one connection, what they are sent, what they hold, and what was asked on them.
//!
//! ```text
//!   attach ─► open ─► detach: the flow is stopped ─► quiet: everything before is here ─► given back ─► ended
//!              │ ▲
//!      credit, │ │ deliveries, numbered, unsettled until they are settled or their locks end
//!       drain  ▼ │
//!             flow
//! ```
//!
//! A link ends in two steps: its entity is told to deliver nothing more, and when that is answered,
//! everything that came before is here. What was not told is given back without count; then the link is
//! detached (SET-21, RCV-14).

mod deliver;
mod end;
mod event;
mod flow;
mod receive;
mod seam;
mod session;

use std::collections::HashMap;
use std::sync::Arc;

use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId, Ticket};
use peeklock_core::permits::Permit;
use peeklock_core::request::{Outlet, Released, Reply, Request};

pub use self::event::Event;
use self::receive::Promise;
pub use self::receive::numbered_bytes;
pub use self::seam::{Handle, Issuer};
use crate::link::{Link, Role};
use crate::pending::{Pending, PendingTable, place};
use crate::unsettled::{Outstanding, Unsettled};

/// What is awaited. What a transport expects itself is one of these: [`Expect::Asked`].
pub(crate) enum Expect<T> {
    /// Nothing that anybody is told.
    Unheard,
    /// That a receiver is attached.
    Attached,
    /// That nothing more is delivered to a link that is being closed.
    Quiet,
    /// That a link is detached.
    Detached,
    /// What is left of the credit of a link.
    Drained,
    /// Messages.
    Messages(Promise),
    /// That a session is locked for the link, which may then be sent so far.
    Accepted(u64),
    /// Something of the transport's; whether it is of one command, which takes messages out of their entity for good.
    Asked { asked: T, takes: bool },
}

/// The links of one connection. `T` is what the transport remembers of what it asks.
pub struct Links<G: Issuer, T> {
    engine: G,
    outlet: Arc<dyn Outlet>,
    links: HashMap<u32, Link<G::Entity>>,
    /// By the names under which entities know them; senders have one as well.
    receivers: HashMap<ReceiverId, u32>,
    receiver_count: u64,
    /// What was delivered and is not settled.
    pub unsettled: Unsettled,
    pending: PendingTable<Expect<T>>,
    /// Requests that wait, by the id that the client gave them.
    waits: HashMap<u32, (Ticket, u32)>,
    /// Commands to be handed over, by link.
    groups: Vec<(u32, Vec<Request>)>,
    /// What receives that are not answered may bring: those that do not wait, and those that do.
    promised_bytes: u64,
    awaited_bytes: u64,
    window_bytes: u64,
    unsettled_max: u32,
    /// What the first delivery of a link comes behind.
    first: u64,
    paused: bool,
    /// Nothing more is told of deliveries: the connection is about to end.
    returning: bool,
    /// Deliveries that were received for good, and that nobody was told of.
    pub(crate) lost_count: u64,
}

impl<G: Issuer, T> Links<G, T> {
    /// No links. Deliveries under way of all together are about `window_bytes`, those of one that are not
    /// settled `unsettled_max`.
    #[must_use]
    pub fn new(engine: G, outlet: Arc<dyn Outlet>, window_bytes: u64, unsettled_max: u32) -> Self {
        Self {
            engine,
            outlet,
            links: HashMap::new(),
            receivers: HashMap::new(),
            receiver_count: 0,
            unsettled: Unsettled::default(),
            pending: PendingTable::default(),
            waits: HashMap::new(),
            groups: Vec::new(),
            promised_bytes: 0,
            awaited_bytes: 0,
            window_bytes,
            unsettled_max,
            first: 0,
            paused: false,
            returning: false,
            lost_count: 0,
        }
    }

    /// Numbers the deliveries of each link from the one after `first`, not from 1: the numbers of some clients wrap around.
    pub const fn count_from(&mut self, first: u64) {
        self.first = first;
    }

    /// How many requests are not answered.
    #[must_use]
    pub const fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether a request with this id is not answered yet.
    #[must_use]
    pub fn awaits(&self, id: u32) -> bool {
        self.pending.awaits(id)
    }

    /// How many requests wait.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waits.len()
    }

    /// How many links there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no link.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// A link.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Link<G::Entity>> {
        self.links.get(&number)
    }

    /// The link of a receiver.
    #[must_use]
    pub fn of_receiver(&self, receiver: ReceiverId) -> Option<u32> {
        self.receivers.get(&receiver).copied()
    }

    /// The link that something is for, which came from an entity.
    #[must_use]
    pub fn link_of(&self, released: &Released) -> u32 {
        let found = match released {
            Released::Delivery { receiver, .. }
            | Released::Detached { receiver, .. }
            | Released::Closed { receiver, .. } => self.of_receiver(*receiver),
            Released::Answer { correlation, .. } => {
                self.pending.get(place(*correlation).0).map(|pending| pending.link)
            }
        };
        found.unwrap_or(u32::MAX)
    }

    /// Adds a link under a number that is free.
    pub fn attach(
        &mut self,
        number: u32,
        entity: G::Entity,
        path: Arc<str>,
        role: Role,
        mode: ReceiveMode,
    ) {
        let mut link = Link::new(entity, path, role, mode, self.engine.receiver_id(), self.first);
        link.watch = link.entity.watch(role, link.receiver, &self.outlet);
        self.receivers.insert(link.receiver, number);
        self.receiver_count += u64::from(role == Role::Receiver);
        self.links.insert(number, link);
    }

    /// Has what is sent over a link go by way of its entity to another (VIA-01).
    pub fn send_on(&mut self, number: u32, destination: Arc<str>) {
        if let Some(link) = self.links.get_mut(&number) {
            link.destination = Some(destination);
        }
    }

    /// A delivery is settled, or its lock is over; there may be room for more.
    pub fn settled(&mut self, token: LockToken) -> Option<Outstanding> {
        self.unsettled.settled(token)
    }

    /// Takes what came from an entity, whose contents are here as far as they can be read.
    pub fn take(&mut self, released: Released) -> Event {
        match released {
            Released::Delivery { receiver, message } => self.deliver(receiver, message),
            Released::Detached { receiver, reason } => self.stopped(receiver, reason),
            Released::Closed { receiver, reason } => self.entity_closed(receiver, reason),
            Released::Answer { correlation, result } => {
                let (slot, index) = place(correlation);
                match self.pending.get(slot).map(|pending| &pending.expect) {
                    Some(Expect::Asked { .. }) => Event::Answer { slot, index, result },
                    Some(_) => self.answer(slot, result),
                    None => Event::Nothing,
                }
            }
        }
    }

    /// Takes the answer to something that is the links' own.
    fn answer(&mut self, slot: usize, result: Result<Outcome, Rejection>) -> Event {
        let Some(pending) = self.pending.remove(slot) else { return Event::Nothing };
        let Pending { id, link: number, path, expect, permit: _ } = pending;
        match expect {
            Expect::Unheard | Expect::Asked { .. } => Event::Nothing,
            Expect::Quiet => {
                // While everything ends, nobody has asked for it.
                if self.links.get(&number).is_some_and(|link| link.closing.is_some()) {
                    self.is_quiet(number);
                }
                Event::Nothing
            }
            Expect::Detached => {
                self.remove(number);
                Event::Done { id, path, result: result.map(|_| ()) }
            }
            Expect::Attached => self.attached(id, number, path, result),
            Expect::Drained => self.drained(id, number, path, result),
            Expect::Messages(promised) => self.received(id, number, promised, path, result),
            Expect::Accepted(up_to) => self.accepted(id, number, up_to, path, result),
        }
    }
}

fn unexpected() -> Rejection {
    Rejection::internal("unexpected answer")
}

/// What is asked of entities: commands of links, requests that await answers, and the groups in which commands go to the
/// entities.
impl<G: Issuer, T> Links<G, T> {
    /// Adds a request of the transport's; returns its place.
    pub fn ask(&mut self, number: u32, id: u32, permit: Option<Arc<Permit>>, asked: T) -> usize {
        self.expect(id, number, Expect::Asked { asked, takes: false }, permit)
    }

    /// Adds a request of the transport's that is no link's.
    pub fn ask_of(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        asked: T,
    ) -> usize {
        self.expect_of(path, id, permit, Expect::Asked { asked, takes: false })
    }

    /// The same of one command that takes messages out of its entity for good: at the end its answer is waited for, so
    /// that what nobody is told of is counted (RCV-02).
    pub fn ask_to_take(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        asked: T,
    ) -> usize {
        self.expect_of(path, id, permit, Expect::Asked { asked, takes: true })
    }

    fn expect_of(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        expect: Expect<T>,
    ) -> usize {
        self.pending.insert(Pending { id, link: u32::MAX, path, expect, permit })
    }

    /// What the transport remembers of a request of its own: its id, its entity, and that.
    pub fn asked_mut(&mut self, slot: usize) -> Option<(u32, Arc<str>, &mut T)> {
        let Pending { id, path, expect, .. } = self.pending.get_mut(slot)?;
        match expect {
            Expect::Asked { asked, .. } => Some((*id, Arc::clone(path), asked)),
            _ => None,
        }
    }

    /// Takes it out, when all of it is answered.
    pub fn answered(&mut self, slot: usize) -> Option<Pending<T>> {
        let Pending { id, link, path, expect, permit } = self.pending.remove(slot)?;
        match expect {
            Expect::Asked { asked, .. } => Some(Pending { id, link, path, expect: asked, permit }),
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
        // Of a link that is gone it is answered too, by being dropped: nobody waits for ever.
        let reply = Reply::new(Arc::clone(&self.outlet), correlation, None);
        let Some(link) = self.links.get(&number) else { return };
        let request = Request { ticket, sub_queue: link.entity.sub_queue(), command, reply };
        match self.groups.iter_mut().find(|(of, _)| *of == number) {
            Some((_, group)) => group.push(request),
            None => self.groups.push((number, vec![request])),
        }
    }

    /// Asks something of an entity of no link, behind everything that was asked before.
    pub fn submit_to(&mut self, entity: &G::Entity, command: Command, correlation: u64) {
        self.submit_all_to(entity, vec![(correlation, command)]);
    }

    /// The same of several commands, each with its correlation.
    pub fn submit_all_to(&mut self, entity: &G::Entity, commands: Vec<(u64, Command)>) {
        self.hand_over();
        let mut ticket = self.engine.tickets(commands.len() as u64);
        let sub_queue = entity.sub_queue();
        let mut group = Vec::with_capacity(commands.len());
        for (correlation, command) in commands {
            let reply = Reply::new(Arc::clone(&self.outlet), correlation, None);
            group.push(Request { ticket, sub_queue, command, reply });
            ticket = Ticket(ticket.0 + 1);
        }
        entity.submit(group);
    }

    /// Puts what was collected into the inlets of the entities.
    pub fn hand_over(&mut self) {
        for (link, group) in self.groups.drain(..) {
            if let Some(link) = self.links.get(&link) {
                link.entity.submit(group);
            }
        }
    }

    fn expect(
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

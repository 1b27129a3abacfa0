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

mod ask;
mod deliver;
mod end;
mod event;
mod flow;
mod receive;
mod seam;
mod session;

use std::collections::HashMap;
use std::sync::Arc;

use peeklock_core::command::{Outcome, ReceiveMode};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId, Ticket};
use peeklock_core::request::{Outlet, Released, Request};

pub use self::event::Event;
use self::receive::Promise;
pub use self::seam::{Engine, Inlet};
use crate::link::{Link, Role};
use crate::pending::{Pending, PendingTable, place};
use crate::unsettled::{Outstanding, Unsettled};

/// What is awaited.
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
    /// Something of the transport's.
    Asked(T),
}

/// The links of one connection. `T` is what the transport remembers of what it asks.
pub struct Links<G: Engine, T> {
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
}

impl<G: Engine, T> Links<G, T> {
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
        }
    }

    /// These links, whose deliveries are numbered from behind this one and not from 1: so a client may count, whose
    /// numbers go round.
    #[must_use]
    pub fn counting_from(self, first: u64) -> Self {
        Self { first, ..self }
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
                    Some(Expect::Asked(_)) => Event::Answer { slot, index, result },
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
            Expect::Unheard | Expect::Asked(_) => Event::Nothing,
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

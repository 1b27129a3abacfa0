//! State machine of the links of a connection: flow, unsettled deliveries, and requests that
//! await answers. Transports drive it. It submits commands to entities and turns their answers into
//! [`Event`]s.
//!
//! ```text
//!   attach ─► open ─► detach: the flow is stopped ─► quiet: all deliveries are here ─► released ─► ended
//!              │ ▲
//!      credit, │ │ deliveries, numbered, unsettled until they are settled or their locks end
//!       drain  ▼ │
//!             flow
//! ```
//!
//! A link ends in two steps. First its entity is asked to deliver nothing more; all earlier
//! deliveries have arrived when that request is answered. Messages that were not delivered to the
//! client are then released without counting a delivery, and the link is detached (SET-21, RCV-14).

mod deliver;
mod end;
mod event;
mod flow;
mod handle;
mod receive;
mod session;

use std::collections::HashMap;
use std::sync::Arc;

use peeklock_core::admission::Permit;
use peeklock_core::clients::ClientGuard;
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId, Ticket};
use peeklock_core::inspect::LinkRole;
use peeklock_core::request::{Outlet, Released, Reply, Request};

pub use self::event::Event;
pub use self::handle::{Handle, Issuer};
use self::receive::Reservation;
pub use self::receive::numbered_bytes;
use crate::link::Link;
use crate::pending::{PendingRequest, PendingTable, slot_and_index};
use crate::unsettled::{DeliveryPosition, Unsettled};

/// Answer that a request awaits. Requests of the transport itself are
/// [`LinkAnswer::OfTransport`].
pub(crate) enum LinkAnswer<T> {
    /// An answer that the client does not receive.
    Ignored,
    /// The receiver is attached.
    Attached,
    /// The entity delivers nothing more to a link that is being closed, or is stopped because the
    /// connection ends.
    Quiet,
    /// The link is detached.
    Detached,
    /// The unused credit of a drained link.
    Drained,
    /// The messages of a receive or a peek.
    Messages(Reservation),
    /// A session is locked for the link, which may then receive deliveries up to this number.
    Accepted(u64),
    /// Answers to a request of the transport. `deletes` means that it is one receive-and-delete
    /// command, whose messages the entity no longer stores. The end of a connection waits for such
    /// an answer, and counts its messages as lost.
    OfTransport { asked: T, deletes: bool },
}

/// Links of a connection. `T` is the data that the transport keeps for each of its requests.
pub struct Links<G: Issuer, T> {
    issuer: G,
    /// The client in the list of clients; none without a broker.
    client: Option<Arc<ClientGuard>>,
    outlet: Arc<dyn Outlet>,
    links: HashMap<u32, Link<G::Entity>>,
    /// Link numbers by the receiver ids that entities know; senders have an id as well.
    receivers: HashMap<ReceiverId, u32>,
    receiver_count: u64,
    /// Deliveries that are not settled.
    pub unsettled: Unsettled,
    pending: PendingTable<LinkAnswer<T>>,
    /// Waiting requests by the id that the client gave them, each with its ticket and link.
    waits: HashMap<u32, (Ticket, u32)>,
    /// Commands that were not submitted yet, by link.
    groups: Vec<(u32, Vec<Request>)>,
    /// Bytes reserved for the answers of receives that return immediately, and of receives that wait
    /// for messages.
    immediate_receive_bytes: u64,
    waiting_receive_bytes: u64,
    window_bytes: u64,
    unsettled_max: u32,
    /// Number before the first delivery of each link.
    first: u64,
    paused: bool,
    /// Whether further deliveries are released instead of delivered, because the connection is
    /// about to end.
    returning: bool,
    /// Number of received-and-deleted messages that never reached the client (RCV-02).
    pub(crate) lost_count: u64,
}

impl<G: Issuer, T> Links<G, T> {
    /// Creates the table without links. Deliveries in flight of the whole connection are limited to
    /// about `window_bytes`, unsettled deliveries of each link to `unsettled_max`.
    #[must_use]
    pub fn new(issuer: G, outlet: Arc<dyn Outlet>, window_bytes: u64, unsettled_max: u32) -> Self {
        Self {
            issuer,
            client: None,
            outlet,
            links: HashMap::new(),
            receivers: HashMap::new(),
            receiver_count: 0,
            unsettled: Unsettled::default(),
            pending: PendingTable::default(),
            waits: HashMap::new(),
            groups: Vec::new(),
            immediate_receive_bytes: 0,
            waiting_receive_bytes: 0,
            window_bytes,
            unsettled_max,
            first: 0,
            paused: false,
            returning: false,
            lost_count: 0,
        }
    }

    /// Lists each link that is attached from now on under this client.
    pub fn list_under(&mut self, client: Arc<ClientGuard>) {
        self.client = Some(client);
    }

    /// Numbers the deliveries of each link from `first + 1` instead of 1, for protocols whose
    /// delivery numbers wrap around.
    pub const fn count_from(&mut self, first: u64) {
        self.first = first;
    }

    /// Number of requests that are not answered.
    #[must_use]
    pub const fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether a request with this id is unanswered.
    #[must_use]
    pub fn has_pending(&self, id: u32) -> bool {
        self.pending.awaits(id)
    }

    /// Number of requests that wait for messages or a session.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waits.len()
    }

    /// Number of links.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no link.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The link with this number, if there is one.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Link<G::Entity>> {
        self.links.get(&number)
    }

    /// Number of the link with this receiver id.
    #[must_use]
    pub fn link_of_receiver(&self, receiver: ReceiverId) -> Option<u32> {
        self.receivers.get(&receiver).copied()
    }

    /// Number of the link that an answer or delivery belongs to; `u32::MAX` if it belongs to none.
    #[must_use]
    pub fn link_of(&self, released: &Released) -> u32 {
        let found = match released {
            Released::Delivery { receiver, .. }
            | Released::Detached { receiver, .. }
            | Released::Closed { receiver, .. } => self.link_of_receiver(*receiver),
            Released::Answer { correlation, .. } => {
                self.pending.get(slot_and_index(*correlation).0).map(|pending| pending.link)
            }
        };
        found.unwrap_or(u32::MAX)
    }

    /// Adds a link under an unused number.
    pub fn attach(
        &mut self,
        number: u32,
        entity: G::Entity,
        path: Arc<str>,
        role: LinkRole,
        mode: ReceiveMode,
    ) {
        let mut link = Link::new(entity, path, role, mode, self.issuer.receiver_id(), self.first);
        link.watch = link.entity.watch(role, link.receiver, &self.outlet);
        if let Some(client) = &self.client {
            link.listed = client.link(link.identity(link.entity.policy()));
        }
        self.receivers.insert(link.receiver, number);
        self.receiver_count += u64::from(role == LinkRole::Receiver);
        self.links.insert(number, link);
    }

    /// Makes the sends of a link go via its entity to `destination` (VIA-01).
    pub fn send_via(&mut self, number: u32, destination: Arc<str>) {
        if let Some(link) = self.links.get_mut(&number) {
            link.destination = Some(destination);
        }
    }

    /// Removes a delivery that is settled or whose lock has ended. The caller may then raise the
    /// limits of its link.
    pub fn remove_settled(&mut self, token: LockToken) -> Option<DeliveryPosition> {
        self.unsettled.remove(token)
    }

    /// Turns an answer or delivery of an entity into an event. All its contents that can be read
    /// have been loaded.
    pub fn handle_released(&mut self, released: Released) -> Event {
        match released {
            Released::Delivery { receiver, message } => self.deliver(receiver, message),
            Released::Detached { receiver, reason } => self.stopped(receiver, reason),
            Released::Closed { receiver, reason } => self.entity_closed(receiver, reason),
            Released::Answer { correlation, result } => {
                let (slot, index) = slot_and_index(correlation);
                match self.pending.get(slot).map(|pending| &pending.expect) {
                    Some(LinkAnswer::OfTransport { .. }) => Event::Answer { slot, index, result },
                    Some(_) => self.answer(slot, result),
                    None => Event::Nothing,
                }
            }
        }
    }

    /// Handles the answer to a request of the links themselves.
    fn answer(&mut self, slot: usize, result: Result<Outcome, Rejection>) -> Event {
        let Some(pending) = self.pending.remove(slot) else { return Event::Nothing };
        let PendingRequest { id, link: number, path, expect, permit: _ } = pending;
        match expect {
            LinkAnswer::Ignored | LinkAnswer::OfTransport { .. } => Event::Nothing,
            LinkAnswer::Quiet => {
                // A link that is not being closed is only stopped: the whole connection ends.
                if self.links.get(&number).is_some_and(|link| link.closing.is_some()) {
                    self.detach_stopped(number);
                }
                Event::Nothing
            }
            LinkAnswer::Detached => {
                self.remove(number);
                Event::Done { id, path, result: result.map(|_| ()) }
            }
            LinkAnswer::Attached => self.attached(id, number, path, result),
            LinkAnswer::Drained => self.drained(id, number, path, result),
            LinkAnswer::Messages(reservation) => {
                self.received(id, number, reservation, path, result)
            }
            LinkAnswer::Accepted(up_to) => self.accepted(id, number, up_to, path, result),
        }
    }
}

fn unexpected() -> Rejection {
    Rejection::internal("unexpected answer")
}

/// Commands to entities, requests that await answers, and the groups in which commands are
/// submitted.
impl<G: Issuer, T> Links<G, T> {
    /// Adds a request of the transport on a link; returns its slot.
    pub fn add_request(
        &mut self,
        number: u32,
        id: u32,
        permit: Option<Arc<Permit>>,
        asked: T,
    ) -> usize {
        self.expect(id, number, LinkAnswer::OfTransport { asked, deletes: false }, permit)
    }

    /// Adds a request of the transport that belongs to no link; returns its slot.
    pub fn add_unlinked_request(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        asked: T,
    ) -> usize {
        self.expect_of(path, id, permit, LinkAnswer::OfTransport { asked, deletes: false })
    }

    /// Adds a request of the transport for one receive-and-delete command; returns its slot. The
    /// end of the connection waits for its answer, so that messages that never reach the client are
    /// counted (RCV-02).
    pub fn add_deleting_request(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        asked: T,
    ) -> usize {
        self.expect_of(path, id, permit, LinkAnswer::OfTransport { asked, deletes: true })
    }

    fn expect_of(
        &mut self,
        path: Arc<str>,
        id: u32,
        permit: Option<Arc<Permit>>,
        expect: LinkAnswer<T>,
    ) -> usize {
        self.pending.insert(PendingRequest { id, link: u32::MAX, path, expect, permit })
    }

    /// Id, entity path and data of a request of the transport.
    pub fn request_mut(&mut self, slot: usize) -> Option<(u32, Arc<str>, &mut T)> {
        let PendingRequest { id, path, expect, .. } = self.pending.get_mut(slot)?;
        match expect {
            LinkAnswer::OfTransport { asked, .. } => Some((*id, Arc::clone(path), asked)),
            _ => None,
        }
    }

    /// Removes a request of the transport, once all its commands are answered.
    pub fn remove_request(&mut self, slot: usize) -> Option<PendingRequest<T>> {
        let PendingRequest { id, link, path, expect, permit } = self.pending.remove(slot)?;
        match expect {
            LinkAnswer::OfTransport { asked, .. } => {
                Some(PendingRequest { id, link, path, expect: asked, permit })
            }
            _ => None,
        }
    }

    /// Reserves tickets for `count` commands; returns the first.
    pub fn tickets(&self, count: u64) -> Ticket {
        self.issuer.tickets(count)
    }

    /// Adds a command to the group of its link; returns its ticket.
    pub fn submit(&mut self, number: u32, command: Command, correlation: u64) -> Ticket {
        let ticket = self.issuer.tickets(1);
        self.submit_as(number, ticket, command, correlation);
        ticket
    }

    /// Adds a command to the group of its link under a ticket that was reserved before.
    pub fn submit_as(&mut self, number: u32, ticket: Ticket, command: Command, correlation: u64) {
        // The permit stays with the pending request, not with the reply. If the link is gone,
        // dropping the reply answers the request, so that the client does not wait forever.
        let reply = Reply::new(Arc::clone(&self.outlet), correlation, None);
        let Some(link) = self.links.get(&number) else { return };
        let request = Request { ticket, sub_queue: link.entity.sub_queue(), command, reply };
        match self.groups.iter_mut().find(|(of, _)| *of == number) {
            Some((_, group)) => group.push(request),
            None => self.groups.push((number, vec![request])),
        }
    }

    /// Submits a command to an entity without a link, after all commands that were collected
    /// before.
    pub fn submit_to(&mut self, entity: &G::Entity, command: Command, correlation: u64) {
        self.submit_all_to(entity, vec![(correlation, command)]);
    }

    /// Submits several commands, each with its correlation, to an entity without a link.
    pub fn submit_all_to(&mut self, entity: &G::Entity, commands: Vec<(u64, Command)>) {
        self.submit_groups();
        let mut ticket = self.issuer.tickets(commands.len() as u64);
        let sub_queue = entity.sub_queue();
        let mut group = Vec::with_capacity(commands.len());
        for (correlation, command) in commands {
            let reply = Reply::new(Arc::clone(&self.outlet), correlation, None);
            group.push(Request { ticket, sub_queue, command, reply });
            ticket = Ticket(ticket.0 + 1);
        }
        entity.submit(group);
    }

    /// Submits the collected groups to their entities.
    pub fn submit_groups(&mut self) {
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
        expect: LinkAnswer<T>,
        permit: Option<Arc<Permit>>,
    ) -> usize {
        let path = match self.links.get(&number) {
            Some(link) => Arc::clone(&link.path),
            None => "".into(),
        };
        self.pending.insert(PendingRequest { id, link: number, path, expect, permit })
    }
}

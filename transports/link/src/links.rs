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

use std::collections::HashMap;
use std::sync::Arc;

use peeklock_core::command::{
    Command, Drain, LinkEnd, Outcome, ReceiveMode, ReceivedMessage, SessionCommand, Settlement,
};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId, Ticket};
use peeklock_core::path::SubQueue;
use peeklock_core::permits::Permit;
use peeklock_core::request::{Outlet, Released, Reply, Request, Way};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};

use crate::credit::{Bounds, Flow, Limits};
use crate::link::{Closing, Link, Role, Source};
use crate::pending::{Pending, PendingTable, correlation, place};
use crate::unsettled::{Held, Unsettled};

/// What a receive may always take, so that one that waits holds little; the first message always fits.
const RECEIVE_BYTES_MIN: u64 = 4 << 10;

/// Where requests go in.
pub trait Inlet: Clone {
    /// The sub-queue that it stands for.
    fn sub_queue(&self) -> SubQueue;

    /// Hands requests in, in order, and returns at once.
    fn submit(&self, group: Vec<Request>);

    /// The same for the holder of a session.
    #[must_use]
    fn by_way_of(&self, way: Option<Way>) -> Self;
}

/// What gives names to commands and receivers.
pub trait Engine {
    /// Where requests go in.
    type Entity: Inlet;

    /// The first of so many consecutive names for commands.
    fn tickets(&self, count: u64) -> Ticket;

    /// A name for a receiver link, never given before.
    fn receiver_id(&self) -> ReceiverId;
}

impl Inlet for Entity {
    fn sub_queue(&self) -> SubQueue {
        Self::sub_queue(self)
    }

    fn submit(&self, group: Vec<Request>) {
        Self::submit(self, group);
    }

    fn by_way_of(&self, way: Option<Way>) -> Self {
        Self::by_way_of(self, way)
    }
}

impl Engine for Broker {
    type Entity = Entity;

    fn tickets(&self, count: u64) -> Ticket {
        Self::tickets(self, count)
    }

    fn receiver_id(&self) -> ReceiverId {
        Self::receiver_id(self)
    }
}

/// What is awaited.
enum Expect<T> {
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
    /// Messages, at most so many bytes of them.
    Messages(u64),
    /// That a session is locked for the link, which then gets so much credit.
    Accepted(u32),
    /// Something of the transport's.
    Asked(T),
}

/// What came of something, for the client.
#[derive(Debug)]
pub enum Event {
    /// Nothing that it is told.
    Nothing,
    /// A message, under a number of its link.
    Delivered {
        /// The link.
        link: u32,
        /// Its number, one above the last.
        number: u32,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// A receiver gets nothing more until it is given credit anew.
    Stopped {
        /// The link.
        link: u32,
        /// The entity.
        path: Arc<str>,
        /// Why.
        reason: Rejection,
    },
    /// A request is done, or failed.
    Done {
        /// The request.
        id: u32,
        /// The entity.
        path: Arc<str>,
        /// Whether it is done.
        result: Result<(), Rejection>,
    },
    /// A drain is done.
    Drained {
        /// The request.
        id: u32,
        /// The entity.
        path: Arc<str>,
        /// What is left of the credit.
        result: Result<u64, Rejection>,
    },
    /// Messages were taken, or looked at.
    Messages {
        /// The request.
        id: u32,
        /// The link.
        link: u32,
        /// The entity.
        path: Arc<str>,
        /// The messages.
        result: Result<Vec<ReceivedMessage>, Rejection>,
        /// How many of them are stored nowhere any more (RCV-02).
        taken_count: u64,
    },
    /// A session is locked for a link; or there is no such link.
    Accepted {
        /// The request.
        id: u32,
        /// The entity.
        path: Arc<str>,
        /// The session, and the end of its lock.
        result: Result<(Arc<str>, Timestamp), Rejection>,
    },
    /// The answer to a command of the transport's.
    Answer {
        /// The place of its request, which is taken out when all of it is answered.
        slot: usize,
        /// Which of its commands.
        index: usize,
        /// The answer.
        result: Result<Outcome, Rejection>,
    },
}

/// The links of one connection. `T` is what the transport remembers of what it asks.
pub struct Links<G: Engine, T> {
    engine: G,
    outlet: Arc<dyn Outlet>,
    links: HashMap<u32, Link<G::Entity>>,
    receivers: HashMap<ReceiverId, u32>,
    /// What was delivered and is not settled.
    pub unsettled: Unsettled,
    pending: PendingTable<Expect<T>>,
    /// Requests that wait, by the id that the client gave them.
    waits: HashMap<u32, (Ticket, u32)>,
    /// Commands to be handed over, by link.
    groups: Vec<(u32, Vec<Request>)>,
    /// What receives that are not answered may bring.
    promised_bytes: u64,
    window_bytes: u64,
    unsettled_max: u32,
    paused: bool,
    /// Nothing more is told of deliveries: the connection is about to end.
    returning: bool,
}

/// A link gets at least this share of its connection's window.
const LINK_BYTES_MIN: u64 = 64 << 10;

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
            unsettled: Unsettled::default(),
            pending: PendingTable::default(),
            waits: HashMap::new(),
            groups: Vec::new(),
            promised_bytes: 0,
            window_bytes,
            unsettled_max,
            paused: false,
            returning: false,
        }
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

    /// All links, to be changed, with their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Link<G::Entity>)> {
        self.links.iter_mut().map(|(number, link)| (*number, link))
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
            Released::Delivery { receiver, .. } | Released::Detached { receiver, .. } => {
                self.of_receiver(*receiver)
            }
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
        let link = Link::new(entity, path, role, mode, self.engine.receiver_id());
        if role == Role::Receiver {
            self.receivers.insert(link.receiver, number);
        }
        self.links.insert(number, link);
    }

    /// Lets a receiver that was just attached be sent so far; the request is answered when the entity
    /// has agreed.
    pub fn attach_flow(&mut self, number: u32, up_to: u32, id: u32, permit: Arc<Permit>) {
        self.start_flow(number, up_to, Expect::Attached, id, Some(permit));
    }

    fn start_flow(
        &mut self,
        number: u32,
        up_to: u32,
        expect: Expect<T>,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let attach = link.attach();
        link.up_to = up_to;
        link.flow = Some(Flow::new(link.last));
        let slot = self.expect(id, number, expect, permit);
        self.submit(number, attach, correlation(slot, 0));
        self.limit(number);
    }

    /// Sets how far a receiver may be sent.
    pub fn credit(&mut self, number: u32, up_to: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.flow.is_some() {
            link.up_to = up_to;
            self.limit(number);
        } else {
            self.start_flow(number, up_to, Expect::Attached, 0, None);
        }
    }

    /// Gives back credit that cannot be used now. Answers what is left at once if there is no flow.
    ///
    /// # Errors
    /// `InvalidOperation` while another drain is under way.
    pub fn drain(
        &mut self,
        number: u32,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) -> Result<Option<u64>, Rejection> {
        let Some(link) = self.links.get_mut(&number) else { return Ok(None) };
        let receiver = link.receiver;
        let Some(flow) = &mut link.flow else {
            link.up_to = link.last;
            return Ok(Some(0));
        };
        if flow.draining {
            let detail = format!("link {number} is being drained already");
            return Err(Rejection::invalid_operation(detail));
        }
        let limits = flow.drain();
        let slot = self.expect(id, number, Expect::Drained, permit);
        self.submit(number, grant(receiver, limits), correlation(slot, 0));
        Ok(None)
    }

    /// Tells the entity how far a link may be sent, if that has changed enough.
    pub fn limit(&mut self, number: u32) {
        let bounds = self.bounds();
        let unsettled_count = self.unsettled.count(number);
        let Some(link) = self.links.get_mut(&number) else { return };
        let receiver = link.receiver;
        let Some(limits) = link.new_limits(bounds, unsettled_count) else { return };
        let slot = self.expect(0, number, Expect::Unheard, None);
        self.submit(number, grant(receiver, limits), correlation(slot, 0));
    }

    /// The same for all receivers.
    pub fn limit_all(&mut self) {
        let numbers: Vec<u32> = self.receivers.values().copied().collect();
        for number in numbers {
            self.limit(number);
        }
    }

    /// The same for those that are full of unsettled deliveries, whose locks may have ended. Not those
    /// of a session: they end with its lock, and what is said of them afterwards must tell so (SES-15).
    pub fn limit_full(&mut self, now: Timestamp) {
        let full: Vec<u32> = self
            .links
            .keys()
            .copied()
            .filter(|number| self.unsettled.count(*number) >= self.unsettled_max)
            .collect();
        for number in full {
            if self.links.get(&number).is_some_and(|link| link.session().is_none()) {
                self.unsettled.forget_ended(number, now);
            }
            self.limit(number);
        }
    }

    /// Nothing more is to be delivered for now, or again.
    pub const fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// What is delivered from now on goes back at once.
    pub const fn return_deliveries(&mut self) {
        self.paused = true;
        self.returning = true;
    }

    /// So many bytes of deliveries of a link are with the client.
    pub fn taken(&mut self, number: u32, bytes: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            link.give_back(bytes);
        }
    }

    /// Whether a receive that does not wait may be asked for: there is room for what it may bring, beside
    /// what others may.
    #[must_use]
    pub const fn may_receive(&self, room_bytes: u64) -> bool {
        self.promised_bytes == 0 || self.promised_bytes + RECEIVE_BYTES_MIN <= room_bytes
    }

    /// Asks for messages that are there, or waits for them.
    pub fn receive(
        &mut self,
        number: u32,
        count_max: u32,
        wait: TimeSpan,
        room_bytes: u64,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get(&number) else { return };
        let most = self.window_bytes.max(RECEIVE_BYTES_MIN);
        let waits = wait > TimeSpan::ZERO;
        let left = room_bytes.saturating_sub(self.promised_bytes);
        // One that waits leaves most of the room to those that do not, who would wait for its end.
        let share = if waits { left / 4 } else { left };
        let bytes_max = share.clamp(RECEIVE_BYTES_MIN, most);
        let command = match link.source {
            Source::Session(_) => {
                link.in_session(SessionCommand::Receive { count_max, bytes_max, wait })
            }
            Source::Queue | Source::Awaited => Command::Receive {
                mode: link.mode,
                count_max,
                bytes_max,
                wait,
                holder: Some(link.receiver),
            },
        };
        self.promised_bytes += bytes_max;
        // A receive that waits holds little, and no room.
        let permit = permit.filter(|_| !waits);
        let slot = self.expect(id, number, Expect::Messages(bytes_max), permit);
        let ticket = self.submit(number, command, correlation(slot, 0));
        if waits {
            self.waits.insert(id, (ticket, number));
        }
    }

    /// Asks for something that is answered with messages.
    pub fn look(&mut self, number: u32, command: Command, id: u32, permit: Option<Arc<Permit>>) {
        let slot = self.expect(id, number, Expect::Messages(0), permit);
        self.submit(number, command, correlation(slot, 0));
    }

    /// Locks a session for a link that was just attached, or waits for one.
    pub fn accept(
        &mut self,
        number: u32,
        session: Option<Box<str>>,
        wait: TimeSpan,
        credit: u32,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.source = Source::Awaited;
        let (receiver, mode) = (link.receiver, link.mode);
        let command = Command::AcceptSession { session, receiver, mode, wait };
        let waits = wait > TimeSpan::ZERO;
        let permit = permit.filter(|_| !waits);
        let slot = self.expect(id, number, Expect::Accepted(credit), permit);
        let ticket = self.submit(number, command, correlation(slot, 0));
        if waits {
            self.waits.insert(id, (ticket, number));
        }
    }

    /// Ends a request that waits: a receive is answered with nothing, an accept with
    /// `OperationCancelled`.
    pub fn withdraw(&mut self, id: u32) {
        let Some((call, link)) = self.waits.remove(&id) else { return };
        let slot = self.expect(0, link, Expect::Unheard, None);
        self.submit(link, Command::CancelReceive { call }, correlation(slot, 0));
    }

    /// The same for all.
    pub fn withdraw_all(&mut self) {
        let ids: Vec<u32> = self.waits.keys().copied().collect();
        for id in ids {
            self.withdraw(id);
        }
    }

    /// Begins to end a link whose client detaches it.
    pub fn detach(&mut self, number: u32, closing: Closing) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.closing = Some(closing);
        if link.flow.is_none() {
            self.is_quiet(number);
            return;
        }
        self.stop(number);
    }

    /// A session lock was prolonged, and with it all locks under it (SES-14).
    pub fn session_renewed(&mut self, number: u32, until: Timestamp) {
        self.unsettled.renewed_all(number, until);
    }

    /// A delivery is settled, or its lock is over; there may be room for more.
    pub fn settled(&mut self, token: LockToken) -> Option<Held> {
        self.unsettled.settled(token)
    }

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

    /// Takes what came from an entity, whose contents are here as far as they can be read.
    pub fn take(&mut self, released: Released) -> Event {
        match released {
            Released::Delivery { receiver, message } => self.deliver(receiver, message),
            Released::Detached { receiver, reason } => self.stopped(receiver, reason),
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

    /// Gives messages back whose delivery has not begun (RCV-14).
    pub fn give_back(&mut self, number: u32, tokens: impl IntoIterator<Item = LockToken>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.undelivered.extend(tokens);
        for token in std::mem::take(&mut link.undelivered) {
            let slot = self.expect(0, number, Expect::Unheard, None);
            let command = Command::Settle { token, settlement: Settlement::Release };
            self.submit(number, command, correlation(slot, 0));
        }
    }

    /// The store has lost content: the flow ends, and its client is to be told.
    pub fn break_flow(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.flow = None;
        let receiver = link.receiver;
        let slot = self.expect(0, number, Expect::Unheard, None);
        let detach = Command::Detach { receiver, end: LinkEnd::ByBroker };
        self.submit(number, detach, correlation(slot, 0));
    }

    /// Has everything end that may still bring messages; see [`Self::brings`].
    pub fn begin_end(&mut self) {
        let flowing = self.links.iter().filter(|(_, link)| link.flow.is_some());
        let flowing: Vec<u32> = flowing.map(|(number, _)| *number).collect();
        for number in flowing {
            self.stop(number);
        }
        self.withdraw_all();
        self.hand_over();
    }

    /// How many answers may still bring messages.
    #[must_use]
    pub fn brings(&self) -> usize {
        self.pending.count(|expect| matches!(expect, Expect::Quiet | Expect::Messages(_)))
    }

    /// Takes something of which nobody will be told: messages go back. Returns how many were taken out of
    /// their entity for good, and are lost with it.
    pub fn abandon(&mut self, released: Released) -> u64 {
        match released {
            Released::Delivery { receiver, message } => {
                self.abandon_messages(self.of_receiver(receiver), std::slice::from_ref(&message))
            }
            Released::Answer { correlation, result } => {
                let (slot, _) = place(correlation);
                if let Some(Expect::Asked(_)) = self.pending.get(slot).map(|it| &it.expect) {
                    return 0;
                }
                let Some(pending) = self.pending.remove(slot) else { return 0 };
                match (pending.expect, result) {
                    (Expect::Messages(promised), Ok(Outcome::Received(messages))) => {
                        self.promised_bytes = self.promised_bytes.saturating_sub(promised);
                        self.abandon_messages(Some(pending.link), &messages)
                    }
                    _ => 0,
                }
            }
            Released::Detached { .. } => 0,
        }
    }

    /// Gives everything back that was not told, and detaches all links.
    pub fn finish_end(&mut self, end: LinkEnd) {
        let numbers: Vec<u32> = self.links.keys().copied().collect();
        for number in numbers {
            self.give_back(number, None);
            let Some(link) = self.links.get(&number) else { continue };
            let receiver = link.receiver;
            let slot = self.expect(0, number, Expect::Unheard, None);
            self.submit(number, Command::Detach { receiver, end }, correlation(slot, 0));
        }
        self.hand_over();
    }

    fn bounds(&self) -> Bounds {
        let receivers = self.receivers.len().max(1) as u64;
        Bounds {
            window_bytes: (self.window_bytes / receivers).max(LINK_BYTES_MIN),
            unsettled_max: self.unsettled_max,
            paused: self.paused,
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

    /// Tells the entity to deliver nothing more.
    fn stop(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let receiver = link.receiver;
        link.flow = None;
        // The id of the detach stays in use.
        let id = link.closing.map_or(0, |closing| closing.id);
        let slot = self.expect(id, number, Expect::Quiet, None);
        let nothing = Limits { delivery_limit: 0, byte_limit: 0, drain: Drain::No };
        self.submit(number, grant(receiver, nothing), correlation(slot, 0));
    }

    /// Nothing more will come for a link that is being closed: it is detached.
    fn is_quiet(&mut self, number: u32) {
        self.give_back(number, None);
        let Some(link) = self.links.get(&number) else { return };
        let receiver = link.receiver;
        let closing = link.closing.unwrap_or(Closing { id: 0, end: LinkEnd::Orderly });
        let slot = self.expect(closing.id, number, Expect::Detached, None);
        let detach = Command::Detach { receiver, end: closing.end };
        self.submit(number, detach, correlation(slot, 0));
    }

    fn remove(&mut self, number: u32) {
        if let Some(link) = self.links.remove(&number) {
            self.receivers.remove(&link.receiver);
            self.unsettled.forget(number);
        }
    }

    fn deliver(&mut self, receiver: ReceiverId, message: Box<ReceivedMessage>) -> Event {
        let Some(number) = self.of_receiver(receiver) else { return Event::Nothing };
        let Some(link) = self.links.get_mut(&number) else { return Event::Nothing };
        let lock = message.facts.lock;
        if link.closing.is_some() {
            // Its delivery has not begun: it goes back as if it had never been taken (RCV-14).
            link.undelivered.extend(lock.map(|lock| lock.token));
            return Event::Nothing;
        }
        if self.returning {
            self.give_back(number, lock.map(|lock| lock.token));
            return Event::Nothing;
        }
        let is_here = |content: &ContentRef| content.loaded().is_some();
        if !is_here(&message.content) || !message.overlays.iter().all(is_here) {
            let path = Arc::clone(&link.path);
            self.give_back(number, lock.map(|lock| lock.token));
            self.break_flow(number);
            let reason = Rejection::internal("the content of a message cannot be read");
            return Event::Stopped { link: number, path, reason };
        }
        link.last = link.last.saturating_add(1);
        let delivery = link.last;
        if let Some(lock) = lock {
            self.unsettled.insert(Held { link: number, number: delivery }, lock);
        }
        Event::Delivered { link: number, number: delivery, message }
    }

    fn stopped(&mut self, receiver: ReceiverId, reason: Rejection) -> Event {
        let Some(number) = self.of_receiver(receiver) else { return Event::Nothing };
        let Some(link) = self.links.get_mut(&number) else { return Event::Nothing };
        link.flow = None;
        Event::Stopped { link: number, path: Arc::clone(&link.path), reason }
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
            Expect::Drained => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.drained();
                }
                let result = match result {
                    Ok(Outcome::Granted { unused }) => {
                        self.limit(number);
                        Ok(unused)
                    }
                    Ok(_) => Err(unexpected()),
                    Err(rejection) => Err(rejection),
                };
                Event::Drained { id, path, result }
            }
            Expect::Messages(promised) => {
                self.promised_bytes = self.promised_bytes.saturating_sub(promised);
                self.waits.remove(&id);
                let (result, taken_count) = match result {
                    Ok(Outcome::Received(messages)) => {
                        let taken = messages.iter().filter(|it| it.facts.lock.is_none()).count();
                        (Ok(messages), taken as u64)
                    }
                    Ok(Outcome::Peeked(messages)) => (Ok(messages), 0),
                    Ok(_) => (Err(unexpected()), 0),
                    Err(rejection) => (Err(rejection), 0),
                };
                Event::Messages { id, link: number, path, result, taken_count }
            }
            Expect::Accepted(credit) => self.accepted(id, number, credit, path, result),
        }
    }

    /// A receiver that was asked for with credit and cannot be attached is gone; one that got its credit
    /// later stays, without it.
    fn attached(
        &mut self,
        id: u32,
        number: u32,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        let Err(reason) = result else { return Event::Done { id, path, result: Ok(()) } };
        if let Some(link) = self.links.get_mut(&number) {
            link.flow = None;
        }
        if id == 0 {
            return Event::Stopped { link: number, path, reason };
        }
        self.remove(number);
        Event::Done { id, path, result: Err(reason) }
    }

    /// An accept is answered: there is a link now, or none.
    fn accepted(
        &mut self,
        id: u32,
        number: u32,
        credit: u32,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        self.waits.remove(&id);
        let result = match result {
            Ok(Outcome::SessionAccepted { session, locked_until, way, .. }) => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.entity = link.entity.by_way_of(way);
                    link.source = Source::Session((*session).into());
                    link.up_to = credit;
                    link.flow = Some(Flow::new(link.last));
                }
                self.limit(number);
                Ok((session, locked_until))
            }
            other => {
                self.remove(number);
                Err(other.err().unwrap_or_else(unexpected))
            }
        };
        Event::Accepted { id, path, result }
    }

    /// Locks are noted to be given back; what was taken under none is lost, and counted.
    fn abandon_messages(&mut self, link: Option<u32>, messages: &[impl AsMessage]) -> u64 {
        let locks = messages.iter().filter_map(|it| it.as_message().facts.lock);
        let tokens: Vec<LockToken> = locks.map(|lock| lock.token).collect();
        let lost = messages.len() - tokens.len();
        if let Some(link) = link.and_then(|link| self.links.get_mut(&link)) {
            link.undelivered.extend(tokens);
        }
        lost as u64
    }
}

/// A message, however it is held.
trait AsMessage {
    fn as_message(&self) -> &ReceivedMessage;
}

impl AsMessage for ReceivedMessage {
    fn as_message(&self) -> &ReceivedMessage {
        self
    }
}

impl AsMessage for Box<ReceivedMessage> {
    fn as_message(&self) -> &ReceivedMessage {
        self
    }
}

const fn grant(receiver: ReceiverId, limits: Limits) -> Command {
    Command::Grant {
        receiver,
        delivery_limit: limits.delivery_limit,
        byte_limit: limits.byte_limit,
        drain: limits.drain,
    }
}

fn unexpected() -> Rejection {
    Rejection::internal("unexpected answer")
}

//! The engine of a connection: the data, the steps and the loop that are alike in all protocols
//! with links. A protocol decodes requests, encodes events, and closes ([`Protocol`], [`Serve`]).
//!
//! The loop, [`Serve::serve`]; each turn does everything that waits for nothing, then waits for the
//! next:
//!
//! ```text
//!   ┌─► carry out requests ─► collect events ─► encode ─► hand over ─► wait ─► take the turn ─┐
//!   └─────────────────────────────────────────────────────────────────────────────────────────┘
//!        place needed, stop, bytes written, mail, slow client, room or permit, bytes read, time
//! ```
//!
//! The phases of its requests, [`Phase`]; only in `Open` are they carried out:
//!
//! ```text
//!                   no permit                no room for answers (WebSocket)
//!   NeedsPermit ◄─────────────┐        ┌──────────────► NeedsRoom
//!        └────── permit ────► │  Open  │ ◄──── room ────────┘
//!        ┌── place found ───► │        │
//!   NeedsPlace ◄──────────────┘        └── closed ────► Closed ─► the end, when all bytes are written
//!        │         no place (AMQP)                         ▲
//!        └───────────── closed ────────────────────────────┘
//! ```
//!
//! Every phase may be cut short: the client disconnects, the listener stops, or another client
//! needs the place. A stop ([`Turn::Stop`]) changes no phase: deliveries stop, and requests go on
//! until the deadline.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use peeklock_core::permits::{Budget, Permit};
use peeklock_core::request::Released;
use peeklock_core::transaction::Transactions;
use peeklock_core::{Access, Broker};
use peeklock_listen::Lookout;
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::account::Account;
use crate::apart::{Apart, Finished, do_apart};
use crate::arrivals::{Arrivals, Mail, Mailbox, Next};
use crate::links::{Event, Links};
use crate::place::Standing;
use crate::steps::Steps;
use crate::taking::Taking;

/// The connection of a protocol, around its engine.
pub trait Protocol: Send + Sized {
    /// The data that is kept for a request until it is answered.
    type Expect: Send;
    /// A request without a permit.
    type Unpaid: Send;
    /// Requests with a permit that were not carried out.
    type Paid: Send;
    /// The reason why a connection is closed that still writes.
    type Close: Send;
    /// The result of work apart from the connection.
    type Outcome: Send + 'static;

    /// Pieces of work apart that share the bytes which need no shared room.
    const APART_MAX: usize;

    /// Its engine.
    fn engine(&mut self) -> &mut Engine<Self>;

    /// The link in whose order `released` stands.
    fn order_of(&mut self, released: &Released) -> u32 {
        self.engine().links.link_of(released)
    }

    /// Records whether nothing would be missed of the connection. False if its place is needed.
    fn mark_idle(&mut self) -> bool;

    /// Whether another event may be encoded now.
    fn may_emit(&self) -> bool;

    /// Whether there is room for the answers of more work apart.
    fn may_start_apart(&self) -> bool;

    /// Computes the bytes of a result.
    fn measure(&self) -> impl Fn(&Self::Outcome) -> u64 + Send + 'static;

    /// Encodes an event, which holds `held_bytes` of the account.
    fn emit(&mut self, event: Event, held_bytes: u64) -> impl Future<Output = ()> + Send;

    /// Encodes the answer to a request that was carried out apart.
    fn emit_finished(&mut self, finished: Finished<Self::Outcome>);

    /// Takes the mail, and encodes events while that is possible and the account has room. Others
    /// of the thread have their turn in between: a client can cause many events with a few bytes.
    /// Contents in the store are fetched in tasks of their own, so only their links wait for them.
    fn collect(&mut self) -> impl Future<Output = ()> + Send {
        async move {
            self.take_mail();
            self.start_apart();
            self.engine().wanted_bytes = None;
            while let Some((event, held_bytes)) = self.next_event() {
                self.emit(event, held_bytes).await;
                let steps = &mut self.engine().steps;
                steps.add(1);
                steps.rest().await;
            }
            self.engine().fetch();
        }
    }

    /// Brings the mail into the order of each link.
    fn take_mail(&mut self) {
        let mut arrived = Vec::new();
        self.engine().mailbox.take(&mut arrived);
        for mail in arrived {
            match mail {
                Mail::Released(released) => {
                    let order = self.order_of(&released);
                    self.engine().arrivals.push(order, released);
                }
                Mail::Fetched(fetched) => self.engine().arrivals.fetched(fetched),
                Mail::Own(finished) => {
                    self.engine().apart.done(finished.size);
                    self.emit_finished(finished);
                }
            }
        }
    }

    /// The next event, and the bytes of the account that it holds.
    fn next_event(&mut self) -> Option<(Event, u64)> {
        if !self.may_emit() {
            return None;
        }
        let engine = self.engine();
        match engine.arrivals.next(&mut engine.account) {
            Next::Ready(released, held_bytes) => Some((engine.links.take(released), held_bytes)),
            Next::NoRoom(wanted) => {
                engine.wanted_bytes = Some(wanted);
                None
            }
            Next::Nothing => None,
        }
    }

    /// Starts waiting work while there is room for its answers. Work that no entity has received
    /// ends with the connection.
    fn start_apart(&mut self) {
        while self.may_start_apart()
            && let Some(work) = self.engine().apart.next()
        {
            let measure = self.measure();
            let engine = self.engine();
            let mailbox = Arc::clone(&engine.mailbox);
            let outbound = engine.broker.outbound_pool();
            let free_bytes = engine.account.free_bytes() / Self::APART_MAX as u64;
            let alive = engine.alive.subscribe();
            let working = (work.start)();
            let (size, slot, permit) = (work.size, work.slot, work.permit);
            tokio::spawn(async move {
                let _permit = permit;
                let done = do_apart(alive, working, measure, free_bytes, &outbound).await;
                if let Some((result, paid)) = done {
                    mailbox.put(Mail::Own(Finished { size, slot, result, paid }));
                }
            });
        }
    }
}

/// The state of the requests of a connection.
pub enum Phase<P: Protocol> {
    /// Requests are read and carried out in their order.
    Open,
    /// A request waits for its permit: nothing after it is carried out, nothing is read.
    NeedsPermit(P::Unpaid, Pin<Box<dyn Future<Output = Permit> + Send>>),
    /// Requests that have a permit wait for room for their answers, in the same way.
    NeedsRoom(P::Paid),
    /// The next request waits for the place of the connection.
    NeedsPlace,
    /// The connection is closed: requests are passed over.
    Closed(P::Close),
}

/// The stop of a listener, which may begin in every phase.
enum Stop {
    Awaited(Pin<Box<dyn Future<Output = Duration> + Send>>),
    /// Clients can settle until the deadline.
    Begun {
        deadline: Instant,
        timer: Option<Pin<Box<Sleep>>>,
    },
}

/// The data of a connection that its protocol does not change.
pub struct Engine<P: Protocol> {
    /// The broker, at one of its arbiters.
    pub broker: Broker,
    /// The rights of the client.
    pub access: Access,
    /// Permits for commands.
    pub budget: Budget,
    /// The state of its requests.
    pub phase: Phase<P>,
    /// Links, and requests that await answers.
    pub links: Links<Broker, P::Expect>,
    /// Transactions that the client has begun.
    pub transactions: Transactions,
    mailbox: Arc<Mailbox<Finished<P::Outcome>>>,
    /// Events that wait for contents, or for room.
    pub arrivals: Arrivals,
    /// The bytes that are held for the client.
    pub account: Account,
    /// The room that the next event needs and the account does not have.
    wanted_bytes: Option<u64>,
    /// The pace at which the client takes bytes.
    taking: Taking,
    /// Work that takes more than one command.
    pub apart: Apart<P::Outcome>,
    /// Steps since others of the thread had their turn.
    pub steps: Steps,
    /// The place of the connection.
    pub standing: Standing,
    /// The stop of the listener.
    stop: Stop,
    /// Looks for the end of the client while nothing is read.
    pub(crate) lookout: Lookout,
    /// Whether the client has disconnected while nothing was read.
    pub peer_disconnected: bool,
    /// Its receivers see when it is replaced: the connection has ended.
    alive: watch::Sender<()>,
}

impl<P: Protocol> Engine<P> {
    /// Creates an engine without links. `stop` resolves when the listener begins to stop. At most
    /// about `window_bytes` of deliveries are under way, and at most `unsettled_max` deliveries of
    /// a link are unsettled.
    #[must_use]
    pub fn new(
        broker: Broker,
        access: Access,
        stop: impl Future<Output = Duration> + Send + 'static,
        account: Account,
        window_bytes: u64,
        unsettled_max: u32,
    ) -> Self {
        let mailbox: Arc<Mailbox<_>> = Arc::default();
        let outlet = Arc::clone(&mailbox) as Arc<_>;
        Self {
            access,
            budget: broker.connection_budget(),
            phase: Phase::Open,
            links: Links::new(broker.clone(), outlet, window_bytes, unsettled_max),
            transactions: Transactions::new(&broker),
            mailbox,
            arrivals: Arrivals::default(),
            account,
            wanted_bytes: None,
            taking: Taking::default(),
            apart: Apart::default(),
            steps: Steps::default(),
            standing: Standing::default(),
            stop: Stop::Awaited(Box::pin(stop)),
            lookout: Lookout::default(),
            peer_disconnected: false,
            alive: watch::Sender::new(()),
            broker,
        }
    }

    /// Whether there is mail, or an event that waited has room now.
    pub fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        let has_room = match self.wanted_bytes {
            Some(bytes) => self.account.poll_room(bytes, context).is_ready(),
            None => true,
        };
        (has_room && !self.arrivals.is_idle()) || self.mailbox.poll(context).is_ready()
    }

    /// Ready if the client has to give up all that it holds: others wait for the room, and it is
    /// slow. It has taken `taken_bytes` in all; none if nothing waits for it.
    pub fn poll_yield(&mut self, taken_bytes: Option<u64>, context: &mut Context<'_>) -> Poll<()> {
        let held = (&self.account, &self.budget);
        self.taking.poll(taken_bytes, self.account.held_bytes(), held, context)
    }

    /// Fetches contents in a task of their own.
    fn fetch(&mut self) {
        if self.wanted_bytes.is_none() {
            self.account.want_nothing();
        }
        for fetch in self.arrivals.fetches() {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move { mailbox.put(Mail::Fetched(fetch.run().await)) });
        }
    }

    /// Holds a request until there is a permit for `count` commands of `bytes`.
    pub fn hold(&mut self, request: P::Unpaid, count: u64, bytes: u64) {
        let budget = self.budget.clone();
        let permit = Box::pin(async move { budget.acquire_list(count, bytes).await });
        self.phase = Phase::NeedsPermit(request, permit);
    }

    /// Ready with the request that was held and its permit; the next ones can be carried out.
    pub fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<(P::Unpaid, Permit)> {
        let Phase::NeedsPermit(_, permit) = &mut self.phase else { return Poll::Pending };
        let permit = ready!(permit.as_mut().poll(context));
        match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::NeedsPermit(request, _) => Poll::Ready((request, permit)),
            _ => Poll::Pending,
        }
    }

    /// Ready once with the time that clients have when the stop of the listener begins, and once
    /// with none when that time is over.
    pub fn poll_stop(&mut self, context: &mut Context<'_>) -> Poll<Option<Duration>> {
        match &mut self.stop {
            Stop::Awaited(stop) => {
                let grace = ready!(stop.as_mut().poll(context));
                let deadline = Instant::now() + grace;
                let timer = Some(Box::pin(tokio::time::sleep_until(deadline.into())));
                self.stop = Stop::Begun { deadline, timer };
                Poll::Ready(Some(grace))
            }
            Stop::Begun { timer, .. } => {
                let Some(sleep) = timer else { return Poll::Pending };
                ready!(sleep.as_mut().poll(context));
                *timer = None;
                Poll::Ready(None)
            }
        }
    }

    /// The end of the time that clients have, once the stop has begun.
    pub const fn stop_deadline(&self) -> Option<Instant> {
        match self.stop {
            Stop::Awaited(_) => None,
            Stop::Begun { deadline, .. } => Some(deadline),
        }
    }

    /// Whether requests are carried out.
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether a request waits for its permit.
    pub const fn needs_permit(&self) -> bool {
        matches!(self.phase, Phase::NeedsPermit(..))
    }

    /// Whether the next request waits for the place of the connection.
    pub const fn needs_place(&self) -> bool {
        matches!(self.phase, Phase::NeedsPlace)
    }

    /// Whether the connection is closed.
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    /// Stops deliveries and receives; the client can still settle.
    pub fn stop_flows(&mut self) {
        self.links.return_deliveries();
        self.links.withdraw_all();
        self.links.limit_all();
        self.links.hand_over();
    }

    /// Ends requests and work that no entity has received.
    pub fn cancel(&mut self) {
        self.phase = Phase::Open;
        self.apart.clear();
        self.alive = watch::Sender::new(());
    }

    /// Has entities deliver nothing more, and waits for their answers. Returns the number of lost
    /// messages: nobody stores them any more and the client does not have them (RCV-02).
    pub async fn quiet(&mut self) -> u64 {
        self.links.begin_end();
        let mut lost_count = 0;
        for released in self.arrivals.drain(&mut self.account) {
            lost_count += self.links.abandon(released);
        }
        self.account.clear();
        lost_count + self.links.quiet(&self.mailbox).await
    }
}

/// The next thing that happens on a connection.
pub enum Turn<P: Serve<S>, S: Send> {
    /// Another client needs its place.
    PlaceNeeded,
    /// The listener is being stopped, and waits for this time.
    Stop(Duration),
    /// The listener waits no longer.
    Deadline,
    /// A turn of the protocol, such as bytes that the socket has taken.
    Own(P::Own),
    /// There is mail, or something to encode.
    Mail,
    /// The connection ends, because it holds up others.
    End(P::End),
    /// The request that was held has its permit.
    Permit(P::Unpaid, Permit),
    /// There is room for the answers to the requests that were held.
    Room(P::Paid),
    /// The client has disconnected. Nothing is read, so its last requests are still to come.
    Disconnected,
    /// Time has passed.
    Tick,
}

/// The next turn, as soon as there is one.
pub type NextTurn<P, S> = Poll<Turn<P, S>>;

/// A protocol on a socket.
pub trait Serve<S: Send>: Protocol {
    /// Its own turns.
    type Own: Send;
    /// The way in which a connection ends.
    type End: Send;

    /// Does everything that waits for nothing.
    ///
    /// # Errors
    /// The end, if nothing is left to be done.
    fn advance(&mut self) -> impl Future<Output = Result<(), Self::End>> + Send;

    /// Ready with its own turns that come before mail.
    fn poll_own(&mut self, socket: &mut S, context: &mut Context<'_>) -> NextTurn<Self, S>;

    /// Whether there is mail that can be taken, or something to encode.
    fn has_mail(&mut self, context: &mut Context<'_>) -> bool;

    /// Ready if the client is slow, and holds room for which others wait.
    fn poll_slow(&mut self, socket: &mut S, context: &mut Context<'_>) -> Poll<Self::End>;

    /// The requests that were held, if there is room for their answers now.
    fn take_held(&mut self) -> Option<Self::Paid> {
        None
    }

    /// Reads from the socket; none if nothing may be read.
    fn poll_read(&mut self, socket: &mut S, context: &mut Context<'_>)
    -> Option<NextTurn<Self, S>>;

    /// Whether the end of the client has arrived at the socket, after bytes that are not read.
    fn has_ended(socket: &S) -> bool;

    /// Ready when time has passed.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Takes a turn.
    ///
    /// # Errors
    /// The end of the connection.
    fn take(
        &mut self,
        turn: Turn<Self, S>,
        socket: &mut S,
    ) -> impl Future<Output = Result<(), Self::End>> + Send;

    /// Serves a socket to its end.
    fn serve(&mut self, socket: &mut S) -> impl Future<Output = Self::End> + Send {
        async move {
            loop {
                if let Err(end) = self.advance().await {
                    return end;
                }
                let turn = match self.mark_idle() {
                    true => poll_fn(|context| self.poll_turn(socket, context)).await,
                    false => Turn::PlaceNeeded,
                };
                if let Err(end) = self.take(turn, socket).await {
                    return end;
                }
            }
        }
    }

    /// Ready with the next turn. Turns without a socket come first: a client that sends without
    /// pause does not keep its place by that. Requests are read last, and only if there is room for
    /// their answers.
    fn poll_turn(&mut self, socket: &mut S, context: &mut Context<'_>) -> NextTurn<Self, S> {
        let engine = self.engine();
        if engine.standing.poll_needed(context).is_ready() {
            return Poll::Ready(Turn::PlaceNeeded);
        }
        if let Poll::Ready(grace) = engine.poll_stop(context) {
            return Poll::Ready(grace.map_or(Turn::Deadline, Turn::Stop));
        }
        if let Poll::Ready(turn) = self.poll_own(socket, context) {
            return Poll::Ready(turn);
        }
        if self.has_mail(context) {
            return Poll::Ready(Turn::Mail);
        }
        if let Poll::Ready(end) = self.poll_slow(socket, context) {
            return Poll::Ready(Turn::End(end));
        }
        if let Some(requests) = self.take_held() {
            return Poll::Ready(Turn::Room(requests));
        }
        if let Poll::Ready((request, permit)) = self.engine().poll_permit(context) {
            return Poll::Ready(Turn::Permit(request, permit));
        }
        let read = self.poll_read(socket, context);
        let engine = self.engine();
        match read {
            Some(read) => {
                engine.lookout.rest();
                if read.is_ready() {
                    return read;
                }
            }
            None if engine.peer_disconnected => {}
            None => {
                let has_ended = || Self::has_ended(socket);
                if engine.lookout.poll(has_ended, context).is_ready() {
                    return Poll::Ready(Turn::Disconnected);
                }
            }
        }
        self.poll_timer(context).map(|()| Turn::Tick)
    }
}

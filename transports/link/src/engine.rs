//! The engine of a connection: the data, the steps and the loop that are alike in all protocols
//! with links. A protocol decodes requests, encodes events, and closes ([`Protocol`], [`ConnectionLoop`]).
//!
//! The loop, [`ConnectionLoop::serve`]; each turn does everything that waits for nothing, then waits for the
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
//! Every phase may end early: the client disconnects, the listener stops, or another client needs
//! the place. A stop ([`NextStep::Stop`]) changes no phase: deliveries stop, and requests continue
//! until the deadline.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use peeklock_core::admission::{Account, Budget, ClientPace, ConnectionPlace, Permit};
use peeklock_core::clients::ClientGuard;
use peeklock_core::request::Released;
use peeklock_core::transaction::Transactions;
use peeklock_core::{Access, Broker};
use peeklock_listen::Lookout;
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::arrivals::{Arrivals, Mail, Mailbox, NextMail};
use crate::background::{BackgroundWork, FinishedWork, run_in_background};
use crate::links::{Event, Links};
use crate::steps::Steps;

/// Connection of a protocol, built around its engine.
pub trait Protocol: Send + Sized {
    /// Data that the protocol keeps for a request until it is answered.
    type PendingAnswer: Send;
    /// Request without a permit.
    type Unpaid: Send;
    /// Requests with a permit that are not carried out yet.
    type Paid: Send;
    /// Reason for closing a connection that still writes.
    type Close: Send;
    /// Result of background work.
    type Outcome: Send + 'static;

    /// Divisor of the free bytes of the account: each piece of background work may use that part
    /// for its result without shared room. It is no limit on the number of pieces.
    const BACKGROUND_MAX: usize;

    /// Engine of this connection.
    fn engine(&mut self) -> &mut Engine<Self>;

    /// Number of the link whose order `released` belongs to.
    fn ordering_link(&mut self, released: &Released) -> u32 {
        self.engine().links.link_of(released)
    }

    /// Records whether the connection is idle, so that it may be closed for another client. False
    /// if its place was needed and is taken already.
    fn mark_idle(&mut self) -> bool;

    /// Whether another event may be encoded now.
    fn may_emit(&self) -> bool;

    /// Whether there is room for the answers of more background work.
    fn may_start_background(&self) -> bool;

    /// Computes the bytes of a result.
    fn measure(&self) -> impl Fn(&Self::Outcome) -> u64 + Send + 'static;

    /// Encodes an event that holds `held_bytes` of the account.
    fn emit(&mut self, event: Event, held_bytes: u64) -> impl Future<Output = ()> + Send;

    /// Encodes the answer to a request that was carried out in the background.
    fn emit_finished(&mut self, finished: FinishedWork<Self::Outcome>);

    /// Takes the mail, and encodes events while the protocol allows it and the account has room.
    /// Yields to other connections of the thread in between, since a client can cause many events
    /// with a few bytes. Contents in the store are fetched in separate tasks, so only their links
    /// wait for them.
    fn collect(&mut self) -> impl Future<Output = ()> + Send {
        async move {
            self.take_mail();
            self.start_background();
            self.engine().wanted_bytes = None;
            while let Some((event, held_bytes)) = self.next_event() {
                self.emit(event, held_bytes).await;
                let steps = &mut self.engine().steps;
                steps.add(1);
                steps.yield_if_due().await;
            }
            self.engine().fetch();
        }
    }

    /// Passes the mail to the arrivals, which keep the order of each link.
    fn take_mail(&mut self) {
        let mut arrived = Vec::new();
        self.engine().mailbox.take(&mut arrived);
        for mail in arrived {
            match mail {
                Mail::Released(released) => {
                    let order = self.ordering_link(&released);
                    self.engine().arrivals.push(order, released);
                }
                Mail::Fetched(fetched) => self.engine().arrivals.fetched(fetched),
                Mail::Own(finished) => {
                    self.engine().background.done(finished.size);
                    self.emit_finished(finished);
                }
            }
        }
    }

    /// Next event, and the bytes of the account that it holds.
    fn next_event(&mut self) -> Option<(Event, u64)> {
        if !self.may_emit() {
            return None;
        }
        let engine = self.engine();
        match engine.arrivals.next(&mut engine.account) {
            NextMail::Ready(released, held_bytes) => {
                Some((engine.links.handle_released(released), held_bytes))
            }
            NextMail::NoRoom(wanted) => {
                engine.wanted_bytes = Some(wanted);
                None
            }
            NextMail::Nothing => None,
        }
    }

    /// Starts waiting work while there is room for its answers. Work that no entity has received
    /// yet ends with the connection.
    fn start_background(&mut self) {
        while self.may_start_background()
            && let Some(work) = self.engine().background.next()
        {
            let measure = self.measure();
            let engine = self.engine();
            let mailbox = Arc::clone(&engine.mailbox);
            let outbound = engine.broker.outbound_pool();
            let free_bytes = engine.account.free_bytes() / Self::BACKGROUND_MAX as u64;
            let alive = engine.alive.subscribe();
            let working = (work.start)();
            let (size, slot, permit) = (work.size, work.slot, work.permit);
            tokio::spawn(async move {
                let _permit = permit;
                let done = run_in_background(alive, working, measure, free_bytes, &outbound).await;
                if let Some((result, room)) = done {
                    mailbox.put(Mail::Own(FinishedWork { size, slot, result, room }));
                }
            });
        }
    }
}

/// State of the requests of a connection.
pub enum Phase<P: Protocol> {
    /// Requests are read and carried out in their order.
    Open,
    /// A request waits for its permit. No later request is carried out, and nothing is read.
    NeedsPermit(P::Unpaid, Pin<Box<dyn Future<Output = Permit> + Send>>),
    /// Requests with a permit wait for room for their answers. No later request is carried out, and
    /// nothing is read.
    NeedsRoom(P::Paid),
    /// The next request waits for the place of the connection.
    NeedsPlace,
    /// The connection is closed. Further requests are ignored.
    Closed(P::Close),
}

/// Stop of a listener, which may begin in every phase.
enum Stop {
    Awaited(Pin<Box<dyn Future<Output = Duration> + Send>>),
    /// The stop has begun. Clients can settle until the deadline.
    Begun {
        deadline: Instant,
        timer: Option<Pin<Box<Sleep>>>,
    },
}

/// Data of a connection that is the same in all protocols.
pub struct Engine<P: Protocol> {
    /// Broker, bound to one of its arbiters.
    pub broker: Broker,
    /// Rights of the client.
    pub access: Access,
    /// The client in the list of clients.
    pub client: Arc<ClientGuard>,
    /// Permits for commands.
    pub budget: Budget,
    /// State of the requests.
    pub phase: Phase<P>,
    /// Links, and requests that await answers.
    pub links: Links<Broker, P::PendingAnswer>,
    /// Open transactions of the client.
    pub transactions: Transactions,
    mailbox: Arc<Mailbox<FinishedWork<P::Outcome>>>,
    /// Events that wait for contents, or for room.
    pub arrivals: Arrivals,
    /// Bytes that are held for the client.
    pub account: Account,
    /// Bytes that the next event needs and the account does not have.
    wanted_bytes: Option<u64>,
    /// Pace at which the client takes bytes.
    client_pace: ClientPace,
    /// Work that takes more than one command.
    pub background: BackgroundWork<P::Outcome>,
    /// Steps since the last yield to other connections of the thread.
    pub steps: Steps,
    /// Place of the connection.
    pub place: ConnectionPlace,
    /// Stop of the listener.
    stop: Stop,
    /// Detects that the client has disconnected while nothing is read.
    pub(crate) lookout: Lookout,
    /// Whether the client has disconnected while nothing was read.
    pub peer_disconnected: bool,
    /// Receivers wake when this is replaced, which means that the connection has ended.
    alive: watch::Sender<()>,
}

impl<P: Protocol> Engine<P> {
    /// Creates an engine without links for a client that is listed as `client`. `stop` resolves
    /// when the listener begins to stop; an operator can close the client, which is a stop without
    /// grace (CON-24). At most about `window_bytes` of deliveries are under way, and at most
    /// `unsettled_max` deliveries of a link are unsettled.
    #[must_use]
    pub fn new(
        broker: Broker,
        access: Access,
        client: ClientGuard,
        stop: impl Future<Output = Duration> + Send + 'static,
        account: Account,
        window_bytes: u64,
        unsettled_max: u32,
    ) -> Self {
        let mailbox: Arc<Mailbox<_>> = Arc::default();
        let outlet = Arc::clone(&mailbox) as Arc<_>;
        let closed = client.closed();
        let stop = async move {
            tokio::select! {
                grace = stop => grace,
                () = closed => Duration::ZERO,
            }
        };
        let client = Arc::new(client);
        let mut links = Links::new(broker.clone(), outlet, window_bytes, unsettled_max);
        links.list_under(Arc::clone(&client));
        Self {
            access,
            budget: broker.connection_budget(),
            phase: Phase::Open,
            links,
            client,
            transactions: Transactions::new(&broker),
            mailbox,
            arrivals: Arrivals::default(),
            account,
            wanted_bytes: None,
            client_pace: ClientPace::default(),
            background: BackgroundWork::default(),
            steps: Steps::default(),
            place: ConnectionPlace::default(),
            stop: Stop::Awaited(Box::pin(stop)),
            lookout: Lookout::default(),
            peer_disconnected: false,
            alive: watch::Sender::new(()),
            broker,
        }
    }

    /// Whether there is mail, or room for an event that waited for it.
    pub fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        let has_room = match self.wanted_bytes {
            Some(bytes) => self.account.poll_wait(bytes, context).is_ready(),
            None => true,
        };
        (has_room && !self.arrivals.is_idle()) || self.mailbox.poll(context).is_ready()
    }

    /// Ready if the client must give up all that it holds, because it is slow and others wait for
    /// the room. `taken_bytes` is the total number of bytes that its socket has taken since the
    /// start of the connection; `None` if nothing waits for the client.
    pub fn poll_yield(&mut self, taken_bytes: Option<u64>, context: &mut Context<'_>) -> Poll<()> {
        let held = (&self.account, &self.budget);
        self.client_pace.poll_evicted(taken_bytes, self.account.held_bytes(), held, context)
    }

    /// Fetches contents in separate tasks.
    fn fetch(&mut self) {
        if self.wanted_bytes.is_none() {
            self.account.end_wait();
        }
        for fetch in self.arrivals.fetches() {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move { mailbox.put(Mail::Fetched(fetch.run().await)) });
        }
    }

    /// Holds a request until there is a permit for `count` commands of `bytes`.
    pub fn wait_for_permit(&mut self, request: P::Unpaid, count: u64, bytes: u64) {
        let budget = self.budget.clone();
        let permit = Box::pin(async move { budget.wait_list(count, bytes).await });
        self.phase = Phase::NeedsPermit(request, permit);
    }

    /// Ready with the held request and its permit. Later requests can then be carried out.
    pub fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<(P::Unpaid, Permit)> {
        let Phase::NeedsPermit(_, permit) = &mut self.phase else { return Poll::Pending };
        let permit = ready!(permit.as_mut().poll(context));
        match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::NeedsPermit(request, _) => Poll::Ready((request, permit)),
            _ => Poll::Pending,
        }
    }

    /// Ready twice: first with the grace for clients when the stop of the listener begins, then
    /// with none when the grace is over.
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

    /// Reason of the stop, for the client.
    #[must_use]
    pub fn stop_reason(&self) -> &'static str {
        match self.client.is_closed() {
            true => "an operator has closed the connection",
            false => "the broker is being stopped",
        }
    }

    /// Deadline of the stop, once it has begun.
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
        self.links.cancel_all_waits();
        self.links.update_all_limits();
        self.links.submit_groups();
    }

    /// Drops requests and work that no entity has received yet.
    pub fn cancel(&mut self) {
        self.phase = Phase::Open;
        self.background.clear();
        self.alive = watch::Sender::new(());
    }

    /// Asks all entities to deliver nothing more, and waits for their answers. Returns the number
    /// of lost messages, which no entity stores any more and which never reached the client
    /// (RCV-02).
    pub async fn end_deliveries(&mut self) -> u64 {
        self.links.begin_end();
        let mut lost_count = 0;
        for released in self.arrivals.drain(&mut self.account) {
            lost_count += self.links.note_undelivered(released);
        }
        self.account.clear();
        lost_count + self.links.await_stopped(&self.mailbox).await
    }
}

/// Next step of a connection.
pub enum NextStep<P: ConnectionLoop<S>, S: Send> {
    /// Another client needs its place.
    PlaceNeeded,
    /// The stop of the listener has begun, with this grace.
    Stop(Duration),
    /// The grace of the stop is over.
    Deadline,
    /// A turn of the protocol, for example after the socket has taken bytes.
    Own(P::Own),
    /// There is mail, or something to encode.
    Mail,
    /// The connection ends, because it blocks room that others wait for.
    End(P::End),
    /// The held request has its permit.
    Permit(P::Unpaid, Permit),
    /// There is room for the answers to the held requests.
    Room(P::Paid),
    /// The client has disconnected while nothing was read, so its last requests are still unread.
    Disconnected,
    /// A timer of the connection has fired.
    Tick,
}

/// The next turn, once there is one.
pub type NextStepPoll<P, S> = Poll<NextStep<P, S>>;

/// Protocol on a socket.
pub trait ConnectionLoop<S: Send>: Protocol {
    /// Turns that only this protocol has.
    type Own: Send;
    /// Reason for the end of a connection.
    type End: Send;

    /// Does all work that does not wait.
    ///
    /// # Errors
    /// The end, if nothing remains to be done.
    fn advance(&mut self) -> impl Future<Output = Result<(), Self::End>> + Send;

    /// Ready with a turn of the protocol that comes before mail.
    fn poll_own(&mut self, socket: &mut S, context: &mut Context<'_>) -> NextStepPoll<Self, S>;

    /// Whether there is mail that can be taken, or something to encode.
    fn has_mail(&mut self, context: &mut Context<'_>) -> bool;

    /// Ready if the client is slow and holds room that others wait for.
    fn poll_slow(&mut self, socket: &mut S, context: &mut Context<'_>) -> Poll<Self::End>;

    /// The held requests, if there is room for their answers now.
    fn take_held(&mut self) -> Option<Self::Paid> {
        None
    }

    /// Reads from the socket; none if nothing may be read.
    fn poll_read(
        &mut self,
        socket: &mut S,
        context: &mut Context<'_>,
    ) -> Option<NextStepPoll<Self, S>>;

    /// Whether the client's end has arrived at the socket behind unread bytes.
    fn has_ended(socket: &S) -> bool;

    /// Ready when a timer of the connection fires.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Handles a turn.
    ///
    /// # Errors
    /// The end of the connection.
    fn take(
        &mut self,
        turn: NextStep<Self, S>,
        socket: &mut S,
    ) -> impl Future<Output = Result<(), Self::End>> + Send;

    /// Serves a socket until the connection ends.
    fn serve(&mut self, socket: &mut S) -> impl Future<Output = Self::End> + Send {
        async move {
            loop {
                if let Err(end) = self.advance().await {
                    return end;
                }
                let turn = match self.mark_idle() {
                    true => poll_fn(|context| self.poll_turn(socket, context)).await,
                    false => NextStep::PlaceNeeded,
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
    fn poll_turn(&mut self, socket: &mut S, context: &mut Context<'_>) -> NextStepPoll<Self, S> {
        let engine = self.engine();
        if engine.place.poll_evicted(context).is_ready() {
            return Poll::Ready(NextStep::PlaceNeeded);
        }
        if let Poll::Ready(grace) = engine.poll_stop(context) {
            return Poll::Ready(grace.map_or(NextStep::Deadline, NextStep::Stop));
        }
        if let Poll::Ready(turn) = self.poll_own(socket, context) {
            return Poll::Ready(turn);
        }
        if self.has_mail(context) {
            return Poll::Ready(NextStep::Mail);
        }
        if let Poll::Ready(end) = self.poll_slow(socket, context) {
            return Poll::Ready(NextStep::End(end));
        }
        if let Some(requests) = self.take_held() {
            return Poll::Ready(NextStep::Room(requests));
        }
        if let Poll::Ready((request, permit)) = self.engine().poll_permit(context) {
            return Poll::Ready(NextStep::Permit(request, permit));
        }
        let read = self.poll_read(socket, context);
        let engine = self.engine();
        match read {
            Some(read) => {
                engine.lookout.rest();
                if read.is_ready() {
                    engine.client.note_activity(engine.broker.now());
                    return read;
                }
            }
            None if engine.peer_disconnected => {}
            None => {
                let has_ended = || Self::has_ended(socket);
                if engine.lookout.poll(has_ended, context).is_ready() {
                    return Poll::Ready(NextStep::Disconnected);
                }
            }
        }
        self.poll_timer(context).map(|()| NextStep::Tick)
    }
}

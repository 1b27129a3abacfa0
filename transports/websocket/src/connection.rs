//! A conversation with one client, over one socket or, if it is resumed, over several in turn.
//! (Data path, step 1 and back.)
//!
//! One task reads, carries out, and writes. Commands of all frames at hand are grouped by link before
//! they go to the entities; what comes back is written once per wake-up. While the socket takes no
//! bytes, nothing is encoded; while there is no permit, nothing is read (DESIGN D6).

mod end;
mod inbound;
mod link;
mod manage;
mod outbound;
mod pending;
mod session;
mod settle;
mod topics;
mod transaction;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use peeklock_core::Broker;
use peeklock_core::command::LinkEnd;
use peeklock_core::contract::Principal;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{ReceiverId, Ticket};
use peeklock_core::permits::{Budget, Permit};
use peeklock_core::request::{Outlet, Request as Mailed};
use peeklock_core::transaction::Transactions;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use self::link::{Bounds, Link};
use self::pending::PendingTable;
use self::transaction::WaitingCommit;
use crate::error::{Close, FrameError, code};
use crate::frame::text::Guid;
use crate::frame::{
    ClientFrame, Encoding, Hello, Item, LIST_COUNT_MAX, Notice, Operation, Request, ServerFrame,
    Welcome, WireError,
};
use crate::mailbox::{Mail, Mailbox};
use crate::site::{Call, Handover, Place, Site, Socket};

/// Frames that are read in one go before what they ask for is handed over.
const FRAMES_PER_TURN: usize = 16;
/// A link gets at least this share of its connection's window.
const LINK_BYTES_MIN: u64 = 64 << 10;
/// How long a close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Calls that others may have put.
const CALLS_MAX: usize = 2;
/// The shortest heartbeat that a client may ask for.
const HEARTBEAT_SECONDS_MIN: u32 = 1;

/// Why a socket is served no more.
enum Ended {
    /// The client closed it in order.
    Orderly,
    /// It broke, with a close to be tried all the same.
    Lost(Option<Close>),
    /// The client did what it may not do.
    Refused(Close),
    /// The client is back on another socket.
    Replaced(Box<Handover>),
    /// Its place is needed.
    Leave,
    /// The listener is being stopped.
    Stopped,
}

/// What happens next.
enum Turn {
    Frame(Option<Result<SocketMessage, SocketError>>),
    Room(Permit),
    Mail,
    Flushed,
    Call(Call),
    Tick,
    Stop(Duration),
}

/// A frame that waits for room.
enum Held {
    /// Not yet decoded.
    Raw(Bytes),
    /// Decoded, and found to need more room.
    Decoded(ClientFrame),
}

/// A frame that was written and that the client may still ask for.
struct Sent {
    /// Empty if it cannot be resumed.
    bytes: Bytes,
    /// Links and the bytes of their deliveries in it.
    deliveries: Vec<(u32, u64)>,
}

type Acquiring = Pin<Box<dyn Future<Output = Permit> + Send>>;
type Stopping = Pin<Box<dyn Future<Output = Duration> + Send>>;

/// The state of a conversation, which outlives its sockets.
pub(crate) struct Conversation {
    site: Arc<Site>,
    broker: Broker,
    place: Place,
    encoding: Encoding,
    principal: Principal,
    calls: mpsc::Receiver<Call>,
    stop: Option<Stopping>,
    resume_token: u128,
    /// How long it may be resumed; none if the client did not ask for it.
    grace: Option<Duration>,
    heartbeat: Duration,

    budget: Budget,
    held: Option<Held>,
    acquiring: Option<Acquiring>,
    /// Frames of the client that were taken.
    seen: u64,
    links: BTreeMap<u32, Link>,
    receivers: HashMap<ReceiverId, u32>,
    pending: PendingTable,
    /// Receives that wait, by the id that the client gave them.
    waits: HashMap<u32, (Ticket, u32)>,
    /// Commands to be handed over, by link.
    groups: Vec<(u32, Vec<Mailed>)>,
    transactions: Transactions,
    /// Commits that wait for the answers to what was asked before them.
    commits: Vec<WaitingCommit>,

    mailbox: Arc<Mailbox>,
    outlet: Arc<dyn Outlet>,
    mail: VecDeque<Mail>,
    /// What is to be written.
    ready: Vec<Item>,
    /// Links and the bytes of the deliveries in `ready`.
    delivered: Vec<(u32, u64)>,
    /// Frames written that the client has not confirmed, or that are not flushed; the last one has
    /// the number `sent`.
    unconfirmed: VecDeque<Sent>,
    unconfirmed_bytes: u64,
    sent: u64,
    /// Frames written again after a resumption, counted from the front of `unconfirmed`.
    unflushed: bool,
    /// When the listener ends it.
    deadline: Option<Instant>,
    /// No deliveries for now: the socket is lost, or the listener is being stopped.
    paused: bool,
    read_since_tick: bool,
    written_since_tick: bool,
    silent_ticks: u32,
    unfinished_ticks: u32,
}

/// Serves a socket after its upgrade, to its end.
pub(crate) async fn converse(site: Arc<Site>, mut socket: Socket, encoding: Encoding) {
    let timeout = site.config.handshake_timeout;
    let hello = match tokio::time::timeout(timeout, hello(&mut socket, encoding)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(None)) => return,
        Ok(Err(Some(refusal))) => return close(&mut socket, &refusal).await,
        Err(_) => {
            let refusal = Close::new(code::NO_HELLO, "no hello has come in time");
            return close(&mut socket, &refusal).await;
        }
    };
    let (hello_id, hello) = hello;
    let resume = hello.resume;
    let mut handover = Box::new(Handover {
        socket,
        hello_id,
        received: resume.map_or(0, |it| it.received),
        hello,
    });
    if let Some(resume) = resume {
        match site.resume(resume.resume_token.0, encoding, handover) {
            Ok(()) => return,
            Err(refused) => handover = refused,
        }
    }
    Conversation::open(site, handover, encoding).await;
}

/// Reads the first frame, which says hello and nothing else.
async fn hello(socket: &mut Socket, encoding: Encoding) -> Result<(u32, Hello), Option<Close>> {
    let message = loop {
        match socket.next().await {
            Some(Ok(SocketMessage::Ping(_) | SocketMessage::Pong(_))) => {}
            Some(Ok(message)) => break message,
            Some(Err(SocketError::Capacity(_))) => {
                return Err(Some(Close::new(code::TOO_BIG, "the frame is too large")));
            }
            Some(Err(_)) | None => return Err(None),
        }
    };
    socket.get_mut().frame_taken();
    let Some(bytes) = payload(message, encoding)? else { return Err(None) };
    let frame =
        ClientFrame::decode(encoding, &bytes).map_err(|error| Some(Close::of_frame(&error)))?;
    let mut requests = frame.requests.into_iter();
    match (requests.next(), requests.next()) {
        (Some(Ok(Request { id, operation: Operation::Hello(hello) })), None) => Ok((id, hello)),
        (Some(Err(bad)), _) => Err(Some(Close::of_frame(&bad.error))),
        _ => {
            let reason = "the first frame has to be one hello and nothing else";
            Err(Some(Close::new(code::NO_HELLO, reason)))
        }
    }
}

/// The bytes of a data frame; none if the client closes.
fn payload(message: SocketMessage, encoding: Encoding) -> Result<Option<Bytes>, Option<Close>> {
    match (message, encoding) {
        (SocketMessage::Binary(bytes), Encoding::Binary) => Ok(Some(bytes)),
        (SocketMessage::Text(text), Encoding::Json) => Ok(Some(text.into())),
        (SocketMessage::Binary(_), Encoding::Json) => {
            Err(Some(Close::new(code::UNSUPPORTED, "frames of peeklock.v1.json are text")))
        }
        (SocketMessage::Text(_), Encoding::Binary) => {
            Err(Some(Close::new(code::UNSUPPORTED, "frames of peeklock.v1.binary are binary")))
        }
        _ => Ok(None),
    }
}

/// Closes a socket and gives its peer a moment to answer.
async fn close(socket: &mut Socket, close: &Close) {
    tracing::debug!(code = close.code, reason = close.reason, "closing a connection");
    let closing = async {
        socket.send(SocketMessage::Close(Some(close.frame()))).await.ok();
        while let Some(Ok(_)) = socket.next().await {
            socket.get_mut().frame_taken();
        }
    };
    // A peer that does not answer is left.
    tokio::time::timeout(CLOSE_TIMEOUT, closing).await.ok();
}

impl Conversation {
    /// Begins a conversation and stays with it to its end.
    async fn open(site: Arc<Site>, mut handover: Box<Handover>, encoding: Encoding) {
        let broker = site.broker.clone();
        if !broker.allows_anonymous() && handover.hello.token.is_none() {
            let refusal = Close::new(code::UNAUTHORIZED, "the hello has no token");
            return close(&mut handover.socket, &refusal).await;
        }
        let resume_token = broker.random_bits();
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        let Some(place) = site.enter(resume_token, encoding, sender) else {
            let count = site.config.connection_count_max;
            let detail = format!("there are {count} connections already");
            let error = broker.refuse(Rejection::quota_exceeded(detail), "");
            let reason = format!("QuotaExceeded, TrackingId:{}", error.tracking_id());
            return close(&mut handover.socket, &Close::new(code::TRY_LATER, reason)).await;
        };
        let mut stopping = site.stopping();
        let stop = async move {
            let grace = stopping.wait_for(Option::is_some).await.map(|grace| *grace);
            // The sender lives as long as the site.
            grace.ok().flatten().unwrap_or_default()
        };
        let hello = &handover.hello;
        let grace = hello
            .grace_seconds
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into()).min(site.config.grace))
            .filter(|grace| !grace.is_zero());
        tracing::debug!(client = hello.client, ?encoding, "connection opened");
        let mailbox = Arc::new(Mailbox::default());
        let conversation = Self {
            budget: broker.connection_budget(),
            heartbeat: site.config.heartbeat,
            transactions: Transactions::new(&broker),
            broker,
            place,
            encoding,
            principal: Principal::anonymous(),
            calls,
            stop: Some(Box::pin(stop)),
            resume_token,
            grace,
            held: None,
            acquiring: None,
            seen: 0,
            links: BTreeMap::new(),
            receivers: HashMap::new(),
            pending: PendingTable::default(),
            waits: HashMap::new(),
            groups: Vec::new(),
            commits: Vec::new(),
            outlet: Arc::clone(&mailbox) as Arc<dyn Outlet>,
            mailbox,
            mail: VecDeque::new(),
            ready: Vec::new(),
            delivered: Vec::new(),
            unconfirmed: VecDeque::new(),
            unconfirmed_bytes: 0,
            sent: 0,
            unflushed: false,
            deadline: None,
            paused: false,
            read_since_tick: true,
            written_since_tick: true,
            silent_ticks: 0,
            unfinished_ticks: 0,
            site,
        };
        conversation.run(handover).await;
    }

    async fn run(mut self, handover: Box<Handover>) {
        let mut handover = handover;
        let mut resumed = false;
        let end = loop {
            let ended = match self.adopt(&mut handover, resumed).await {
                Ok(()) => self.serve(&mut handover.socket).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Orderly => break LinkEnd::Orderly,
                Ended::Refused(refusal) => {
                    close(&mut handover.socket, &refusal).await;
                    break LinkEnd::Broken;
                }
                Ended::Leave => {
                    let leave = Close::new(code::TRY_LATER, "the place is needed");
                    close(&mut handover.socket, &leave).await;
                    break LinkEnd::Broken;
                }
                Ended::Stopped => {
                    self.stop_flows();
                    let going = Close::new(code::GOING_AWAY, "the broker is being stopped");
                    close(&mut handover.socket, &going).await;
                    break LinkEnd::ByBroker;
                }
                Ended::Replaced(other) => {
                    let elsewhere = "the connection was resumed on another socket";
                    let mut old = std::mem::replace(&mut handover, other);
                    let reason = Close::new(code::RESUMED_ELSEWHERE, elsewhere);
                    // Perhaps half open: nobody waits for it.
                    tokio::spawn(async move { close(&mut old.socket, &reason).await });
                    resumed = true;
                }
                Ended::Lost(reason) => {
                    if let Some(reason) = reason {
                        close(&mut handover.socket, &reason).await;
                    }
                    drop(handover);
                    match self.wait_for_client().await {
                        Ok(back) => handover = back,
                        Err(end) => break end,
                    }
                    resumed = true;
                }
            }
        };
        self.end(end).await;
    }

    /// Takes a socket: says welcome on it, and again what the client has not taken.
    async fn adopt(&mut self, handover: &mut Handover, resumed: bool) -> Result<(), Ended> {
        let Handover { socket, hello, hello_id, received } = handover;
        // A frame that waited for room was not counted as taken: its client sends it again.
        (self.held, self.acquiring) = (None, None);
        self.principal = Principal { token: hello.token.as_deref().map(Into::into) };
        let config = &self.site.config;
        if let Some(seconds) = hello.heartbeat_seconds {
            let asked = Duration::from_secs(seconds.max(HEARTBEAT_SECONDS_MIN).into());
            self.heartbeat = config.heartbeat.min(asked);
        }
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
        let welcome = Welcome {
            resumed,
            received: self.seen,
            resume_token: self.grace.map(|_| Guid(self.resume_token)),
            grace_seconds: self.grace.map_or(0, seconds),
            heartbeat_seconds: seconds(self.heartbeat),
            now_utc: crate::frame::text::Instant(self.broker.now()),
            namespace: self.broker.settings().name.to_string(),
            server: concat!("peeklock/", env!("CARGO_PKG_VERSION")).to_owned(),
            frame_bytes_max: config.frame_bytes_max as u64,
            command_count_max: narrow(self.command_count_max()),
            link_count_max: narrow(config.link_count_max),
            unsettled_count_max: config.unsettled_count_max,
        };
        let item = Item { id: *hello_id, notice: Notice::Welcome(Box::new(welcome)) };
        let frame = ServerFrame { seen: self.seen, items: vec![item] };
        let Ok(bytes) = frame.encode(self.encoding) else { return Err(Ended::Lost(None)) };
        let mut frames = vec![self.message(bytes.into())];
        if resumed {
            let unconfirmed = self.unconfirmed.len() as u64;
            if *received > self.sent || self.sent - *received > unconfirmed {
                let reason = "the client has taken frames that were never sent, or forgotten them";
                return Err(Ended::Refused(Close::new(code::PROTOCOL, reason)));
            }
            self.confirm(*received);
            frames.extend(self.unconfirmed.iter().map(|sent| self.message(sent.bytes.clone())));
        }
        let writing = async {
            for frame in frames {
                socket.feed(frame).await?;
            }
            socket.flush().await
        };
        // What is written here was within the window before, but the peer may read nothing.
        let written = tokio::time::timeout(self.site.config.frame_timeout, writing).await;
        if !matches!(written, Ok(Ok(()))) {
            return Err(Ended::Lost(None));
        }
        self.unflushed = false;
        (self.read_since_tick, self.written_since_tick) = (true, true);
        (self.silent_ticks, self.unfinished_ticks) = (0, 0);
        self.place.mark_lost(false);
        if self.deadline.is_none() {
            self.paused = false;
            self.limit_all();
        }
        Ok(())
    }

    /// Waits for the client to come back, as long as it asked for; no deliveries flow meanwhile.
    async fn wait_for_client(&mut self) -> Result<Box<Handover>, LinkEnd> {
        let Some(grace) = self.grace else { return Err(LinkEnd::Broken) };
        if self.deadline.is_some() {
            return Err(LinkEnd::ByBroker);
        }
        self.paused = true;
        self.limit_all();
        self.place.mark_lost(true);
        // What has begun to wait for room goes on with the next socket.
        let stop = self.stop.as_mut();
        let stopped = async {
            match stop {
                Some(stop) => drop(stop.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            call = self.calls.recv() => match call {
                Some(Call::Resume(handover)) => Ok(handover),
                Some(Call::Leave) | None => Err(LinkEnd::Broken),
            },
            () = tokio::time::sleep(grace) => Err(LinkEnd::Broken),
            () = stopped => {
                self.stop = None;
                Err(LinkEnd::ByBroker)
            }
        }
    }

    async fn serve(&mut self, socket: &mut Socket) -> Ended {
        let beat = (self.heartbeat / 2).min(self.site.config.frame_timeout / 2);
        let mut ticks = tokio::time::interval(beat.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            if self.may_end() {
                return Ended::Stopped;
            }
            let step = match self.turn(socket, &mut ticks).await {
                Turn::Frame(frame) => self.read(socket, frame).await,
                Turn::Room(permit) => {
                    self.acquiring = None;
                    match self.held.take() {
                        Some(held) => self.go_on(held, permit).await,
                        None => Ok(()),
                    }
                }
                Turn::Mail => self.write(socket).await,
                Turn::Flushed => {
                    self.unflushed = false;
                    self.flushed();
                    Ok(())
                }
                Turn::Call(Call::Resume(handover)) => return Ended::Replaced(handover),
                Turn::Call(Call::Leave) => return Ended::Leave,
                Turn::Tick => {
                    self.transactions.expire();
                    self.tick(socket, beat)
                }
                Turn::Stop(grace) => {
                    self.begin_stop(grace);
                    Ok(())
                }
            };
            if let Err(ended) = step {
                return ended;
            }
            self.hand_over();
        }
    }

    async fn turn(&mut self, socket: &mut Socket, ticks: &mut Interval) -> Turn {
        poll_fn(|context| self.poll_turn(socket, ticks, context)).await
    }

    fn poll_turn(
        &mut self,
        socket: &mut Socket,
        ticks: &mut Interval,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        if let Poll::Ready(Some(call)) = self.calls.poll_recv(context) {
            return Poll::Ready(Turn::Call(call));
        }
        if let Some(stop) = &mut self.stop
            && let Poll::Ready(grace) = stop.as_mut().poll(context)
        {
            self.stop = None;
            return Poll::Ready(Turn::Stop(grace));
        }
        if self.unflushed {
            match Pin::new(&mut *socket).poll_flush(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Turn::Flushed),
                Poll::Ready(Err(error)) => return Poll::Ready(Turn::Frame(Some(Err(error)))),
                Poll::Pending => {}
            }
        } else if self.may_write()
            && (!self.ready.is_empty()
                || !self.mail.is_empty()
                || self.mailbox.poll(context).is_ready())
        {
            return Poll::Ready(Turn::Mail);
        }
        if let Some(acquiring) = &mut self.acquiring
            && let Poll::Ready(permit) = acquiring.as_mut().poll(context)
        {
            return Poll::Ready(Turn::Room(permit));
        }
        if self.may_read()
            && let Poll::Ready(frame) = Pin::new(&mut *socket).poll_next(context)
        {
            return Poll::Ready(Turn::Frame(frame));
        }
        ticks.poll_tick(context).map(|_| Turn::Tick)
    }

    /// Whether another frame may be read: there is room for what it asks for.
    fn may_read(&self) -> bool {
        self.held.is_none()
            && self.pending.len() < self.command_count_max()
            && self.ready.len() < LIST_COUNT_MAX
    }

    /// Whether anything may be written: the client has confirmed enough of what went before.
    fn may_write(&self) -> bool {
        self.grace.is_none() || self.unconfirmed_bytes < 2 * self.site.config.outbound_bytes_max
    }

    fn command_count_max(&self) -> usize {
        self.broker.settings().limits.connection_inbound_count_max
    }

    /// Takes a frame, and those that are there already behind it.
    async fn read(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), Ended> {
        let mut frame = Some(frame);
        let mut count = 0;
        while let Some(next) = frame {
            self.take(socket, next).await?;
            count += 1;
            if count == FRAMES_PER_TURN || !self.may_read() {
                break;
            }
            frame = poll_fn(|context| {
                Poll::Ready(match Pin::new(&mut *socket).poll_next(context) {
                    Poll::Ready(next) => Some(next),
                    Poll::Pending => None,
                })
            })
            .await;
        }
        Ok(())
    }

    async fn take(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), Ended> {
        let message = match frame {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(lost(&error)),
            None => return Err(Ended::Lost(None)),
        };
        socket.get_mut().frame_taken();
        self.read_since_tick = true;
        self.unfinished_ticks = 0;
        match &message {
            SocketMessage::Ping(_) => {
                // The library has put the pong into its buffer.
                self.unflushed = true;
                return Ok(());
            }
            SocketMessage::Pong(_) => return Ok(()),
            SocketMessage::Close(frame) => {
                let code = frame.as_ref().map(|frame| u16::from(frame.code));
                // The library has put the answer into its buffer; a close of its own it would refuse.
                tokio::time::timeout(CLOSE_TIMEOUT, socket.flush()).await.ok();
                return Err(match code {
                    Some(code::NORMAL) => Ended::Orderly,
                    _ => Ended::Lost(None),
                });
            }
            _ => {}
        }
        let bytes = match payload(message, self.encoding) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            Err(refusal) => return Err(refusal.map_or(Ended::Lost(None), Ended::Refused)),
        };
        match self.budget.try_acquire(bytes.len() as u64) {
            Some(permit) => self.go_on(Held::Raw(bytes), permit).await,
            None => {
                self.hold(bytes.len() as u64, Held::Raw(bytes));
                Ok(())
            }
        }
    }

    /// Keeps a frame until there is room for it; nothing is read meanwhile.
    fn hold(&mut self, cost: u64, held: Held) {
        let budget = self.budget.clone();
        self.held = Some(held);
        self.acquiring = Some(Box::pin(async move { budget.acquire(cost).await }));
    }

    /// Decodes a frame for which there is room, and carries it out if the room is enough for what it
    /// turned out to ask for.
    async fn go_on(&mut self, held: Held, permit: Permit) -> Result<(), Ended> {
        let (frame, permit) = match held {
            Held::Raw(bytes) => {
                let frame = ClientFrame::decode(self.encoding, &bytes)
                    .map_err(|error| Ended::Refused(Close::of_frame(&error)))?;
                let length = bytes.len() as u64;
                let cost = inbound::cost(&frame, length);
                if cost <= length.max(peeklock_core::permits::COMMAND_BYTES) {
                    (frame, permit)
                } else {
                    // Given back first: whoever holds room and waits for more could wait for ever.
                    drop(permit);
                    match self.budget.try_acquire(cost) {
                        Some(permit) => (frame, permit),
                        None => {
                            self.hold(cost, Held::Decoded(frame));
                            return Ok(());
                        }
                    }
                }
            }
            Held::Decoded(frame) => (frame, permit),
        };
        self.carry_out(frame, Arc::new(permit)).await
    }

    /// Time has passed: says that the server is there, and looks whether the client is.
    fn tick(&mut self, socket: &mut Socket, beat: Duration) -> Result<(), Ended> {
        let may_write = self.may_write() && !self.unflushed;
        if !std::mem::take(&mut self.written_since_tick) && may_write {
            self.ready.push(Item::push(Notice::Heartbeat(Default::default())));
        }
        // Locks that have ended make room although the client says nothing.
        self.limit_full();
        if socket.get_mut().has_unfinished_frame() {
            self.unfinished_ticks += 1;
            if beat * self.unfinished_ticks > self.site.config.frame_timeout {
                let reason = "a frame has begun and did not arrive in time";
                return Err(Ended::Lost(Some(Close::new(code::SLOW, reason))));
            }
        }
        if std::mem::take(&mut self.read_since_tick) {
            self.silent_ticks = 0;
            return Ok(());
        }
        // While there is no room the client cannot be heard, unless it is itself who takes nothing.
        if self.may_read() || !may_write {
            self.silent_ticks += 1;
        }
        if beat * self.silent_ticks > self.heartbeat * 2 {
            let reason = "nothing came for twice the heartbeat";
            return Err(Ended::Lost(Some(Close::new(code::SILENT, reason))));
        }
        Ok(())
    }

    /// Puts what was collected into the inlets of the entities.
    fn hand_over(&mut self) {
        for (link, group) in self.groups.drain(..) {
            if let Some(link) = self.links.get(&link) {
                link.entity.submit(group);
            }
        }
    }

    fn bounds(&self) -> Bounds {
        let receivers = self.receivers.len().max(1) as u64;
        Bounds {
            window_bytes: (self.site.config.outbound_bytes_max / receivers).max(LINK_BYTES_MIN),
            unsettled_max: self.site.config.unsettled_count_max,
            paused: self.paused,
        }
    }

    fn wire_error(&self, rejection: Rejection, path: &str) -> WireError {
        WireError::from(&self.broker.refuse(rejection, path))
    }

    fn message(&self, bytes: Bytes) -> SocketMessage {
        match self.encoding {
            Encoding::Binary => SocketMessage::Binary(bytes),
            // What was encoded as JSON is text.
            Encoding::Json => SocketMessage::Text(bytes.try_into().unwrap_or_default()),
        }
    }
}

/// How a socket ended that gave this error.
fn lost(error: &SocketError) -> Ended {
    match error {
        SocketError::Capacity(_) => {
            Ended::Refused(Close::new(code::TOO_BIG, "the frame is larger than frameBytesMax"))
        }
        SocketError::Protocol(
            tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => Ended::Lost(None),
        SocketError::Protocol(_) | SocketError::Utf8(_) => {
            Ended::Refused(Close::of_frame(&FrameError::BadValue("WebSocket frame")))
        }
        _ => Ended::Lost(None),
    }
}

//! The task that owns the connection. It sends the requests of handles, hands out answers and
//! deliveries, and reopens the connection after a loss.

mod open;
mod read;
mod stream;
mod write;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use peeklock_core::contract::browser::split_host;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_listen::websocket::Pongs;
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use self::stream::BrokerStream;
use super::backoff::Backoff;
use super::core::{AnswerSender, Core, HandleRequest, Lifeline, PushEvent, lost};
use super::credential::Credential;
use super::{ClientOptions, Stream as Connected};
use crate::error::{Close, code};
use crate::frame::text::{Guid, Token};
use crate::operation::{Authenticate, Decision, Delay, Operation, Settle, Welcome};
use crate::unwritten::FramePieces;

type Socket = WebSocketStream<BrokerStream>;

/// Approximate size in bytes after which a frame ends.
const FRAME_BYTES: usize = 256 << 10;
/// Maximum duration of closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a closing client waits for calls under way.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time until a resumed connection has written again all unconfirmed frames.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum of bytes of unconfirmed frames; beyond that, no more are sent. The limit is lower,
/// `KEPT_ANSWERS` times the largest frame of the broker, if that is small because the broker is not
/// trusted.
const KEPT_BYTES_MAX: usize = 16 << 20;
const KEPT_ANSWERS: usize = 16;

/// A caller that waits for an answer.
enum Waiting {
    One {
        key: u64,
        link: Option<u32>,
        answer: Option<AnswerSender>,
    },
    Sends(Vec<oneshot::Sender<Result<u64, BrokerError>>>),
    Completes(Vec<oneshot::Sender<Result<(), BrokerError>>>),
    /// Attachment of a link.
    Attach(u32),
    /// Session for a link.
    Accept {
        key: u64,
        link: u32,
        answer: AnswerSender,
    },
}

/// State of a link on this connection.
enum AttachState {
    Asked { held: VecDeque<HandleRequest> },
    Done,
}

/// Reason why the driver no longer serves a connection.
enum ConnectionEnd {
    /// The client is closed.
    Closed,
    /// The connection was lost and may be reopened.
    Lost,
    /// Another attempt would fail as well.
    Futile(Rejection),
}

enum Turn {
    Frame(Option<Result<SocketMessage, SocketError>>),
    HandleRequests,
    Flushed,
    Tick,
    /// Time to check whether a new token is due.
    TokenCheck,
    /// The client is closing, and the broker does not answer.
    Unanswered,
}

/// Timers of a connection.
struct Timers {
    ticks: Interval,
    looks: Option<Interval>,
    /// Deadline for calls under way, once the client is closing.
    closing: Option<Pin<Box<Sleep>>>,
}

/// An open connection and its welcome.
struct OpenConnection {
    socket: Socket,
    welcome: Box<Welcome>,
}

/// Connects and starts the task of the driver.
pub(super) async fn start(url: &str, options: ClientOptions) -> Result<Arc<Lifeline>, BrokerError> {
    let core = Arc::new(Core::new());
    let Some(address) = Address::parse(url) else {
        let detail =
            "the URL of a broker must be ws://HOST:PORT or wss://HOST:PORT, without path and query";
        return Err(core.refuse(Rejection::argument(detail), ""));
    };
    let mut driver = Driver::new(Arc::clone(&core), address, options);
    let opened = driver.open().await.map_err(|(rejection, _)| core.refuse(rejection, ""))?;
    core.learn_clock(opened.welcome.now_utc.0);
    tokio::spawn(async move { driver.run(opened).await });
    Ok(Arc::new(Lifeline { core }))
}

/// Address of a broker.
struct Address {
    /// Host and port.
    host: String,
    is_secure: bool,
}

impl Address {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, host) = url.split_once("://")?;
        let is_secure = match scheme {
            "ws" => false,
            "wss" => true,
            _ => return None,
        };
        let host = host.trim_end_matches('/').to_owned();
        let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@']);
        is_host.then_some(Self { host, is_secure })
    }

    /// Returns the host without the port.
    fn name(&self) -> &str {
        split_host(&self.host).map_or(&self.host, |(name, _)| name)
    }
}

struct Driver {
    core: Arc<Core>,
    address: Address,
    options: ClientOptions,
    credential: Credential,
    resume_token: Option<u128>,
    heartbeat: Duration,
    frame_bytes_max: usize,

    queued: VecDeque<HandleRequest>,
    waiting: HashMap<u32, Waiting>,
    next_id: u32,
    attached: BTreeMap<u32, AttachState>,

    /// Number of frames of the broker that were taken, and number of confirmed ones.
    seen: u64,
    confirmed: u64,
    unconfirmed_bytes: usize,
    /// Sent frames that the broker has not confirmed; the last one has the number `sent`.
    kept: VecDeque<Bytes>,
    kept_bytes: usize,
    kept_bytes_max: usize,
    sent: u64,
    unflushed: bool,
    /// The pieces of a frame that were not handed to the socket yet.
    outgoing: FramePieces,
    /// Pongs that the broker has not read.
    pongs: Pongs,
    /// Number of requests in `queued` that give back a delivery because no caller takes it.
    given_back_count: usize,
    read_since_tick: bool,
    written_since_tick: bool,
    silent_ticks: u32,
    /// Whether the driver knows that the client is closing.
    knows_closing: bool,
}

impl Driver {
    fn new(core: Arc<Core>, address: Address, options: ClientOptions) -> Self {
        Self {
            core,
            address,
            credential: Credential::of(&options),
            resume_token: None,
            heartbeat: Duration::from_secs(20),
            frame_bytes_max: FRAME_BYTES,
            queued: VecDeque::new(),
            waiting: HashMap::new(),
            next_id: 1,
            attached: BTreeMap::new(),
            seen: 0,
            confirmed: 0,
            unconfirmed_bytes: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_bytes_max: KEPT_BYTES_MAX
                .min(options.frame_bytes_max.saturating_mul(KEPT_ANSWERS)),
            sent: 0,
            unflushed: false,
            outgoing: FramePieces::default(),
            pongs: Pongs::default(),
            given_back_count: 0,
            read_since_tick: true,
            written_since_tick: true,
            silent_ticks: 0,
            knows_closing: false,
            options,
        }
    }

    async fn run(mut self, mut opened: OpenConnection) {
        loop {
            let OpenConnection { mut socket, welcome } = opened;
            let ended = match self.adopt(&mut socket, &welcome).await {
                Ok(()) => self.serve(&mut socket).await,
                Err(ended) => ended,
            };
            match ended {
                ConnectionEnd::Closed => {
                    let close = socket.close(Some(Close::new(code::NORMAL, "").frame()));
                    tokio::time::timeout(CLOSE_TIMEOUT, close).await.ok();
                    let drained = async { while let Some(Ok(_)) = socket.next().await {} };
                    tokio::time::timeout(CLOSE_TIMEOUT, drained).await.ok();
                    return self.end(&lost("the client is closed"));
                }
                ConnectionEnd::Futile(rejection) => return self.end(&rejection),
                ConnectionEnd::Lost => {}
            }
            drop(socket);
            self.core.set_connected(false);
            opened = match self.reopen().await {
                Ok(opened) => {
                    self.core.set_connected(true);
                    opened
                }
                Err(rejection) => return self.end(&rejection),
            };
        }
    }

    /// Reopens the connection, with pauses, until an attempt succeeds or further ones are
    /// pointless.
    async fn reopen(&mut self) -> Result<OpenConnection, Rejection> {
        let mut backoff = Backoff::new(self.options.pause_min, self.options.pause_max);
        // The first attempt is at once: most losses affect one connection, not the broker.
        let mut pause = Duration::ZERO;
        let lost_at = Instant::now();
        loop {
            let wait = tokio::time::sleep(pause);
            tokio::pin!(wait);
            wait.await;
            if self.core.is_closing() {
                return Err(lost("the client is closed"));
            }
            match self.open().await {
                Ok(opened) => return Ok(opened),
                Err((rejection, true)) => {
                    tracing::debug!(detail = rejection.detail(), "no connection yet");
                    if self.options.give_up_after.is_some_and(|most| lost_at.elapsed() >= most) {
                        let detail = format!(
                            "the connection was lost and cannot be opened again ({}); it is \
                             unknown whether operations in progress took effect",
                            rejection.detail()
                        );
                        return Err(lost(&detail));
                    }
                    pause = backoff.pause();
                }
                Err((rejection, false)) => return Err(rejection),
            }
        }
    }

    /// Takes a connection: resumes the conversation, or begins a new one.
    async fn adopt(&mut self, socket: &mut Socket, welcome: &Welcome) -> Result<(), ConnectionEnd> {
        let core = Arc::clone(&self.core);
        core.learn_clock(welcome.now_utc.0);
        self.heartbeat = Duration::from_secs(welcome.heartbeat_seconds.max(1).into());
        self.resume_token = welcome.resume_token.map(|Guid(token)| token);
        self.frame_bytes_max = usize::try_from(welcome.frame_bytes_max).unwrap_or(FRAME_BYTES);
        (self.read_since_tick, self.written_since_tick, self.silent_ticks) = (true, true, 0);
        (self.unflushed, self.pongs) = (false, Pongs::default());
        self.outgoing = FramePieces::default();
        if welcome.resumed {
            self.confirm(welcome.received);
            let encoding = self.options.encoding;
            let writing = async {
                for bytes in &self.kept {
                    for piece in FramePieces::new(bytes.clone(), encoding) {
                        socket.feed(piece).await?;
                    }
                }
                socket.flush().await
            };
            return match tokio::time::timeout(RESUME_TIMEOUT, writing).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(ConnectionEnd::Lost),
            };
        }
        // Calls in flight have an open outcome; links are attached again on demand.
        let reason =
            lost("the connection was lost; it is unknown whether the operation took effect");
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            fail(&core, waiting, &reason);
        }
        for (_, attached) in std::mem::take(&mut self.attached) {
            if let AttachState::Asked { held } = attached {
                for ask in held.into_iter().rev() {
                    self.queued.push_front(ask);
                }
            }
        }
        (self.seen, self.confirmed, self.sent, self.unconfirmed_bytes) = (0, 0, 0, 0);
        self.kept.clear();
        self.kept_bytes = 0;
        core.links(|links| {
            for link in links.values().filter_map(|link| link.pushed.as_ref()) {
                link.send(PushEvent::Fresh).ok();
            }
        });
        Ok(())
    }

    async fn serve(&mut self, socket: &mut Socket) -> ConnectionEnd {
        let mut timers = Timers {
            ticks: interval(self.heartbeat / 2),
            looks: self.credential.look_each().map(interval),
            closing: None,
        };
        // The token of the hello may have been signed before the broker's clock was known.
        self.renew_token();
        loop {
            if let Some(ended) = self.write(socket).await {
                return ended;
            }
            let step = match self.turn(socket, &mut timers).await {
                Turn::Frame(frame) => self.read(socket, frame).await,
                Turn::HandleRequests => Ok(()),
                Turn::Flushed if !self.outgoing.is_empty() => self.write_on(socket).await,
                Turn::Flushed => {
                    self.unflushed = false;
                    self.pongs.clear();
                    Ok(())
                }
                Turn::Unanswered => Err(ConnectionEnd::Closed),
                Turn::Tick => self.tick(),
                Turn::TokenCheck => {
                    self.renew_token();
                    Ok(())
                }
            };
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    async fn turn(&mut self, socket: &mut Socket, timers: &mut Timers) -> Turn {
        poll_fn(|context| self.poll_turn(socket, timers, context)).await
    }

    fn poll_turn(
        &mut self,
        socket: &mut Socket,
        timers: &mut Timers,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        if self.unflushed {
            match Pin::new(&mut *socket).poll_flush(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Turn::Flushed),
                Poll::Ready(Err(error)) => return Poll::Ready(Turn::Frame(Some(Err(error)))),
                Poll::Pending => {}
            }
        }
        self.core.waker.register(context.waker());
        let may_ask = !self.unflushed && self.may_send();
        if may_ask && self.core.has_new_requests(self.knows_closing) {
            return Poll::Ready(Turn::HandleRequests);
        }
        if self.pongs.may_read()
            && let Poll::Ready(frame) = Pin::new(&mut *socket).poll_next(context)
        {
            return Poll::Ready(Turn::Frame(frame));
        }
        if self.core.is_closing() {
            let until = || Box::pin(tokio::time::sleep(CLOSING_TIMEOUT));
            if timers.closing.get_or_insert_with(until).as_mut().poll(context).is_ready() {
                return Poll::Ready(Turn::Unanswered);
            }
        }
        if let Some(looks) = &mut timers.looks
            && looks.poll_tick(context).is_ready()
        {
            return Poll::Ready(Turn::TokenCheck);
        }
        timers.ticks.poll_tick(context).map(|_| Turn::Tick)
    }

    /// Sends a new token if one is due (TLS-08), before all other requests.
    fn renew_token(&mut self) {
        let now = self.core.now();
        if !self.credential.is_due(now) {
            return;
        }
        if let Some(token) = self.credential.token(now) {
            let operation = Box::new(Operation::Authenticate(Authenticate { token }));
            self.queued.push_front(HandleRequest::Operation {
                key: 0,
                link: None,
                operation,
                answer: None,
            });
        }
    }

    /// Handles a tick: sends a heartbeat if nothing was written, and checks the signs of life of
    /// the broker.
    fn tick(&mut self) -> Result<(), ConnectionEnd> {
        if !std::mem::take(&mut self.written_since_tick) {
            let operation = Box::new(Operation::Heartbeat(Default::default()));
            self.queued.push_back(HandleRequest::Operation {
                key: 0,
                link: None,
                operation,
                answer: None,
            });
        }
        if std::mem::take(&mut self.read_since_tick) {
            self.silent_ticks = 0;
            return Ok(());
        }
        self.silent_ticks += 1;
        if self.silent_ticks > 4 { Err(ConnectionEnd::Lost) } else { Ok(()) }
    }

    fn end(self, rejection: &Rejection) {
        let core = self.core;
        core.end(rejection);
        for (_, waiting) in self.waiting {
            fail(&core, waiting, rejection);
        }
        let held = self.attached.into_values().filter_map(|attached| match attached {
            AttachState::Asked { held } => Some(held),
            AttachState::Done => None,
        });
        for ask in self.queued.into_iter().chain(held.flatten()) {
            core.fail(ask, rejection);
        }
    }
}

/// Returns an interval with this period, which ticks first after one period.
fn interval(each: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + each, each);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn settle(link: u32, decision: Decision, lock_tokens: Vec<Token>) -> Settle {
    Settle {
        link,
        decision,
        ranges: Vec::new(),
        lock_tokens,
        properties: None,
        reason: None,
        description: None,
        delay_milliseconds: Delay::NONE,
    }
}

fn fail(core: &Core, waiting: Waiting, rejection: &Rejection) {
    fail_with(waiting, &core.refuse(rejection.clone(), ""));
}

fn fail_with(waiting: Waiting, error: &BrokerError) {
    let make = || {
        let (id, entity, at) = (error.tracking_id(), error.entity(), error.timestamp());
        BrokerError::new(error.rejection().clone(), id, entity, at)
    };
    match waiting {
        Waiting::One { answer, .. } => {
            if let Some(answer) = answer {
                drop(answer.send(Err(make())));
            }
        }
        Waiting::Accept { answer, .. } => drop(answer.send(Err(make()))),
        Waiting::Sends(answers) => {
            for answer in answers {
                answer.send(Err(make())).ok();
            }
        }
        Waiting::Completes(answers) => {
            for answer in answers {
                answer.send(Err(make())).ok();
            }
        }
        Waiting::Attach(_) => {}
    }
}

//! The task that owns the connection: sends what handles ask for, gives out what comes, and makes the
//! connection anew when it is lost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig as SocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::backoff::Backoff;
use super::core::{Answer, Ask, Core, Lifeline, Pushed, lost};
use super::{ClientOptions, Stream as Connected};
use crate::error::{Close, code};
use crate::frame::message::Outgoing;
use crate::frame::session::SetSessionState;
use crate::frame::text::{Guid, Token};
use crate::frame::{
    Decision, Detach, Encoding, FailedRange, FailedSend, Hello, Item, LIST_COUNT_MAX, Messages,
    Notice, Operation, Request, Resume, Run, Send, Settle, Welcome, Withdraw, of_client,
};

type Socket = WebSocketStream<Box<dyn Connected>>;

/// Frames of the broker after which it is told that they were taken, if nothing else is sent.
const CONFIRM_FRAMES: u64 = 16;
/// The same in bytes.
const CONFIRM_BYTES: usize = 256 << 10;
/// Requests of one frame.
const REQUESTS_MAX: usize = 512;
/// A frame ends when it has about so many bytes.
const FRAME_BYTES: usize = 256 << 10;
/// Room in a frame for what surrounds messages.
const FRAME_OVERHEAD: usize = 8 << 10;
/// What surrounds a forwarded message, at most.
const FORWARDED_OVERHEAD: usize = 256;
/// What an answer may have: as much as a peek, a receive, or a large message.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// So much of what an answer without an upgrade says is told.
const REFUSAL_CHARS_MAX: usize = 300;
/// How long the close of a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Somebody who waits for an answer.
enum Waiting {
    One {
        key: u64,
        link: Option<u32>,
        answer: Option<Answer>,
    },
    Sends(Vec<oneshot::Sender<Result<u64, BrokerError>>>),
    Completes(Vec<oneshot::Sender<Result<(), BrokerError>>>),
    /// The attachment of a link.
    Attach(u32),
    /// A session for a link.
    Accept {
        key: u64,
        link: u32,
        answer: Answer,
    },
}

/// How far a link is attached on this connection.
enum Attached {
    Asked { held: VecDeque<Ask> },
    Done,
}

/// Why a connection is served no more.
enum Ended {
    /// The client is closed.
    Closed,
    /// It was lost and may be made anew.
    Lost,
    /// It makes no sense to try again.
    Futile(Rejection),
}

enum Turn {
    Frame(Option<Result<SocketMessage, SocketError>>),
    Asked,
    Flushed,
    Tick,
}

/// A connection that was opened, and what the broker said.
struct Opened {
    socket: Socket,
    welcome: Box<Welcome>,
}

/// Connects and starts the task.
pub(super) async fn start(url: &str, options: ClientOptions) -> Result<Arc<Lifeline>, BrokerError> {
    let core = Arc::new(Core::new());
    let is_connected_elsewhere = options.connector.is_some();
    let host = url
        .strip_prefix("ws://")
        .or_else(|| url.strip_prefix("wss://").filter(|_| is_connected_elsewhere))
        .map(|rest| rest.trim_end_matches('/').to_owned())
        .filter(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@']));
    let Some(host) = host else {
        let detail = "the URL of a broker is ws://HOST:PORT, without path and query";
        return Err(core.refuse(Rejection::argument(detail), ""));
    };
    let mut driver = Driver::new(Arc::clone(&core), host, options);
    let opened = driver.open().await.map_err(|(rejection, _)| core.refuse(rejection, ""))?;
    core.learn_clock(opened.welcome.now_utc.0);
    tokio::spawn(async move { driver.run(opened).await });
    Ok(Arc::new(Lifeline { core }))
}

struct Driver {
    core: Arc<Core>,
    host: String,
    options: ClientOptions,
    resume_token: Option<u128>,
    heartbeat: Duration,
    frame_bytes_max: usize,

    asked: VecDeque<Ask>,
    waiting: HashMap<u32, Waiting>,
    next_id: u32,
    attached: BTreeMap<u32, Attached>,

    /// Frames of the broker that were taken, and how many of them it knows of.
    seen: u64,
    confirmed: u64,
    unconfirmed_bytes: usize,
    /// Frames sent that the broker has not confirmed; the last one has the number `sent`.
    kept: VecDeque<Bytes>,
    sent: u64,
    unflushed: bool,
    read_since_tick: bool,
    written_since_tick: bool,
    silent_ticks: u32,
    /// Whether the task knows that the client is being closed.
    is_told_to_close: bool,
}

impl Driver {
    fn new(core: Arc<Core>, host: String, options: ClientOptions) -> Self {
        Self {
            core,
            host,
            options,
            resume_token: None,
            heartbeat: Duration::from_secs(20),
            frame_bytes_max: FRAME_BYTES,
            asked: VecDeque::new(),
            waiting: HashMap::new(),
            next_id: 1,
            attached: BTreeMap::new(),
            seen: 0,
            confirmed: 0,
            unconfirmed_bytes: 0,
            kept: VecDeque::new(),
            sent: 0,
            unflushed: false,
            read_since_tick: true,
            written_since_tick: true,
            silent_ticks: 0,
            is_told_to_close: false,
        }
    }

    /// Opens a connection and says hello. On failure tells whether another attempt makes sense.
    async fn open(&mut self) -> Result<Opened, (Rejection, bool)> {
        match tokio::time::timeout(self.options.connect_timeout, self.try_open()).await {
            Ok(opened) => opened,
            Err(_) => Err((lost("the broker did not answer in time"), true)),
        }
    }

    async fn try_open(&mut self) -> Result<Opened, (Rejection, bool)> {
        let again = |error: &dyn std::fmt::Display| (lost(&error.to_string()), true);
        let stream = match &self.options.connector {
            Some(connector) => connector.connect().await.map_err(|error| again(&error))?,
            None => {
                let stream = TcpStream::connect(&self.host).await.map_err(|error| again(&error))?;
                stream.set_nodelay(true).ok();
                Box::new(stream)
            }
        };
        let mut request = format!("ws://{}/", self.host)
            .into_client_request()
            .map_err(|error| (Rejection::argument(error.to_string()), false))?;
        let encoding = self.options.encoding;
        let name = HeaderValue::from_static(encoding.subprotocol());
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
        let config = SocketConfig::default()
            .max_frame_size(Some(FRAME_BYTES_MAX))
            .max_message_size(Some(FRAME_BYTES_MAX));
        let upgraded = client_async_with_config(request, stream, Some(config)).await;
        let (mut socket, _) = upgraded.map_err(|error| match &error {
            SocketError::Http(response) => {
                let body = response.body().as_deref().unwrap_or_default();
                no_upgrade(response.status(), body)
            }
            other => again(other),
        })?;
        let resume = self
            .resume_token
            .map(|token| Resume { resume_token: Guid(token), received: self.seen });
        let grace = u32::try_from(self.options.grace.as_secs()).unwrap_or(u32::MAX);
        let hello = Hello {
            token: self.options.token.as_deref().map(str::to_owned),
            client: self.options.name.as_deref().map(str::to_owned),
            heartbeat_seconds: None,
            grace_seconds: Some(grace),
            resume,
        };
        let hello = [Request { id: 1, operation: Operation::Hello(hello) }];
        let bytes =
            of_client::encode(encoding, self.seen, &hello).map_err(|error| again(&error))?;
        socket.send(message(encoding, bytes.into())).await.map_err(|error| again(&error))?;
        loop {
            let answer = match socket.next().await {
                Some(Ok(SocketMessage::Binary(bytes))) => bytes,
                Some(Ok(SocketMessage::Text(text))) => text.into(),
                Some(Ok(SocketMessage::Close(frame))) => {
                    let (code, reason) = frame.map_or((0, String::new()), |frame| {
                        (u16::from(frame.code), frame.reason.to_string())
                    });
                    return Err((refused(code, &reason), may_come_back(code)));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(again(&error)),
                None => return Err((lost("the connection ended"), true)),
            };
            let frame = of_client::decode(encoding, &answer).map_err(|error| again(&error))?;
            return match frame.items.into_iter().next().map(|item| item.notice) {
                Some(Notice::Welcome(welcome)) => Ok(Opened { socket, welcome }),
                Some(Notice::Error(error)) => {
                    let error = error.into_error();
                    Err((error.rejection().clone(), error.retryable()))
                }
                _ => Err((lost("the broker did not say welcome"), false)),
            };
        }
    }

    async fn run(mut self, mut opened: Opened) {
        loop {
            let Opened { mut socket, welcome } = opened;
            let ended = match self.adopt(&mut socket, &welcome).await {
                Ok(()) => self.serve(&mut socket).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Closed => {
                    let close = socket.close(Some(Close::new(code::NORMAL, "").frame()));
                    tokio::time::timeout(CLOSE_TIMEOUT, close).await.ok();
                    let drained = async { while let Some(Ok(_)) = socket.next().await {} };
                    tokio::time::timeout(CLOSE_TIMEOUT, drained).await.ok();
                    return self.end(&lost("the client is closed"));
                }
                Ended::Futile(rejection) => return self.end(&rejection),
                Ended::Lost => {}
            }
            drop(socket);
            self.core.tell_connected(false);
            opened = match self.reopen().await {
                Ok(opened) => {
                    self.core.tell_connected(true);
                    opened
                }
                Err(rejection) => return self.end(&rejection),
            };
        }
    }

    /// Makes the connection anew, with pauses, until that succeeds or makes no sense.
    async fn reopen(&mut self) -> Result<Opened, Rejection> {
        let mut backoff = Backoff::new(self.options.pause_min, self.options.pause_max);
        // The first attempt is at once: most losses are of one connection, not of the broker.
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
                            "the connection was lost and cannot be made anew ({}); whether what was \
                             under way took effect is unknown",
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

    /// Takes a connection: goes on where the last one was, or begins anew.
    async fn adopt(&mut self, socket: &mut Socket, welcome: &Welcome) -> Result<(), Ended> {
        let core = Arc::clone(&self.core);
        core.learn_clock(welcome.now_utc.0);
        self.heartbeat = Duration::from_secs(welcome.heartbeat_seconds.max(1).into());
        self.resume_token = welcome.resume_token.map(|Guid(token)| token);
        self.frame_bytes_max = usize::try_from(welcome.frame_bytes_max).unwrap_or(FRAME_BYTES);
        (self.read_since_tick, self.written_since_tick, self.silent_ticks) = (true, true, 0);
        self.unflushed = false;
        if welcome.resumed {
            self.confirm(welcome.received);
            let encoding = self.options.encoding;
            let writing = async {
                for bytes in &self.kept {
                    socket.feed(message(encoding, bytes.clone())).await?;
                }
                socket.flush().await
            };
            if writing.await.is_err() {
                return Err(Ended::Lost);
            }
            return Ok(());
        }
        // What was under way has an open end; links are attached again as they are needed.
        let reason = lost("the connection was lost; whether the operation took effect is unknown");
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            fail(&core, waiting, &reason);
        }
        for (_, attached) in std::mem::take(&mut self.attached) {
            if let Attached::Asked { held } = attached {
                for ask in held.into_iter().rev() {
                    self.asked.push_front(ask);
                }
            }
        }
        (self.seen, self.confirmed, self.sent, self.unconfirmed_bytes) = (0, 0, 0, 0);
        self.kept.clear();
        core.links(|links| {
            for link in links.values().filter_map(|link| link.pushed.as_ref()) {
                link.send(Pushed::Fresh).ok();
            }
        });
        Ok(())
    }

    async fn serve(&mut self, socket: &mut Socket) -> Ended {
        let mut ticks =
            tokio::time::interval_at(Instant::now() + self.heartbeat / 2, self.heartbeat / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(ended) = self.write(socket).await {
                return ended;
            }
            let step = match self.turn(socket, &mut ticks).await {
                Turn::Frame(frame) => self.read(socket, frame).await,
                Turn::Asked => Ok(()),
                Turn::Flushed => {
                    self.unflushed = false;
                    Ok(())
                }
                Turn::Tick => self.tick(),
            };
            if let Err(ended) = step {
                return ended;
            }
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
        if self.unflushed {
            match Pin::new(&mut *socket).poll_flush(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Turn::Flushed),
                Poll::Ready(Err(error)) => return Poll::Ready(Turn::Frame(Some(Err(error)))),
                Poll::Pending => {}
            }
        } else {
            self.core.waker.register(context.waker());
            if self.may_send() && self.core.has_asked(self.is_told_to_close) {
                return Poll::Ready(Turn::Asked);
            }
        }
        if let Poll::Ready(frame) = Pin::new(&mut *socket).poll_next(context) {
            return Poll::Ready(Turn::Frame(frame));
        }
        ticks.poll_tick(context).map(|_| Turn::Tick)
    }

    /// Whether more may be asked for; what is not confirmed is kept in memory.
    fn may_send(&self) -> bool {
        self.waiting.len() < LIST_COUNT_MAX
    }

    /// Sends what was asked for, or says what was taken.
    async fn write(&mut self, socket: &mut Socket) -> Option<Ended> {
        if self.unflushed {
            return None;
        }
        let core = Arc::clone(&self.core);
        if self.may_send() {
            core.take(&mut self.asked);
        }
        let requests = self.requests(&core);
        let is_due = self.resume_token.is_some()
            && (self.seen - self.confirmed >= CONFIRM_FRAMES
                || self.unconfirmed_bytes >= CONFIRM_BYTES);
        if requests.is_empty() && !is_due {
            let is_done = self.waiting.is_empty() && self.asked.is_empty();
            self.is_told_to_close = core.is_closing();
            return (self.is_told_to_close && is_done).then_some(Ended::Closed);
        }
        let bytes: Bytes = match of_client::encode(self.options.encoding, self.seen, &requests) {
            Ok(bytes) => bytes.into(),
            Err(error) => return Some(Ended::Futile(Rejection::argument(error.to_string()))),
        };
        self.sent += 1;
        if self.resume_token.is_some() {
            self.kept.push_back(bytes.clone());
        }
        (self.confirmed, self.unconfirmed_bytes) = (self.seen, 0);
        self.written_since_tick = true;
        if socket.feed(message(self.options.encoding, bytes)).await.is_err() {
            return Some(Ended::Lost);
        }
        self.unflushed = true;
        None
    }

    /// The requests of the next frame. Sends and completions of one link go together.
    fn requests(&mut self, core: &Arc<Core>) -> Vec<Request> {
        let mut requests: Vec<Request> = Vec::new();
        let mut bytes = 0;
        let limit = FRAME_BYTES.min(self.frame_bytes_max / 2);
        while requests.len() < REQUESTS_MAX && bytes < limit {
            let Some(ask) = self.asked.pop_front() else { break };
            let size = self.size(&ask);
            if size > 0 && size + FRAME_OVERHEAD > self.frame_bytes_max {
                let most = self.frame_bytes_max.saturating_sub(FRAME_OVERHEAD);
                let (size, most) = (size as u64, most as u64);
                let what = match &ask {
                    Ask::Send { .. } => "message for a frame (websocket.frame_bytes_max)",
                    _ => "session state for a frame (websocket.frame_bytes_max)",
                };
                core.fail(ask, &Rejection::message_size_exceeded(what, size, most));
                continue;
            }
            if !requests.is_empty() && bytes + size + FRAME_OVERHEAD > self.frame_bytes_max {
                // It goes into a frame of its own.
                self.asked.push_front(ask);
                break;
            }
            let Some(ask) = self.attach_first(core, ask, &mut requests) else { continue };
            bytes += self.request(core, ask, &mut requests).max(size);
        }
        // A consumer's link is attached although nothing is asked of it.
        let pushed: Vec<u32> = core.links(|links| {
            let wanted = |(number, _): &(&u32, _)| !self.attached.contains_key(number);
            links
                .iter()
                .filter(|(_, link)| link.pushed.is_some())
                .filter(wanted)
                .map(|(number, _)| *number)
                .collect()
        });
        for number in pushed {
            self.attach(core, number, &mut requests);
        }
        requests
    }

    /// The bytes of messages or a state to be sent, at least; nothing else is large.
    fn size(&self, ask: &Ask) -> usize {
        let content = |message: &Outgoing| match message {
            Outgoing::Content(bytes) => self.size_of(bytes),
            Outgoing::Typed(_) => 0,
        };
        match ask {
            Ask::Send { message, .. } => content(message),
            Ask::Operation { operation, .. } => match &**operation {
                Operation::SetSessionState(SetSessionState { state: Some(bytes), .. }) => {
                    self.size_of(bytes) + self.escapes_of(bytes)
                }
                Operation::Forward(forward) => {
                    let sizes = forward.messages.iter().map(|one| {
                        content(&one.message)
                            + one.dead_letter_source.as_ref().map_or(0, String::len)
                            + FORWARDED_OVERHEAD
                    });
                    sizes.sum()
                }
                _ => 0,
            },
            _ => 0,
        }
    }

    /// What text takes more in JSON than its bytes.
    fn escapes_of(&self, bytes: &Bytes) -> usize {
        match self.options.encoding {
            Encoding::Binary => 0,
            Encoding::Json => {
                let control = bytes.iter().filter(|byte| **byte < 0x20).count();
                5 * control + bytes.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count()
            }
        }
    }

    fn size_of(&self, bytes: &Bytes) -> usize {
        match self.options.encoding {
            Encoding::Binary => bytes.len(),
            // As Base64; text with many escapes may take more.
            Encoding::Json => bytes.len() * 4 / 3,
        }
    }

    /// Attaches the link of an ask if it is not; the ask waits meanwhile.
    fn attach_first(&mut self, core: &Core, ask: Ask, requests: &mut Vec<Request>) -> Option<Ask> {
        let number = match &ask {
            Ask::Operation { link: Some(link), .. }
            | Ask::Send { link, .. }
            | Ask::Complete { link, .. } => *link,
            Ask::Operation { link: None, .. }
            | Ask::Accept { .. }
            | Ask::Withdraw { .. }
            | Ask::Forget { .. } => return Some(ask),
        };
        if !self.attached.contains_key(&number) {
            let is_of_session =
                core.links(|links| links.get(&number).is_some_and(|link| link.attach.is_none()));
            if is_of_session {
                let detail = "the session lock has ended with the connection that held it";
                core.fail(ask, &Rejection::session_lock_lost(detail));
                return None;
            }
            self.attach(core, number, requests);
        }
        match self.attached.get_mut(&number) {
            Some(Attached::Asked { held }) => {
                held.push_back(ask);
                None
            }
            Some(Attached::Done) | None => Some(ask),
        }
    }

    fn attach(&mut self, core: &Core, number: u32, requests: &mut Vec<Request>) {
        let attach = core.links(|links| links.get(&number)?.attach.clone());
        let Some(attach) = attach else { return };
        self.attached.insert(number, Attached::Asked { held: VecDeque::new() });
        let id = self.wait(Waiting::Attach(number));
        requests.push(Request { id, operation: Operation::Attach(attach) });
    }

    /// Adds an ask to the requests; returns its bytes, about.
    fn request(&mut self, core: &Core, ask: Ask, requests: &mut Vec<Request>) -> usize {
        const OTHER_BYTES: usize = 64;
        match ask {
            Ask::Operation { key, link, operation, answer } => {
                if answer.as_ref().is_some_and(Answer::is_closed) {
                    return 0;
                }
                let is_answered = answer.is_some();
                let id =
                    if is_answered { self.wait(Waiting::One { key, link, answer }) } else { 0 };
                requests.push(Request { id, operation: *operation });
                OTHER_BYTES
            }
            Ask::Send { link, message, answer } => {
                let bytes = match &message {
                    Outgoing::Content(bytes) => bytes.len(),
                    Outgoing::Typed(_) => OTHER_BYTES,
                };
                if let Some(Request { id, operation: Operation::Send(send) }) = requests.last_mut()
                    && send.link == link
                    && send.messages.len() < LIST_COUNT_MAX
                    && let Some(Waiting::Sends(answers)) = self.waiting.get_mut(id)
                {
                    send.messages.push(message);
                    answers.push(answer);
                    return bytes;
                }
                let id = self.wait(Waiting::Sends(vec![answer]));
                let operation = Operation::Send(Send { link, messages: vec![message] });
                requests.push(Request { id, operation });
                bytes
            }
            Ask::Complete { link, token, answer } => {
                if let Some(Request { id, operation: Operation::Settle(settle) }) =
                    requests.last_mut()
                    && settle.link == link
                    && settle.lock_tokens.len() < LIST_COUNT_MAX
                    && let Some(Waiting::Completes(answers)) = self.waiting.get_mut(id)
                {
                    settle.lock_tokens.push(token);
                    answers.push(answer);
                    return OTHER_BYTES;
                }
                let id = self.wait(Waiting::Completes(vec![answer]));
                let operation = Operation::Settle(settle(link, Decision::Complete, vec![token]));
                requests.push(Request { id, operation });
                OTHER_BYTES
            }
            Ask::Accept { key, accept, answer } => {
                if answer.is_closed() {
                    return 0;
                }
                let id = self.wait(Waiting::Accept { key, link: accept.link, answer });
                requests.push(Request { id, operation: Operation::AcceptSession(*accept) });
                OTHER_BYTES
            }
            Ask::Withdraw { key } => {
                let request = self.waiting.iter().find_map(|(id, waiting)| match waiting {
                    Waiting::One { key: of, .. } | Waiting::Accept { key: of, .. }
                        if *of == key =>
                    {
                        Some(*id)
                    }
                    _ => None,
                });
                if let Some(request) = request {
                    let operation = Operation::Withdraw(Withdraw { request });
                    requests.push(Request { id: 0, operation });
                } else if let Some(ask) = self.take_held(key) {
                    core.fail(ask, &Rejection::cancelled("withdrawn before it was sent"));
                }
                OTHER_BYTES
            }
            Ask::Forget { link, release } => {
                core.links(|links| links.remove(&link));
                if self.attached.remove(&link).is_some() {
                    let operation = Operation::Detach(Detach { link, release });
                    requests.push(Request { id: 0, operation });
                }
                OTHER_BYTES
            }
        }
    }

    /// A name for a request that is not in use.
    fn wait(&mut self, waiting: Waiting) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            if let std::collections::hash_map::Entry::Vacant(place) = self.waiting.entry(id) {
                place.insert(waiting);
                return id;
            }
        }
    }

    async fn read(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), Ended> {
        let mut frame = Some(frame);
        while let Some(next) = frame {
            let bytes = match next {
                Some(Ok(SocketMessage::Binary(bytes))) => Some(bytes),
                Some(Ok(SocketMessage::Text(text))) => Some(text.into()),
                Some(Ok(SocketMessage::Close(frame))) => {
                    let (code, reason) = frame.map_or((0, String::new()), |frame| {
                        (u16::from(frame.code), frame.reason.to_string())
                    });
                    return Err(if may_come_back(code) {
                        Ended::Lost
                    } else {
                        Ended::Futile(refused(code, &reason))
                    });
                }
                Some(Ok(SocketMessage::Ping(_))) => {
                    self.unflushed = true;
                    None
                }
                Some(Ok(_)) => None,
                Some(Err(_)) | None => return Err(Ended::Lost),
            };
            self.read_since_tick = true;
            if let Some(bytes) = bytes {
                self.take(&bytes)?;
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

    fn take(&mut self, bytes: &Bytes) -> Result<(), Ended> {
        let core = Arc::clone(&self.core);
        let frame = of_client::decode(self.options.encoding, bytes).map_err(|error| {
            Ended::Futile(Rejection::internal(format!("a frame of the broker {error}")))
        })?;
        self.seen += 1;
        self.unconfirmed_bytes += bytes.len();
        self.confirm(frame.seen);
        for Item { id, notice } in frame.items {
            if id == 0 {
                self.pushed(&core, notice);
            } else if let Some(waiting) = self.waiting.remove(&id) {
                self.answer(&core, waiting, notice);
            }
        }
        Ok(())
    }

    /// The broker has taken so many frames in all.
    fn confirm(&mut self, received: u64) {
        let before = self.sent - self.kept.len() as u64;
        for _ in before..received.min(self.sent) {
            self.kept.pop_front();
        }
    }

    fn pushed(&mut self, core: &Core, notice: Notice) {
        match notice {
            Notice::Deliveries(deliveries) => {
                let target = core.links(|links| links.get(&deliveries.link)?.pushed.clone());
                for message in deliveries.messages {
                    let lock = message.facts.lock;
                    let pushed = Pushed::Message(Box::new(message));
                    let is_taken =
                        target.as_ref().is_some_and(|target| target.send(pushed).is_ok());
                    if let Some(lock) = lock.filter(|_| !is_taken) {
                        self.give_back(deliveries.link, lock.token);
                    }
                }
            }
            Notice::Detached(detached) => {
                let error = detached.error.into_error();
                let target = core.links(|links| links.get(&detached.link)?.pushed.clone());
                if let Some(target) = target {
                    target.send(Pushed::Detached(error)).ok();
                }
            }
            Notice::Error(error) => {
                let error = error.into_error();
                tracing::debug!(%error, "a request without answer failed");
            }
            _ => {}
        }
    }

    /// Takes out a call that waits for the attachment of its link.
    fn take_held(&mut self, key: u64) -> Option<Ask> {
        self.attached.values_mut().find_map(|attached| {
            let Attached::Asked { held } = attached else { return None };
            let is_it = |ask: &Ask| matches!(ask, Ask::Operation { key: of, .. } if *of == key);
            let place = held.iter().position(is_it)?;
            held.remove(place)
        })
    }

    /// Releases a message that nobody takes (RCV-14).
    fn give_back(&mut self, link: u32, token: LockToken) {
        let release = settle(link, Decision::Release, vec![Token(token)]);
        let operation = Box::new(Operation::Settle(release));
        let ask = Ask::Operation { key: 0, link: Some(link), operation, answer: None };
        self.asked.push_back(ask);
    }

    fn answer(&mut self, core: &Arc<Core>, waiting: Waiting, notice: Notice) {
        match (waiting, notice) {
            (Waiting::Attach(link), notice) => self.attached_answer(core, link, notice),
            (waiting, Notice::Error(error)) => fail_with(waiting, &error.into_error()),
            (Waiting::Accept { link, answer, .. }, notice) => {
                self.attached.insert(link, Attached::Done);
                if answer.send(Ok(notice)).is_err() {
                    // Its future is gone: so is what it was granted (SES-08).
                    self.asked.push_back(Ask::Forget { link, release: false });
                }
            }
            (Waiting::One { link, answer: Some(answer), .. }, notice) => {
                // A receive whose future is gone: what it got goes back.
                if let Err(Ok(Notice::Received(Messages { messages }))) = answer.send(Ok(notice))
                    && let Some(link) = link
                {
                    for lock in messages.iter().filter_map(|message| message.facts.lock) {
                        self.give_back(link, lock.token);
                    }
                }
            }
            (Waiting::Sends(answers), Notice::Accepted(accepted)) => {
                let numbers = Run::expand(&accepted.sequence_numbers, answers.len());
                let mut failed: HashMap<u32, BrokerError> = accepted
                    .failed
                    .into_iter()
                    .map(|FailedSend { index, error }| (index, error.into_error()))
                    .collect();
                for ((place, answer), number) in (0..).zip(answers).zip(numbers) {
                    answer.send(failed.remove(&place).map_or(Ok(number), Err)).ok();
                }
            }
            (Waiting::Completes(answers), Notice::Settled(settled)) => {
                let mut answers: Vec<_> = answers.into_iter().map(Some).collect();
                for FailedRange { from, to, error } in settled.failed {
                    for place in from..=to {
                        let place = usize::try_from(place).ok();
                        let answer = place.and_then(|place| answers.get_mut(place)?.take());
                        if let Some(answer) = answer {
                            answer.send(Err(error.clone().into_error())).ok();
                        }
                    }
                }
                for answer in answers.into_iter().flatten() {
                    answer.send(Ok(())).ok();
                }
            }
            (waiting, _) => fail(core, waiting, &Rejection::internal("unexpected answer")),
        }
    }

    fn attached_answer(&mut self, core: &Arc<Core>, link: u32, notice: Notice) {
        let Some(Attached::Asked { held }) = self.attached.remove(&link) else {
            // It was forgotten meanwhile, and detached in the same order.
            return;
        };
        match notice {
            Notice::Error(error) => {
                let error = error.into_error();
                for ask in held {
                    let rejection = error.rejection().clone();
                    let make = || {
                        BrokerError::new(
                            rejection.clone(),
                            error.tracking_id(),
                            error.entity(),
                            error.timestamp(),
                        )
                    };
                    match ask {
                        Ask::Operation { answer: Some(answer), .. } => {
                            drop(answer.send(Err(make())));
                        }
                        Ask::Send { answer, .. } => drop(answer.send(Err(make()))),
                        Ask::Complete { answer, .. } => drop(answer.send(Err(make()))),
                        other => core.fail(other, &rejection),
                    }
                }
                let pushed = core.links(|links| {
                    let pushed = links.get(&link)?.pushed.clone();
                    // A consumer is told once; its link is not attached again.
                    if let (Some(link), true) = (links.get_mut(&link), pushed.is_some()) {
                        link.pushed = None;
                    }
                    pushed
                });
                if let Some(pushed) = pushed {
                    pushed.send(Pushed::Detached(error)).ok();
                }
            }
            _ => {
                self.attached.insert(link, Attached::Done);
                for ask in held.into_iter().rev() {
                    self.asked.push_front(ask);
                }
            }
        }
    }

    /// Time has passed: says that the client is there, and looks whether the broker is.
    fn tick(&mut self) -> Result<(), Ended> {
        if !std::mem::take(&mut self.written_since_tick) {
            let operation = Box::new(Operation::Heartbeat(Default::default()));
            self.asked.push_back(Ask::Operation { key: 0, link: None, operation, answer: None });
        }
        if std::mem::take(&mut self.read_since_tick) {
            self.silent_ticks = 0;
            return Ok(());
        }
        self.silent_ticks += 1;
        if self.silent_ticks > 4 { Err(Ended::Lost) } else { Ok(()) }
    }

    fn end(self, rejection: &Rejection) {
        let core = self.core;
        core.end(rejection);
        for (_, waiting) in self.waiting {
            fail(&core, waiting, rejection);
        }
        let held = self.attached.into_values().filter_map(|attached| match attached {
            Attached::Asked { held } => Some(held),
            Attached::Done => None,
        });
        for ask in self.asked.into_iter().chain(held.flatten()) {
            core.fail(ask, rejection);
        }
    }
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

/// Why an upgrade was answered with something else, and whether another attempt makes sense.
fn no_upgrade(status: StatusCode, body: &[u8]) -> (Rejection, bool) {
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(REFUSAL_CHARS_MAX).collect();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (Rejection::unauthorized(format!("{status}: {text}")), false)
        }
        // What a listener of this protocol says.
        StatusCode::BAD_REQUEST | StatusCode::MISDIRECTED_REQUEST => {
            (lost(&format!("{status}: {text}")), false)
        }
        _ if status.is_server_error() => (lost(&format!("{status}: {text}")), true),
        _ => {
            let detail = format!(
                "{status}: this answers HTTP, not the WebSocket protocol of Peeklock; is it the \
                 HTTP port?"
            );
            (lost(&detail), false)
        }
    }
}

/// Whether a close says to come back.
const fn may_come_back(code: u16) -> bool {
    matches!(code, 0 | 1_001 | 1_006 | 1_011..=1_014 | 4_100..=4_199)
}

/// What a close means for calls.
fn refused(code: u16, reason: &str) -> Rejection {
    let detail = format!("the broker closed the connection ({code}): {reason}");
    match code {
        code::UNAUTHORIZED => Rejection::unauthorized(detail),
        code::TRY_LATER => Rejection::new(Condition::QuotaExceeded, detail),
        _ => lost(&detail),
    }
}

fn message(encoding: Encoding, bytes: Bytes) -> SocketMessage {
    match encoding {
        Encoding::Binary => SocketMessage::Binary(bytes),
        // What was encoded as JSON is text.
        Encoding::Json => SocketMessage::Text(bytes.try_into().unwrap_or_default()),
    }
}

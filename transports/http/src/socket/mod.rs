//! The socket of a connection, as the framework sees it. It keeps the time and the bounds that the framework
//! does not keep, and hands on nothing but what it can answer:
//!
//! ```text
//!            ┌──────────── written ───────────────┐
//!            ▼                                    │
//!  ───►    Head ──whole──► Passing ──► Body ──► Answer          bytes that come early stay here, few of them
//!            │ late, malformed, too large, too many
//!            └──────────► Passing (a request in its place) ──► Drain
//! ```
//!
//! - A head arrives whole within its time, whichever request of the connection it is of. It is judged here
//!   ([`head`]); in place of one that is none the framework is handed a request that [`crate::serve`] answers
//!   with the refusal, in its turn and in the form of all others.
//! - A request is passed on when the answer to the one before was written, so that there is one answer at a
//!   time for a client, however many requests it sends ahead.
//! - What was written must be read at a pace; what goes with the answer (locks, room) lives until then.
//! - A request for WebSocket is not the framework's: on a connection that another listener has accepted it goes back
//!   there with it, whichever request it is, and for the framework the connection ends. On the port of HTTP the same
//!   happens to a connection that begins as AMQP.
//! - A client that has gone is seen also behind what it has sent ahead, while its request waits ([`Lookout`]).
//! - A body is not read farther ahead of its reader than a bound, in bytes and in pieces, and however small the
//!   chunks are in which it comes, they are passed on as large ones ([`chunks`]).

mod chunks;
mod connection;
mod head;
mod write;

pub(crate) use connection::{AnswerResources, Connection};

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use actix_web::http::StatusCode;
use peeklock_core::admission::{Evicted, GRACE, Idling, Newcomer, PacedShare, Place, Timer};
use peeklock_core::contract::Principal;
use peeklock_core::error::Rejection;
use peeklock_core::telemetry::ConnectionCount;
use peeklock_listen::{Lookout, Upgrade};
use peeklock_tls::Stream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::site::Site;
use head::{Body, Fault, HEAD_BYTES_MAX, HEADER_COUNT_MAX, Head, HeadReader, blank_bytes};
use write::Writing;

/// How AMQP begins (AMQP 2.2), and no request of HTTP.
const AMQP: &[u8] = b"AMQP";
/// How much is read at once of what is looked at here.
const READ_BYTES: usize = 8 << 10;
/// How much of a head needs no room that connections share.
const FREE_BYTES: u64 = 16 << 10;
/// How much room is taken at once.
const STEP_BYTES: u64 = 32 << 10;
/// How much is read of further requests before the answer to the one at hand was written.
const EARLY_BYTES_MAX: usize = 8 << 10;

/// The parts of the grace of others after which a connection without a place looks for one again.
const PLACE_LOOKS: [u32; 3] = [16, 4, 1];

/// What the framework gets in place of a head that is none. It has a body that nobody reads, so that the
/// framework takes what the client still sends before it closes: a client sees the answer then.
const IN_ITS_PLACE: &[u8] =
    b"PUT / HTTP/1.1\r\nHost: refused\r\nContent-Length: 18446744073709551615\r\n\r\n";

/// The socket.
pub(crate) struct Socket {
    /// None when it was given back for an upgrade.
    stream: Option<Stream>,
    takes_over: TakesOver,
    principal: Principal,
    site: Arc<Site>,
    /// Present while it waits for a request. Dropped before the place, so that no connection is evicted
    /// for a place that is already free.
    idling: Option<Idling>,
    /// None until it has found one, and after a refusal.
    place: Option<Place>,
    connection: Rc<Connection>,
    phase: Phase,
    /// Bytes that were read and not passed on.
    input: Vec<u8>,
    /// How many of them are a chunk of a body as it is passed on.
    framed_bytes: usize,
    head: HeadReader,
    /// Room for a large head.
    share: PacedShare,
    is_first: bool,
    /// Since when it is in its phase.
    since: Instant,
    timer: Timer,
    /// As long as it is left unread for what was read before.
    lookout: Lookout,
    writing: Option<Writing>,
    _counted: ConnectionCount,
}

/// Who takes a connection over that is not for HTTP.
pub(crate) enum TakesOver {
    /// Nobody: it is answered as any other.
    Nobody,
    /// One with a request for WebSocket is taken.
    Upgrades(oneshot::Sender<Upgrade>),
    /// One that begins as AMQP is taken.
    Amqp(oneshot::Sender<Stream>),
}

enum Phase {
    /// A head arrives, since this instant; none if nothing of it is here.
    Head(Option<Instant>),
    /// A head is passed on: what is left, and what follows.
    Passing {
        bytes: usize,
        then: Box<Self>,
    },
    Body(Body),
    /// The body of a request that was answered before it was here.
    Rest(Body),
    /// The request was passed on.
    Answer,
    /// The connection ends when the refusal was written; what comes is passed on after that, and dropped.
    Drain {
        is_answered: bool,
    },
    Ended,
}

impl Socket {
    /// The socket of a connection that this one takes over if it is not for HTTP.
    pub(crate) fn new(stream: Stream, site: Arc<Site>, takes_over: TakesOver) -> Self {
        let mut socket = Self {
            principal: stream.principal(),
            stream: Some(stream),
            takes_over,
            share: site.inbound.paced_share(),
            connection: Rc::new(Connection::new(site.places.clone())),
            site,
            place: None,
            idling: None,
            phase: Phase::Head(None),
            input: Vec::new(),
            framed_bytes: 0,
            head: HeadReader::default(),
            is_first: true,
            since: Instant::now(),
            timer: Timer::default(),
            lookout: Lookout::default(),
            writing: None,
            _counted: ConnectionCount::by("http"),
        };
        socket.seek_place();
        socket
    }

    /// Takes a place that is free, or that of a connection that can go. Whether it has one.
    fn seek_place(&mut self) -> bool {
        if self.place.is_none() {
            self.place = self.site.places.take_or_evict(Newcomer::Stranger);
            self.idling = self.place.is_some().then(|| self.connection.idle());
        }
        self.place.is_some()
    }

    /// Ends its eviction candidacy and releases its place, in this order.
    fn release_place(&mut self) {
        self.idling = None;
        self.place = None;
    }

    /// Waits a moment for a place where all were taken when the connection came: the one before it may have ended, and the
    /// listener not have seen that. Refuses the connection if there is none.
    fn poll_place(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.seek_place() {
            let waited = self.since.elapsed();
            let next = PLACE_LOOKS.into_iter().map(|part| GRACE / part).find(|at| *at > waited);
            let Some(next) = next else {
                let count_max = self.site.config.connection_count_max;
                let detail = format!(
                    "all {count_max} connections that `http.connection_count_max` allows are in \
                     use; retry later"
                );
                self.refuse(Rejection::server_busy(detail).into());
                break;
            };
            ready!(self.timer.poll(self.since + next, context));
        }
        Poll::Ready(())
    }

    pub(crate) fn connection(&self) -> Rc<Connection> {
        Rc::clone(&self.connection)
    }

    /// A client that has shown nothing yet but where it comes from, and its certificate.
    pub(crate) fn principal(&self) -> Principal {
        self.principal.clone()
    }

    /// Ends what is read with a refusal.
    fn refuse(&mut self, refusal: Refusal) {
        self.share.release();
        self.release_place();
        self.input.clear();
        self.input.extend_from_slice(IN_ITS_PLACE);
        self.connection.refuse(refusal.closing());
        self.connection.begin();
        let then = Box::new(Phase::Drain { is_answered: false });
        self.phase = Phase::Passing { bytes: IN_ITS_PLACE.len(), then };
    }

    /// Looks at what is here of a head.
    fn judge_head(&mut self) {
        let blank = blank_bytes(&self.input);
        self.input.drain(..blank);
        if self.input.is_empty() {
            return;
        }
        if matches!(self.phase, Phase::Head(None)) {
            self.phase = Phase::Head(Some(Instant::now()));
        }
        if self.is_first && self.input.starts_with(AMQP) && self.is_taken_by_amqp() {
            return;
        }
        match self.head.read(&self.input) {
            Head::Partial => {}
            Head::Whole { bytes, body } => self.pass_on(bytes, body),
            Head::Upgrade { bytes, path } => self.upgrade(bytes, path),
            Head::Refused(fault) => self.refuse(refusal(fault)),
        }
    }

    /// The head is the framework's.
    fn pass_on(&mut self, bytes: usize, body: Body) {
        self.share.release();
        self.idling = None;
        self.connection.begin();
        self.phase = Phase::Passing { bytes, then: Box::new(Phase::Body(body)) };
    }

    /// A request for WebSocket, which somebody else may take.
    fn upgrade(&mut self, bytes: usize, path: String) {
        match std::mem::replace(&mut self.takes_over, TakesOver::Nobody) {
            TakesOver::Upgrades(upgrades) => {
                if let Some(stream) = self.hand_over() {
                    // Who waits for it may have been ended.
                    upgrades.send(Upgrade { stream, path }).ok();
                }
            }
            other => {
                self.takes_over = other;
                self.pass_on(bytes, Body::ToEnd);
            }
        }
    }

    /// Hands a connection over that begins as AMQP; false if nobody takes it.
    fn is_taken_by_amqp(&mut self) -> bool {
        match std::mem::replace(&mut self.takes_over, TakesOver::Nobody) {
            TakesOver::Amqp(amqp) => {
                if let Some(stream) = self.hand_over() {
                    amqp.send(stream).ok();
                }
                true
            }
            other => {
                self.takes_over = other;
                false
            }
        }
    }

    /// The connection is somebody else's, with all that was read of it and not passed on.
    fn hand_over(&mut self) -> Option<Stream> {
        self.share.release();
        self.release_place();
        self.phase = Phase::Ended;
        let mut stream = self.stream.take()?;
        stream.give_back(std::mem::take(&mut self.input));
        Some(stream)
    }

    /// Until when something has to arrive.
    fn deadline(&self) -> Option<Instant> {
        let config = &self.site.config;
        match self.phase {
            Phase::Head(Some(began)) => Some(began + config.head_timeout),
            Phase::Head(None) if self.is_first => Some(self.since + config.head_timeout),
            Phase::Head(None) => Some(self.since + config.keep_alive),
            Phase::Rest(_) => Some(self.since + config.body_timeout),
            Phase::Passing { .. }
            | Phase::Body(_)
            | Phase::Answer
            | Phase::Drain { .. }
            | Phase::Ended => None,
        }
    }

    /// Nothing arrived. Ends what has no time left.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_idle = matches!(self.phase, Phase::Head(None));
        if matches!(self.phase, Phase::Head(_)) {
            let evicted = self.idling.as_ref().map(|idling| idling.poll_evicted(context));
            let is_evicted = evicted.is_some_and(|evicted| evicted.is_ready());
            if is_idle && (is_evicted || self.site.requests.is_stopping()) {
                self.phase = Phase::Ended;
                return Poll::Ready(());
            }
            if is_evicted {
                let detail = "the head of the request arrives slowly while other clients wait for \
                    a connection";
                self.refuse(Rejection::server_busy(detail).into());
                return Poll::Ready(());
            }
        }
        let Some(at) = self.deadline() else { return Poll::Pending };
        ready!(self.timer.poll(at, context));
        match self.phase {
            Phase::Head(began) if began.is_some() || self.is_first => {
                let limit = self.site.config.head_timeout.as_millis();
                let detail = format!(
                    "the head of a request did not arrive within `http.head_timeout`, {limit} ms"
                );
                self.refuse(Rejection::timeout(detail).into());
            }
            _ => self.phase = Phase::Ended,
        }
        Poll::Ready(())
    }

    /// Room for more of a head.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let held = self.input.len() as u64;
        while held >= FREE_BYTES + self.share.held_bytes() {
            match self.share.poll_wait(STEP_BYTES, held, context) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => {
                    ready!(self.poll_late(context));
                    break;
                }
                Poll::Ready(Err(Evicted)) => {
                    let detail = "the head of the request arrives slowly while other clients wait \
                        for memory";
                    self.refuse(Rejection::server_busy(detail).into());
                    break;
                }
            }
        }
        Poll::Ready(())
    }

    /// Leaves the socket unread until [`Connection::wake`]. Ready if its client has gone meanwhile.
    fn poll_paused(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.connection.pause(context);
        let Some(stream) = &self.stream else { return Poll::Pending };
        self.lookout.poll(|| stream.has_ended(), context)
    }

    /// Reads more into the input; none if the peer has ended.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let mut buffer = ReadBuf::new(self.input.get_mut(before..).unwrap_or_default());
        let polled = match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_read(context, &mut buffer),
            None => Poll::Ready(Ok(())),
        };
        let read = buffer.filled().len();
        self.input.truncate(before + read);
        ready!(polled)?;
        Poll::Ready(Ok(read))
    }

    /// Hands on what is here; how much that was.
    fn pass(&mut self, bytes: usize, buffer: &mut ReadBuf<'_>) -> usize {
        let bytes = bytes.min(buffer.remaining()).min(self.input.len());
        buffer.put_slice(self.input.get(..bytes).unwrap_or_default());
        self.input.drain(..bytes);
        if self.input.is_empty() && self.input.capacity() > 2 * READ_BYTES {
            self.input = Vec::new();
        }
        bytes
    }

    /// Hands on some of a body. Nothing passed means that it has ended, or that the connection has.
    fn poll_body(
        &mut self,
        body: &mut Body,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Passed>> {
        match body {
            Body::Length(0) => Poll::Ready(Ok(Passed::Whole)),
            Body::Length(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let passed = if self.input.is_empty() {
                    ready!(read_into(&mut self.stream, most, context, buffer))?
                } else {
                    self.pass(most, buffer)
                };
                *left -= passed as u64;
                self.connection.passed(passed);
                Poll::Ready(Ok(if passed == 0 { Passed::Ended } else { Passed::Some }))
            }
            Body::Chunked(chunks) => {
                while self.framed_bytes == 0 {
                    if *chunks == chunks::Chunks::Ended {
                        return Poll::Ready(Ok(Passed::Whole));
                    }
                    if self.input.is_empty() && ready!(self.poll_fill(context))? == 0 {
                        return Poll::Ready(Ok(Passed::Ended));
                    }
                    let Ok(framed) = chunks.frame_anew(&self.input) else {
                        return Poll::Ready(Ok(Passed::Ended));
                    };
                    self.connection.passed(framed.content_bytes);
                    self.framed_bytes = framed.bytes.len();
                    self.input.splice(..framed.taken, framed.bytes);
                }
                self.framed_bytes -= self.pass(self.framed_bytes, buffer);
                Poll::Ready(Ok(Passed::Some))
            }
            Body::ToEnd => {
                let passed = if self.input.is_empty() {
                    ready!(read_into(&mut self.stream, usize::MAX, context, buffer))?
                } else {
                    self.pass(usize::MAX, buffer)
                };
                self.connection.passed(passed);
                Poll::Ready(Ok(if passed == 0 { Passed::Ended } else { Passed::Some }))
            }
        }
    }

    /// The answer was written: the next request may come.
    fn answered(&mut self) {
        self.since = Instant::now();
        self.lookout.rest();
        self.phase = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Answer => self.next(),
            Phase::Body(body) => Phase::Rest(body),
            Phase::Drain { .. } => Phase::Drain { is_answered: true },
            other => other,
        };
        self.connection.wake();
    }

    fn next(&mut self) -> Phase {
        self.is_first = false;
        self.head.begin_anew();
        self.idling = Some(self.connection.idle());
        Phase::Head(None)
    }
}

/// What was handed on of a body.
enum Passed {
    Some,
    /// It is whole.
    Whole,
    /// Nothing more will come of it.
    Ended,
}

/// Reads at most so much; what is read of a body must not be of what follows it.
fn read_into(
    stream: &mut Option<Stream>,
    bytes_max: usize,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<usize>> {
    let Some(stream) = stream else { return Poll::Ready(Ok(0)) };
    let bytes_max = bytes_max.min(buffer.remaining());
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(bytes_max));
    ready!(Pin::new(stream).poll_read(context, &mut part))?;
    let read = part.filled().len();
    buffer.advance(read);
    Poll::Ready(Ok(read))
}

/// Why a head is refused, as its client is told.
fn refusal(fault: Fault) -> Refusal {
    let too_large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    match fault {
        Fault::Malformed(detail) => Refusal::argument(detail),
        Fault::TooLarge => {
            let detail = format!(
                "the head of the request is larger than {HEAD_BYTES_MAX} bytes; send properties in a \
                 batch or over the JSON API"
            );
            Refusal::from(Rejection::out_of_range(detail)).with_status(too_large)
        }
        Fault::TooManyHeaders => {
            let detail = format!(
                "the request has more than {HEADER_COUNT_MAX} headers; send properties in a batch or \
                 over the JSON API"
            );
            Refusal::from(Rejection::out_of_range(detail)).with_status(too_large)
        }
        Fault::LongTarget(bytes) => {
            let detail = format!("the target of the request has {bytes} bytes, more than 65534");
            Refusal::from(Rejection::out_of_range(detail)).with_status(StatusCode::URI_TOO_LONG)
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.phase, Phase::Ended) {
                Phase::Head(began) => {
                    this.phase = Phase::Head(began);
                    ready!(this.poll_place(context));
                    if !matches!(this.phase, Phase::Head(_)) {
                        continue;
                    }
                    if !this.input.is_empty() {
                        this.judge_head();
                    }
                    if !matches!(this.phase, Phase::Head(_)) {
                        continue;
                    }
                    ready!(this.poll_room(context));
                    if !matches!(this.phase, Phase::Head(_)) {
                        continue;
                    }
                    match this.poll_fill(context)? {
                        Poll::Pending => ready!(this.poll_late(context)),
                        Poll::Ready(0) => this.phase = Phase::Ended,
                        Poll::Ready(_) => {}
                    }
                }
                Phase::Passing { bytes, then } => {
                    let left = bytes - this.pass(bytes, buffer);
                    this.phase = match left {
                        0 => *then,
                        bytes => Phase::Passing { bytes, then },
                    };
                    return Poll::Ready(Ok(()));
                }
                Phase::Body(mut body) => {
                    if this.connection.is_behind() && body != Body::Length(0) {
                        this.phase = Phase::Body(body);
                        ready!(this.poll_paused(context));
                        this.phase = Phase::Ended;
                        continue;
                    }
                    this.lookout.rest();
                    let polled = this.poll_body(&mut body, context, buffer);
                    match polled? {
                        Poll::Pending => {
                            this.phase = Phase::Body(body);
                            return Poll::Pending;
                        }
                        Poll::Ready(Passed::Whole) => this.phase = Phase::Answer,
                        Poll::Ready(Passed::Ended) => {}
                        Poll::Ready(Passed::Some) => {
                            this.phase = Phase::Body(body);
                            return Poll::Ready(Ok(()));
                        }
                    }
                }
                Phase::Rest(mut body) => {
                    let polled = this.poll_body(&mut body, context, buffer);
                    match polled? {
                        Poll::Pending => {
                            this.phase = Phase::Rest(body);
                            ready!(this.poll_late(context));
                        }
                        Poll::Ready(Passed::Whole) => this.phase = this.next(),
                        Poll::Ready(Passed::Ended) => {}
                        Poll::Ready(Passed::Some) => {
                            this.phase = Phase::Rest(body);
                            return Poll::Ready(Ok(()));
                        }
                    }
                }
                Phase::Answer => {
                    this.phase = Phase::Answer;
                    if this.input.len() >= EARLY_BYTES_MAX {
                        ready!(this.poll_paused(context));
                        // As where its end is read (HTP-11).
                        this.phase = Phase::Ended;
                        continue;
                    }
                    match this.poll_fill(context)? {
                        Poll::Pending => {
                            // What came early is looked at when the answer was written.
                            this.connection.pause(context);
                            return Poll::Pending;
                        }
                        // Its client is gone (HTP-11).
                        Poll::Ready(0) => this.phase = Phase::Ended,
                        Poll::Ready(_) => {}
                    }
                }
                Phase::Drain { is_answered } => {
                    this.phase = Phase::Drain { is_answered };
                    if !is_answered {
                        this.connection.pause(context);
                        return Poll::Pending;
                    }
                    this.input.clear();
                    return read_into(&mut this.stream, usize::MAX, context, buffer).map_ok(drop);
                }
                Phase::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

//! The socket of a connection, as actix-web sees it. It enforces the time and size limits that the
//! framework lacks, and passes on only bytes that the framework can answer:
//!
//! ```text
//!            ┌──────────── written ───────────────┐
//!            ▼                                    │
//!  ───►    Head ──whole──► Passing ──► Body ──► Answer          bytes that come early stay here, few of them
//!            │ late, malformed, too large, too many
//!            └──────────► Passing (a request in its place) ──► Drain
//! ```
//!
//! - A head must arrive whole within its time, for each request of the connection. [`head`] checks
//!   it here. For an invalid head the framework gets a placeholder request, which [`crate::serve`]
//!   answers with the refusal, in the usual order and form.
//! - A request is passed on only after the previous answer was written. A client that pipelines
//!   requests therefore occupies one answer at a time.
//! - The client must read its answer at a minimum pace. The locks and the memory of the answer live
//!   until it is written.
//! - A WebSocket request never reaches the framework: on a connection from another listener, the
//!   socket goes back to that listener with the request, and for the framework the connection ends.
//!   On the HTTP port the same happens to a connection that begins as AMQP.
//! - A disconnected client is detected while its request waits, even behind bytes that it has sent
//!   in advance ([`Lookout`]).
//! - A body is read ahead of its handler only up to a limit, in bytes and in pieces. Small chunks
//!   are passed on as large ones ([`chunks`]).

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
use peeklock_core::clients::ClientGuard;
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

/// The first bytes of an AMQP connection (AMQP 2.2); no HTTP request starts with them.
const AMQP: &[u8] = b"AMQP";
/// Bytes per read while this module examines them.
const READ_BYTES: usize = 8 << 10;
/// Bytes of a head that need no shared memory.
const FREE_BYTES: u64 = 16 << 10;
/// Bytes of shared memory that are reserved in one step.
const STEP_BYTES: u64 = 32 << 10;
/// Maximum bytes of further requests that are read before the current answer is written.
const EARLY_BYTES_MAX: usize = 8 << 10;

/// Divisors of the grace of other connections: a connection without a slot looks for one again
/// after each of these parts.
const PLACE_LOOKS: [u32; 3] = [16, 4, 1];

/// The request that the framework gets in place of an invalid head. It has a body that no handler
/// reads, so that the framework consumes further bytes of the client before it closes; otherwise a
/// reset could hide the answer from the client.
const IN_ITS_PLACE: &[u8] =
    b"PUT / HTTP/1.1\r\nHost: refused\r\nContent-Length: 18446744073709551615\r\n\r\n";

/// The socket of one connection.
pub(crate) struct Socket {
    /// None after the stream was handed to another protocol.
    stream: Option<Stream>,
    takes_over: TakesOver,
    principal: Principal,
    site: Arc<Site>,
    /// Present while the connection waits for a request. Dropped before the slot, so that no
    /// connection is evicted for a slot that is already free.
    idling: Option<Idling>,
    /// None until a slot is found, and after a refusal.
    place: Option<Place>,
    connection: Rc<Connection>,
    /// The client in the list of clients.
    client: Rc<ClientGuard>,
    /// Resolves when an operator closes the client.
    closed: Pin<Box<dyn Future<Output = ()>>>,
    phase: Phase,
    /// Bytes that were read and not passed on.
    input: Vec<u8>,
    /// Number of input bytes that are a re-framed chunk.
    framed_bytes: usize,
    head: HeadReader,
    /// Shared memory for a large head.
    share: PacedShare,
    is_first: bool,
    /// Start of the phase.
    since: Instant,
    timer: Timer,
    /// Detects the end of the client while the socket is not read.
    lookout: Lookout,
    writing: Option<Writing>,
    _counted: ConnectionCount,
}

/// The recipient of a connection that does not speak HTTP.
pub(crate) enum TakesOver {
    /// No recipient: the framework answers.
    Nobody,
    /// Takes a connection with a WebSocket request.
    Upgrades(oneshot::Sender<Upgrade>),
    /// Takes a connection that begins as AMQP.
    Amqp(oneshot::Sender<Stream>),
}

enum Phase {
    /// A head arrives, since this instant; none if no byte of it has arrived.
    Head(Option<Instant>),
    /// A head is passed on: its remaining bytes and the next phase.
    Passing {
        bytes: usize,
        then: Box<Self>,
    },
    Body(Body),
    /// The rest of a body whose request is already answered.
    Rest(Body),
    /// The request was passed on.
    Answer,
    /// The refusal is being written; after that, further input is passed on and dropped until the
    /// connection ends.
    Drain {
        is_answered: bool,
    },
    Ended,
}

impl Socket {
    /// The socket of a connection, with the recipient for other protocols.
    pub(crate) fn new(stream: Stream, site: Arc<Site>, takes_over: TakesOver) -> Self {
        let client = site.broker.client("http", stream.peer());
        let mut socket = Self {
            closed: Box::pin(client.closed()),
            client: Rc::new(client),
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

    /// Takes a free slot, or the slot of an evictable connection. Returns whether the connection
    /// has one.
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

    /// Waits a moment for a slot if none was free at the start: an earlier connection may have
    /// ended without the listener having noticed. Refuses the connection if no slot becomes free.
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

    pub(crate) fn client(&self) -> Rc<ClientGuard> {
        Rc::clone(&self.client)
    }

    /// The principal of a client without a token: its address and its certificate.
    pub(crate) fn principal(&self) -> Principal {
        self.principal.clone()
    }

    /// Stops reading and answers with a refusal.
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

    /// Examines the received bytes of a head.
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

    /// Passes a valid head to the framework.
    fn pass_on(&mut self, bytes: usize, body: Body) {
        self.share.release();
        self.idling = None;
        self.connection.begin();
        self.phase = Phase::Passing { bytes, then: Box::new(Phase::Body(body)) };
    }

    /// Hands a WebSocket request to its recipient, if there is one.
    fn upgrade(&mut self, bytes: usize, path: String) {
        match std::mem::replace(&mut self.takes_over, TakesOver::Nobody) {
            TakesOver::Upgrades(upgrades) => {
                if let Some(stream) = self.hand_over() {
                    // The receiver may have been cancelled.
                    upgrades.send(Upgrade { stream, path }).ok();
                }
            }
            other => {
                self.takes_over = other;
                self.pass_on(bytes, Body::ToEnd);
            }
        }
    }

    /// Hands over a connection that begins as AMQP; returns false if no transport takes it.
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

    /// Takes the stream out, with all bytes that were read and not passed on.
    fn hand_over(&mut self) -> Option<Stream> {
        self.share.release();
        self.release_place();
        self.phase = Phase::Ended;
        let mut stream = self.stream.take()?;
        stream.give_back(std::mem::take(&mut self.input));
        Some(stream)
    }

    /// The time at which further bytes must have arrived.
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

    /// Checks deadlines and eviction after a read without bytes. Ready if the phase changed.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_idle = matches!(self.phase, Phase::Head(None));
        if matches!(self.phase, Phase::Head(_)) {
            let evicted = self.idling.as_ref().map(|idling| idling.poll_evicted(context));
            let is_evicted = evicted.is_some_and(|evicted| evicted.is_ready());
            let ends = is_evicted || self.site.requests.is_stopping();
            if is_idle && (ends || self.is_closed(context)) {
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

    /// Whether an operator has closed the client. Otherwise the socket wakes when one does.
    fn is_closed(&mut self, context: &mut Context<'_>) -> bool {
        self.client.is_closed() || self.closed.as_mut().poll(context).is_ready()
    }

    /// Reserves shared memory for more bytes of a head.
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

    /// Leaves the socket unread until [`Connection::wake`]. Ready if the client disconnects
    /// meanwhile.
    fn poll_paused(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.connection.pause(context);
        let Some(stream) = &self.stream else { return Poll::Pending };
        self.lookout.poll(|| stream.has_ended(), context)
    }

    /// Reads more input; returns 0 at the end of the stream.
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

    /// Passes buffered input on; returns the number of bytes.
    fn pass(&mut self, bytes: usize, buffer: &mut ReadBuf<'_>) -> usize {
        let bytes = bytes.min(buffer.remaining()).min(self.input.len());
        buffer.put_slice(self.input.get(..bytes).unwrap_or_default());
        self.input.drain(..bytes);
        if self.input.is_empty() && self.input.capacity() > 2 * READ_BYTES {
            self.input = Vec::new();
        }
        bytes
    }

    /// Passes a part of the body on.
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
                    let Ok(framed) = chunks.reframe(&self.input) else {
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

    /// Continues after the answer was written.
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
        self.head.restart();
        self.idling = Some(self.connection.idle());
        Phase::Head(None)
    }
}

/// The progress of a body.
enum Passed {
    Some,
    /// The body is complete.
    Whole,
    /// The stream ended within the body, or its framing is invalid.
    Ended,
}

/// Reads at most `bytes_max` bytes, so that a body never includes bytes that follow it.
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

/// The refusal for an invalid head.
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
                        // The same as where the end of the stream is read (HTP-11).
                        this.phase = Phase::Ended;
                        continue;
                    }
                    match this.poll_fill(context)? {
                        Poll::Pending => {
                            // Early requests are examined after the answer was written.
                            this.connection.pause(context);
                            return Poll::Pending;
                        }
                        // The client has disconnected (HTP-11).
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

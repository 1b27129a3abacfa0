//! The turns of a conversation: what is read, what waits for room, what the clock asks for.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink as _, SinkExt as _, Stream as _};
use peeklock_core::permits::Permit;
use peeklock_link::{FREE_BYTES, Phase, Protocol as _, numbered_bytes};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use super::inbound::Requests;
use super::price::Price;
use super::{CLOSE_TIMEOUT, Conversation, Ended};
use crate::error::{Close, FrameError, code};
use crate::frame::{BadRequest, Encoding, LIST_COUNT_MAX, Request};
use crate::operation::{Notice, Operation};
use crate::site::{Call, Socket};

/// Frames that are read in one go before what they ask for is handed over.
const FRAMES_PER_TURN: usize = 16;
/// A turn ends when so much was read.
const BYTES_PER_TURN: usize = 256 << 10;
/// Holding no more than this for what it asks for, a client is not in the way of others: all there may be hold little.
const ASKED_BYTES_FREE: u64 = 16 << 10;
/// Why a frame has to be given up.
const YIELDS: &str = "a frame arrives slowly while other clients wait";
/// Why one who has asked for much has to give it up.
const ASKS_MUCH: &str = "requests in one frame take long while other clients wait";

/// What happens next.
enum Turn {
    /// The socket has given something, or has ended.
    Frame(Option<Result<SocketMessage, SocketError>>),
    /// There is room for the frame that is held.
    Permit((Bytes, Price), Permit),
    /// There is room for the answers to the requests that are held.
    GoOn,
    /// Entities have said something, or something is to be written.
    Mail,
    /// The socket has taken all that was written.
    Flushed,
    /// Its client takes nothing, or others wait for the room that this one holds, and it is slow.
    Yield(Ended),
    /// Another task wants something of this one.
    Call(Call),
    /// It is idle, and another comes for which there is no place.
    Leave,
    /// Time has passed.
    Tick,
    /// The listener is being stopped, and waits for so long.
    Stop(Duration),
    /// It does not wait any longer.
    Deadline,
}

impl Conversation {
    pub(super) async fn serve(&mut self, socket: &mut Socket) -> Ended {
        let beat = (self.heartbeat / 2).min(self.site.config.frame_timeout / 2);
        let mut ticks = tokio::time::interval(beat.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            if self.may_end() {
                return Ended::Stopped;
            }
            if !self.mark_idle() {
                return Ended::Leave;
            }
            let step = match self.turn(socket, &mut ticks).await {
                Turn::Frame(frame) => self.read(socket, frame).await,
                Turn::Permit((bytes, price), permit) => self.decode(bytes, permit, price).await,
                Turn::GoOn => {
                    let phase = std::mem::replace(&mut self.engine.phase, Phase::Open);
                    if let Phase::NeedsRoom(requests) = phase {
                        self.carry_out(requests).await;
                    }
                    Ok(())
                }
                Turn::Mail => self.write(socket).await,
                Turn::Flushed if !self.outgoing.is_empty() => self.write_on(socket).await,
                Turn::Flushed => {
                    self.unflushed = false;
                    self.pongs.taken();
                    self.flushed();
                    self.welcome()
                }
                Turn::Yield(ended) => return ended,
                Turn::Call(call) => return call.into(),
                Turn::Leave => return Ended::Leave,
                Turn::Tick => {
                    self.engine.transactions.expire();
                    self.mark_key();
                    self.welcome().and_then(|()| self.tick(socket, beat))
                }
                Turn::Stop(grace) => {
                    self.begin_stop(grace);
                    Ok(())
                }
                // The next turn finds that it may end.
                Turn::Deadline => Ok(()),
            };
            if let Err(ended) = step {
                return ended;
            }
            // What was written has made room for answers.
            self.start_apart();
            self.engine.links.hand_over();
        }
    }

    /// Ends a connection without a token when everybody has to have one (SEC-17), and it was told all that it
    /// waits for: who has made the first policy is told that, too.
    fn welcome(&self) -> Result<(), Ended> {
        let is_told =
            self.engine.links.pending_count() == 0 && self.ready.is_empty() && !self.unflushed;
        if !is_told || self.engine.broker.allows_anonymous() {
            return Ok(());
        }
        if self.engine.access.principal().is_none_or(|principal| principal.token.is_some()) {
            return Ok(());
        }
        let reason = "every client now needs a token";
        Err(Ended::Refused(Close::new(code::UNAUTHORIZED, reason)))
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
        // Before anything is read: who says things without end keeps no place by that, which somebody has by now.
        if self.engine.standing.poll_needed(context).is_ready() {
            return Poll::Ready(Turn::Leave);
        }
        if let Some(stop) = &mut self.stop
            && let Poll::Ready(grace) = stop.as_mut().poll(context)
        {
            self.stop = None;
            return Poll::Ready(Turn::Stop(grace));
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Turn::Deadline);
        }
        if self.unflushed {
            match Pin::new(&mut *socket).poll_flush(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Turn::Flushed),
                Poll::Ready(Err(error)) => return Poll::Ready(Turn::Frame(Some(Err(error)))),
                Poll::Pending => {}
            }
        } else if self.has_mail(context) {
            return Poll::Ready(Turn::Mail);
        }
        if self.poll_stall(socket, context).is_ready() {
            let reason = "the client does not read";
            let slow = Ended::Lost(Some(Close::new(code::SLOW, reason)));
            return Poll::Ready(Turn::Yield(slow));
        }
        if let Poll::Ready(ended) = self.poll_yield(socket, context) {
            return Poll::Ready(Turn::Yield(ended));
        }
        if let Phase::NeedsRoom(Requests { requests, .. }) = &self.engine.phase
            && requests.front().is_none_or(|request| self.may_ask(request))
        {
            return Poll::Ready(Turn::GoOn);
        }
        if let Poll::Ready((frame, permit)) = self.engine.poll_permit(context) {
            return Poll::Ready(Turn::Permit(frame, permit));
        }
        if self.may_read() {
            self.engine.lookout.rest();
            if let Poll::Ready(frame) = Pin::new(&mut *socket).poll_next(context) {
                return Poll::Ready(Turn::Frame(frame));
            }
        } else if self.engine.lookout.poll(|| socket.get_ref().has_ended(), context).is_ready() {
            // As where its end is read: what stands before it is not.
            return Poll::Ready(Turn::Frame(None));
        }
        ticks.poll_tick(context).map(|_| Turn::Tick)
    }

    /// Ready if its client has not taken what was written for `websocket.frame_timeout`, by what the socket takes and what
    /// the client confirms.
    fn poll_stall(&mut self, socket: &Socket, context: &mut Context<'_>) -> Poll<()> {
        if !self.unflushed && self.may_write() {
            self.stall.rest();
            return Poll::Pending;
        }
        let patience = self.site.config.frame_timeout;
        self.stall.poll(socket.get_ref().written_bytes(), patience, context)
    }

    /// Ready if others wait for room that its client holds up: it does not take what is written, or does not say that
    /// it did.
    fn poll_yield(&mut self, socket: &Socket, context: &mut Context<'_>) -> Poll<Ended> {
        let is_held_up = self.unflushed || self.kept_bytes > FREE_BYTES;
        let taken_bytes =
            is_held_up.then(|| socket.get_ref().written_bytes() + self.confirmed_bytes);
        if self.engine.poll_yield(taken_bytes, context).is_ready() {
            return Poll::Ready(Ended::Yielded);
        }
        // Or it has asked for much at once that waits for its turn, and all of that keeps its room so long.
        let held_bytes = self.engine.budget.held_bytes();
        let is_waiting = matches!(self.engine.phase, Phase::NeedsRoom(_));
        let is_asked = (is_waiting || self.engine.apart.is_busy()) && held_bytes > ASKED_BYTES_FREE;
        let begun_bytes = is_asked.then_some(self.begun_bytes);
        let held = (&self.engine.account, &self.engine.budget);
        let yields = self.beginning.poll(begun_bytes, held_bytes, held, context);
        yields.map(|()| Ended::Refused(Close::new(code::SLOW, ASKS_MUCH)))
    }

    /// Whether there is something to be told, or to be made ready to be.
    fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        let may_write = self.may_write();
        if may_write && !self.ready.is_empty() {
            return true;
        }
        // Answers give their room back although the client has not taken what went before.
        let may_answer = self.may_answer() && self.ready.len() < LIST_COUNT_MAX;
        if !may_write && !may_answer {
            return false;
        }
        self.engine.has_mail(context)
    }

    /// Whether another frame may be read: there is room for what it asks for, and the client takes what it
    /// is answered. Where nothing is written until it has confirmed what it took, only a frame says so; what that asks
    /// for waits, and nothing is read behind it.
    fn may_read(&self) -> bool {
        self.engine.is_open()
            && self.handing_over.is_none()
            && self.engine.links.pending_count() < self.command_count_max()
            && (self.may_answer() || !self.may_write())
            && self.pongs.may_read()
    }

    /// Whether there is room for answers: little is here that was not written.
    pub(super) fn may_answer(&self) -> bool {
        self.unwritten_bytes() < self.site.config.outbound_bytes_max
    }

    /// What is here and was not written.
    fn unwritten_bytes(&self) -> u64 {
        self.engine.account.held_bytes().saturating_sub(self.kept_bytes)
    }

    /// What there is room for among answers.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.site.config.outbound_bytes_max.saturating_sub(self.unwritten_bytes())
    }

    /// Whether a request may be carried out: there is room for its answer, and what was asked before it is with its
    /// entity. What takes messages for good
    /// is asked for only as far as they can be told soon; a client that keeps what was written to be
    /// asked for again loses nothing by it.
    pub(super) fn may_ask(&self, request: &Result<Request, BadRequest>) -> bool {
        if !self.may_answer() || self.handing_over.is_some() {
            return false;
        }
        let Ok(Request { operation, .. }) = request else { return true };
        match operation {
            Operation::Receive(receive) => {
                receive.wait_seconds > 0.0
                    || !self.may_write()
                    || self.engine.links.may_receive(self.room_bytes())
            }
            Operation::ReceiveDeferred(numbered) => {
                let bytes = self.numbered_bytes(numbered.count());
                !self.may_write()
                    || self.engine.links.may_receive_numbered(bytes, self.room_bytes())
            }
            _ => true,
        }
    }

    /// What a receive by so many numbers is taken to bring.
    pub(crate) fn numbered_bytes(&self, count: usize) -> u64 {
        numbered_bytes(count, self.engine.broker.settings().limits.deferred_bytes_max)
    }

    /// Whether anything may be written: the client has confirmed enough of what went before.
    pub(super) fn may_write(&self) -> bool {
        self.grace.is_none() || self.kept_bytes < 2 * self.site.config.outbound_bytes_max
    }

    pub(crate) fn command_count_max(&self) -> usize {
        self.engine.broker.settings().limits.connection_inbound_count_max
    }

    /// Takes a frame, and those that are there already behind it.
    async fn read(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), Ended> {
        let mut frame = Some(frame);
        let (mut count, mut bytes) = (0, 0);
        while let Some(next) = frame {
            bytes += next.as_ref().map_or(0, |next| next.as_ref().map_or(0, SocketMessage::len));
            self.take(socket, next).await?;
            count += 1;
            if bytes >= BYTES_PER_TURN {
                // What is large takes long to read: now the others of this thread.
                tokio::task::yield_now().await;
                break;
            }
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

    /// Takes what the socket gave; a frame of data is decoded as soon as it is paid for.
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
        match &message {
            SocketMessage::Ping(payload) => {
                // The library has put the pong into its buffer.
                self.unflushed = true;
                self.pongs.owe(payload.len());
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
        self.take_frame(bytes).await
    }

    /// Time has passed: says that the server is there, and looks whether the client is.
    fn tick(&mut self, socket: &mut Socket, beat: Duration) -> Result<(), Ended> {
        let may_write = self.may_write() && !self.unflushed;
        if !std::mem::take(&mut self.written_since_tick) && may_write {
            self.say(0, Notice::Heartbeat(Default::default()));
        }
        // Locks that have ended make room although the client says nothing.
        self.engine.links.forget_ended(self.engine.broker.now());
        // Told while it was not read.
        if socket.get_mut().must_yield() {
            return Err(Ended::Lost(Some(Close::new(code::SLOW, YIELDS))));
        }
        if !self.may_read() {
            // It is not the client who is slow.
            socket.get_mut().begin_anew();
        } else if socket.get_mut().is_late() {
            let reason = "a frame has begun but did not arrive in time";
            return Err(Ended::Lost(Some(Close::new(code::SLOW, reason))));
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
            let reason = "nothing arrived for twice the heartbeat";
            return Err(Ended::Lost(Some(Close::new(code::SILENT, reason))));
        }
        Ok(())
    }
}

/// The bytes of a data frame; none if the client closes.
pub(super) fn payload(
    message: SocketMessage,
    encoding: Encoding,
) -> Result<Option<Bytes>, Option<Close>> {
    match (message, encoding) {
        (SocketMessage::Binary(bytes), Encoding::Binary) => Ok(Some(bytes)),
        (SocketMessage::Text(text), Encoding::Json) => Ok(Some(text.into())),
        (SocketMessage::Binary(_), Encoding::Json) => {
            Err(Some(Close::new(code::UNSUPPORTED, "frames of peeklock.v1.json must be text")))
        }
        (SocketMessage::Text(_), Encoding::Binary) => {
            Err(Some(Close::new(code::UNSUPPORTED, "frames of peeklock.v1.binary must be binary")))
        }
        _ => Ok(None),
    }
}

/// How a socket ended that gave this error.
pub(super) fn lost(error: &SocketError) -> Ended {
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
        SocketError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Ended::Lost(Some(Close::new(code::SLOW, YIELDS)))
        }
        _ => Ended::Lost(None),
    }
}

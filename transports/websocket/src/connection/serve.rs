//! The turns of a conversation: what is read, what waits for room, what the clock asks for.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink as _, SinkExt as _, Stream as _};
use peeklock_link::{FREE_BYTES, NextTurn, Phase, Protocol as _, Serve, Turn, numbered_bytes};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use super::inbound::Requests;
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

/// A turn of WebSocket.
pub(crate) enum SocketTurn {
    /// The socket has given something, or has ended.
    Frame(Option<Result<SocketMessage, SocketError>>),
    /// The socket has taken all that was written.
    Flushed,
    /// Another task wants something of this one.
    Call(Call),
}

impl Conversation {
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
        self.engine.account.held_bytes().saturating_sub(self.frames.kept_bytes)
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
        self.grace.is_none() || self.frames.kept_bytes < 2 * self.site.config.outbound_bytes_max
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
            self.take_frame(socket, next).await?;
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
    async fn take_frame(
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
        self.pulse.read_since_tick = true;
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
        self.pay_frame(bytes).await
    }

    /// Time has passed: says that the server is there, and looks whether the client is.
    fn tick(&mut self, socket: &mut Socket) -> Result<(), Ended> {
        let may_write = self.may_write() && !self.unflushed;
        if !std::mem::take(&mut self.pulse.written_since_tick) && may_write {
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
        if std::mem::take(&mut self.pulse.read_since_tick) {
            self.pulse.silent_ticks = 0;
            return Ok(());
        }
        // While there is no room the client cannot be heard, unless it is itself who takes nothing.
        if self.may_read() || !may_write {
            self.pulse.silent_ticks += 1;
        }
        if self.pulse.ticks.period() * self.pulse.silent_ticks > self.heartbeat * 2 {
            let reason = "nothing arrived for twice the heartbeat";
            return Err(Ended::Lost(Some(Close::new(code::SILENT, reason))));
        }
        Ok(())
    }
}

impl Serve<Socket> for Conversation {
    type Own = SocketTurn;
    type End = Ended;

    async fn advance(&mut self) -> Result<(), Ended> {
        // Bytes that were written have made room for answers.
        self.start_apart();
        self.engine.links.hand_over();
        if self.may_end() { Err(Ended::Stopped) } else { Ok(()) }
    }

    fn poll_own(
        &mut self,
        socket: &mut Socket,
        context: &mut Context<'_>,
    ) -> NextTurn<Self, Socket> {
        if let Poll::Ready(Some(call)) = self.calls.poll_recv(context) {
            return Poll::Ready(Turn::Own(SocketTurn::Call(call)));
        }
        if !self.unflushed {
            return Poll::Pending;
        }
        let flushed = ready!(Pin::new(socket).poll_flush(context));
        Poll::Ready(Turn::Own(match flushed {
            Ok(()) => SocketTurn::Flushed,
            Err(error) => SocketTurn::Frame(Some(Err(error))),
        }))
    }

    fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        if self.unflushed {
            return false;
        }
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

    /// The client takes less than its pace for `websocket.frame_timeout`; or it holds up room for which others wait.
    fn poll_slow(&mut self, socket: &mut Socket, context: &mut Context<'_>) -> Poll<Ended> {
        let written_bytes = socket.get_ref().written_bytes();
        if !self.unflushed && self.may_write() {
            self.stall.rest();
        } else if self.stall.poll(written_bytes, self.site.config.frame_timeout, context).is_ready()
        {
            let reason = "the client does not read";
            return Poll::Ready(Ended::Lost(Some(Close::new(code::SLOW, reason))));
        }
        // It does not take the bytes that are written, or does not confirm them.
        let is_held_up = self.unflushed || self.frames.kept_bytes > FREE_BYTES;
        let taken_bytes = is_held_up.then_some(written_bytes + self.frames.confirmed_bytes);
        if self.engine.poll_yield(taken_bytes, context).is_ready() {
            return Poll::Ready(Ended::Yielded);
        }
        // Or many of its requests wait for their turn, and all of them keep their room meanwhile.
        let held_bytes = self.engine.budget.held_bytes();
        let is_waiting = matches!(self.engine.phase, Phase::NeedsRoom(_));
        let is_asked = (is_waiting || self.engine.apart.is_busy()) && held_bytes > ASKED_BYTES_FREE;
        let begun_bytes = is_asked.then_some(self.begun_bytes);
        let held = (&self.engine.account, &self.engine.budget);
        let yields = self.beginning.poll(begun_bytes, held_bytes, held, context);
        yields.map(|()| Ended::Refused(Close::new(code::SLOW, ASKS_MUCH)))
    }

    fn take_held(&mut self) -> Option<Requests> {
        let Phase::NeedsRoom(Requests { requests, .. }) = &self.engine.phase else { return None };
        if requests.front().is_some_and(|request| !self.may_ask(request)) {
            return None;
        }
        match std::mem::replace(&mut self.engine.phase, Phase::Open) {
            Phase::NeedsRoom(requests) => Some(requests),
            _ => None,
        }
    }

    fn poll_read(
        &mut self,
        socket: &mut Socket,
        context: &mut Context<'_>,
    ) -> Option<NextTurn<Self, Socket>> {
        let frame = self.may_read().then(|| Pin::new(socket).poll_next(context))?;
        Some(frame.map(|frame| Turn::Own(SocketTurn::Frame(frame))))
    }

    fn has_ended(socket: &Socket) -> bool {
        socket.get_ref().has_ended()
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.pulse.ticks.poll_tick(context).map(drop)
    }

    async fn take(&mut self, turn: Turn<Self, Socket>, socket: &mut Socket) -> Result<(), Ended> {
        match turn {
            Turn::Own(SocketTurn::Frame(frame)) => self.read(socket, frame).await,
            // As where its end is read: frames that stand before it are not.
            Turn::Disconnected => Err(Ended::Lost(None)),
            Turn::Permit((bytes, price), permit) => self.decode(bytes, permit, price).await,
            Turn::Room(requests) => {
                self.carry_out(requests).await;
                Ok(())
            }
            Turn::Mail => self.write(socket).await,
            Turn::Own(SocketTurn::Flushed) if !self.outgoing.is_empty() => {
                self.write_on(socket).await
            }
            Turn::Own(SocketTurn::Flushed) => {
                self.unflushed = false;
                self.pongs.taken();
                self.flushed();
                self.welcome()
            }
            Turn::End(ended) => Err(ended),
            Turn::Own(SocketTurn::Call(call)) => Err(call.into()),
            // A client that has come back is answered on its new socket.
            Turn::PlaceNeeded => Err(self.calls.try_recv().map_or(Ended::Leave, Into::into)),
            Turn::Tick => {
                self.engine.transactions.expire();
                self.mark_key();
                self.welcome().and_then(|()| self.tick(socket))
            }
            Turn::Stop(grace) => {
                self.say_closing(u32::try_from(grace.as_secs()).unwrap_or(u32::MAX));
                self.engine.stop_flows();
                Ok(())
            }
            // The next turn finds that it may end.
            Turn::Deadline => Ok(()),
        }
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

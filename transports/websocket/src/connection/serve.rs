//! The turns of a conversation: frames to read, requests that wait for room, and timers. The loop
//! that runs them is in `peeklock_link::engine`.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink as _, SinkExt as _, Stream as _};
use peeklock_core::admission::Account;
use peeklock_link::{ConnectionLoop, NextStep, NextStepPoll, Phase, Protocol as _, numbered_bytes};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use super::inbound::Requests;
use super::{CLOSE_TIMEOUT, Conversation, SocketEnd};
use crate::error::{Close, FrameError, code};
use crate::frame::{BadRequest, Encoding, LIST_COUNT_MAX, Request};
use crate::operation::{Notice, Operation};
use crate::site::{Call, Socket};

/// Maximum number of frames read in one turn before their commands go to the entities.
const FRAMES_PER_TURN: usize = 16;
/// Number of bytes read after which a turn ends.
const BYTES_PER_TURN: usize = 256 << 10;
/// A client whose requests hold at most this many bytes never has to yield: all such clients
/// together hold little.
const REQUEST_BYTES_FREE: u64 = 16 << 10;
/// Reason of the close when a partial frame has to be given up.
const SLOW_FRAME_REASON: &str = "a frame arrives slowly while other clients wait";
/// Reason of the close when a client with many requests has to give them up.
const SLOW_REQUESTS_REASON: &str = "requests in one frame take long while other clients wait";

/// A turn that only this transport has.
pub(crate) enum SocketTurn {
    /// The socket has returned a frame or an error, or has ended.
    Frame(Option<Result<SocketMessage, SocketError>>),
    /// The socket has written all bytes.
    Flushed,
    /// Another task calls this conversation.
    Call(Call),
}

impl Conversation {
    /// Ends a connection without a token once every client must have one (SEC-17), after all its
    /// answers are sent: a client that creates the first policy still gets the answer.
    fn end_without_token(&self) -> Result<(), SocketEnd> {
        let has_sent_all =
            self.engine.links.pending_count() == 0 && self.ready.is_empty() && !self.unflushed;
        if !has_sent_all || self.engine.broker.allows_anonymous() {
            return Ok(());
        }
        if self.engine.access.principal().is_none_or(|principal| principal.token.is_some()) {
            return Ok(());
        }
        let reason = "every client now needs a token";
        Err(SocketEnd::Refused(Close::new(code::UNAUTHORIZED, reason)))
    }

    /// Whether another frame may be read: there is room for its requests, and the client takes its
    /// answers. While the server writes nothing until the client confirms, frames are read in spite
    /// of missing room, since only a frame carries the confirmation; its requests wait then, and
    /// nothing is read after it.
    fn may_read(&self) -> bool {
        self.engine.is_open()
            && self.handing_over.is_none()
            && self.engine.links.pending_count() < self.command_count_max()
            && (self.may_answer() || !self.may_write())
            && self.pongs.may_read()
    }

    /// Whether there is room for answers: few bytes are unwritten.
    pub(super) fn may_answer(&self) -> bool {
        self.unwritten_bytes() < self.site.config.outbound_bytes_max
    }

    /// Bytes held for the client that are not written yet.
    fn unwritten_bytes(&self) -> u64 {
        self.engine.account.held_bytes().saturating_sub(self.frames.kept_bytes)
    }

    /// Room for answers, in bytes.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.site.config.outbound_bytes_max.saturating_sub(self.unwritten_bytes())
    }

    /// Whether a request may be carried out: there is room for its answer, and all earlier requests
    /// are with their entities. Requests that may remove messages permanently also wait until their
    /// messages can be sent soon. They do not wait while the server writes nothing until a
    /// confirmation: frames are kept then, and no message is lost.
    pub(super) fn has_room_for(&self, request: &Result<Request, BadRequest>) -> bool {
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

    /// Upper bound for the messages that a receive by `count` sequence numbers returns, in bytes.
    pub(crate) fn numbered_bytes(&self, count: usize) -> u64 {
        numbered_bytes(count, self.engine.broker.settings().limits.deferred_bytes_max)
    }

    /// Whether frames may be written: the client has confirmed enough of the earlier ones.
    pub(super) fn may_write(&self) -> bool {
        self.grace.is_none() || self.frames.kept_bytes < 2 * self.site.config.outbound_bytes_max
    }

    pub(crate) fn command_count_max(&self) -> usize {
        self.engine.broker.settings().limits.connection_inbound_count_max
    }

    /// Takes a frame, and the further frames that are already available.
    async fn read(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), SocketEnd> {
        let mut frame = Some(frame);
        let (mut count, mut bytes) = (0, 0);
        while let Some(next) = frame {
            bytes += next.as_ref().map_or(0, |next| next.as_ref().map_or(0, SocketMessage::len));
            self.take_frame(socket, next).await?;
            count += 1;
            if bytes >= BYTES_PER_TURN {
                // Reading many bytes takes long, so other tasks of this thread get a turn.
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

    /// Takes one message of the socket; a data frame is decoded as soon as it is paid for.
    async fn take_frame(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), SocketEnd> {
        let message = match frame {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(lost(&error)),
            None => return Err(SocketEnd::Lost(None)),
        };
        socket.get_mut().frame_taken();
        self.pulse.read_since_tick = true;
        match &message {
            SocketMessage::Ping(payload) => {
                // The library has put the pong into its buffer.
                self.unflushed = true;
                self.pongs.add_pong(payload.len());
                return Ok(());
            }
            SocketMessage::Pong(_) => return Ok(()),
            SocketMessage::Close(frame) => {
                let code = frame.as_ref().map(|frame| u16::from(frame.code));
                // The library has put its answer into the buffer and would refuse another close.
                tokio::time::timeout(CLOSE_TIMEOUT, socket.flush()).await.ok();
                return Err(match code {
                    Some(code::NORMAL) => SocketEnd::Orderly,
                    _ => SocketEnd::Lost(None),
                });
            }
            _ => {}
        }
        let bytes = match payload(message, self.encoding) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            Err(refusal) => return Err(refusal.map_or(SocketEnd::Lost(None), SocketEnd::Refused)),
        };
        self.pay_frame(bytes).await
    }

    /// Handles a tick: sends a heartbeat if nothing was written, and checks the signs of life of
    /// the client.
    fn tick(&mut self, socket: &mut Socket) -> Result<(), SocketEnd> {
        let may_write = self.may_write() && !self.unflushed;
        if !std::mem::take(&mut self.pulse.written_since_tick) && may_write {
            self.push_item(0, Notice::Heartbeat(Default::default()));
        }
        // Expired locks make room even if the client sends nothing.
        self.engine.links.remove_ended(self.engine.broker.now());
        // The notice to yield may have come while the socket was not read.
        if socket.get_mut().was_evicted() {
            return Err(SocketEnd::Lost(Some(Close::new(code::SLOW, SLOW_FRAME_REASON))));
        }
        if !self.may_read() {
            // The client is not slow: the server does not read.
            socket.get_mut().restart();
        } else if socket.get_mut().is_late() {
            let reason = "a frame has begun but did not arrive in time";
            return Err(SocketEnd::Lost(Some(Close::new(code::SLOW, reason))));
        }
        if std::mem::take(&mut self.pulse.read_since_tick) {
            self.pulse.silent_ticks = 0;
            return Ok(());
        }
        // A client that is not read because of missing room cannot show signs of life. It is still
        // checked if it accepts no bytes itself.
        if self.may_read() || !may_write {
            self.pulse.silent_ticks += 1;
        }
        if self.pulse.ticks.period() * self.pulse.silent_ticks > self.heartbeat * 2 {
            let reason = "nothing arrived for twice the heartbeat";
            return Err(SocketEnd::Lost(Some(Close::new(code::SILENT, reason))));
        }
        Ok(())
    }
}

impl ConnectionLoop<Socket> for Conversation {
    type Own = SocketTurn;
    type End = SocketEnd;

    async fn advance(&mut self) -> Result<(), SocketEnd> {
        // Written bytes have made room for answers.
        self.start_background();
        self.engine.links.submit_groups();
        if self.may_end() { Err(SocketEnd::Stopped) } else { Ok(()) }
    }

    fn poll_own(
        &mut self,
        socket: &mut Socket,
        context: &mut Context<'_>,
    ) -> NextStepPoll<Self, Socket> {
        if let Poll::Ready(Some(call)) = self.calls.poll_recv(context) {
            return Poll::Ready(NextStep::Own(SocketTurn::Call(call)));
        }
        if !self.unflushed {
            return Poll::Pending;
        }
        let flushed = ready!(Pin::new(socket).poll_flush(context));
        Poll::Ready(NextStep::Own(match flushed {
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
        // Answers release their room even if the client has not read the earlier ones.
        let may_answer = self.may_answer() && self.ready.len() < LIST_COUNT_MAX;
        if !may_write && !may_answer {
            return false;
        }
        self.engine.has_mail(context)
    }

    /// Ready if the client takes less than its pace for `websocket.frame_timeout`, or must yield
    /// room for which others wait.
    fn poll_slow(&mut self, socket: &mut Socket, context: &mut Context<'_>) -> Poll<SocketEnd> {
        let written_bytes = socket.get_ref().written_bytes();
        if !self.unflushed && self.may_write() {
            self.stall.reset();
        } else if self.stall.poll(written_bytes, self.site.config.frame_timeout, context).is_ready()
        {
            let reason = "the client does not read";
            return Poll::Ready(SocketEnd::Lost(Some(Close::new(code::SLOW, reason))));
        }
        // The client does not read the written bytes, or does not confirm them.
        let is_held_up = self.unflushed || self.frames.kept_bytes > Account::FREE_BYTES;
        let taken_bytes = is_held_up.then_some(written_bytes + self.frames.confirmed_bytes);
        if self.engine.poll_yield(taken_bytes, context).is_ready() {
            return Poll::Ready(SocketEnd::Yielded);
        }
        // Many requests of the client may wait for their turn, and they all keep their room
        // meanwhile.
        let held_bytes = self.engine.budget.held_bytes();
        let is_waiting = matches!(self.engine.phase, Phase::NeedsRoom(_));
        let is_pending =
            (is_waiting || self.engine.background.is_busy()) && held_bytes > REQUEST_BYTES_FREE;
        let begun_bytes = is_pending.then_some(self.started_bytes);
        let held = (&self.engine.account, &self.engine.budget);
        let yields = self.start_stall.poll_evicted(begun_bytes, held_bytes, held, context);
        yields.map(|()| SocketEnd::Refused(Close::new(code::SLOW, SLOW_REQUESTS_REASON)))
    }

    fn take_held(&mut self) -> Option<Requests> {
        let Phase::NeedsRoom(Requests { requests, .. }) = &self.engine.phase else { return None };
        if requests.front().is_some_and(|request| !self.has_room_for(request)) {
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
    ) -> Option<NextStepPoll<Self, Socket>> {
        let frame = self.may_read().then(|| Pin::new(socket).poll_next(context))?;
        Some(frame.map(|frame| NextStep::Own(SocketTurn::Frame(frame))))
    }

    fn has_ended(socket: &Socket) -> bool {
        socket.get_ref().has_ended()
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.pulse.ticks.poll_tick(context).map(drop)
    }

    async fn take(
        &mut self,
        turn: NextStep<Self, Socket>,
        socket: &mut Socket,
    ) -> Result<(), SocketEnd> {
        match turn {
            NextStep::Own(SocketTurn::Frame(frame)) => self.read(socket, frame).await,
            // Frames before the disconnect are not read, as at the end of the stream.
            NextStep::Disconnected => Err(SocketEnd::Lost(None)),
            NextStep::Permit((bytes, cost), permit) => self.decode(bytes, permit, cost).await,
            NextStep::Room(requests) => {
                self.carry_out(requests).await;
                Ok(())
            }
            NextStep::Mail => self.write(socket).await,
            NextStep::Own(SocketTurn::Flushed) if !self.outgoing.is_empty() => {
                self.write_on(socket).await
            }
            NextStep::Own(SocketTurn::Flushed) => {
                self.unflushed = false;
                self.pongs.clear();
                self.flushed();
                self.end_without_token()
            }
            NextStep::End(ended) => Err(ended),
            NextStep::Own(SocketTurn::Call(call)) => Err(call.into()),
            // A client that has come back is answered on its new socket.
            NextStep::PlaceNeeded => {
                Err(self.calls.try_recv().map_or(SocketEnd::Leave, Into::into))
            }
            NextStep::Tick => {
                self.engine.transactions.expire();
                self.update_shows_key();
                self.end_without_token().and_then(|()| self.tick(socket))
            }
            NextStep::Stop(grace) => {
                self.push_closing(u32::try_from(grace.as_secs()).unwrap_or(u32::MAX));
                self.engine.stop_flows();
                Ok(())
            }
            // The next turn finds that the conversation may end.
            NextStep::Deadline => Ok(()),
        }
    }
}

/// Returns the bytes of a data frame; none if the client closes.
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

/// Maps an error of the socket to the reason why the socket ended.
pub(super) fn lost(error: &SocketError) -> SocketEnd {
    match error {
        SocketError::Capacity(_) => {
            SocketEnd::Refused(Close::new(code::TOO_BIG, "the frame is larger than frameBytesMax"))
        }
        SocketError::Protocol(
            tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => SocketEnd::Lost(None),
        SocketError::Protocol(_) | SocketError::Utf8(_) => {
            SocketEnd::Refused(Close::of_frame(&FrameError::BadValue("WebSocket frame")))
        }
        SocketError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            SocketEnd::Lost(Some(Close::new(code::SLOW, SLOW_FRAME_REASON)))
        }
        _ => SocketEnd::Lost(None),
    }
}

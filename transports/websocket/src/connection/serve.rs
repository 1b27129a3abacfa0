//! The turns of a conversation: what is read, what waits for room, what the clock asks for.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink as _, SinkExt as _, Stream as _};
use peeklock_core::permits::Permit;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use super::{CLOSE_TIMEOUT, Conversation, Ended, FRAMES_PER_TURN, Held, Turn};
use crate::error::{Close, FrameError, code};
use crate::frame::{ClientFrame, Encoding, Item, LIST_COUNT_MAX, Notice};
use crate::site::{Call, Socket};

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
                // The next turn finds that it may end.
                Turn::Deadline => Ok(()),
            };
            if let Err(ended) = step {
                return ended;
            }
            self.hand_over();
        }
    }

    pub(super) async fn turn(&mut self, socket: &mut Socket, ticks: &mut Interval) -> Turn {
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

    pub(super) fn command_count_max(&self) -> usize {
        self.broker.settings().limits.connection_inbound_count_max
    }

    /// Takes a frame, and those that are there already behind it.
    pub(super) async fn read(
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

    pub(super) async fn take(
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
                let cost = super::inbound::cost(&frame, length);
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
            Err(Some(Close::new(code::UNSUPPORTED, "frames of peeklock.v1.json are text")))
        }
        (SocketMessage::Text(_), Encoding::Binary) => {
            Err(Some(Close::new(code::UNSUPPORTED, "frames of peeklock.v1.binary are binary")))
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
        _ => Ended::Lost(None),
    }
}

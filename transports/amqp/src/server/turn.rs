//! The turns of a connection: reading and writing, waiting for room, and timers. `peeklock-link`
//! runs the loop and calls this file.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Buf as _;
use peeklock_core::admission::{Account, Opening, Place};
use peeklock_core::command::LinkEnd;
use peeklock_link::{ConnectionLoop, NextStep, NextStepPoll, Phase, Protocol as _};
use peeklock_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::conversation::TICK;
use super::conversation::{Close, Conversation};
use super::node::Node;
use crate::error::{AmqpError, condition};

/// Maximum number of bytes per read. It shrinks by the bytes already received, down to half.
const READ_BYTES: usize = 64 << 10;
/// Bytes of incomplete messages that a connection may have without shared room.
const FREE_BYTES: u64 = 32 << 10;
/// Bytes of shared room that are taken in a step.
const STEP_BYTES: u64 = 64 << 10;
/// Maximum time for the orderly end of a socket.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum average rate at which a client must take a large message, in bytes per second.
const PACE_BYTES: u64 = 64 << 10;
/// Maximum number of pieces per write.
const PIECES_MAX: usize = 64;

thread_local! {
    /// Read buffer of all sockets of this thread, so that an idle connection needs no buffer.
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Bytes of a connection in both directions: a socket, TLS over one, or AMQP over WebSocket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Number of bytes that a layer below has read but returns only after more have arrived. They
    /// count as bytes of incomplete messages.
    fn withheld_bytes(&self) -> u64 {
        0
    }

    /// Returns whether the client ended the stream in order, not only by disconnecting.
    fn was_closed(&self) -> bool {
        false
    }

    /// Returns whether bytes of the layer itself, such as pongs, may not be written yet.
    fn is_unflushed(&self) -> bool {
        false
    }

    /// Returns whether the end of the client's bytes has arrived, even if some are unread.
    fn has_ended(&self) -> bool {
        false
    }
}

impl Socket for Stream {
    fn has_ended(&self) -> bool {
        // Calls the method of the stream with the same name.
        Self::has_ended(self)
    }
}

/// A turn that only AMQP has.
pub(super) enum AmqpTurn {
    Read(io::Result<usize>),
    Wrote(io::Result<()>),
    /// Its received bytes must be dropped, since other connections wait for the room.
    DropReceived,
    /// The connection got a place.
    Placed(Place),
    /// The spare socket is needed for another client.
    SocketNeeded,
}

impl Conversation {
    /// Serves a socket until the connection ends. The bytes of `first` were read from it already.
    pub(super) async fn run<S: Socket>(mut self, mut stream: S, first: &[u8], opening: Opening) {
        self.place_search.opening = Some(Box::pin(async move { opening.evicted().await }));
        self.inflow.input.extend_from_slice(first);
        let end = self.serve(&mut stream).await;
        self.flush_at_end(&mut stream).await;
        // The spare socket is released when the stream is closed.
        let _opening = self.place_search.opening.take();
        self.end(end).await;
        // TLS and WebSocket have an end of their own; a client that does not take it is not waited
        // for.
        let _ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, stream.shutdown()).await;
    }

    /// Handles everything that depends on time.
    fn tick(&mut self) -> Result<(), LinkEnd> {
        self.clock.has_read = false;
        self.clock.next_tick = Instant::now() + TICK;
        if self.is_too_slow() {
            return Err(self.how_it_ends());
        }
        self.close_unknown();
        if self.clock.read_blocked {
            self.amqp.restart_idle_timeout(self.clock.began.elapsed());
        }
        self.amqp.tick(self.clock.began.elapsed());
        self.forget_ended();
        self.shrink_share();
        self.end_lapses();
        self.expire_transactions();
        Ok(())
    }

    /// Closes the connection because memory is short.
    fn close_for_memory(&mut self, text: &'static str) {
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
        self.amqp.close(Some(error), self.clock.began.elapsed());
        self.stop_seeking();
        self.engine.phase = Phase::Closed(Close::OutOfMemory);
        self.inflow.input.clear();
        for node in self.nodes.values_mut() {
            node.forget_arriving();
        }
        self.inflow.assembled_bytes = 0;
        self.waiting_requests = 0;
        self.inflow.share.release();
        self.inflow.large_share.release();
    }

    /// Closes a connection whose place is needed, without waiting for the client's answer.
    async fn close_for_place<S: Socket>(&mut self, stream: &mut S) {
        let text = "the connection is closed to make room: the limit of connections is reached";
        let error = AmqpError::new(condition::CONNECTION_FORCED, text);
        self.amqp.close(Some(error), self.clock.began.elapsed());
        let writing = poll_fn(|context| {
            while self.amqp.output(self.clock.began.elapsed()).has_remaining() {
                if ready!(self.poll_write(stream, context)).is_err() {
                    break;
                }
            }
            Poll::Ready(())
        });
        // An idle connection has few bytes to write.
        tokio::time::timeout(SHUTDOWN_TIMEOUT, writing).await.ok();
    }

    fn poll_read_bytes<S: Socket>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        READ.with_borrow_mut(|buffer| {
            let here = self.inflow.assembled_bytes.saturating_add(self.inflow.input.len() as u64);
            let here = usize::try_from(here).unwrap_or(usize::MAX);
            let most = READ_BYTES - here.min(READ_BYTES / 2);
            let mut read = ReadBuf::new(buffer.get_mut(..most).unwrap_or_default());
            ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() && stream.was_closed() {
                // Also if the client has not closed AMQP first (SET-21).
                if !self.engine.is_closed() {
                    self.engine.phase = Phase::Closed(Close::Orderly);
                }
            }
            self.inflow.input.extend_from_slice(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
    }

    fn poll_write<S: Socket>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.outflow.write_closed {
            self.discard_output();
            return Poll::Pending;
        }
        if self.outflow.unflushed_deletions.has_within(self.outflow.written_bytes) {
            // A deleted message belongs to the client once the operating system has its bytes. So
            // they are flushed even if more bytes follow.
            ready!(self.poll_flush(stream, context))?;
        }
        let output = self.amqp.output(self.clock.began.elapsed());
        if !output.has_remaining() {
            ready!(self.poll_flush(stream, context))?;
            return Poll::Pending;
        }
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let count = output.chunks_vectored(&mut pieces);
        let pieces = pieces.get(..count).unwrap_or_default();
        match Pin::new(stream).poll_write_vectored(context, pieces) {
            Poll::Ready(Ok(written)) => {
                output.advance(written);
                self.outflow.written_bytes += written as u64;
                self.outflow.is_unflushed = true;
                self.outflow.stalled_since = None;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.outflow.stalled_since.get_or_insert_with(Instant::now);
                Poll::Pending
            }
        }
    }

    /// Drops the output, which cannot be written any more.
    fn discard_output(&mut self) {
        let output = self.amqp.output(self.clock.began.elapsed());
        output.advance(output.remaining());
    }

    /// Flushes the layers above the socket, which may hold the last written bytes and their own
    /// pongs.
    fn poll_flush<S: Socket>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.outflow.is_unflushed || stream.is_unflushed() {
            match Pin::new(stream).poll_flush(context) {
                Poll::Ready(Ok(())) => self.outflow.is_unflushed = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.outflow.stalled_since.get_or_insert_with(Instant::now);
                    return Poll::Pending;
                }
            }
        }
        self.outflow.stalled_since = None;
        self.outflow.unflushed_deletions.flushed(self.outflow.written_bytes);
        Poll::Ready(Ok(()))
    }

    /// Flushes the last written bytes if the layers above the socket accept that immediately.
    async fn flush_at_end<S: Socket>(&mut self, stream: &mut S) {
        if !self.outflow.write_closed {
            let _flushed = poll_fn(|context| Poll::Ready(self.poll_flush(stream, context))).await;
        }
    }

    /// Ready if more may be read: with true if there is room for incomplete messages, with false if
    /// the received bytes must be dropped.
    fn poll_room(&mut self, withheld_bytes: u64, context: &mut Context<'_>) -> Poll<bool> {
        let read = withheld_bytes
            .saturating_add(self.inflow.input.len() as u64)
            .saturating_add(self.delayed_event_bytes());
        let mut unfinished = self.inflow.assembled_bytes.saturating_add(read);
        let largest = self.largest_bytes();
        let is_large = largest > Account::LARGE_BYTES;
        if !is_large && self.inflow.large_share.held_bytes() > 0 {
            match self.inflow.large_count {
                0 if !self.engine.needs_permit() => self.inflow.large_share.release(),
                // All large messages are complete and wait for answers. The client has nothing more
                // to send for them, so `rest` stops judging its pace.
                _ => self.inflow.large_share.rest(),
            }
        }
        if unfinished <= FREE_BYTES {
            self.inflow.share.release();
            return Poll::Ready(true);
        }
        let now = Instant::now();
        if is_large {
            if self.inflow.large_share.held_bytes() == 0 {
                let granted = self.inflow.large_share.poll_wait(1, unfinished, context);
                if ready!(granted).is_err() {
                    return Poll::Ready(false);
                }
            }
            if self.inflow.large_share.is_evicted(unfinished, now, context) {
                return Poll::Ready(false);
            }
            // A large message has its own room above `Account::LARGE_BYTES`; all other bytes need
            // shared room.
            unfinished -= largest - Account::LARGE_BYTES;
        }
        while unfinished > FREE_BYTES.saturating_add(self.inflow.share.held_bytes()) {
            if ready!(self.inflow.share.poll_wait(STEP_BYTES, unfinished, context)).is_err() {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(!self.inflow.share.is_evicted(unfinished, now, context))
    }

    /// Received bytes of the largest incomplete message.
    fn largest_bytes(&self) -> u64 {
        if self.inflow.assembled_bytes <= Account::LARGE_BYTES {
            // No message is larger than all together.
            return self.inflow.assembled_bytes;
        }
        self.nodes.values().map(Node::assembling_bytes).max().unwrap_or(0)
    }

    /// Sets the timer to the next deadline.
    fn set_timer(&mut self) {
        let now = Instant::now();
        let of_amqp = self.amqp.deadline().map(|due| self.clock.began + due);
        // Waiting deliveries are given back before their locks end.
        let return_times = self.nodes.values().filter_map(|node| match node {
            Node::Receiver(receiver) => receiver.return_at(),
            _ => None,
        });
        let broker_now = self.engine.broker.now();
        let of_locks = return_times.min().map(|at| now + at.since(broker_now).to_std());
        let due = [of_amqp, self.clock.over_until, of_locks, self.large_due()]
            .into_iter()
            .flatten()
            .fold(self.clock.next_tick, Instant::min);
        self.clock.timer.as_mut().reset(due.into());
    }

    /// Returns whether the client reads none of the written bytes, or reads a large message too
    /// slowly.
    fn is_too_slow(&mut self) -> bool {
        let write_timeout = self.listener.config.write_timeout;
        let large = self.engine.account.large();
        if large != self.outflow.large_since.map(|(number, _)| number) {
            self.outflow.large_since = large.map(|number| (number, Instant::now()));
        }
        if let Some((_, since)) = self.outflow.large_since {
            let most = Duration::from_secs(self.engine.account.held_bytes() / PACE_BYTES);
            if since.elapsed() > write_timeout.saturating_add(most) {
                tracing::warn!(
                    "a client reads a large message too slowly while other clients wait"
                );
                return true;
            }
        }
        self.outflow.stalled_since.is_some_and(|since| since.elapsed() > write_timeout)
    }
}

impl<S: Socket> ConnectionLoop<S> for Conversation {
    type Own = AmqpTurn;
    type End = LinkEnd;

    async fn advance(&mut self) -> Result<(), LinkEnd> {
        if self.engine.stop_deadline().is_some() && !self.stop_announced && self.may_end() {
            self.stop_announced = true;
            let text = self.engine.stop_reason();
            let error = AmqpError::new(condition::CONNECTION_FORCED, text);
            self.amqp.close(Some(error), self.clock.began.elapsed());
        }
        loop {
            let has_left = self.carry_out().await;
            self.collect().await;
            if !self.outflow.write_closed {
                self.send_on_links();
            }
            self.engine.links.submit_groups();
            // Collecting may have made room.
            if !(has_left && self.may_carry_out()) {
                break;
            }
        }
        if self.is_done() {
            return Err(self.how_it_ends());
        }
        self.set_timer();
        Ok(())
    }

    fn poll_own(&mut self, stream: &mut S, context: &mut Context<'_>) -> NextStepPoll<Self, S> {
        if let Some(opening) = &mut self.place_search.opening
            && opening.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(NextStep::Own(AmqpTurn::SocketNeeded));
        }
        if let Some(seeking) = &mut self.place_search.seeking
            && let Poll::Ready(place) = seeking.as_mut().poll(context)
        {
            return Poll::Ready(NextStep::Own(AmqpTurn::Placed(place)));
        }
        if let Poll::Ready(wrote) = self.poll_write(stream, context) {
            return Poll::Ready(NextStep::Own(AmqpTurn::Wrote(wrote)));
        }
        // A socket that always has bytes must not delay the timer. Otherwise received bytes come
        // first, since they may be the activity that the timer checks for.
        if self.clock.has_read && self.clock.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(NextStep::Tick);
        }
        Poll::Pending
    }

    fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        self.may_answer() && self.engine.has_mail(context)
    }

    /// The client is slow if its socket does not take the written bytes, or its windows are closed
    /// while deliveries that it requested wait.
    fn poll_slow(&mut self, _: &mut S, context: &mut Context<'_>) -> Poll<LinkEnd> {
        let is_held_up =
            self.outflow.stalled_since.is_some() || self.nodes.values().any(Node::has_waiting);
        let taken_bytes = is_held_up.then_some(self.outflow.written_bytes);
        self.engine.poll_yield(taken_bytes, context).map(|()| self.how_it_ends())
    }

    /// Requests that have arrived are carried out before more bytes are read. After the connection
    /// was closed, only the client's own end is read. For a client that waits for a place, a few
    /// bytes are read, since otherwise its disconnect would not be noticed.
    fn poll_read(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Option<NextStepPoll<Self, S>> {
        if self.engine.needs_permit() || self.engine.needs_place() {
            // The client is not the slow side.
            self.inflow.share.rest();
        }
        let may_ask = self.may_carry_out();
        self.clock.read_blocked = !may_ask;
        let reads_place =
            self.engine.needs_place() && (self.inflow.input.len() as u64) < FREE_BYTES;
        if !may_ask && !self.engine.is_closed() && !reads_place {
            return None;
        }
        match self.poll_room(stream.withheld_bytes(), context) {
            Poll::Ready(true) => {
                let read = self.poll_read_bytes(stream, context);
                Some(read.map(|read| NextStep::Own(AmqpTurn::Read(read))))
            }
            Poll::Ready(false) => Some(Poll::Ready(NextStep::Own(AmqpTurn::DropReceived))),
            Poll::Pending => {
                self.clock.read_blocked = true;
                None
            }
        }
    }

    fn has_ended(stream: &S) -> bool {
        stream.has_ended()
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.clock.timer.as_mut().poll(context)
    }

    async fn take(&mut self, turn: NextStep<Self, S>, stream: &mut S) -> Result<(), LinkEnd> {
        match turn {
            // Nothing is read while requests wait to be carried out, so none is lost here.
            NextStep::Own(AmqpTurn::Read(Ok(0) | Err(_))) => return Err(self.how_it_ends()),
            // Requests of the client, and its close after them, may have arrived or still arrive,
            // so the connection goes on.
            NextStep::Own(AmqpTurn::Wrote(Err(_))) => {
                self.outflow.write_closed = true;
                self.outflow.stalled_since = None;
                self.discard_output();
            }
            // `advance` takes the frames out of the bytes.
            NextStep::Own(AmqpTurn::Read(Ok(_))) => {
                (self.clock.has_read, self.engine.peer_disconnected) = (true, false);
            }
            NextStep::Own(AmqpTurn::Placed(place)) => self.take_place(place),
            NextStep::Own(AmqpTurn::DropReceived) => {
                self.close_for_memory("messages arrive too slowly while other clients wait");
            }
            NextStep::Own(AmqpTurn::SocketNeeded) => return Err(LinkEnd::Lost),
            NextStep::Permit(work, permit) => self.carry_out_work(work, permit).await,
            // Nothing can be written to a slow client either.
            NextStep::End(end) => return Err(end),
            NextStep::PlaceNeeded => {
                self.close_for_place(stream).await;
                return Err(self.how_it_ends());
            }
            NextStep::Tick => self.tick()?,
            NextStep::Stop(_) => {
                self.stop_seeking();
                self.engine.stop_flows();
            }
            NextStep::Disconnected => self.engine.peer_disconnected = true,
            NextStep::Own(AmqpTurn::Wrote(Ok(())))
            | NextStep::Mail
            | NextStep::Deadline
            | NextStep::Room(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

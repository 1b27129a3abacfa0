//! The turns of a connection: what is read and written, what waits for room, what the clock asks for.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Buf as _;
use peeklock_core::admission::{Account, Opening, Place};
use peeklock_core::command::LinkEnd;
use peeklock_link::{NextTurn, Phase, Protocol as _, Serve, Turn};
use peeklock_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::conversation::{Close, Conversation};
use super::flow::TICK;
use super::node::Node;
use crate::error::{AmqpError, condition};

/// What is read at once from a socket: as much less as is here already, down to half of it.
const READ_BYTES: usize = 64 << 10;
/// What may have arrived and be in no message yet without room that is shared.
const FREE_BYTES: u64 = 32 << 10;
/// How much of that room is taken at once.
const STEP_BYTES: u64 = 64 << 10;
/// How long the end of a socket may take that is not just dropped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// A large message is taken at no less than so many bytes a second, in the long run.
const PACE_BYTES: u64 = 64 << 10;
/// Pieces that are written at once.
const PIECES_MAX: usize = 64;

thread_local! {
    /// Where sockets of this thread are read into: a connection that is idle holds nothing for it.
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// The bytes of a connection both ways: a socket, TLS over one, or AMQP over WebSocket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Bytes that were read below and are handed out only when more of them has come: they count
    /// among what has not arrived whole.
    fn withheld_bytes(&self) -> u64 {
        0
    }

    /// Whether the client has ended it in order, and not only gone.
    fn was_closed(&self) -> bool {
        false
    }

    /// Whether something that it has written by itself may not be taken yet, such as answers to pings.
    fn is_unflushed(&self) -> bool {
        false
    }

    /// Whether the end of what its client sends has arrived, whatever of it is unread.
    fn has_ended(&self) -> bool {
        false
    }
}

impl Socket for Stream {
    fn has_ended(&self) -> bool {
        // As the stream tells itself.
        Self::has_ended(self)
    }
}

/// A turn of AMQP.
pub(super) enum AmqpTurn {
    Read(io::Result<usize>),
    Wrote(io::Result<()>),
    /// Its bytes that have arrived are to be given up: others wait for their room.
    GiveUp,
    /// It has a place.
    Placed(Place),
    /// Its spare socket is needed.
    SocketNeeded,
}

impl Conversation {
    /// Serves a socket to its end; the bytes of `first` were read from it already.
    pub(super) async fn run<S: Socket>(mut self, mut stream: S, first: &[u8], opening: Opening) {
        self.entry.opening = Some(Box::pin(async move { opening.evicted().await }));
        self.inflow.input.extend_from_slice(first);
        let end = self.serve(&mut stream).await;
        self.flush_at_end(&mut stream).await;
        // The socket is given back when it is closed.
        let _opening = self.entry.opening.take();
        self.end(end).await;
        // TLS and WebSocket have an end of their own; a client that does not take it is not waited for.
        let _ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, stream.shutdown()).await;
    }

    /// Looks at everything that time changes.
    fn tick(&mut self) -> Result<(), LinkEnd> {
        self.clock.has_read = false;
        self.clock.next_tick = Instant::now() + TICK;
        if self.is_late() {
            return Err(self.how_it_ends());
        }
        self.close_unknown();
        if self.clock.read_blocked {
            self.amqp.was_not_read(self.clock.began.elapsed());
        }
        self.amqp.tick(self.clock.began.elapsed());
        self.forget_ended();
        self.shrink_share();
        self.end_lapses();
        self.expire_transactions();
        Ok(())
    }

    /// Closes the connection for want of room.
    fn give_up(&mut self, text: &'static str) {
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
        self.amqp.close(Some(error), self.clock.began.elapsed());
        self.stop_seeking();
        self.engine.phase = Phase::Closed(Close::GaveUp);
        self.inflow.input.clear();
        for node in self.nodes.values_mut() {
            node.forget_arriving();
        }
        self.inflow.assembled_bytes = 0;
        self.waiting_requests = 0;
        self.inflow.share.release();
        self.inflow.large_share.release();
    }

    /// Closes a connection whose place is needed, and does not wait for its client.
    async fn say_place_is_needed<S: Socket>(&mut self, stream: &mut S) {
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
        // Of one that was idle there is little.
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
                // Also where AMQP was not closed before (SET-21).
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
        if self.outflow.leaving.has_within(self.outflow.taken_bytes) {
            // What was removed is its client's when the system has it, however much is to be written behind it.
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
                self.outflow.taken_bytes += written as u64;
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

    /// Nobody takes it any more.
    fn discard_output(&mut self) {
        let output = self.amqp.output(self.clock.began.elapsed());
        output.advance(output.remaining());
    }

    /// What was written last may wait in a layer above the socket, and so may the answers of that layer to pings.
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
        self.outflow.leaving.flushed(self.outflow.taken_bytes);
        Poll::Ready(Ok(()))
    }

    /// What was written last is not lost, if the layers above the socket let go of it.
    async fn flush_at_end<S: Socket>(&mut self, stream: &mut S) {
        if !self.outflow.write_closed {
            let _flushed = poll_fn(|context| Poll::Ready(self.poll_flush(stream, context))).await;
        }
    }

    /// Whether more may be read: there is room for what has not arrived whole. False if it is to be given up.
    fn poll_room(&mut self, withheld_bytes: u64, context: &mut Context<'_>) -> Poll<bool> {
        let read = withheld_bytes
            .saturating_add(self.inflow.input.len() as u64)
            .saturating_add(self.behind_bytes());
        let mut unfinished = self.inflow.assembled_bytes.saturating_add(read);
        let largest = self.largest_bytes();
        let is_large = largest > Account::LARGE_BYTES;
        if !is_large && self.inflow.large_share.held_bytes() > 0 {
            match self.inflow.large_count {
                0 if !self.engine.needs_permit() => self.inflow.large_share.release(),
                // Its client has done what it can.
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
            // One that large has the rest of its room to itself; what else there is has not.
            unfinished -= largest - Account::LARGE_BYTES;
        }
        while unfinished > FREE_BYTES.saturating_add(self.inflow.share.held_bytes()) {
            if ready!(self.inflow.share.poll_wait(STEP_BYTES, unfinished, context)).is_err() {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(!self.inflow.share.is_evicted(unfinished, now, context))
    }

    /// What is here of the largest message of those that have not arrived whole.
    fn largest_bytes(&self) -> u64 {
        if self.inflow.assembled_bytes <= Account::LARGE_BYTES {
            // None is larger than all of them.
            return self.inflow.assembled_bytes;
        }
        self.nodes.values().map(Node::assembling_bytes).max().unwrap_or(0)
    }

    /// Has the clock ask when something is due.
    fn set_timer(&mut self) {
        let now = Instant::now();
        let of_amqp = self.amqp.deadline().map(|due| self.clock.began + due);
        // What waits for its client is given back before its lock ends.
        let of_outlets = self.nodes.values().filter_map(|node| match node {
            Node::Outlet(outlet) => outlet.return_at(),
            _ => None,
        });
        let today = self.engine.broker.now();
        let of_locks = of_outlets.min().map(|at| now + at.since(today).to_std());
        let due = [of_amqp, self.clock.over_until, of_locks, self.large_due()]
            .into_iter()
            .flatten()
            .fold(self.clock.next_tick, Instant::min);
        self.clock.timer.as_mut().reset(due.into());
    }

    /// Whether the client takes nothing of what is written.
    fn is_late(&mut self) -> bool {
        let patience = self.site.config.write_timeout;
        let large = self.engine.account.large();
        if large != self.outflow.large_since.map(|(number, _)| number) {
            self.outflow.large_since = large.map(|number| (number, Instant::now()));
        }
        if let Some((_, since)) = self.outflow.large_since {
            let most = Duration::from_secs(self.engine.account.held_bytes() / PACE_BYTES);
            if since.elapsed() > patience.saturating_add(most) {
                tracing::warn!(
                    "a client reads a large message too slowly while other clients wait"
                );
                return true;
            }
        }
        self.outflow.stalled_since.is_some_and(|since| since.elapsed() > patience)
    }
}

impl<S: Socket> Serve<S> for Conversation {
    type Own = AmqpTurn;
    type End = LinkEnd;

    async fn advance(&mut self) -> Result<(), LinkEnd> {
        if self.engine.stop_deadline().is_some() && !self.stop_announced && self.may_end() {
            self.stop_announced = true;
            let text = "the broker is being stopped";
            let error = AmqpError::new(condition::CONNECTION_FORCED, text);
            self.amqp.close(Some(error), self.clock.began.elapsed());
        }
        loop {
            let is_stopped = self.carry_out().await;
            self.collect().await;
            if !self.outflow.write_closed {
                self.pump();
            }
            self.engine.links.hand_over();
            // Collecting may have made room.
            if !(is_stopped && self.may_ask()) {
                break;
            }
        }
        if self.is_done() {
            return Err(self.how_it_ends());
        }
        self.set_timer();
        Ok(())
    }

    fn poll_own(&mut self, stream: &mut S, context: &mut Context<'_>) -> NextTurn<Self, S> {
        if let Some(opening) = &mut self.entry.opening
            && opening.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Turn::Own(AmqpTurn::SocketNeeded));
        }
        if let Some(seeking) = &mut self.entry.seeking
            && let Poll::Ready(place) = seeking.as_mut().poll(context)
        {
            return Poll::Ready(Turn::Own(AmqpTurn::Placed(place)));
        }
        if let Poll::Ready(wrote) = self.poll_write(stream, context) {
            return Poll::Ready(Turn::Own(AmqpTurn::Wrote(wrote)));
        }
        // A socket that always has bytes does not hold the clock up. Otherwise what is there goes first: it may be
        // the sign of life that the clock asks for.
        if self.clock.has_read && self.clock.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Turn::Tick);
        }
        Poll::Pending
    }

    fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        self.may_answer() && self.engine.has_mail(context)
    }

    /// Its client does not take the bytes that are written, or opens its windows for none of the deliveries that it has
    /// asked for.
    fn poll_slow(&mut self, _: &mut S, context: &mut Context<'_>) -> Poll<LinkEnd> {
        let is_held_up =
            self.outflow.stalled_since.is_some() || self.nodes.values().any(Node::has_waiting);
        let taken_bytes = is_held_up.then_some(self.outflow.taken_bytes);
        self.engine.poll_yield(taken_bytes, context).map(|()| self.how_it_ends())
    }

    /// Requests that have arrived are carried out first. After an end the client's own is awaited. Of a client that waits
    /// for a place as much is read as is free, since nobody else would see that it has disconnected.
    fn poll_read(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Option<NextTurn<Self, S>> {
        if self.engine.needs_permit() || self.engine.needs_place() {
            // It is not the client who is slow.
            self.inflow.share.rest();
        }
        let may_ask = self.may_ask();
        self.clock.read_blocked = !may_ask;
        let reads_place =
            self.engine.needs_place() && (self.inflow.input.len() as u64) < FREE_BYTES;
        if !may_ask && !self.engine.is_closed() && !reads_place {
            return None;
        }
        match self.poll_room(stream.withheld_bytes(), context) {
            Poll::Ready(true) => {
                let read = self.poll_read_bytes(stream, context);
                Some(read.map(|read| Turn::Own(AmqpTurn::Read(read))))
            }
            Poll::Ready(false) => Some(Poll::Ready(Turn::Own(AmqpTurn::GiveUp))),
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

    async fn take(&mut self, turn: Turn<Self, S>, stream: &mut S) -> Result<(), LinkEnd> {
        match turn {
            // Nothing is read after requests that are not carried out.
            Turn::Own(AmqpTurn::Read(Ok(0) | Err(_))) => return Err(self.how_it_ends()),
            // Requests of the client, and its close after them, have arrived or are still to come.
            Turn::Own(AmqpTurn::Wrote(Err(_))) => {
                self.outflow.write_closed = true;
                self.outflow.stalled_since = None;
                self.discard_output();
            }
            Turn::Own(AmqpTurn::Read(Ok(_))) => {
                (self.clock.has_read, self.engine.peer_disconnected) = (true, false);
            }
            Turn::Own(AmqpTurn::Placed(place)) => self.take_place(place),
            Turn::Own(AmqpTurn::GiveUp) => {
                self.give_up("messages arrive too slowly while other clients wait");
            }
            Turn::Own(AmqpTurn::SocketNeeded) => return Err(LinkEnd::Lost),
            Turn::Permit(work, permit) => self.work(work, permit).await,
            // There is no way to write to a slow client either.
            Turn::End(end) => return Err(end),
            Turn::PlaceNeeded => {
                self.say_place_is_needed(stream).await;
                return Err(self.how_it_ends());
            }
            Turn::Tick => self.tick()?,
            Turn::Stop(_) => {
                self.stop_seeking();
                self.engine.stop_flows();
            }
            Turn::Disconnected => self.engine.peer_disconnected = true,
            Turn::Own(AmqpTurn::Wrote(Ok(()))) | Turn::Mail | Turn::Deadline | Turn::Room(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

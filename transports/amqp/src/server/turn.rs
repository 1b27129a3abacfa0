//! The turns of a connection: what is read and written, what waits for room, what the clock asks for.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Buf as _;
use peeklock_core::command::LinkEnd;
use peeklock_core::permits::Permit;
use peeklock_link::Room;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;

use super::conversation::Conversation;
use crate::error::{AmqpError, condition};

/// What is read at once from a socket.
const READ_BYTES: usize = 16 << 10;
/// What may have arrived and be in no message yet without room that is shared.
const FREE_BYTES: u64 = 32 << 10;
/// How much of that room is taken at once.
const STEP_BYTES: u64 = 64 << 10;
/// How often locks that have ended are looked for, and whether the client takes what is written.
const TICK: Duration = Duration::from_secs(5);
/// Pieces that are written at once.
const PIECES_MAX: usize = 64;

/// What happens next.
enum Turn {
    Read(io::Result<usize>),
    Wrote(io::Result<()>),
    Mail,
    Room(Permit),
    Yield,
    Tick,
    Stop(Duration),
}

impl Conversation {
    /// Serves a socket to its end.
    pub(super) async fn run(mut self, mut stream: TcpStream) {
        let mut stopping = self.site.stopping();
        let mut is_stopping = false;
        let mut buffer = vec![0; READ_BYTES];
        let end = loop {
            self.carry_out().await;
            self.collect();
            self.pump();
            self.links.hand_over();
            let now = self.began.elapsed();
            if self.amqp.is_over() && !self.amqp.output(now).has_remaining() {
                break match &self.closed {
                    Some(None) if !is_stopping => LinkEnd::Orderly,
                    _ if is_stopping => LinkEnd::ByBroker,
                    _ => LinkEnd::Broken,
                };
            }
            self.set_timer();
            let stop = async {
                if is_stopping {
                    std::future::pending::<()>().await;
                }
                let grace = stopping.wait_for(Option::is_some).await.map(|grace| *grace);
                // The sender lives as long as the site.
                grace.ok().flatten().unwrap_or_default()
            };
            let turn = tokio::select! {
                biased;
                grace = stop => Turn::Stop(grace),
                turn = poll_fn(|context| self.poll_turn(&mut stream, &mut buffer, context)) => turn,
            };
            match turn {
                Turn::Read(Ok(0) | Err(_)) | Turn::Wrote(Err(_)) => {
                    break match (&self.closed, is_stopping) {
                        (_, true) => LinkEnd::ByBroker,
                        (Some(None), false) => LinkEnd::Orderly,
                        _ => LinkEnd::Broken,
                    };
                }
                Turn::Read(Ok(count)) => {
                    self.input.extend_from_slice(buffer.get(..count).unwrap_or_default());
                }
                Turn::Wrote(Ok(())) | Turn::Mail => {}
                Turn::Room(permit) => {
                    self.acquiring = None;
                    if let Some(inbound) = self.held.take() {
                        self.send(inbound, permit);
                    }
                }
                Turn::Yield => self.give_up("messages arrive slowly, and others wait"),
                Turn::Tick => {
                    if self.is_late() {
                        break if is_stopping { LinkEnd::ByBroker } else { LinkEnd::Broken };
                    }
                    self.amqp.tick(self.began.elapsed());
                    self.forget_ended();
                }
                Turn::Stop(grace) => {
                    is_stopping = true;
                    self.begin_stop(grace);
                }
            }
            if is_stopping && self.may_end() {
                let text = "the broker is being stopped";
                let error = AmqpError::new(condition::CONNECTION_FORCED, text);
                self.amqp.close(Some(error), self.began.elapsed());
            }
        };
        self.end(end).await;
    }

    /// Closes the connection for want of room.
    fn give_up(&mut self, text: &'static str) {
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
        self.amqp.close(Some(error.clone()), self.began.elapsed());
        self.closed = Some(Some(error));
        self.input.clear();
        self.seat.give_back();
    }

    fn poll_turn(
        &mut self,
        stream: &mut TcpStream,
        buffer: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        if let Poll::Ready(wrote) = self.poll_write(stream, context) {
            return Poll::Ready(Turn::Wrote(wrote));
        }
        if self.has_mail(context) {
            return Poll::Ready(Turn::Mail);
        }
        if let Some(acquiring) = &mut self.acquiring
            && let Poll::Ready(permit) = acquiring.as_mut().poll(context)
        {
            return Poll::Ready(Turn::Room(permit));
        }
        // What is here and was not carried out goes first.
        if self.may_ask() {
            match self.poll_room(context) {
                Poll::Ready(true) => {
                    let mut read = ReadBuf::new(buffer);
                    if let Poll::Ready(done) = Pin::new(&mut *stream).poll_read(context, &mut read)
                    {
                        return Poll::Ready(Turn::Read(done.map(|()| read.filled().len())));
                    }
                }
                Poll::Ready(false) => return Poll::Ready(Turn::Yield),
                Poll::Pending => {}
            }
        }
        self.timer.as_mut().poll(context).map(|()| Turn::Tick)
    }

    fn poll_write(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let output = self.amqp.output(self.began.elapsed());
        if !output.has_remaining() {
            self.stalled_since = None;
            return Poll::Pending;
        }
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let count = output.chunks_vectored(&mut pieces);
        let pieces = pieces.get(..count).unwrap_or_default();
        match Pin::new(stream).poll_write_vectored(context, pieces) {
            Poll::Ready(Ok(written)) => {
                output.advance(written);
                self.stalled_since = None;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.stalled_since.get_or_insert_with(Instant::now);
                Poll::Pending
            }
        }
    }

    /// Whether there is something to be told, or to be made ready to be.
    fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        if !self.may_answer() {
            return false;
        }
        let has_room = match self.wanted_bytes {
            Some(bytes) => self.account.poll_room(bytes, context).is_ready(),
            None => true,
        };
        (has_room && !self.arrivals.is_idle()) || self.mailbox.poll(context).is_ready()
    }

    /// Whether more may be read: there is room for what has not arrived whole. False if it is to be given up.
    fn poll_room(&mut self, context: &Context<'_>) -> Poll<bool> {
        let unfinished = self.assembled_bytes.saturating_add(self.input.len() as u64);
        if unfinished <= FREE_BYTES {
            self.arriving_since = None;
            if self.seat.held_bytes() > 0 {
                self.seat.give_back();
            }
            return Poll::Ready(true);
        }
        let now = Instant::now();
        let began = *self.arriving_since.get_or_insert(now);
        while unfinished > FREE_BYTES.saturating_add(self.seat.held_bytes()) {
            match self.seat.take(STEP_BYTES, began, unfinished, now, context) {
                Room::Granted => {}
                Room::Yield => return Poll::Ready(false),
                Room::Later(_) => return Poll::Pending,
            }
        }
        Poll::Ready(!self.seat.must_yield(unfinished, context))
    }

    /// Has the clock ask when something is due.
    fn set_timer(&mut self) {
        let now = Instant::now();
        let due =
            [self.amqp.deadline().map(|due| self.began + due), self.deadline, Some(now + TICK)];
        let due = due.into_iter().flatten().min().unwrap_or(now + TICK);
        self.timer.as_mut().reset(due.into());
    }

    /// Whether the client takes nothing of what is written.
    fn is_late(&self) -> bool {
        let patience = self.site.config.write_timeout;
        self.stalled_since.is_some_and(|since| since.elapsed() > patience)
    }
}

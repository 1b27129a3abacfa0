//! The loop of a connection: it does everything that waits for nothing, then waits for its next turn.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;

use peeklock_core::permits::Permit;

use crate::engine::Protocol;

/// The next thing that happens on a connection.
pub enum Turn<P: Serve<S>, S: Send> {
    /// Another client needs its place.
    PlaceNeeded,
    /// The listener is being stopped, and waits for this time.
    Stop(Duration),
    /// The listener waits no longer.
    Deadline,
    /// A turn of the protocol, such as bytes that the socket has taken.
    Own(P::Own),
    /// There is mail, or something to encode.
    Mail,
    /// The connection ends, because it holds up others.
    End(P::End),
    /// The request that was held has its permit.
    Permit(P::Unpaid, Permit),
    /// There is room for the answers to the requests that were held.
    Room(P::Paid),
    /// The client has disconnected. Nothing is read, so its last requests are still to come.
    Disconnected,
    /// Time has passed.
    Tick,
}

/// The next turn, as soon as there is one.
pub type Next<P, S> = Poll<Turn<P, S>>;

/// A protocol on a socket.
pub trait Serve<S: Send>: Protocol {
    /// Its own turns.
    type Own: Send;
    /// The way in which a connection ends.
    type End: Send;

    /// Does everything that waits for nothing.
    ///
    /// # Errors
    /// The end, if nothing is left to be done.
    fn advance(&mut self) -> impl Future<Output = Result<(), Self::End>> + Send;

    /// Ready with its own turns that come before mail.
    fn poll_own(&mut self, socket: &mut S, context: &mut Context<'_>) -> Next<Self, S>;

    /// Whether there is mail that can be taken, or something to encode.
    fn has_mail(&mut self, context: &mut Context<'_>) -> bool;

    /// Ready if the client is slow, and holds room for which others wait.
    fn poll_slow(&mut self, socket: &mut S, context: &mut Context<'_>) -> Poll<Self::End>;

    /// The requests that were held, if there is room for their answers now.
    fn take_held(&mut self) -> Option<Self::Paid> {
        None
    }

    /// Reads from the socket; none if nothing may be read.
    fn poll_read(&mut self, socket: &mut S, context: &mut Context<'_>) -> Option<Next<Self, S>>;

    /// Whether the end of the client has arrived at the socket, after bytes that are not read.
    fn has_ended(socket: &S) -> bool;

    /// Ready when time has passed.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Takes a turn.
    ///
    /// # Errors
    /// The end of the connection.
    fn take(
        &mut self,
        turn: Turn<Self, S>,
        socket: &mut S,
    ) -> impl Future<Output = Result<(), Self::End>> + Send;

    /// Serves a socket to its end.
    fn serve(&mut self, socket: &mut S) -> impl Future<Output = Self::End> + Send {
        async move {
            loop {
                if let Err(end) = self.advance().await {
                    return end;
                }
                let turn = match self.mark_idle() {
                    true => poll_fn(|context| self.poll_turn(socket, context)).await,
                    false => Turn::PlaceNeeded,
                };
                if let Err(end) = self.take(turn, socket).await {
                    return end;
                }
            }
        }
    }

    /// Ready with the next turn. Those that need no socket come first: a client that sends without pause does not keep
    /// its place by that. Requests are read last, and only if there is room for their answers.
    fn poll_turn(&mut self, socket: &mut S, context: &mut Context<'_>) -> Next<Self, S> {
        let engine = self.engine();
        if engine.standing.poll_needed(context).is_ready() {
            return Poll::Ready(Turn::PlaceNeeded);
        }
        if let Poll::Ready(grace) = engine.poll_stop(context) {
            return Poll::Ready(grace.map_or(Turn::Deadline, Turn::Stop));
        }
        if let Poll::Ready(turn) = self.poll_own(socket, context) {
            return Poll::Ready(turn);
        }
        if self.has_mail(context) {
            return Poll::Ready(Turn::Mail);
        }
        if let Poll::Ready(end) = self.poll_slow(socket, context) {
            return Poll::Ready(Turn::End(end));
        }
        if let Some(requests) = self.take_held() {
            return Poll::Ready(Turn::Room(requests));
        }
        if let Poll::Ready((request, permit)) = self.engine().poll_permit(context) {
            return Poll::Ready(Turn::Permit(request, permit));
        }
        let read = self.poll_read(socket, context);
        let engine = self.engine();
        match read {
            Some(read) => {
                engine.lookout.rest();
                if read.is_ready() {
                    return read;
                }
            }
            None if engine.peer_disconnected => {}
            None => {
                let has_ended = || Self::has_ended(socket);
                if engine.lookout.poll(has_ended, context).is_ready() {
                    engine.peer_disconnected = true;
                    return Poll::Ready(Turn::Disconnected);
                }
            }
        }
        self.poll_timer(context).map(|()| Turn::Tick)
    }
}

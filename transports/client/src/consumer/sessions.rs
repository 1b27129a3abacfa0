//! Works off sessions: each in its order, several side by side.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use peeklock_core::activity::{AtWork, tracked};
use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::time::TimeSpan;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::handler::{Handler, Origin, SessionDelivery};
use super::outcome::{Tried, outcome_of};
use super::renewal::{End, IN_HAND, tell_no_more};
use super::{RENEWAL_MAX, RETRY_PAUSE, can_pass, handler_is_gone, span};
use crate::keeper::half_of;
use crate::{Client, Refusal, SessionReceiver, TraceContext};

/// How long one accept waits; then it is made again.
const ACCEPT_WAIT: TimeSpan = TimeSpan::from_seconds(60);

/// How a consumer takes sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionConsumerOptions {
    /// Sessions that are held at once; each has at most one message with the handler.
    /// At least 1; 8 unless said otherwise.
    pub sessions_max: u32,
    /// How long a session is held that has nothing more; then it is given back, and the next is
    /// accepted.
    pub idle: TimeSpan,
    /// For how long the session lock is renewed while its handler runs, for each message anew. A handler that takes
    /// longer is not interrupted, but its lock is left to run out, and somebody else gets the session. 5 minutes
    /// unless said otherwise; never if zero.
    pub renewal_max: TimeSpan,
}

impl Default for SessionConsumerOptions {
    fn default() -> Self {
        Self { sessions_max: 8, idle: TimeSpan::ZERO, renewal_max: RENEWAL_MAX }
    }
}

impl SessionConsumerOptions {
    /// The defaults, with another number of sessions at once.
    #[must_use]
    pub fn at_once(sessions_max: u32) -> Self {
        Self { sessions_max, ..Self::default() }
    }

    /// The same, with sessions that are held so long without a message.
    #[must_use]
    pub fn with_idle(mut self, idle: impl Into<TimeSpan>) -> Self {
        self.idle = idle.into();
        self
    }

    /// The same, with session locks that are renewed for so long while the handler has a message.
    #[must_use]
    pub fn with_renewal_max(mut self, span: impl Into<TimeSpan>) -> Self {
        self.renewal_max = span.into();
        self
    }
}

/// The first session, if one has messages already. It is asked for before anything is begun, so that who begins is told
/// what will never do.
pub(super) async fn first(
    client: &Client,
    path: &str,
) -> Result<Option<SessionReceiver>, BrokerError> {
    match client.accept_next_session(path, TimeSpan::ZERO).await {
        Ok(session) => Ok(Some(session)),
        Err(error)
            if error.condition() == Condition::ServiceTimeout || can_pass(client, &error) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Runs the workers to their end: the first that fails ends the others.
pub(super) async fn run<H: Handler<SessionDelivery>>(
    client: Client,
    path: Arc<str>,
    handler: H,
    options: SessionConsumerOptions,
    mut stopped: oneshot::Receiver<()>,
    (mut first, at_work): (Option<SessionReceiver>, Option<AtWork>),
) -> Option<BrokerError> {
    let handler = Arc::new(handler);
    let (stop, stopping) = watch::channel(false);
    let mut workers: FuturesUnordered<_> = (0..options.sessions_max.max(1))
        .map(|_| {
            let (client, path, handler) = (client.clone(), Arc::clone(&path), Arc::clone(&handler));
            let stopping = stopping.clone();
            let at_work = client.port().at_work();
            let worker = Worker { client, path, handler, options, stopping };
            tracked(at_work, worker.run(first.take()))
        })
        .collect();
    // Each has its own now.
    drop(at_work);
    let mut failure = None;
    let mut gone = std::pin::pin!(handler.gone());
    loop {
        tokio::select! {
            // The order to stop is looked at first: a worker that is done with a message may be given the next
            // one in the same turn.
            biased;
            _ = &mut stopped, if !*stop.borrow() => drop(stop.send_replace(true)),
            () = &mut gone, if !*stop.borrow() => {
                failure = Some(client.port().refuse(handler_is_gone(), &path));
                stop.send_replace(true);
            }
            ended = workers.next() => match ended {
                Some(ended) => {
                    stop.send_replace(true);
                    failure = failure.or(ended);
                }
                None => return failure,
            },
        }
    }
}

/// Holds one session after the other.
struct Worker<H> {
    client: Client,
    path: Arc<str>,
    handler: Arc<H>,
    options: SessionConsumerOptions,
    stopping: watch::Receiver<bool>,
}

/// Why a session is held no more.
enum Left {
    /// It has nothing more, or its lock is gone; the next one is accepted.
    Next,
    /// The consumer is being stopped.
    Stop,
    Failed(BrokerError),
}

impl<H: Handler<SessionDelivery>> Worker<H> {
    async fn run(mut self, mut first: Option<SessionReceiver>) -> Option<BrokerError> {
        loop {
            let accepted = match first.take() {
                Some(session) => Ok(session),
                None => tokio::select! {
                    biased;
                    _ = self.stopping.wait_for(|stop| *stop) => return None,
                    accepted = self.client.accept_next_session(&self.path, ACCEPT_WAIT) => accepted,
                },
            };
            let session = match accepted {
                Ok(session) => Arc::new(session),
                Err(error) if error.condition() == Condition::ServiceTimeout => continue,
                Err(error) if can_pass(&self.client, &error) => {
                    tracing::warn!(%error, "no session can be accepted at the moment");
                    tokio::select! {
                        biased;
                        _ = self.stopping.wait_for(|stop| *stop) => return None,
                        () = tokio::time::sleep(RETRY_PAUSE) => continue,
                    }
                }
                Err(error) => return Some(error),
            };
            let left = self.work(&session).await;
            // If that cannot be answered any more, nothing is held either.
            let _closed = session.give_back().await;
            match left {
                Left::Next => {}
                Left::Stop => return None,
                Left::Failed(error) => return Some(error),
            }
        }
    }

    /// Works a session off until it has nothing more.
    async fn work(&mut self, session: &Arc<SessionReceiver>) -> Left {
        loop {
            let received = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stop| *stop) => return Left::Stop,
                received = keeping(session, session.receive(self.options.idle), |_| true) => received,
            };
            let message = match received {
                Ok(Some(message)) => message,
                Ok(None) => return Left::Next,
                Err(error) => return left_by(error),
            };
            if self.handler.is_gone() {
                return self.gone();
            }
            let Some(token) = message.lock_token() else { return Left::Next };
            let trace = TraceContext::of(message.message());
            let span = span::of(&self.path, &message, trace.as_ref());
            self.client.tracing().go_on(&span, trace.as_ref());
            let origin = Origin::of(self.client.port(), session.as_receiver().link());
            let delivery = SessionDelivery { message, session: Arc::clone(session), origin };
            // A message that the handler has is waited for, also when the consumer is being stopped.
            let handling = pin!(async { self.handler.handle(delivery).await });
            let handling = TraceContext::within(trace, outcome_of(handling)).instrument(span);
            let end = End::after(self.options.renewal_max, Instant::now());
            let sequence = token.sequence();
            let is_renewed = |now| {
                let is_reached = end.is_reached(now);
                if is_reached {
                    tell_no_more(&self.path, sequence, IN_HAND);
                }
                !is_reached
            };
            let outcome = match self.options.renewal_max {
                TimeSpan::ZERO => handling.await,
                _ => keeping(session, handling, is_renewed).await,
            };
            let settled = self.settle(session, token, outcome).await;
            if self.handler.is_gone() {
                return self.gone();
            }
            match settled {
                // Settled by the handler, or it came too late: it is delivered again (SET-25).
                Err(error) if error.condition() == Condition::MessageLockLost => {}
                Err(error) => return left_by(error),
                Ok(()) => {}
            }
        }
    }

    fn gone(&self) -> Left {
        Left::Failed(self.client.port().refuse(handler_is_gone(), &self.path))
    }

    /// Settles a message as its handler says, or as it can be.
    async fn settle(
        &self,
        session: &SessionReceiver,
        token: LockToken,
        outcome: Result<(), Refusal>,
    ) -> Result<(), BrokerError> {
        let (mut tried, mut settlement) = Tried::outcome(token, outcome);
        loop {
            let settled = session.as_receiver().settle(token, settlement).await;
            let Err(error) = settled else { return Ok(()) };
            let Some(next) = tried.refused(&self.path, &error) else { return Err(error) };
            (tried, settlement) = next;
        }
    }
}

fn left_by(error: BrokerError) -> Left {
    if error.condition() == Condition::SessionLockLost || error.retryable() {
        // Whoever holds it next gets what is not settled.
        tracing::debug!(%error, "session left");
        return Left::Next;
    }
    Left::Failed(error)
}

/// Renews a session lock while something takes its time, as long as it is to be renewed.
async fn keeping<T>(
    session: &SessionReceiver,
    work: impl Future<Output = T>,
    is_renewed: impl Fn(Instant) -> bool,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        let pause = half_of(&**session.as_receiver().link(), session.locked_until());
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(pause) => {}
        }
        if !is_renewed(Instant::now()) {
            return work.await;
        }
        // It is answered when the connection is there again, and meanwhile the work goes on.
        tokio::select! {
            biased;
            done = &mut work => return done,
            renewed = session.renew_lock() => {
                if let Err(error) = renewed {
                    // What it holds up is told the same.
                    tracing::debug!(%error, "could not renew a session lock");
                }
            }
        }
    }
}

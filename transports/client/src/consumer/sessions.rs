//! The loop of a consumer of sessions: concurrent workers hold one session each and process its
//! messages in order.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use peeklock_core::activity::{PendingWork, tracked};
use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::time::TimeSpan;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::handler::{Handler, Origin, SessionDelivery};
use super::outcome::{PendingSettlement, outcome_of};
use super::renewal::{End, HANDLER_TOO_SLOW, log_renewal_end};
use super::{RENEWAL_MAX, RETRY_PAUSE, handler_gone, is_transient, span};
use crate::keeper::half_of;
use crate::{Client, Refusal, SessionReceiver, TraceContext};

/// Time limit of an accept, which is then repeated.
const ACCEPT_WAIT: TimeSpan = TimeSpan::from_seconds(60);

/// Options of a consumer of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionConsumerOptions {
    /// Maximum number of sessions held at a time, each with at most one message with the handler.
    /// At least 1; 8 by default.
    pub sessions_max: u32,
    /// Time for which a session without messages is held before it is given back and the next one
    /// is accepted.
    pub idle: TimeSpan,
    /// Maximum time for which the session lock is renewed while the handler runs, per message. A
    /// slower handler is not interrupted, but the lock expires and another receiver gets the
    /// session. 5 minutes by default; zero disables renewal.
    pub renewal_max: TimeSpan,
    /// Whether messages carry the errors and panics of the handler (SET-42). True by default.
    pub reports_errors: bool,
}

impl Default for SessionConsumerOptions {
    fn default() -> Self {
        Self {
            sessions_max: 8,
            idle: TimeSpan::ZERO,
            renewal_max: RENEWAL_MAX,
            reports_errors: true,
        }
    }
}

impl SessionConsumerOptions {
    /// Returns the defaults with another number of concurrent sessions.
    #[must_use]
    pub fn at_once(sessions_max: u32) -> Self {
        Self { sessions_max, ..Self::default() }
    }

    /// Sets the time for which a session without messages is held.
    #[must_use]
    pub fn with_idle(mut self, idle: impl Into<TimeSpan>) -> Self {
        self.idle = idle.into();
        self
    }

    /// Sets the maximum time for which session locks are renewed while the handler has a message.
    #[must_use]
    pub fn with_renewal_max(mut self, span: impl Into<TimeSpan>) -> Self {
        self.renewal_max = span.into();
        self
    }

    /// Leaves no errors and panics of the handler on messages; they are only logged.
    #[must_use]
    pub const fn without_error_reports(mut self) -> Self {
        self.reports_errors = false;
        self
    }
}

/// Accepts the first session, if one has messages. It runs before the consumer starts, so that the
/// caller gets a permanent error.
pub(super) async fn first(
    client: &Client,
    path: &str,
) -> Result<Option<SessionReceiver>, BrokerError> {
    match client.accept_next_session(path, TimeSpan::ZERO).await {
        Ok(session) => Ok(Some(session)),
        Err(error)
            if error.condition() == Condition::ServiceTimeout || is_transient(client, &error) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Runs the workers to their end; the first failure ends the others.
pub(super) async fn run<H: Handler<SessionDelivery>>(
    client: Client,
    path: Arc<str>,
    handler: H,
    options: SessionConsumerOptions,
    mut stopped: oneshot::Receiver<()>,
    (mut first, at_work): (Option<SessionReceiver>, Option<PendingWork>),
) -> Option<BrokerError> {
    let handler = Arc::new(handler);
    let (stop, stopping) = watch::channel(false);
    let mut workers: FuturesUnordered<_> = (0..options.sessions_max.max(1))
        .map(|_| {
            let (client, path, handler) = (client.clone(), Arc::clone(&path), Arc::clone(&handler));
            let stopping = stopping.clone();
            let at_work = client.port().pending_work();
            let worker = Worker { client, path, handler, options, stopping };
            tracked(at_work, worker.run(first.take()))
        })
        .collect();
    // Each worker has its own marker.
    drop(at_work);
    let mut failure = None;
    let mut gone = std::pin::pin!(handler.wait_until_gone());
    loop {
        tokio::select! {
            // Check the stop signal first: a worker that has finished a message could otherwise get
            // the next one in the same turn.
            biased;
            _ = &mut stopped, if !*stop.borrow() => drop(stop.send_replace(true)),
            () = &mut gone, if !*stop.borrow() => {
                failure = Some(client.port().refuse(handler_gone(), &path));
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

/// A worker that holds one session after another.
struct Worker<H> {
    client: Client,
    path: Arc<str>,
    handler: Arc<H>,
    options: SessionConsumerOptions,
    stopping: watch::Receiver<bool>,
}

/// Reason for leaving a session.
enum SessionEnd {
    /// The session has no more messages or its lock is lost; accept the next one.
    Next,
    /// The consumer is stopping.
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
                Err(error) if is_transient(&self.client, &error) => {
                    tracing::warn!(%error, "no session can be accepted at the moment");
                    tokio::select! {
                        biased;
                        _ = self.stopping.wait_for(|stop| *stop) => return None,
                        () = tokio::time::sleep(RETRY_PAUSE) => continue,
                    }
                }
                Err(error) => return Some(error),
            };
            let end = self.work(&session).await;
            // If this cannot be answered, no session is held either.
            let _closed = session.give_back().await;
            match end {
                SessionEnd::Next => {}
                SessionEnd::Stop => return None,
                SessionEnd::Failed(error) => return Some(error),
            }
        }
    }

    /// Processes a session until it has no more messages.
    async fn work(&mut self, session: &Arc<SessionReceiver>) -> SessionEnd {
        loop {
            let received = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stop| *stop) => return SessionEnd::Stop,
                received = with_renewal(session, session.receive(self.options.idle), |_| true) => received,
            };
            let message = match received {
                Ok(Some(message)) => message,
                Ok(None) => return SessionEnd::Next,
                Err(error) => return end_by(error),
            };
            if self.handler.is_gone() {
                return self.gone();
            }
            let Some(token) = message.lock_token() else { return SessionEnd::Next };
            let trace = TraceContext::of(message.message());
            let span = span::of(&self.path, &message, trace.as_ref());
            self.client.tracing().go_on(&span, trace.as_ref());
            let origin = Origin::of(self.client.port(), session.as_receiver().link())
                .reporting_errors(self.options.reports_errors);
            let delivery = SessionDelivery { message, session: Arc::clone(session), origin };
            // Also while the consumer is stopping, the handler finishes its current message.
            let handling = pin!(async { self.handler.handle(delivery).await });
            let handling = TraceContext::within(trace, outcome_of(handling)).instrument(span);
            let end = End::after(self.options.renewal_max, Instant::now());
            let sequence = token.sequence();
            let is_renewed = |now| {
                let is_reached = end.is_reached(now);
                if is_reached {
                    log_renewal_end(&self.path, sequence, HANDLER_TOO_SLOW);
                }
                !is_reached
            };
            let outcome = match self.options.renewal_max {
                TimeSpan::ZERO => handling.await,
                _ => with_renewal(session, handling, is_renewed).await,
            };
            let settled = self.settle(session, token, outcome).await;
            if self.handler.is_gone() {
                return self.gone();
            }
            match settled {
                // The handler settled the message, or its settlement came too late: it is delivered
                // again (SET-25).
                Err(error) if error.condition() == Condition::MessageLockLost => {}
                Err(error) => return end_by(error),
                Ok(()) => {}
            }
        }
    }

    fn gone(&self) -> SessionEnd {
        SessionEnd::Failed(self.client.port().refuse(handler_gone(), &self.path))
    }

    /// Settles a message with the handler's outcome, or with the fallback.
    async fn settle(
        &self,
        session: &SessionReceiver,
        token: LockToken,
        outcome: Result<(), Refusal>,
    ) -> Result<(), BrokerError> {
        let (mut pending, mut settlement) =
            PendingSettlement::outcome(token, outcome, self.options.reports_errors);
        loop {
            let settled = session.as_receiver().settle(token, settlement).await;
            let Err(error) = settled else { return Ok(()) };
            let Some(next) = pending.refused(&self.path, &error) else { return Err(error) };
            (pending, settlement) = next;
        }
    }
}

fn end_by(error: BrokerError) -> SessionEnd {
    if error.condition() == Condition::SessionLockLost || error.retryable() {
        // The next holder gets the unsettled messages.
        tracing::debug!(%error, "session left");
        return SessionEnd::Next;
    }
    SessionEnd::Failed(error)
}

/// Renews a session lock during `work`, as long as `is_renewed` returns true.
async fn with_renewal<T>(
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
        // The renewal may wait for a reconnection; the work continues meanwhile.
        tokio::select! {
            biased;
            done = &mut work => return done,
            renewed = session.renew_lock() => {
                if let Err(error) = renewed {
                    // The work gets the same error from its own calls.
                    tracing::debug!(%error, "could not renew a session lock");
                }
            }
        }
    }
}

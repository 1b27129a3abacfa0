//! An actix actor that works off sessions: each in its order, several side by side.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use peeklock_core::Entity;
use peeklock_core::command::{ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::error::BrokerError;
use peeklock_core::time::TimeSpan;
use tokio::sync::{oneshot, watch};

use crate::consumer::settlement_of;
use crate::{Client, Consumer, Received, Refusal, SessionReceiver};

/// How long one accept waits; then it is made again.
const ACCEPT_WAIT: TimeSpan = TimeSpan::from_seconds(60);
/// The shortest pause between two renewals of a session lock.
const RENEW_PAUSE_MIN: Duration = Duration::from_secs(1);
/// The pause after a refusal that can pass.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A message of a session for an actor. Its handler answers `Ok` to complete it, or says what else
/// becomes of it; a handler that panics, and an actor that is gone, abandon it. The next message of the
/// session comes when this one is settled, so an abandoned one comes again before it (SES-20).
#[derive(actix::Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct SessionDelivery {
    /// The message.
    pub message: Received,
    /// Its session, which the consumer holds: for the state of it (SES-24). What is received or settled
    /// over it is no more the consumer's.
    pub session: Arc<SessionReceiver>,
}

/// How a consumer takes sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionConsumerOptions {
    /// Sessions that are held at once; each has at most one message with the actor. At least 1.
    pub sessions_max: u32,
    /// How long a session is held that has nothing more; then it is given back, and the next is
    /// accepted.
    pub idle: TimeSpan,
}

impl Default for SessionConsumerOptions {
    fn default() -> Self {
        Self { sessions_max: 8, idle: TimeSpan::ZERO }
    }
}

impl Client {
    /// Lets an actor receive by session under peek-lock, as long as the consumer that is returned
    /// lives: sessions are accepted as they have messages (SES-07), worked off in their order (SES-19),
    /// and given back. Session locks are renewed meanwhile. To be called inside a tokio or actix
    /// runtime, whose task it uses.
    ///
    /// # Errors
    /// `EntityNotFound`; what else is wrong ends the consumer, see [`Consumer::ended`].
    pub fn consume_sessions(
        &self,
        path: &str,
        recipient: Recipient<SessionDelivery>,
        options: SessionConsumerOptions,
    ) -> Result<Consumer, BrokerError> {
        let entity = self.access().entity_now(path, Action::AcceptSession)?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        tokio::spawn(async move {
            end.send(run(entity, recipient, options, stopped).await).ok();
        });
        Ok(Consumer::new(stop, ended))
    }
}

/// Runs the workers to their end: the first that fails ends the others.
async fn run(
    entity: Entity,
    recipient: Recipient<SessionDelivery>,
    options: SessionConsumerOptions,
    mut stopped: oneshot::Receiver<()>,
) -> Option<BrokerError> {
    let (stop, stopping) = watch::channel(false);
    let mut workers: FuturesUnordered<_> = (0..options.sessions_max.max(1))
        .map(|_| {
            let (entity, recipient) = (entity.clone(), recipient.clone());
            Worker { entity, recipient, idle: options.idle, stopping: stopping.clone() }.run()
        })
        .collect();
    let mut failure = None;
    loop {
        tokio::select! {
            biased;
            ended = workers.next() => match ended {
                Some(ended) => {
                    stop.send_replace(true);
                    failure = failure.or(ended);
                }
                None => return failure,
            },
            _ = &mut stopped, if !*stop.borrow() => drop(stop.send_replace(true)),
        }
    }
}

/// Holds one session after the other.
struct Worker {
    entity: Entity,
    recipient: Recipient<SessionDelivery>,
    idle: TimeSpan,
    stopping: watch::Receiver<bool>,
}

/// Why a session is held no more.
enum Left {
    /// It has nothing more, or its lock is gone; the next one is accepted.
    Next,
    /// The consumer is being stopped, or its actor is gone.
    Stop,
    Failed(BrokerError),
}

impl Worker {
    async fn run(mut self) -> Option<BrokerError> {
        loop {
            let accept = SessionReceiver::accept(
                self.entity.clone(),
                None,
                ReceiveMode::PeekLock,
                ACCEPT_WAIT,
            );
            let accepted = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stop| *stop) => return None,
                accepted = accept => accepted,
            };
            let session = match accepted {
                Ok(session) => Arc::new(session),
                Err(error) if error.condition() == Condition::ServiceTimeout => continue,
                // A broker that is being stopped says that the call was cancelled.
                Err(error)
                    if error.retryable() && error.condition() != Condition::OperationCancelled =>
                {
                    tracing::warn!(%error, "no session can be accepted for now");
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
                received = keeping(session, session.receive(self.idle)) => received,
            };
            let message = match received {
                Ok(Some(message)) => message,
                Ok(None) => return Left::Next,
                Err(error) => return left_by(error),
            };
            let Some(token) = message.lock_token() else { return Left::Next };
            let delivery = SessionDelivery { message, session: Arc::clone(session) };
            // A message that the actor has is waited for, also when the consumer is being stopped.
            let handled = keeping(session, self.recipient.send(delivery)).await;
            let (settlement, is_actor_gone) = match handled {
                Ok(outcome) => (settlement_of(outcome, &self.entity), false),
                Err(_) => (Settlement::Abandon { properties: None }, true),
            };
            let settled = session.settle_token(token, settlement).await;
            if is_actor_gone {
                return Left::Stop;
            }
            match settled {
                // Settled by the handler, or it came too late: it is delivered again (SET-25).
                Err(error) if error.condition() == Condition::MessageLockLost => {}
                Err(error) => return left_by(error),
                Ok(()) => {}
            }
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

/// Renews a session lock while something takes its time.
async fn keeping<T>(session: &SessionReceiver, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        let pause = session.half_of_lock().max(RENEW_PAUSE_MIN);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(pause) => {
                if let Err(error) = session.renew_lock().await {
                    // What it holds up is told the same.
                    tracing::debug!(%error, "session lock not renewed");
                }
            }
        }
    }
}

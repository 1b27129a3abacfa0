//! Pushed deliveries: a function receives messages as they come, its outcome settles them.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use peeklock_core::command::ReceiveMode;
use peeklock_core::error::BrokerError;
use peeklock_core::message::Value;
use tokio::sync::{mpsc, oneshot};

use super::core::{Ask, Link, Pushed};
use super::keeper::keep;
use super::receiver::settle;
use super::{Client, Received};
use crate::frame::text::Token;
use crate::frame::{Decision, Role};

/// What becomes of a message that a handler does not complete.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Available again, counted as a failed delivery (SET-03).
    Abandon {
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer,
    /// Moved to the dead-letter queue (SET-05).
    DeadLetter {
        /// Why, for programs.
        reason: String,
        /// Why, for people.
        description: String,
    },
}

/// How a consumer takes messages.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerOptions {
    /// Messages that its handler may hold at once; the credit of the link (RCV-16). At least 1.
    pub concurrent_max: u32,
    /// Whether locks are renewed while the handler runs.
    pub renew_locks: bool,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self { concurrent_max: 16, renew_locks: true }
    }
}

/// A running consumer. Dropping it stops it as [`Consumer::stop`] does, without waiting.
#[derive(Debug)]
pub struct Consumer {
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Option<BrokerError>>,
}

impl Client {
    /// Lets a function receive from a queue or sub-queue under peek-lock, as long as the consumer that
    /// is returned lives: `Ok` completes, `Err` says what else becomes of the message, a panic abandons
    /// it. To be called inside a tokio runtime, whose task it uses.
    ///
    /// # Errors
    /// `CommunicationProblem` if the client is closed.
    pub fn consume<H, F>(
        &self,
        path: &str,
        options: ConsumerOptions,
        handler: H,
    ) -> Result<Consumer, BrokerError>
    where
        H: Fn(Received) -> F + Send + 'static,
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let concurrent_max = options.concurrent_max.max(1);
        // Bounded by the credit.
        let (pushed, arrivals) = mpsc::unbounded_channel();
        let pushed = Some((concurrent_max, pushed));
        let link = self.core.attach_pushed(path, Role::Receiver, ReceiveMode::PeekLock, pushed)?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let options = ConsumerOptions { concurrent_max, ..options };
        tokio::spawn(async move {
            end.send(run(Arc::new(link), options, handler, arrivals, stopped).await).ok();
        });
        Ok(Consumer { stop: Some(stop), ended })
    }
}

impl Consumer {
    /// Takes no further message, lets the handler finish those it has, and detaches.
    pub async fn stop(mut self) {
        self.stop.take();
        (&mut self.ended).await.ok();
    }

    /// As [`Consumer::ended`], for a consumer that may still be stopped: dropping the future changes
    /// nothing.
    pub async fn detached(&mut self) -> Option<BrokerError> {
        (&mut self.ended).await.ok().flatten()
    }

    /// Waits until the consumer ends by itself: because the entity closed its link, with the reason.
    pub async fn ended(mut self) -> Option<BrokerError> {
        let ended = (&mut self.ended).await.ok().flatten();
        self.stop.take();
        ended
    }
}

async fn run<H, F>(
    link: Arc<Link>,
    options: ConsumerOptions,
    handler: H,
    mut arrivals: mpsc::UnboundedReceiver<Pushed>,
    mut stopped: oneshot::Receiver<()>,
) -> Option<BrokerError>
where
    H: Fn(Received) -> F + Send + 'static,
    F: Future<Output = Result<(), Refusal>> + Send + 'static,
{
    let mut in_hand = FuturesUnordered::new();
    let (mut epoch, mut settled, mut granted) = (0_u64, 0_u32, options.concurrent_max);
    let mut closing = false;
    let mut detached = None;
    loop {
        tokio::select! {
            biased;
            Some(of) = in_hand.next(), if !in_hand.is_empty() => {
                if of == epoch {
                    settled = settled.saturating_add(1);
                }
                // Told in steps: each costs a command.
                let up_to = settled.saturating_add(options.concurrent_max);
                let step = (options.concurrent_max / 4).max(1);
                if !closing && up_to.saturating_sub(granted) >= step {
                    granted = up_to;
                    link.credit(up_to);
                }
            }
            _ = &mut stopped, if !closing => {
                closing = true;
                link.credit(0);
            }
            pushed = arrivals.recv() => match pushed {
                Some(Pushed::Message(message)) if !closing => {
                    match Received::read(&message, &link.path) {
                        Ok(received) => {
                            let handled = handler(received.clone());
                            let link = Arc::clone(&link);
                            in_hand.push(async move {
                                handle(&link, options, &received, handled).await;
                                epoch
                            });
                        }
                        Err(rejection) => {
                            let detail = rejection.detail();
                            tracing::error!(path = &*link.path, detail, "message cannot be read");
                        }
                    }
                }
                Some(Pushed::Message(_)) => {}
                Some(Pushed::Fresh) => {
                    epoch += 1;
                    (settled, granted) = (0, options.concurrent_max);
                }
                Some(Pushed::Detached(error)) => {
                    // What is in hand can still be settled (ENT-25).
                    detached = Some(error);
                    closing = true;
                }
                None => break,
            },
        }
        if closing && in_hand.is_empty() {
            break;
        }
    }
    // What was pushed and not handed over goes back uncounted when the link is detached (RCV-14).
    while let Ok(pushed) = arrivals.try_recv() {
        if let Pushed::Message(message) = pushed
            && let Some(lock) = message.facts.lock
        {
            settle(&link, lock.token, Decision::Release, &[], None, None).await.ok();
        }
    }
    if let Ok(link) = Arc::try_unwrap(link) {
        link.detach().await.ok();
    }
    detached
}

/// Runs the handler and settles as it says.
async fn handle(
    link: &Arc<Link>,
    options: ConsumerOptions,
    message: &Received,
    handled: impl Future<Output = Result<(), Refusal>>,
) {
    let Some(token) = message.lock_token() else { return };
    let mut handled = pin!(AssertUnwindSafe(handled).catch_unwind());
    let until = message.locked_until().unwrap_or_default();
    let outcome = if options.renew_locks {
        tokio::select! {
            biased;
            outcome = &mut handled => outcome,
            // The lock is lost; the handler is left to find out.
            () = keep(Arc::clone(link), token, until) => handled.await,
        }
    } else {
        handled.await
    };
    let refusal = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(refusal)) => Some(refusal),
        Err(_) => Some(Refusal::Abandon { properties: Vec::new() }),
    };
    let settled = match refusal {
        None => {
            let (answer, answered) = oneshot::channel();
            link.core.ask(Ask::Complete { link: link.number, token: Token(token), answer });
            link.core.answered(answered, &link.path).await
        }
        Some(Refusal::Abandon { properties }) => {
            settle(link, token, Decision::Abandon, &properties, None, None).await
        }
        Some(Refusal::Defer) => settle(link, token, Decision::Defer, &[], None, None).await,
        Some(Refusal::DeadLetter { reason, description }) => {
            let (reason, description) = (Some(reason.as_str()), Some(description.as_str()));
            settle(link, token, Decision::DeadLetter, &[], reason, description).await
        }
    };
    if let Err(error) = settled {
        // It came too late: the message is delivered again (SET-25).
        tracing::debug!(path = &*link.path, %error, "settlement refused");
    }
}

//! Consumers: an actor or a function receives pushed messages, and its outcome settles them.
//! [`Client::consume`] and [`Client::consume_sessions`] start them.
//!
//! Modules in reading order: `handler` (the trait and its deliveries), `actor` and `actors` (actix
//! actors as handlers), `outcome` (settlements that follow from an outcome), `queue` (the loop over
//! a link), `renewal` (locks), `sessions` (the loop over sessions), `span` (log context).

#[cfg(feature = "actix")]
mod actor;
#[cfg(feature = "actix")]
mod actors;
mod handler;
mod outcome;
mod queue;
mod renewal;
mod sessions;
mod span;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::time::TimeSpan;
use tokio::sync::{oneshot, watch};

#[cfg(feature = "actix")]
pub use self::actors::{Actors, actors, actors_on};
pub use self::handler::Origin;
pub use self::handler::{Delivery, Handler, SessionDelivery};
#[cfg(feature = "testing")]
pub use self::outcome::outcome_of;
pub use self::sessions::SessionConsumerOptions;
use crate::Client;

/// Options of a consumer of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// Maximum number of messages with the handler at a time. At least 1; 16 by default.
    pub concurrent_max: u32,
    /// Maximum number of locked messages that wait for the handler, so that the next one is
    /// available immediately. Together with `concurrent_max` it is the credit of the link (RCV-16).
    /// 0 by default.
    pub prefetch: u32,
    /// Maximum time for which a message's lock is renewed while its handler runs, and separately
    /// while it waits for the handler. A slower handler is not interrupted, but the lock expires
    /// and the message is delivered again. 5 minutes by default, as in the Azure SDKs; zero
    /// disables renewal.
    pub renewal_max: TimeSpan,
    /// Whether messages carry the errors and panics of the handler as their property
    /// `peeklock-last-error`, and dead letters in their description (SET-42, DLQ-34). True by
    /// default.
    pub reports_errors: bool,
}

/// Default time for which locks are renewed.
const RENEWAL_MAX: TimeSpan = TimeSpan::from_minutes(5);
/// Pause before a retry after a transient error.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self { concurrent_max: 16, prefetch: 0, renewal_max: RENEWAL_MAX, reports_errors: true }
    }
}

impl ConsumerOptions {
    /// Returns the defaults with another number of concurrent messages.
    #[must_use]
    pub fn at_once(concurrent_max: u32) -> Self {
        Self { concurrent_max, ..Self::default() }
    }

    /// Sets the number of prefetched messages.
    #[must_use]
    pub const fn with_prefetch(mut self, count: u32) -> Self {
        self.prefetch = count;
        self
    }

    /// Sets the maximum time for which locks are renewed.
    #[must_use]
    pub fn with_renewal_max(mut self, span: impl Into<TimeSpan>) -> Self {
        self.renewal_max = span.into();
        self
    }

    /// Disables the renewal of locks.
    #[must_use]
    pub fn without_renewal(self) -> Self {
        self.with_renewal_max(TimeSpan::ZERO)
    }

    /// Leaves no errors and panics of the handler on messages, for example because their texts have
    /// personal data. They are only logged.
    #[must_use]
    pub const fn without_error_reports(mut self) -> Self {
        self.reports_errors = false;
        self
    }

    /// Returns the credit of the link (RCV-16).
    fn unsettled_max(&self) -> u32 {
        self.concurrent_max.max(1).saturating_add(self.prefetch)
    }
}

/// A running consumer. Dropping it stops it as [`Consumer::stop`] does, without waiting.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::message::Message;
/// use peeklock::{ConsumerOptions, Delivery, Refusal};
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// # client.admin().create_queue("orders").await?;
/// let brew = |order: Delivery| async move {
///     if order.body() == "dust" {
///         return Err(Refusal::dead_letter("NotOnTheMenu", "there is only coffee"));
///     }
///     Ok(())
/// };
/// let consumer = client.consume("orders", brew, ConsumerOptions::at_once(4)).await?;
/// client.sender("orders")?.send(Message::new("dust")).await?;
/// test.idle().await;
/// consumer.stop().await;
/// assert!(consumer.ended().await.is_none(), "it was stopped");
/// assert_eq!(client.admin().queue("orders").await?.counts.dead_letter, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Consumer {
    /// Dropped to stop it.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    ended: watch::Receiver<Option<End>>,
}

/// Reason why a consumer has ended; `None` if it was stopped.
type End = Option<Arc<BrokerError>>;

impl Client {
    /// Starts a consumer: an actor or a function receives from a queue, a subscription or a
    /// sub-queue under peek-lock while the returned consumer lives. `Ok` completes the message,
    /// `Err` selects another settlement, a panic abandons it. The message carries the text of the
    /// error or panic (SET-42). Call it inside a tokio or actix
    /// runtime; the consumer runs in a task there, and a function that computes or blocks delays
    /// that task ([`Handler`]). A transient error, such as an entity that is being rebuilt after a
    /// failure, does not end the consumer: it attaches its link again a second later.
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`, `CommunicationProblem`;
    /// `InvalidOperation` if the handler cannot accept messages ([`Handler::check`]).
    pub async fn consume(
        &self,
        path: &str,
        handler: impl Handler<Delivery>,
        options: ConsumerOptions,
    ) -> Result<Consumer, BrokerError> {
        self.check(path, &handler)?;
        let deliveries = self.port().deliveries(path, options.unsettled_max()).await?;
        let (stop, stopped) = oneshot::channel();
        let work = queue::run(self.clone(), deliveries, handler, options, stopped);
        Ok(Consumer::start(path, stop, work))
    }

    /// Starts a consumer of sessions: an actor or a function receives by session under peek-lock
    /// while the returned consumer lives. It accepts sessions that have messages (SES-07),
    /// processes each in order (SES-19), and gives it back. It renews session locks; while the
    /// handler has a message, for at most the time in the options. Call it inside a tokio or actix
    /// runtime; the consumer runs in a task there.
    ///
    /// # Errors
    /// As for [`Client::consume`]; `InvalidOperation` also for an entity without sessions (SES-09).
    /// A transient error, such as an unreachable broker, is not returned: the consumer retries each
    /// second. [`Consumer::ended`] reports a later permanent error.
    pub async fn consume_sessions(
        &self,
        path: &str,
        handler: impl Handler<SessionDelivery>,
        options: SessionConsumerOptions,
    ) -> Result<Consumer, BrokerError> {
        self.check(path, &handler)?;
        let at_work = self.port().pending_work();
        let first = sessions::first(self, path).await?;
        let (stop, stopped) = oneshot::channel();
        let work =
            sessions::run(self.clone(), path.into(), handler, options, stopped, (first, at_work));
        Ok(Consumer::start(path, stop, work))
    }

    fn check<D>(&self, path: &str, handler: &impl Handler<D>) -> Result<(), BrokerError> {
        handler.check().map_err(|rejection| self.port().refuse(rejection, path))
    }
}

/// Returns whether a retry may succeed. A broker that is stopping, and an entity that is closed for
/// that, report the call as cancelled. A closed client refuses every call.
fn is_transient(client: &Client, error: &BrokerError) -> bool {
    error.retryable()
        && error.condition() != Condition::OperationCancelled
        && !client.port().is_closed()
}

/// Returns the reason for ending a consumer whose handler accepts no more messages.
fn handler_gone() -> Rejection {
    Rejection::cancelled("the handler accepts no more messages: its actor has stopped or panicked")
}

impl Consumer {
    fn start(
        path: &str,
        stop: oneshot::Sender<()>,
        work: impl Future<Output = Option<BrokerError>> + Send + 'static,
    ) -> Self {
        let (end, ended) = watch::channel(None);
        let path = path.to_owned();
        tokio::spawn(async move {
            let why = work.await.map(Arc::new);
            if let Some(error) = &why {
                tracing::warn!(path, condition = %error.condition(), %error, "a consumer has ended");
            }
            // Ignores the absence of a receiver.
            end.send_replace(Some(why));
        });
        Self { stop: Mutex::new(Some(stop)), ended }
    }

    /// Stops receiving, lets the handler finish its current messages, and closes the link. Returns
    /// when all of that is done; dropping the future does not undo it.
    pub async fn stop(&self) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ended().await;
    }

    /// Waits until the consumer has ended. Returns the error if the entity closed its link
    /// permanently; `OperationCancelled` if the actor has stopped or panicked, detected within a
    /// second even without messages; or `None` if the consumer was stopped. Dropping the future
    /// changes nothing.
    pub async fn ended(&self) -> Option<Arc<BrokerError>> {
        let mut ended = self.ended.clone();
        // A runtime that is shutting down ends the task without a report.
        ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone().flatten())
    }
}

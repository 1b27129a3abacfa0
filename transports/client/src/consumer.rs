//! Pushed deliveries: an actor or a function receives messages as they come, its outcome settles them.

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
pub(crate) use self::handler::Origin;
pub use self::handler::{Delivery, Handler, SessionDelivery};
#[cfg(feature = "testing")]
pub(crate) use self::outcome::outcome_of;
pub use self::sessions::SessionConsumerOptions;
use crate::Client;

/// How a consumer takes messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// Messages that its handler has at once. At least 1; 16 unless said otherwise.
    pub concurrent_max: u32,
    /// Messages that wait locked beside those, so that the next is at hand when one is done. With those that
    /// the handler has they are the credit of the link (RCV-16). None unless said otherwise.
    pub prefetch: u32,
    /// For how long the lock of a message is renewed while its handler runs, and before that while it waits for it. A
    /// handler that takes longer is not interrupted, but its lock is left to run out, and the message is delivered
    /// again. 5 minutes unless said otherwise, as with the SDKs of Azure; never if zero.
    pub renewal_max: TimeSpan,
}

/// For how long locks are renewed unless said otherwise.
const RENEWAL_MAX: TimeSpan = TimeSpan::from_minutes(5);
/// The pause after a refusal that can pass.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self { concurrent_max: 16, prefetch: 0, renewal_max: RENEWAL_MAX }
    }
}

impl ConsumerOptions {
    /// The defaults, with another number of messages at once.
    #[must_use]
    pub fn at_once(concurrent_max: u32) -> Self {
        Self { concurrent_max, ..Self::default() }
    }

    /// The same, with so many messages that wait.
    #[must_use]
    pub const fn with_prefetch(mut self, count: u32) -> Self {
        self.prefetch = count;
        self
    }

    /// The same, with locks that are renewed for so long.
    #[must_use]
    pub fn with_renewal_max(mut self, span: impl Into<TimeSpan>) -> Self {
        self.renewal_max = span.into();
        self
    }

    /// The same, with locks that end when they end.
    #[must_use]
    pub fn without_renewal(self) -> Self {
        self.with_renewal_max(TimeSpan::ZERO)
    }

    /// The credit of its link (RCV-16).
    fn unsettled_max(&self) -> u32 {
        self.concurrent_max.max(1).saturating_add(self.prefetch)
    }
}

/// A running consumer. Dropping it stops it as [`Consumer::stop`] does, without waiting.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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

/// Why a consumer has ended; none if it was stopped.
type End = Option<Arc<BrokerError>>;

impl Client {
    /// Lets an actor or a function receive from a queue, a subscription or a sub-queue under peek-lock, as long
    /// as the consumer that is returned lives: `Ok` completes, `Err` says what else becomes of the message, a
    /// panic abandons it. To be called inside a tokio or actix runtime, whose task it uses; a function that computes or
    /// blocks holds that up ([`Handler`]). What can pass does not end it, such as an entity that has failed and is being
    /// rebuilt: its link is made anew a second later.
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`, `CommunicationProblem`; `InvalidOperation` for a handler that
    /// can take none ([`Handler::check`]).
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

    /// Lets an actor or a function receive by session under peek-lock, as long as the consumer that is returned
    /// lives: sessions are accepted as they have messages (SES-07), worked off in their order (SES-19),
    /// and given back. Session locks are renewed meanwhile, while the handler has a message for as long as the options
    /// say. To be called inside a tokio or actix runtime, whose task it uses.
    ///
    /// # Errors
    /// As for [`Client::consume`]; `InvalidOperation` also for an entity without sessions (SES-09). What can pass, such as a
    /// broker that is not reached, does not keep it from beginning: it asks again each second. What comes later ends the
    /// consumer, see [`Consumer::ended`].
    pub async fn consume_sessions(
        &self,
        path: &str,
        handler: impl Handler<SessionDelivery>,
        options: SessionConsumerOptions,
    ) -> Result<Consumer, BrokerError> {
        self.check(path, &handler)?;
        let at_work = self.port().at_work();
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

/// Whether it is worth asking again. A broker that is being stopped, and an entity that is closed until then, say that the
/// call was cancelled; a client that is closed refuses whatever it is asked.
fn can_pass(client: &Client, error: &BrokerError) -> bool {
    error.retryable()
        && error.condition() != Condition::OperationCancelled
        && !client.port().is_closed()
}

/// Why a consumer ends whose handler takes no message any more.
fn handler_is_gone() -> Rejection {
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
            // Nobody may want to know.
            end.send_replace(Some(why));
        });
        Self { stop: Mutex::new(Some(stop)), ended }
    }

    /// Takes no further message, lets the handler finish those it has, and closes the link. Returns when all that
    /// is done; dropping the future does not take it back.
    pub async fn stop(&self) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ended().await;
    }

    /// Waits until the consumer has ended: because the entity closed its link for good, with the reason; because its actor is
    /// gone, having stopped or panicked, with `OperationCancelled`, which says that, within a second also where
    /// no message comes; or because it was stopped, with none. Dropping the future changes nothing.
    pub async fn ended(&self) -> Option<Arc<BrokerError>> {
        let mut ended = self.ended.clone();
        // A runtime that is being stopped ends it without a word.
        ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone().flatten())
    }
}

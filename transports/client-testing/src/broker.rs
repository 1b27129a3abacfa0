//! A broker for one test.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::store::StoreError;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, BrokerBuilder, StartError};

use crate::FIRST_INSTANT;
use peeklock_client::Client;

/// A broker in memory whose time stands still until it is told to go on, with one thread for its entities. Dropping it
/// ends it.
///
/// What a test does is always the same: it sends, waits until nothing is left to be done, and looks; where time
/// matters it lets it pass. Nothing sleeps, and a day passes in no time.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::message::Message;
/// use peeklock::testing::TestBroker;
/// use peeklock::time::TimeSpan;
/// use peeklock::{ConsumerOptions, Delivery, Refusal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let test = TestBroker::start().await?;
/// let client = test.client();
/// client.admin().create_queue("orders").await?;
/// // Fails at first, and has it again in a minute.
/// let brew = |order: Delivery| async move {
///     match order.delivery_count() {
///         1 => Err(Refusal::retry_after(TimeSpan::from_minutes(1))),
///         _ => Ok(()),
///     }
/// };
/// let _consumer = client.consume("orders", brew, ConsumerOptions::default()).await?;
///
/// client.sender("orders")?.send(Message::new("two coffees")).await?;
/// test.idle().await;
/// assert_eq!(client.admin().queue("orders").await?.counts.active, 1);
/// test.advance(TimeSpan::from_minutes(1)).await;
/// assert_eq!(client.admin().queue("orders").await?.counts.active, 0);
/// # Ok(())
/// # }
/// ```
///
/// Consumers renew locks by the time of their runtime, which goes on: a test that lets LockDuration pass while a
/// handler runs, by [`TestBroker::advance_now`], sees its lock run out.
pub struct TestBroker {
    broker: Broker,
    clock: Arc<ManualClock>,
}

impl TestBroker {
    /// Starts an empty one; its time is the beginning of 2026.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Broker::builder()).await
    }

    /// Starts one with settings, forwarders or an authorizer of yours, over a store of yours if you like. Clock and
    /// threads are this one's, and its time is the beginning of 2026: a store that knows later times is opened by
    /// [`TestBroker::start_at`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_with(builder: BrokerBuilder) -> Result<Self, StartError> {
        Self::start_at(builder, FIRST_INSTANT).await
    }

    /// As [`TestBroker::start_with`], at an instant: that at which another one was stopped, so that a test goes on after
    /// a restart over the same store.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
    /// use peeklock::Broker;
    /// use peeklock::testing::TestBroker;
    /// use peeklock::time::TimeSpan;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("peeklock-start-at-{}", std::process::id()));
    /// let test = TestBroker::start_with(Broker::builder().data_dir(&folder)?).await?;
    /// test.client().admin().create_queue("orders").await?;
    /// test.advance(TimeSpan::from_days(1)).await;
    /// let now = test.now();
    /// test.stop().await?;
    ///
    /// let again = TestBroker::start_at(Broker::builder().data_dir(&folder)?, now).await?;
    /// assert_eq!(again.client().admin().queue("orders").await?.counts.active, 0);
    /// assert_eq!(again.now(), now);
    /// # again.stop().await?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_at(builder: BrokerBuilder, now: Timestamp) -> Result<Self, StartError> {
        let clock = Arc::new(ManualClock::at(now));
        let builder = builder.clock(Arc::clone(&clock) as _).arbiters(1).watched();
        Ok(Self { broker: builder.start().await?, clock })
    }

    /// The broker.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// A client of it that may do everything.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.broker)
    }

    /// What its time is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.broker.now()
    }

    /// Waits until nothing is left to be done: see [`Broker::idle`]. A handler that never ends is waited for without
    /// end.
    pub async fn idle(&self) {
        self.broker.idle().await;
    }

    /// Waits until nothing is left to be done, lets time pass, in one step, and waits again: no time passes under a
    /// handler that has a message. It never ends while a handler waits for the time of this broker, nor if one calls it:
    /// that is [`TestBroker::advance_now`].
    pub async fn advance(&self, span: impl Into<TimeSpan>) {
        self.idle().await;
        self.advance_now(span);
        self.idle().await;
    }

    /// Lets time pass, in one step, and waits for nothing, neither before nor after: under handlers that have a message,
    /// whose locks run out.
    pub fn advance_now(&self, span: impl Into<TimeSpan>) {
        self.clock.advance(span.into());
    }

    /// Starts a second one with the same entities and messages, at the same instant, as soon as nothing is left to be
    /// done in this one: so many tests can begin with one namespace that was prepared once. Each goes its own way; the
    /// second has no consumers, and the time of each is its own.
    ///
    /// # Errors
    /// `NoFork` if it was started over a store that is not in memory; see [`StartError`].
    pub async fn fork(&self) -> Result<Self, StartError> {
        self.idle().await;
        Self::start_at(self.broker.fork_builder()?, self.now()).await
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// When a store of yours could not finish.
    pub async fn stop(self) -> Result<(), StoreError> {
        self.broker.stop(Duration::ZERO).await
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.broker.abandon();
    }
}

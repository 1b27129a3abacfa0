//! A broker for one test, with manual time: it stores in memory, and its clock moves only when the
//! test advances it.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::store::StoreError;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, BrokerBuilder, StartError};

use crate::FIRST_INSTANT;
use peeklock_client::Client;

/// A broker in memory whose time advances only on demand, with one thread for its entities.
/// Dropping it stops it.
///
/// A test sends messages, waits until nothing is left to do, and checks the result; it advances the
/// time if needed. Nothing sleeps, so a day passes instantly.
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
/// // Fails at first, and is delivered again in a minute.
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
/// Consumers renew locks by the time of their runtime, which continues. If a test advances
/// LockDuration while a handler runs, with [`TestBroker::advance_now`], the lock expires.
pub struct TestBroker {
    broker: Broker,
    clock: Arc<ManualClock>,
}

impl TestBroker {
    /// Starts an empty broker; its time is the beginning of 2026.
    ///
    /// # Errors
    /// Returns an error if threads cannot be started.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Broker::builder()).await
    }

    /// Starts a broker with your own settings, forwarders, authorizer or store. The kit sets the
    /// clock and the threads, and the time is the beginning of 2026: use [`TestBroker::start_at`]
    /// for a store with later times.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_with(builder: BrokerBuilder) -> Result<Self, StartError> {
        Self::start_at(builder, FIRST_INSTANT).await
    }

    /// As [`TestBroker::start_with`], at the instant at which another broker was stopped, so that a
    /// test continues after a restart over the same store.
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
        let builder = builder.clock(Arc::clone(&clock) as _).arbiters(1).count_work();
        Ok(Self { broker: builder.start().await?, clock })
    }

    /// Returns the broker.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Returns a client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.broker)
    }

    /// Returns the broker's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.broker.now()
    }

    /// Waits until nothing is left to do: see [`Broker::idle`]. Waits without a time limit for a
    /// handler that never ends.
    pub async fn idle(&self) {
        self.broker.idle().await;
    }

    /// Waits until nothing is left to do, advances the time in one step, and waits again: no time
    /// passes while a handler has a message. It never returns if a handler waits for this broker's
    /// time or calls it; use [`TestBroker::advance_now`] then.
    pub async fn advance(&self, span: impl Into<TimeSpan>) {
        self.idle().await;
        self.advance_now(span);
        self.idle().await;
    }

    /// Advances the time in one step, without waiting before or after. Handlers keep their
    /// messages, whose locks can expire.
    pub fn advance_now(&self, span: impl Into<TimeSpan>) {
        self.clock.advance(span.into());
    }

    /// Starts a second broker with the same entities and messages, at the same instant, once
    /// nothing is left to do in this one. Many tests can thus share a prepared namespace. The two
    /// are independent; the second has no consumers and its own time.
    ///
    /// # Errors
    /// `NoFork` if the broker uses a store that is not in memory; see [`StartError`].
    pub async fn fork(&self) -> Result<Self, StartError> {
        self.idle().await;
        Self::start_at(self.broker.fork_builder()?, self.now()).await
    }

    /// Stops the broker in order.
    ///
    /// # Errors
    /// Returns an error if your store could not finish.
    pub async fn stop(self) -> Result<(), StoreError> {
        self.broker.stop(Duration::ZERO).await
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.broker.abandon();
    }
}

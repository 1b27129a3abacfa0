//! The scenario's view of a simulated world: its clients, its clock and its invariants.
//! [`Simulation`](super::Simulation) passes it to the scenario.

use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::time::Timestamp;
use tokio::sync::{Notify, watch};

use super::port::SimulatedPort;
use super::shared::{Owner, Shared};
use super::worker::{Life, Mortal, Start, Worker, be_born};
use peeklock_client::{
    Client, ConsumerOptions, Delivery, Handler, SessionConsumerOptions, SessionDelivery,
};

/// The world of a single run of a [`Simulation`](super::Simulation). Cheap to clone.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
}

impl World {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns a client of the broker. It survives restarts of the broker like a client over a
    /// network: unanswered requests fail with `CommunicationProblem`, with an unknown result.
    ///
    /// Mishaps happen only while the world [comes to rest](World::come_to_rest). Requests of the
    /// scenario before and after that are answered, in any order with other work.
    ///
    /// A handler that consumes with [`Client::consume`] of this client gets messages too, but is
    /// not a worker: it does not crash or lose its connection, and the rest of the world does not
    /// depend on the messages of its entity.
    #[must_use]
    pub fn client(&self) -> Client {
        let (shared, owner) = (Arc::clone(&self.shared), Owner::SCENARIO);
        Client::over(Arc::new(SimulatedPort { shared, owner }))
    }

    /// Returns the time of this world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.state().now
    }

    /// Starts a consumer as [`Client::consume`] does, as a separate worker that can crash. A crash
    /// drops its handlers at their current awaits, and their locks are released and counted. Then
    /// the worker restarts with the same handler. Values captured by the handler survive a crash,
    /// like a database.
    ///
    /// # Errors
    /// As for [`Client::consume`].
    pub async fn consume(
        &self,
        path: &str,
        handler: impl Handler<Delivery>,
        options: ConsumerOptions,
    ) -> Result<(), BrokerError> {
        let (handler, at) = (Arc::new(handler), Arc::<str>::from(path));
        let start: Start = Arc::new(move |client: Client, life: Life| {
            let handler = Mortal { handler: Arc::clone(&handler), life };
            let at = Arc::clone(&at);
            Box::pin(async move { client.consume(&at, handler, options).await })
        });
        self.begin(path, options.concurrent_max > 1, start).await
    }

    /// Starts a consumer of sessions as a worker, as [`Client::consume_sessions`] does.
    ///
    /// # Errors
    /// As for [`Client::consume_sessions`].
    pub async fn consume_sessions(
        &self,
        path: &str,
        handler: impl Handler<SessionDelivery>,
        options: SessionConsumerOptions,
    ) -> Result<(), BrokerError> {
        let (handler, at) = (Arc::new(handler), Arc::<str>::from(path));
        let start: Start = Arc::new(move |client: Client, life: Life| {
            let handler = Mortal { handler: Arc::clone(&handler), life };
            let at = Arc::clone(&at);
            Box::pin(async move { client.consume_sessions(&at, handler, options).await })
        });
        self.begin(path, true, start).await
    }

    async fn begin(&self, path: &str, any_order: bool, start: Start) -> Result<(), BrokerError> {
        let number = {
            let mut state = self.shared.state();
            // 0 is the scenario.
            let number = state.workers.len() + 1;
            let worker = Worker {
                path: path.into(),
                life: 0,
                any_order,
                start,
                kill: watch::channel(false).0,
                consumer: None,
                down_until: None,
                cut_off_until: None,
            };
            state.workers.insert(number, worker);
            number
        };
        let Some(starting) = be_born(&self.shared, number) else { return Ok(()) };
        let consumer = starting.await?;
        if let Some(worker) = self.shared.state().workers.get_mut(&number) {
            worker.consumer = Some(consumer);
        }
        Ok(())
    }

    /// Runs the world: first all mishaps, and then the remaining work, until the consumed entities
    /// have only deferred messages, no handler has a message, and no worker is down. Messages
    /// forwarded or transferred to another entity have then arrived, or are in a transfer
    /// dead-letter queue or waiting for a retry. A world that does not come to rest within 30 days
    /// of its time fails.
    pub async fn come_to_rest(&self) {
        let rest = Arc::new(Notify::new());
        self.shared.state().rest = Some(Arc::clone(&rest));
        rest.notified().await;
    }

    /// Adds an invariant: it is checked after each step, and a violation fails the run immediately.
    pub fn always(&self, what: impl Into<String>, holds: impl Fn() -> bool + Send + 'static) {
        self.shared.state().invariants.push((what.into(), Box::new(holds)));
    }

    /// Adds a line of the scenario or of a handler to the trace.
    pub fn note(&self, what: impl AsRef<str>) {
        self.shared.state().note(what.as_ref());
    }
}

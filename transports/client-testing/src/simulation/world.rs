//! What a scenario sees of the simulated world.

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

/// The world of one run of a [`Simulation`](super::Simulation), as its scenario sees it. Cheap to clone.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
}

impl World {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// A client of the broker. It outlives restarts of the broker as one over a network does: what was asked and not
    /// answered then fails with `CommunicationProblem`, and nobody knows whether it was done.
    ///
    /// Mishaps happen while the world [comes to rest](World::come_to_rest) and at no other time: what the scenario asks before
    /// and after that is answered, in any order with what else is under way.
    ///
    /// A handler that consumes by [`Client::consume`] of this client gets messages too, but is no worker: it does not
    /// crash and is not cut off, and whether its entity has messages still is not asked when the world comes to rest.
    #[must_use]
    pub fn client(&self) -> Client {
        let (shared, owner) = (Arc::clone(&self.shared), Owner::SCENARIO);
        Client::over(Arc::new(SimulatedPort { shared, owner }))
    }

    /// What the time is in this world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.state().now
    }

    /// Lets a handler consume, as [`Client::consume`] does, but as a worker of its own that can crash: then what its
    /// handlers were at is dropped where they wait, their locks are released and counted, and the worker is started
    /// again, with the same handler. What the handler has captured is what outlives a crash, like a database.
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

    /// The same by session, as [`Client::consume_sessions`] does.
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

    /// Lets everything happen: mishaps first, until there were as many as there are to be, and then whatever is left
    /// to do, until the entities that are consumed have no message but deferred ones, no handler has one, and no
    /// worker is down. What goes on to another entity, by forwarding or as a transfer of a transaction, has arrived then or is in
    /// a transfer dead-letter queue, unless it is to be tried again later. A world that does not come to rest within 30 days
    /// of its time has failed.
    pub async fn come_to_rest(&self) {
        let rest = Arc::new(Notify::new());
        self.shared.state().rest = Some(Arc::clone(&rest));
        rest.notified().await;
    }

    /// What must hold at all times: looked at after each step; the run fails as soon as it does not.
    pub fn always(&self, what: impl Into<String>, holds: impl Fn() -> bool + Send + 'static) {
        self.shared.state().invariants.push((what.into(), Box::new(holds)));
    }

    /// Writes a line of the scenario's or of a handler's into the trace.
    pub fn note(&self, what: impl AsRef<str>) {
        self.shared.state().note(what.as_ref());
    }
}

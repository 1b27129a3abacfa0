//! A consumer of the simulated world: a process of its own, which can die and is started again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::time::Timestamp;
use tokio::sync::watch;

use super::port::SimulatedPort;
use super::shared::{Owner, Shared};
use peeklock_client::{Client, Consumer, Delivery, Handler, Received, Refusal, SessionDelivery};

type Starting = Pin<Box<dyn Future<Output = Result<Consumer, BrokerError>> + Send>>;
/// Starts it, in one of its lives.
pub(super) type Start = Arc<dyn Fn(Client, Life) -> Starting + Send + Sync>;

/// One consumer.
pub(super) struct Worker {
    pub(super) path: Arc<str>,
    /// How often it was started before.
    pub(super) life: u32,
    /// Whether it may have several messages at once, so that they are begun in any order.
    pub(super) any_order: bool,
    pub(super) start: Start,
    /// Told at the end of this life.
    pub(super) kill: watch::Sender<bool>,
    pub(super) consumer: Option<Consumer>,
    /// It is dead until then.
    pub(super) down_until: Option<Timestamp>,
    /// Nothing passes between it and the broker until then.
    pub(super) cut_off_until: Option<Timestamp>,
}

/// What handlers of one life need to know.
#[derive(Clone)]
pub(super) struct Life {
    shared: Arc<Shared>,
    owner: Owner,
    killed: watch::Receiver<bool>,
}

/// Begins a life of a worker and returns what it takes to start its consumer.
pub(super) fn be_born(shared: &Arc<Shared>, worker: usize) -> Option<Starting> {
    let (client, life, start) = {
        let mut state = shared.state();
        let of = state.workers.get_mut(&worker)?;
        let (kill, killed) = watch::channel(false);
        of.kill = kill;
        of.down_until = None;
        let owner = Owner { worker, life: of.life };
        let life = Life { shared: Arc::clone(shared), owner, killed };
        let port = SimulatedPort { shared: Arc::clone(shared), owner };
        (Client::over(Arc::new(port)), life, Arc::clone(&of.start))
    };
    Some(start(client, life))
}

/// A message with what it belongs to.
pub(super) trait Shown {
    fn received(&self) -> &Received;
}

impl Shown for Delivery {
    fn received(&self) -> &Received {
        &self.message
    }
}

impl Shown for SessionDelivery {
    fn received(&self) -> &Received {
        &self.message
    }
}

/// A handler is at work as long as this is there.
struct AtWork(Arc<Shared>);

impl AtWork {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.state().at_work += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.state().at_work -= 1;
    }
}

/// A handler that ends when its worker dies, wherever it is.
pub(super) struct Mortal<H> {
    pub(super) handler: Arc<H>,
    pub(super) life: Life,
}

impl<D: Shown + Send + 'static, H: Handler<D>> Handler<D> for Mortal<H> {
    type Handling = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

    fn handle(&self, delivery: D) -> Self::Handling {
        let (handler, mut life) = (Arc::clone(&self.handler), self.life.clone());
        Box::pin(async move {
            let key = (life.owner, delivery.received().sequence_number());
            let _at_work = AtWork::begin(&life.shared);
            life.shared.state().in_hand.insert(key, "is with its handler");
            let handling = async { handler.handle(delivery).await };
            tokio::select! {
                biased;
                _ = life.killed.wait_for(|is_killed| *is_killed) => Err(Refusal::Release),
                outcome = handling => {
                    let mut state = life.shared.state();
                    if let Some(known) = state.in_hand.get_mut(&key) {
                        *known = "was handled and is not settled";
                    }
                    outcome
                }
            }
        })
    }

    fn check(&self) -> Result<(), Rejection> {
        self.handler.check()
    }

    fn is_gone(&self) -> bool {
        self.handler.is_gone()
    }

    fn gone(&self) -> impl Future<Output = ()> + Send {
        self.handler.gone()
    }
}

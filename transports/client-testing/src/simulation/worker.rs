//! A worker of a simulated world: it stands for a separate process that can crash and restart.

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
/// Starts the consumer in one life of its worker.
pub(super) type Start = Arc<dyn Fn(Client, Life) -> Starting + Send + Sync>;

/// State of a worker.
pub(super) struct Worker {
    pub(super) path: Arc<str>,
    /// Number of earlier starts.
    pub(super) life: u32,
    /// Whether it may have several messages at a time, which then start in any order.
    pub(super) any_order: bool,
    pub(super) start: Start,
    /// Set at the end of this life.
    pub(super) kill: watch::Sender<bool>,
    pub(super) consumer: Option<Consumer>,
    /// End of the time for which it is dead.
    pub(super) down_until: Option<Timestamp>,
    /// End of the time for which it is disconnected.
    pub(super) cut_off_until: Option<Timestamp>,
}

/// Data of a worker's life for its handlers.
#[derive(Clone)]
pub(super) struct Life {
    shared: Arc<Shared>,
    owner: Owner,
    killed: watch::Receiver<bool>,
}

/// Begins a life of a worker. Returns the future that starts its consumer.
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

/// A delivery with its message.
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

/// Counts a running handler until dropped.
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

/// A handler that ends at any await when its worker dies.
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

    fn wait_until_gone(&self) -> impl Future<Output = ()> + Send {
        self.handler.wait_until_gone()
    }
}

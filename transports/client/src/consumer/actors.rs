//! A handler that starts actors on demand and replaces each one that stops, so that a panic affects
//! only one message.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Arbiter, ArbiterHandle, Message, Recipient};
use peeklock_core::error::Rejection;
use tokio::sync::{mpsc, oneshot};

use super::Handler;
use super::actor::{Outcome, outcome};
use crate::Refusal;

/// Pause before starting an actor after two failures in a row; it doubles with each further
/// failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum of that pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Handler over a pool of actors; see [`actors`].
pub struct Actors<D: Message<Result = Outcome> + Send + 'static> {
    pool: Arc<Pool<D>>,
    kind: Maker,
}

/// The maker of the actors.
#[derive(Clone, Copy)]
enum Maker {
    /// An arbiter: the current one or a given one.
    Arbiter,
    /// None, because [`actors`] was called outside of an actix system.
    Nobody,
}

/// Request for an actor, with the channel for its recipient.
type ActorRequest<D> = oneshot::Sender<Recipient<D>>;

struct Pool<D: Message<Result = Outcome> + Send + 'static> {
    maker: mpsc::Sender<ActorRequest<D>>,
    /// Idle actors.
    idle: Mutex<Vec<Recipient<D>>>,
    /// Number of consecutive failures: actors that stopped without an answer, or could not be
    /// started.
    failed: AtomicU32,
}

/// Creates a handler for [`Client::consume`](crate::Client::consume) and
/// [`Client::consume_sessions`](crate::Client::consume_sessions) that survives its actors.
/// `factory` starts an actor; it is called for a message if no actor is idle. Therefore there are
/// as many actors as concurrent messages, and each has one message at a time. An actor that panics
/// or stops itself fails only that attempt of its message, and another actor replaces it:
/// immediately, or after repeated failures with a pause that grows from 100 ms to a second.
///
/// Actors share the values that the function captures. To give one actor several messages at a
/// time, pass its recipient to the consumer instead, with or without a supervisor; the consumer
/// then ends with the actor.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use actix::{Actor, Context, Handler};
/// use peeklock::description::QueueProperties;
/// use peeklock::message::Message;
/// use peeklock::{ConsumerOptions, Delivery, Refusal, actors};
/// # use peeklock::testing::TestBroker;
///
/// struct Barista;
///
/// impl Actor for Barista {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Delivery> for Barista {
///     type Result = Result<(), Refusal>;
///
///     fn handle(&mut self, order: Delivery, _: &mut Self::Context) -> Self::Result {
///         assert_ne!(order.body(), "dust", "there is only coffee");
///         Ok(())
///     }
/// }
///
/// # #[actix::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// let two = QueueProperties::new().with_max_delivery_count(2);
/// client.admin().create_queue_with("orders", two).await?;
/// let baristas = actors(|| Barista.start().recipient());
/// let consumer = client.consume("orders", baristas, ConsumerOptions::at_once(1)).await?;
/// for order in ["dust", "two coffees"] {
///     client.sender("orders")?.send(Message::new(order)).await?;
/// }
/// test.idle().await;
/// let counts = client.admin().queue("orders").await?.counts;
/// assert_eq!((counts.active, counts.dead_letter), (0, 1)); // after two attempts
/// # consumer.stop().await;
/// # Ok(())
/// # }
/// ```
///
/// Call it in an actix system, for example in `#[actix::main]`. Elsewhere, such as in
/// `#[tokio::main]`, no actor can be started, and a consumer with such a handler is refused with
/// `InvalidOperation`. Use [`actors_on`] there.
///
/// # Panics
/// If the thread has an actix system, but the current runtime is not the system's.
#[must_use]
#[track_caller]
pub fn actors<D: Message<Result = Outcome> + Send + 'static>(
    factory: impl FnMut() -> Recipient<D> + 'static,
) -> Actors<D> {
    if Arbiter::try_current().is_none() {
        return Actors::new(Maker::Nobody).0;
    }
    let (handler, requests) = Actors::new(Maker::Arbiter);
    drop(tokio::task::spawn_local(make(factory, requests)));
    handler
}

/// As [`actors`], with actors that are started by `arbiter`; callable anywhere. The consumer ends
/// when the arbiter stops.
#[must_use]
pub fn actors_on<D: Message<Result = Outcome> + Send + 'static>(
    arbiter: &ArbiterHandle,
    factory: impl FnMut() -> Recipient<D> + Send + 'static,
) -> Actors<D> {
    let (handler, requests) = Actors::new(Maker::Arbiter);
    // If the arbiter has stopped, the handler counts as gone.
    arbiter.spawn(make(factory, requests));
    handler
}

/// Starts actors in this task until all pools are dropped.
async fn make<D: Message<Result = Outcome> + Send + 'static>(
    mut factory: impl FnMut() -> Recipient<D>,
    mut requests: mpsc::Receiver<ActorRequest<D>>,
) {
    while let Some(answer) = requests.recv().await {
        match std::panic::catch_unwind(AssertUnwindSafe(&mut factory)) {
            // The requester may have been dropped; the actor is then dropped too.
            Ok(actor) => drop(answer.send(actor)),
            Err(_) => tracing::warn!("the function that creates actors panicked"),
        }
    }
}

impl<D: Message<Result = Outcome> + Send + 'static> Actors<D> {
    fn new(kind: Maker) -> (Self, mpsc::Receiver<ActorRequest<D>>) {
        let (maker, requests) = mpsc::channel(1);
        let (idle, failed) = (Mutex::default(), AtomicU32::new(0));
        (Self { pool: Arc::new(Pool { maker, idle, failed }), kind }, requests)
    }
}

impl<D: Message<Result = Outcome> + Send + 'static> Pool<D> {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Recipient<D>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Recipient<D>> {
        self.idle().pop()
    }

    /// Returns an idle actor or a new one; `None` if no actor can be started.
    async fn actor(&self) -> Option<Recipient<D>> {
        while let Some(actor) = self.take_idle() {
            if actor.connected() {
                return Some(actor);
            }
        }
        let failed = self.failed.load(Ordering::Relaxed);
        if let Some(doublings) = failed.checked_sub(2) {
            let pause = PAUSE_MIN.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        }
        let (answer, made) = oneshot::channel();
        self.maker.send(answer).await.ok()?;
        made.await.ok()
    }

    async fn handle(&self, delivery: D) -> Outcome {
        let Some(actor) = self.actor().await else {
            self.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("there is no actor for a message; it is abandoned");
            return Err(Refusal::abandon().with_error("no actor could be started"));
        };
        let answer = actor.send(delivery).await;
        if answer.is_ok() {
            self.failed.store(0, Ordering::Relaxed);
            self.idle().push(actor);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome(answer)
    }
}

impl<D: Message<Result = Outcome> + Send + 'static> Handler<D> for Actors<D> {
    type Handling = Pin<Box<dyn Future<Output = Outcome> + Send>>;

    fn handle(&self, delivery: D) -> Self::Handling {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move { pool.handle(delivery).await })
    }

    fn check(&self) -> Result<(), Rejection> {
        match self.kind {
            Maker::Arbiter => Ok(()),
            Maker::Nobody => Err(Rejection::invalid_operation(
                "`actors` was called outside of an actix system, where no actor can start; use \
                 `actors_on` with an arbiter",
            )),
        }
    }

    fn is_gone(&self) -> bool {
        self.pool.maker.is_closed()
    }

    async fn wait_until_gone(&self) {
        self.pool.maker.closed().await;
    }
}

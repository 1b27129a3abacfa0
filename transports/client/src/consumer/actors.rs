//! Actors that are made as messages come, and anew when one is gone: what a panic takes with it is one message.

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

/// The pause before an actor is made when two in a row are gone that have answered nothing; twice as long with each more.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A handler of actors that it makes; see [`actors`].
pub struct Actors<D: Message<Result = Outcome> + Send + 'static> {
    pool: Arc<Pool<D>>,
    made: Made,
}

/// Who makes the actors of a handler.
#[derive(Clone, Copy)]
enum Made {
    /// An arbiter, that of a system or another.
    ByArbiter,
    /// Nobody can, where [`actors`] was called.
    ByNobody,
}

/// Who makes an actor is told where it is wanted.
type Wanted<D> = oneshot::Sender<Recipient<D>>;

struct Pool<D: Message<Result = Outcome> + Send + 'static> {
    maker: mpsc::Sender<Wanted<D>>,
    /// Those that have nothing to do.
    idle: Mutex<Vec<Recipient<D>>>,
    /// How many in a row are gone that have answered nothing.
    failed: AtomicU32,
}

/// Makes a handler of actors for [`Client::consume`](crate::Client::consume) and
/// [`Client::consume_sessions`](crate::Client::consume_sessions) that survives them. The function starts an actor; it is
/// called when a message comes for which there is none, so there are as many as messages at work at once, and each has
/// one message at a time. One that panics or stops itself costs that message an attempt and nothing else, and another
/// takes its place: at once, or if it happens again and again after a pause that grows from 100 ms to a second.
///
/// What the actors share is what the function captures. An actor that is to have several messages at once, or all of
/// them, is given as its recipient, under a supervisor or not; the consumer ends with it.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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
/// It is called in an actix system, such as that of `#[actix::main]`. Elsewhere, such as in `#[tokio::main]`, no actor can
/// be started: a consumer with such a handler is refused, with `InvalidOperation`. There it is [`actors_on`].
///
/// # Panics
/// On a thread that has an actix system, in a runtime that is not the system's.
#[must_use]
#[track_caller]
pub fn actors<D: Message<Result = Outcome> + Send + 'static>(
    factory: impl FnMut() -> Recipient<D> + 'static,
) -> Actors<D> {
    if Arbiter::try_current().is_none() {
        return Actors::new(Made::ByNobody).0;
    }
    let (handler, wanted) = Actors::new(Made::ByArbiter);
    drop(tokio::task::spawn_local(make(factory, wanted)));
    handler
}

/// As [`actors`], with actors that are started by an arbiter, from wherever this is called. When the arbiter is stopped the
/// consumer ends.
#[must_use]
pub fn actors_on<D: Message<Result = Outcome> + Send + 'static>(
    arbiter: &ArbiterHandle,
    factory: impl FnMut() -> Recipient<D> + Send + 'static,
) -> Actors<D> {
    let (handler, wanted) = Actors::new(Made::ByArbiter);
    // If it is stopped already, the handler is gone.
    arbiter.spawn(make(factory, wanted));
    handler
}

/// Makes actors, here where they can be, until nobody can want one.
async fn make<D: Message<Result = Outcome> + Send + 'static>(
    mut factory: impl FnMut() -> Recipient<D>,
    mut wanted: mpsc::Receiver<Wanted<D>>,
) {
    while let Some(answer) = wanted.recv().await {
        match std::panic::catch_unwind(AssertUnwindSafe(&mut factory)) {
            // Who wanted it may have been dropped; then so is the actor.
            Ok(actor) => drop(answer.send(actor)),
            Err(_) => tracing::warn!("the function that creates actors panicked"),
        }
    }
}

impl<D: Message<Result = Outcome> + Send + 'static> Actors<D> {
    fn new(made: Made) -> (Self, mpsc::Receiver<Wanted<D>>) {
        let (maker, wanted) = mpsc::channel(1);
        let (idle, failed) = (Mutex::default(), AtomicU32::new(0));
        (Self { pool: Arc::new(Pool { maker, idle, failed }), made }, wanted)
    }
}

impl<D: Message<Result = Outcome> + Send + 'static> Pool<D> {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Recipient<D>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Recipient<D>> {
        self.idle().pop()
    }

    /// One that has nothing to do, or another; none if none can be made.
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
            return Err(Refusal::abandon());
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
        match self.made {
            Made::ByArbiter => Ok(()),
            Made::ByNobody => Err(Rejection::invalid_operation(
                "`actors` was called outside of an actix system, where no actor can start; use \
                 `actors_on` with an arbiter",
            )),
        }
    }

    fn is_gone(&self) -> bool {
        self.pool.maker.is_closed()
    }

    async fn gone(&self) {
        self.pool.maker.closed().await;
    }
}

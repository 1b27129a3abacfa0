//! Limits that an operator has configured, and the independence of a broker from the runtime of its
//! user.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Message, Value};
use peeklock_core::store::memory::MemoryStore;
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, Records, Reserved, Shard, Store,
    StoreError, Submission, Waker,
};
use peeklock_core::time::TimeSpan;
use peeklock_core::{Broker, Entity};
use peeklock_store_testing::{Fate, FaultStore};

async fn broker(adjust: impl FnOnce(&mut Settings)) -> (Broker, Entity) {
    let mut settings = Settings::default();
    adjust(&mut settings);
    let broker = Broker::builder().settings(settings).arbiters(1).start().await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let queue = broker.entity("orders").unwrap();
    (broker, queue)
}

const fn receive(wait: TimeSpan) -> Command {
    crate::receive::under_lock(1, wait)
}

async fn locked(queue: &Entity) -> LockToken {
    let message = queue.broker().inbound(Message::new("a"));
    queue.call(Command::Send { message }).await.unwrap();
    let received = queue.call(receive(TimeSpan::ZERO)).await.unwrap();
    let Outcome::Received(messages) = received else { panic!("{received:?}") };
    messages[0].facts.lock.unwrap().token
}

/// Result of an abandon that sets properties of these sizes in bytes.
async fn abandon(queue: &Entity, token: LockToken, sizes: &[usize]) -> Result<(), Condition> {
    let properties: Vec<(String, Value)> = (0..)
        .zip(sizes)
        .map(|(number, size)| (format!("p{number}"), Value::String("x".repeat(*size))))
        .collect();
    let settlement = Settlement::abandon(&properties, None).unwrap();
    let done = queue.call(Command::Settle { token, settlement }).await;
    done.map(|_| ()).map_err(|error| error.condition())
}

/// QUO-02, MSG-26: properties that a settlement sets obey the configured limits, lower or higher
/// than the defaults. A refusal leaves the lock as it was (SET-10).
#[tokio::test]
async fn properties_to_set_are_bound_by_the_limits_configured() {
    let (strict, queue) = broker(|settings| settings.limits.property_bytes_max = 1_024).await;
    let token = locked(&queue).await;
    assert_eq!(abandon(&queue, token, &[1_100]).await, Err(Condition::MessageSizeExceeded));
    assert_eq!(abandon(&queue, token, &[900, 900]).await, Ok(()));
    strict.stop(Duration::ZERO).await.unwrap();
    let (generous, queue) = broker(|settings| {
        settings.limits.property_bytes_max = 100 << 10;
        settings.limits.header_bytes_max = 200 << 10;
    })
    .await;
    let token = locked(&queue).await;
    let most = 99 << 10;
    assert_eq!(abandon(&queue, token, &[101 << 10]).await, Err(Condition::MessageSizeExceeded));
    assert_eq!(abandon(&queue, token, &[most; 3]).await, Err(Condition::MessageSizeExceeded));
    assert_eq!(abandon(&queue, token, &[most, most]).await, Ok(()));
    generous.stop(Duration::ZERO).await.unwrap();
}

/// Polls a future once; `None` while it waits.
async fn look<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// DESIGN D6, QUO-02: at most `broker_inbound_count_max` commands are in progress at the same time.
/// The next one waits for an answer, also if it is for another queue, and management is not
/// affected.
#[tokio::test]
async fn a_broker_bounds_its_commands_in_progress() {
    let store = FaultStore::at_once(1, u64::MAX);
    let mut settings = Settings::default();
    settings.limits.broker_inbound_count_max = 2;
    let builder = Broker::builder().settings(settings).store(Arc::clone(&store) as _);
    let broker = builder.arbiters(1).start().await.unwrap();
    for name in ["orders", "other"] {
        broker.create_queue(name, QueueUpdate::default()).await.unwrap();
    }
    let (queue, other) = (broker.entity("orders").unwrap(), broker.entity("other").unwrap());
    // From here on a send stays in progress until the test completes its write.
    store.complete_at_once(false);
    let send = || Command::Send { message: broker.inbound(Message::new("a")) };
    let mut first = pin!(queue.call(send()));
    let mut second = pin!(queue.call(send()));
    let mut third = pin!(other.call(receive(TimeSpan::ZERO)));
    assert!(look(first.as_mut()).await.is_none());
    assert!(look(second.as_mut()).await.is_none());
    assert!(look(third.as_mut()).await.is_none());
    // The command has not reached its queue, which would have answered it by now.
    broker.describe_queue("other").await.unwrap();
    assert!(look(third.as_mut()).await.is_none());
    let mut more = pin!(other.call_many(vec![receive(TimeSpan::ZERO)]));
    assert!(look(more.as_mut()).await.is_none(), "a list waits too");
    let storing = async {
        loop {
            while store.complete_next(Shard(0), Fate::Store) {}
            tokio::task::yield_now().await;
        }
    };
    let answers = async { (first.await, second.await, third.await, more.await) };
    let (first, second, third, more) = tokio::select! {
        answers = answers => answers,
        () = storing => return,
    };
    assert!(matches!(first, Ok(Outcome::Accepted(_))));
    assert!(matches!(second, Ok(Outcome::Accepted(_))));
    assert!(matches!(third, Ok(Outcome::Received(messages)) if messages.is_empty()));
    assert!(matches!(&more[..], [Ok(Outcome::Received(messages))] if messages.is_empty()));
    store.complete_at_once(true);
    while store.complete_next(Shard(0), Fate::Store) {}
    broker.stop(Duration::ZERO).await.unwrap();
}

/// A store whose close waits for the test.
struct SlowToClose {
    inner: MemoryStore,
    is_closing: Sender<()>,
    may_close: Mutex<Receiver<()>>,
}

#[async_trait::async_trait]
impl Store for SlowToClose {
    fn name(&self) -> &'static str {
        "slow to close"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        self.inner.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.inner.acquire(shard).await
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.inner.reserve(shard, bytes, waker)
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        self.inner.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        self.inner.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.inner.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        self.inner.pin(keys, contents);
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        self.inner.scan(prefix)
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.inner.exists(keys).await
    }

    fn close(&self) -> Result<(), StoreError> {
        self.is_closing.send(()).unwrap();
        let may_close = self.may_close.lock().unwrap_or_else(PoisonError::into_inner);
        // The timeout is for a failing test, which would otherwise never end.
        let waited = may_close.recv_timeout(Duration::from_secs(20));
        waited.map_err(|_| StoreError::Failed("nobody else had a turn".into()))
    }
}

/// DESIGN D10: a store may wait for its medium when it closes. The runtime that stops the broker
/// goes on meanwhile.
#[tokio::test]
async fn a_slow_close_of_a_store_blocks_no_other_work() {
    let (is_closing, closing) = channel();
    let (may_close, waits) = channel();
    let inner = MemoryStore::new(1, u64::MAX);
    let store = SlowToClose { inner, is_closing, may_close: Mutex::new(waits) };
    let broker = Broker::builder().store(Arc::new(store)).arbiters(1).start().await.unwrap();
    let others = async {
        while closing.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        may_close.send(()).unwrap();
    };
    let (stopped, ()) = tokio::join!(broker.stop(Duration::ZERO), others);
    assert!(stopped.is_ok(), "{stopped:?}");
}

/// A broker can be started, used and stopped from any thread and any runtime, also without a
/// runtime.
#[test]
fn a_broker_needs_no_runtime_of_its_user() {
    let (broker, queue) = waited(broker(|_| {}));
    let message = broker.inbound(Message::new("a"));
    waited(queue.call(Command::Send { message })).unwrap();
    waited(broker.stop(Duration::ZERO)).unwrap();
}

/// Waits in this thread, without a runtime.
fn waited<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

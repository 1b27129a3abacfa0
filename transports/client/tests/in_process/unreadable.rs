//! Tests of content that the store cannot read, and of messages received together with it.

use std::sync::Arc;

use peeklock_client::{ConsumerOptions, Delivery, Received};
use peeklock_client_testing::TestBroker;
use peeklock_core::Broker;
use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::{ContentRef, StoredContent};
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, MemoryStore, Records, Reserved, Shard,
    Store, StoreError, Submission, Waker,
};
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::FaultStore;
use tokio::sync::mpsc;

use crate::local::Local;
use crate::log::Log;

/// Text of contents that cannot be read.
const BAD: &str = "a bad block";

/// A memory store with bad blocks.
struct Worn(MemoryStore);

struct BadBlock;

#[async_trait::async_trait]
impl StoredContent for BadBlock {
    fn length(&self) -> u64 {
        1
    }

    async fn load(&self) -> Result<bytes::Bytes, StoreError> {
        Err(StoreError::Failed("as asked".into()))
    }
}

#[async_trait::async_trait]
impl Store for Worn {
    fn name(&self) -> &'static str {
        "worn"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        self.0.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.0.acquire(shard).await
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.0.reserve(shard, bytes, waker)
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        self.0.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        self.0.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.0.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let before = contents.len();
        self.0.pin(keys, contents);
        for content in contents.iter_mut().skip(before).flatten() {
            let bytes = content.loaded().unwrap();
            if bytes.windows(BAD.len()).any(|part| part == BAD.as_bytes()) {
                *content = ContentRef::Stored(Arc::new(BadBlock));
            }
        }
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        self.0.scan(prefix)
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.0.exists(keys).await
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Returns a client with a queue of a bad block between two good ones; two deliveries are allowed.
async fn client() -> Local {
    let store = Arc::new(Worn(MemoryStore::new(1, u64::MAX)));
    let broker = Broker::builder().store(store).arbiters(1).start().await.unwrap();
    let client = Local::new(broker);
    let twice = QueueUpdate { max_delivery_count: Some(2), ..QueueUpdate::default() };
    client.admin().create_queue_with("orders", twice).await.unwrap();
    let sender = client.sender("orders").unwrap();
    for body in ["a", BAD, "c"] {
        sender.send(Message::new(body)).await.unwrap();
    }
    client
}

/// RCV-14: messages received with an unreadable one are released uncounted, and are immediately
/// available. The unreadable message has a failed delivery, and becomes a dead letter after the
/// maximum number of deliveries (SET-04).
#[tokio::test]
async fn messages_received_with_an_unreadable_one_are_released() {
    let client = client().await;
    let receiver = client.receiver("orders").unwrap();
    let unread = receiver.receive_many(3, TimeSpan::ZERO).await.unwrap_err();
    assert_eq!(unread.condition(), Condition::InternalError);
    let first = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!((first.body().as_ref(), first.delivery_count()), (&b"a"[..], 1));
    receiver.complete(&first).await.unwrap();
    assert!(receiver.receive(TimeSpan::ZERO).await.is_err());
    let last = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!((last.body().as_ref(), last.delivery_count()), (&b"c"[..], 1));
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (1, 1));
    client.stop().await;
}

/// RCV-04: messages removed on receive together with an unreadable one are returned, because they
/// no longer exist elsewhere.
#[tokio::test]
async fn messages_removed_with_an_unreadable_one_are_returned() {
    let client = client().await;
    let receiver = client.receiver_in("orders", ReceiveMode::ReceiveAndDelete).unwrap();
    let received = receiver.receive_many(3, TimeSpan::ZERO).await.unwrap();
    assert!(received.iter().map(Received::body).eq(["a", "c"]));
    client.stop().await;
}

/// A consumer abandons an unreadable message and continues.
#[tokio::test]
async fn a_consumer_goes_on_behind_an_unreadable_message() {
    let client = client().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        tell.send(delivery.body().clone()).unwrap();
        std::future::ready(Ok(()))
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "a");
    assert_eq!(told.recv().await.unwrap(), "c");
    consumer.stop().await;
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (0, 1));
    client.stop().await;
}

/// SET-38, RTY-05: in a dead-letter queue, which does not count deliveries, an unreadable message
/// is delayed.
#[tokio::test]
async fn an_unreadable_dead_letter_rests() {
    let store = Arc::new(Worn(MemoryStore::new(1, u64::MAX)));
    let test = TestBroker::start_with(Broker::builder().store(store)).await.unwrap();
    let client = test.client();
    client.admin().create_queue("orders").await.unwrap();
    client.sender("orders").unwrap().send(Message::new(BAD)).await.unwrap();
    let once = |_: Delivery| std::future::ready(Ok(()));
    let consumer = client.consume("orders", once, ConsumerOptions::default()).await.unwrap();
    test.idle().await;
    consumer.stop().await;
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.dead_letter, 1);

    let (log, _guard) = Log::begin();
    let abandoned = "a message is abandoned";
    let path = dead_letter_path("orders");
    let consumer = client.consume(&path, once, ConsumerOptions::default()).await.unwrap();
    test.idle().await;
    assert!(log.line(abandoned).contains("ERROR"));
    test.advance(TimeSpan::from_seconds(59)).await;
    assert!(log.line(abandoned).contains("ERROR"), "not at once");
    test.advance(TimeSpan::from_seconds(1)).await;
    assert_eq!(log.text().matches(abandoned).count(), 2);
    consumer.stop().await;
}

/// RCV-31: while the store cannot load contents, received messages are released uncounted, and the
/// receive, peek or consumer goes on later. A removed message is lost, so its error does not ask
/// for a repetition (ERR-06).
#[tokio::test]
async fn messages_are_released_while_their_contents_are_not_available() {
    let store = FaultStore::at_once(1, u64::MAX);
    let broker = Broker::builder().store(Arc::clone(&store) as Arc<dyn Store>).arbiters(1);
    let client = Local::new(broker.start().await.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    let sender = client.sender("orders").unwrap();
    for body in ["a", "b"] {
        sender.send(Message::new(body)).await.unwrap();
    }
    store.hold_reads();
    let reads = |are_available: [bool; 2]| {
        let store = &store;
        async move {
            for is_available in are_available {
                while store.held_read_count() == 0 {
                    tokio::task::yield_now().await;
                }
                assert!(if is_available { store.let_read(0) } else { store.refuse_read(0) });
            }
        }
    };
    let receiver = client.receiver("orders").unwrap();
    let receive = receiver.receive_many(2, TimeSpan::ZERO);
    let (received, ()) = tokio::join!(receive, reads([true, false]));
    assert_eq!(received.unwrap_err().condition(), Condition::ServerBusy);
    let (peeked, ()) = tokio::join!(receiver.peek(SequenceNumber(0), 2), reads([true, false]));
    assert_eq!(peeked.unwrap_err().condition(), Condition::ServerBusy);

    let (tell, mut told) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        tell.send((delivery.body().clone(), delivery.delivery_count())).unwrap();
        std::future::ready(Ok(()))
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap();
    reads([false, true]).await;
    assert_eq!(told.recv().await.unwrap(), ("a".into(), 1));
    reads([false, true]).await;
    assert_eq!(told.recv().await.unwrap(), ("b".into(), 1));
    consumer.stop().await;

    let receiver = client.receiver_in("orders", ReceiveMode::ReceiveAndDelete).unwrap();
    for body in ["c", "d"] {
        sender.send(Message::new(body)).await.unwrap();
    }
    let receive = receiver.receive_many(2, TimeSpan::ZERO);
    let (received, ()) = tokio::join!(receive, reads([false, false]));
    assert_eq!(received.unwrap_err().condition(), Condition::InternalError);
    client.stop().await;
}

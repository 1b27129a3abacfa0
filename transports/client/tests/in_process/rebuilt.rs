//! Tests of a consumer whose entity fails and is rebuilt from the store.

use std::sync::Arc;

use peeklock_client::{ConsumerOptions, Delivery};
use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::message::Message;
use peeklock_core::store::Shard;
use peeklock_store_testing::{Fate, FaultStore};
use tokio::sync::{Semaphore, mpsc};

use crate::local::Local;
use crate::log::Log;

const SHARD: Shard = Shard(0);

/// Sends a message whose storing fails, which ends the entity.
async fn fail(store: &FaultStore, client: &Local) {
    store.complete_at_once(false);
    let sender = client.sender("orders").unwrap();
    let failing = async {
        while !store.complete_next(SHARD, Fate::Fail) {
            tokio::task::yield_now().await;
        }
        store.complete_at_once(true);
        while store.complete_next(SHARD, Fate::Store) {}
    };
    let (sent, ()) = tokio::join!(sender.send(Message::new("lost")), failing);
    let error = sent.unwrap_err();
    assert_eq!((error.condition(), error.retryable()), (Condition::InternalError, true));
}

/// SET-31, SET-25: a link closed by its entity is attached again after a pause. Unsettled messages
/// are delivered again, uncounted. The settlement of a message with a handler comes too late, which
/// is logged.
#[tokio::test(start_paused = true)]
async fn a_consumer_goes_on_when_its_entity_is_rebuilt() {
    let store = FaultStore::at_once(1, u64::MAX);
    let broker = Broker::builder().store(Arc::clone(&store) as _).arbiters(1).start().await;
    let client = Local::new(broker.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    let (log, _guard) = Log::begin();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let handler = {
        let gate = Arc::clone(&gate);
        move |order: Delivery| {
            let body = String::from_utf8(order.body().to_vec()).unwrap();
            seen.send((body, order.delivery_count())).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    };
    let options = ConsumerOptions::at_once(2).without_renewal();
    let consumer = client.consume("orders", handler, options).await.unwrap();
    let sender = client.sender("orders").unwrap();
    sender.send(Message::new("a")).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(("a".to_owned(), 1)));

    fail(&store, &client).await;
    assert_eq!(arrivals.recv().await, Some(("a".to_owned(), 1)), "it is with two handlers");
    gate.add_permits(2);
    sender.send(Message::new("b")).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(("b".to_owned(), 1)));
    gate.add_permits(1);
    consumer.stop().await;
    assert!(consumer.ended().await.is_none(), "it was stopped");
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    let closed = log.line("a link was closed; it is attached again");
    assert!(closed.contains("WARN") && closed.contains("path=\"orders\""), "{closed}");
    let late = log.line("a settlement was refused");
    assert!(late.contains("MessageLockLost") && late.contains("sequence_number=1 "), "{late}");
    client.stop().await;
}

/// RCV-16: an entity that has failed too often is closed until the broker restarts, and a consumer
/// then ends instead of retrying forever.
#[tokio::test(start_paused = true)]
async fn a_consumer_ends_when_its_entity_is_closed_for_good() {
    let store = FaultStore::at_once(1, u64::MAX);
    let broker = Broker::builder().store(Arc::clone(&store) as _).arbiters(1).start().await;
    let client = Local::new(broker.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    let handler = |_: Delivery| std::future::ready(Ok(()));
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    for _ in 0..3 {
        // The entity exists again.
        client.admin().queue("orders").await.unwrap();
        fail(&store, &client).await;
    }
    let why = consumer.ended().await.unwrap();
    assert_eq!(why.condition(), Condition::OperationCancelled);
    assert!(why.detail().contains("restart the broker"), "{why}");
    client.stop().await;
}

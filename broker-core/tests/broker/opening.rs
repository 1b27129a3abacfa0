//! Trees that are opened from a store that takes its time: other entities are served meanwhile.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::store::Shard;
use peeklock_store_testing::{Fate, FaultStore};

/// A broker with one arbiter, two queues in different shards, and a topic in the shard of the
/// first one.
async fn start() -> (Broker, Arc<FaultStore>) {
    let store = FaultStore::at_once(2, u64::MAX);
    let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).arbiters(1);
    let broker = builder.count_internal_work().start().await.unwrap();
    for path in ["first", "second"] {
        broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    }
    broker.create_topic("topic", TopicUpdate::default()).await.unwrap();
    (broker, store)
}

fn shard_of(broker: &Broker, path: &str) -> Shard {
    Shard(u16::try_from(broker.entity(path).unwrap().id().0 % 2).unwrap())
}

async fn send(broker: Broker, path: &'static str) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(Message::new(path.to_owned()));
    broker.entity(path).unwrap().call(Command::Send { message }).await
}

async fn yield_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// DESIGN D3: while the shard of a failed tree is taken over again and its records are read, which
/// takes its time, the namespace and entities of the same arbiter answer. Requests for the tree
/// wait.
#[tokio::test]
async fn entities_answer_while_another_is_restored() {
    let (broker, store) = start().await;
    send(broker.clone(), "first").await.unwrap();
    let shard = shard_of(&broker, "first");
    store.complete_at_once(false);
    store.hold_answers();
    let lost = tokio::spawn(send(broker.clone(), "first"));
    yield_until(|| store.queued(shard) > 0).await;
    store.complete_next(shard, Fate::Fail);
    store.complete_at_once(true);
    let lost = lost.await.unwrap().unwrap_err();
    assert_eq!(lost.condition(), Condition::InternalError);
    yield_until(|| store.held_answer_count() > 0).await;
    let waiting = tokio::spawn(send(broker.clone(), "first"));
    let mut answers = 0;
    while !waiting.is_finished() {
        if store.held_answer_count() > 0 {
            send(broker.clone(), "second").await.unwrap();
            let refused = broker.create_queue("second", QueueUpdate::default()).await.unwrap_err();
            assert_eq!(refused.condition(), Condition::EntityAlreadyExists);
            answers += 1;
            store.let_answer();
        }
        tokio::task::yield_now().await;
    }
    waiting.await.unwrap().unwrap();
    assert!(answers >= 3, "the shard, the records, and their end");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// TOP-17: a subscription whose records are read slowly is taken into the tree of its topic, which
/// answers meanwhile.
#[tokio::test]
async fn topic_answers_while_a_subscription_is_opened() {
    let (broker, store) = start().await;
    store.hold_answers();
    let new = broker.clone();
    let created = tokio::spawn(async move {
        new.create_subscription("topic", "s", SubscriptionUpdate::default(), Vec::new()).await
    });
    yield_until(|| store.held_answer_count() > 0).await;
    send(broker.clone(), "topic").await.unwrap();
    assert!(!created.is_finished());
    while !created.is_finished() {
        store.let_answer();
        tokio::task::yield_now().await;
    }
    created.await.unwrap().unwrap();
    let counts = broker.describe_subscription("topic/Subscriptions/s").await.unwrap().counts;
    assert_eq!(counts.active, 1, "the message that was sent meanwhile");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-10, DESIGN D9: if a destination fails and the store cannot report whether it has the
/// message, the source is restored from its records. So the message is in one place.
#[tokio::test]
async fn source_is_restored_if_the_result_of_a_transfer_stays_unknown() {
    for landed in [true, false] {
        let (broker, store) = start().await;
        let (source, destination) = (shard_of(&broker, "first"), shard_of(&broker, "second"));
        assert_ne!(source, destination);
        let to = QueueUpdate { forward_to: Some("second".into()), ..QueueUpdate::default() };
        broker.update_queue("first", to, None).await.unwrap();
        store.complete_at_once(false);
        let sent = tokio::spawn(send(broker.clone(), "first"));
        yield_until(|| {
            store.complete_next(source, Fate::Store);
            sent.is_finished()
        })
        .await;
        sent.await.unwrap().unwrap();
        store.refuse_exists();
        for _ in 0..2 {
            yield_until(|| store.queued(destination) > 0).await;
            store.complete_next(destination, Fate::Unknown { landed, holds: false });
        }
        // This thread stays the only driver: the restored trees may submit at any time from now on.
        let waiting = broker.clone();
        let idle = tokio::spawn(async move { waiting.idle().await });
        yield_until(|| {
            while [source, destination].iter().any(|at| store.complete_next(*at, Fate::Store)) {}
            idle.is_finished()
        })
        .await;
        assert!(!store.is_refusing_exists());
        for (path, expected) in [("first", 0), ("second", 1)] {
            let counts = broker.describe_queue(path).await.unwrap().counts;
            assert_eq!(counts.active, expected, "{path}, landed: {landed}");
        }
        store.complete_at_once(true);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

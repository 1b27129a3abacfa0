//! What is told of the namespace as such, and the nodes that it and its entities have.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::change::codec::namespace_facts_key;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::limits::Tier;
use peeklock_core::path::SubQueue;
use peeklock_core::store::memory::MemoryStore;
use peeklock_core::store::{Batch, Shard, Store, Submission};
use peeklock_core::time::Timestamp;
use peeklock_core::{Broker, Namespace};

fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000 + seconds * 1_000)
}

async fn started(store: &Arc<MemoryStore>, settings: Settings, seconds: i64) -> Broker {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(instant(seconds)));
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    let builder = Broker::builder().settings(settings).clock(clock).store(store);
    builder.arbiters(1).start().await.unwrap()
}

async fn stop(broker: Broker) {
    broker.stop(Duration::ZERO).await.unwrap();
}

fn told(name: &str, tier: Tier, created: i64, modified: i64) -> Namespace {
    let (created_at, modified_at) = (instant(created), instant(modified));
    Namespace { name: name.into(), tier, created_at, modified_at }
}

fn named(name: &str, tier: Tier) -> Settings {
    Settings::new(name, tier)
}

/// CNT-10: name, tier, created and modified instants, over restarts; a start that changes name or tier modifies.
#[tokio::test]
async fn a_namespace_tells_when_it_was_created_and_modified() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, named("shop", Tier::Premium), 0).await;
    assert_eq!(*broker.namespace(), told("shop", Tier::Premium, 0, 0));
    stop(broker).await;
    // Nothing was ever in it: it is created now.
    let broker = started(&store, named("shop", Tier::Premium), 10).await;
    assert_eq!(*broker.namespace(), told("shop", Tier::Premium, 10, 10));
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    stop(broker).await;
    for (seconds, name, tier, modified) in [
        (20, "shop", Tier::Premium, 10),
        (30, "store", Tier::Premium, 30),
        (40, "store", Tier::Premium, 30),
        (50, "store", Tier::Standard, 50),
        (60, "store", Tier::Standard, 50),
    ] {
        let broker = started(&store, named(name, tier), seconds).await;
        assert_eq!(*broker.namespace(), told(name, tier, 10, modified), "at {seconds}");
        stop(broker).await;
    }
}

/// CNT-10: data of a version that did not note it is as old as its oldest entity, and stays so when that one is
/// deleted.
#[tokio::test]
async fn a_namespace_of_older_data_is_as_old_as_its_oldest_entity() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, Settings::default(), 0).await;
    broker.create_queue("old", QueueUpdate::default()).await.unwrap();
    stop(broker).await;
    let broker = started(&store, Settings::default(), 100).await;
    broker.create_topic("young", TopicUpdate::default()).await.unwrap();
    stop(broker).await;
    forget_facts(&store);
    let name = Settings::default().name;
    let broker = started(&store, Settings::default(), 200).await;
    assert_eq!(*broker.namespace(), told(&name, Tier::Premium, 0, 0));
    broker.delete_entity("old").await.unwrap();
    stop(broker).await;
    let broker = started(&store, Settings::default(), 300).await;
    assert_eq!(*broker.namespace(), told(&name, Tier::Premium, 0, 0));
    stop(broker).await;
}

/// As version 0.1 has left it.
fn forget_facts(store: &Arc<MemoryStore>) {
    let (fence, id) = store.acquire(Shard(0)).unwrap();
    let mut batch = Batch::default();
    batch.delete(&namespace_facts_key());
    batch.require_sync();
    let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
    store.submit(submission, Box::new(|result| result.unwrap()));
}

/// ADR-13: each entity and sub-queue has a management node.
#[tokio::test]
async fn each_entity_has_a_management_node() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, Settings::default(), 0).await;
    broker.create_queue("Orders", QueueUpdate::default()).await.unwrap();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let none = SubscriptionUpdate::default();
    broker.create_subscription("events", "audit", none, Vec::new()).await.unwrap();
    for (path, managed, sub_queue) in [
        ("orders/$Management", "Orders", SubQueue::Main),
        ("orders/$deadletterqueue/$management", "Orders/$deadletterqueue", SubQueue::DeadLetter),
        ("events/$management", "events", SubQueue::Main),
        ("events/subscriptions/audit/$management", "events/Subscriptions/audit", SubQueue::Main),
    ] {
        let entity = broker.managed_at(path).unwrap();
        assert_eq!((entity.path(), entity.sub_queue()), (managed, sub_queue), "{path}");
        // It is no entity itself.
        let error = broker.entity(path).err().unwrap();
        assert_eq!(error.condition(), Condition::EntityNotFound, "{path}");
    }
    for path in ["nowhere/$management", "events/$deadletterqueue/$management", "orders", "$cbs"] {
        let error = broker.managed_at(path).err().unwrap();
        assert_eq!(error.condition(), Condition::EntityNotFound, "{path}");
    }
    let error = broker.create_queue("orders/$management", QueueUpdate::default()).await;
    assert_eq!(error.unwrap_err().condition(), Condition::ArgumentError);
    stop(broker).await;
}

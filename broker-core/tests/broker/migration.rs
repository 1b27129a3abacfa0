//! Migration of a broker's data from one store to another.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::command::{Command, Outcome, ReceivedMessage, Settlement};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::Message;
use peeklock_core::migration::{Digest, Expected, Migration, MigrationError, Progress};
use peeklock_core::store::{Batch, Key, Shard, Store, Submission};
use peeklock_core::time::TimeSpan;
use peeklock_core::{Broker, Entity, StartError};
use peeklock_store_testing::SimulatedDisk;

use crate::disk::open;

const CONTENT_BYTES: usize = 50_000;

async fn start(disk: &SimulatedDisk) -> Result<Broker, StartError> {
    Broker::builder().arbiters(1).store(open(disk)).start().await
}

async fn send(broker: &Broker, path: &str, body: Vec<u8>) {
    let entity = broker.entity(path).unwrap();
    let message = broker.inbound(Message::new(body));
    entity.call(Command::Send { message }).await.unwrap();
}

async fn receive(entity: &Entity) -> Vec<ReceivedMessage> {
    let receive = crate::receive::under_lock(100, TimeSpan::ZERO);
    let Ok(Outcome::Received(messages)) = entity.call(receive).await else { panic!("refused") };
    messages
}

/// Number and length of each message of an entity.
async fn contents(broker: &Broker, path: &str) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    for message in receive(&broker.entity(path).unwrap()).await {
        let number = message.facts.sequence.0;
        found.push((number, message.content.load().await.unwrap().len()));
    }
    found
}

/// A queue of which a message is settled, and a topic whose subscriptions share large contents.
async fn fill(disk: &SimulatedDisk) {
    let broker = start(disk).await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    for number in 0..5 {
        send(&broker, "orders", vec![b'o'; 100 + number]).await;
    }
    let orders = broker.entity("orders").unwrap();
    let token = receive(&orders).await[0].facts.lock.unwrap().token;
    let settlement = Settlement::Complete;
    orders.call(Command::Settle { token, settlement }).await.unwrap();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    for name in ["a", "b"] {
        let properties = SubscriptionUpdate::default();
        broker.create_subscription("events", name, properties, Vec::new()).await.unwrap();
    }
    for number in 0..20 {
        send(&broker, "events", vec![number; CONTENT_BYTES]).await;
    }
    broker.create_queue("later", QueueUpdate::default()).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

async fn copy(
    (source, destination): (&SimulatedDisk, &SimulatedDisk),
    observe: &mut dyn FnMut(Progress) -> bool,
) -> Result<Expected, MigrationError> {
    let (source, destination) = (open(source), open(destination));
    let copied = match Migration::begin(&*source, &*destination, [7; 16], observe).await {
        Ok(migration) => migration.copy().await,
        Err(error) => Err(error),
    };
    source.close().unwrap();
    destination.close().unwrap();
    copied
}

/// Copies and compares, until the observer has been called this often.
async fn migrate(
    (source, destination): (&SimulatedDisk, &SimulatedDisk),
    calls_max: usize,
) -> Result<(Digest, usize), MigrationError> {
    let mut calls = 0;
    let mut observe = |_: Progress| {
        calls += 1;
        calls <= calls_max
    };
    let copied = copy((source, destination), &mut observe).await?;
    let (source, destination) = (open(source), open(destination));
    let compared = match copied.compare(&*destination, &mut observe).await {
        Ok(compared) => copied.finish(&*source, &*destination).await.map(|()| compared),
        Err(error) => Err(error),
    };
    source.close().unwrap();
    destination.close().unwrap();
    compared
}

async fn is_refused(disk: &SimulatedDisk) {
    let refused = start(disk).await.err().unwrap().to_string();
    assert!(refused.contains("has not finished; run `peeklock migrate` again"), "{refused}");
}

/// CLU-54, CLU-55: an interrupted migration continues when it is run again, also if the source has
/// changed meanwhile. No broker opens the destination before its end. Then it has the same entities
/// and messages, and the source still has them.
#[tokio::test]
async fn interrupted_migration_continues_until_both_stores_are_equal() {
    let (source, destination) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
    fill(&source).await;
    let mut interruptions = 0;
    let (sum, entities) = loop {
        match migrate((&source, &destination), interruptions).await {
            Ok(result) => break result,
            Err(MigrationError::Interrupted) => is_refused(&destination).await,
            Err(error) => panic!("{error}"),
        }
        interruptions += 1;
        if interruptions == 4 {
            let broker = start(&source).await.unwrap();
            send(&broker, "orders", vec![b'o'; 105]).await;
            broker.delete_entity("later").await.unwrap();
            broker.stop(Duration::ZERO).await.unwrap();
        }
    };
    assert!(interruptions > 8, "{interruptions}");
    assert_eq!(entities, 4);
    assert!(sum.bytes > 40 * CONTENT_BYTES as u64, "{sum}");
    for disk in [&destination, &source] {
        let broker = start(disk).await.unwrap();
        assert!(broker.entity("later").is_err());
        let found = contents(&broker, "orders").await;
        let numbers: Vec<u64> = found.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6]);
        assert!(found.iter().all(|(_, length)| *length > 100), "{found:?}");
        for name in ["events/subscriptions/a", "events/subscriptions/b"] {
            let found = contents(&broker, name).await;
            assert_eq!(found.len(), 20, "{name}");
            assert!(found.iter().all(|(_, length)| *length >= CONTENT_BYTES), "{found:?}");
        }
        broker.stop(Duration::ZERO).await.unwrap();
    }
    let again = migrate((&source, &destination), usize::MAX).await.unwrap_err();
    assert!(matches!(again, MigrationError::NotEmpty), "{again}");
    let empty = SimulatedDisk::new(3);
    let nothing = migrate((&empty, &SimulatedDisk::new(4)), usize::MAX).await.unwrap_err();
    assert!(matches!(nothing, MigrationError::Empty), "{nothing}");
}

/// CLU-13: contents that subscriptions share are stored once at the destination.
#[tokio::test]
async fn shared_contents_are_copied_once() {
    let (source, destination) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
    fill(&source).await;
    migrate((&source, &destination), usize::MAX).await.unwrap();
    let stored = open(&destination).stored_bytes().unwrap();
    assert!(stored < 30 * CONTENT_BYTES as u64, "{stored} bytes for 20 contents");
}

/// CLU-54: a difference is found and named, and no broker opens the destination.
#[tokio::test]
async fn difference_is_named_and_the_destination_is_not_used() {
    let (source, destination) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
    fill(&source).await;
    let copied = copy((&source, &destination), &mut |_| true).await.unwrap();
    let store = open(&destination);
    // The first queue has the first space.
    let mut batch = Batch::default();
    batch.put(&Key::of_space(1).then(&[0x30, 1]), |value| value.push(1));
    batch.require_sync();
    let shard = Shard(u16::try_from(1 % u64::from(store.shard_count())).unwrap());
    let (fence, id) = store.acquire(shard).await.unwrap();
    let (sender, stored) = tokio::sync::oneshot::channel();
    let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
    store.submit(submission, Box::new(move |outcome| sender.send(outcome).unwrap()));
    stored.await.unwrap().unwrap();
    let different = copied.compare(&*store, &mut |_| true).await.unwrap_err();
    let text = different.to_string();
    assert!(matches!(different, MigrationError::Different { .. }), "{text}");
    assert!(text.contains("differs from the source in `orders`"), "{text}");
    store.close().unwrap();
    drop(store);
    is_refused(&destination).await;
    // Run again, it is repaired.
    migrate((&source, &destination), usize::MAX).await.unwrap();
    start(&destination).await.unwrap().stop(Duration::ZERO).await.unwrap();
}

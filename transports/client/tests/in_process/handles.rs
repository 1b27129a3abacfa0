//! Tests of features that only the in-process transport has: dropped handles, cancelled futures,
//! and actors as receivers. The conformance suite tests the features of all transports.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use peeklock_client::{Client, ConsumerOptions, Delivery, Refusal, json_message};
use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::inspect::{ClientQuery, LinkRole};
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::FaultStore;
use tokio::sync::mpsc;

use crate::local::Local;

async fn client() -> (Arc<ManualClock>, Local) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let broker =
        Broker::builder().clock(Arc::clone(&clock) as _).arbiters(1).start().await.unwrap();
    let client = Local::new(broker);
    client.admin().create_queue("orders").await.unwrap();
    (clock, client)
}

/// Returns a client whose store stores nothing until released: sends stay in flight.
async fn held_client() -> (Arc<FaultStore>, Local) {
    let store = FaultStore::at_once(1, u64::MAX);
    let broker =
        Broker::builder().store(Arc::clone(&store) as _).arbiters(1).start().await.unwrap();
    let client = Local::new(broker);
    client.admin().create_queue("orders").await.unwrap();
    client.admin().create_queue("other").await.unwrap();
    store.complete_at_once(false);
    (store, client)
}

/// Releases the store; held operations are stored with the next one.
async fn let_go(store: &FaultStore, client: &Client) {
    store.complete_at_once(true);
    client.admin().create_queue("next").await.unwrap();
}

async fn stop(client: Local) {
    client.stop().await;
}

/// DLQ-14, DUP-02, TXN-08: a dead letter that is sent unchanged is dropped as its own duplicate.
/// Its copy is accepted in one transaction with it, and has the sender's properties without the
/// dead-letter properties.
#[tokio::test]
async fn a_dead_letter_goes_back_to_its_queue_as_a_copy() {
    let (_, client) = client().await;
    let once = QueueUpdate::new().with_duplicate_detection(TimeSpan::from_minutes(10));
    client.admin().create_queue_with("once", once).await.unwrap();
    let (orders, sender) = (client.receiver("once").unwrap(), client.sender("once").unwrap());
    let hour = TimeSpan::from_minutes(60);
    let order = Message::new("two coffees")
        .with_message_id("order-7")
        .with_time_to_live(hour)
        .with_application_property("table", "seven");
    sender.send(order).await.unwrap();
    let order = orders.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    orders.dead_letter(&order, Some("SoldOut"), Some("no cup is left"), &[]).await.unwrap();

    let letters = client.receiver(&dead_letter_path("once")).unwrap();
    let letter = letters.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(letter.dead_letter_reason(), Some("SoldOut"));
    assert!(sender.send(letter.clone().into_message()).await.unwrap().is_duplicate());
    let transaction = client.begin_transaction().await.unwrap();
    transaction.complete(&letters, &letter).await.unwrap();
    transaction.send(&sender, letter.to_resubmit()).await.unwrap();
    transaction.commit().await.unwrap();

    let again = orders.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!((&again.body()[..], again.own_time_to_live()), (&b"two coffees"[..], Some(hour)));
    assert_ne!(again.message().message_id, letter.message().message_id);
    assert_eq!(again.message().application_properties, order.message().application_properties);
    let counts = client.admin().queue("once").await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (1, 0));
    stop(client).await;
}

/// SET-23: dropping a receiver handle releases its locks, counted as failed deliveries (SET-31).
#[tokio::test]
async fn dropping_a_receiver_releases_its_locks_and_counts() {
    let (_, client) = client().await;
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let first = client.receiver("orders").unwrap();
    let held = first.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(held.delivery_count(), 1);
    drop(first);
    let second = client.receiver("orders").unwrap();
    let again = second.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(again.delivery_count(), 2);
    let lost = second.complete(&held).await.unwrap_err();
    assert_eq!(lost.condition().name(), "MessageLockLost");
    second.complete(&again).await.unwrap();
    stop(client).await;
}

/// SET-21, SET-24: closing a receiver keeps its locks, and any other handle may settle by token.
#[tokio::test]
async fn closing_a_receiver_keeps_its_locks() {
    let (_, client) = client().await;
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let first = client.receiver("orders").unwrap();
    let held = first.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    first.close().await.unwrap();
    let second = client.receiver("orders").unwrap();
    assert!(second.receive(TimeSpan::ZERO).await.unwrap().is_none());
    second.complete(&held).await.unwrap();
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    stop(client).await;
}

/// RCV-14: a receive whose future is dropped while it waits takes no lock.
#[tokio::test]
async fn a_cancelled_receive_takes_nothing() {
    let (_, client) = client().await;
    let receiver = client.receiver("orders").unwrap();
    {
        let waiting = receiver.receive(TimeSpan::from_seconds(60));
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
    }
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let received = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(received.delivery_count(), 1);
    stop(client).await;
}

/// RCV-14: a message that was locked for a receive which is no longer polled is released uncounted.
#[tokio::test]
async fn a_message_locked_for_a_dropped_receive_comes_back_uncounted() {
    let (_, client) = client().await;
    let receiver = client.receiver("orders").unwrap();
    let mut waiting = Box::pin(receiver.receive(TimeSpan::from_seconds(60)));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    // The waiting receive gets the message; its answer arrives around the acknowledgement of the
    // send, and is dropped without being polled.
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let peeked = receiver.peek_next(10).await.unwrap();
    assert_eq!(peeked.len(), 1);
    drop(waiting);
    let received = receiver.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
    assert_eq!(received.delivery_count(), 1);
    stop(client).await;
}

/// SND-13, SND-14: a limit of ten admits exactly ten sends, counted from the call of send. The
/// eleventh waits until one completes, and there is no queue that would send it earlier.
#[tokio::test]
async fn the_bound_on_sends_in_flight_holds() {
    let (store, client) = held_client().await;
    let sender = client.sender("orders").unwrap().with_in_flight_max(10);
    let mut sends: Vec<_> = (0..25).map(|_| Box::pin(sender.send(Message::new("a")))).collect();
    for send in &mut sends {
        assert!(futures_util::poll!(send).is_pending());
    }
    let_go(&store, &client).await;
    let mut numbers = Vec::new();
    let mut rest = sends.split_off(10);
    for send in sends {
        numbers.push(send.await.unwrap().0);
    }
    // Ten sends were in flight. The others get their places only when they are polled again.
    assert_eq!(numbers, (1..=10).collect::<Vec<u64>>());
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.active, 10);
    for send in rest.drain(..) {
        numbers.push(send.await.unwrap().0);
    }
    assert_eq!(numbers, (1..=25).collect::<Vec<u64>>());
    // A list larger than the limit takes all places and is sent by itself.
    let many = sender.send_many((0..50).map(|_| Message::new("a")).collect()).await;
    assert!(many.iter().all(Result::is_ok));
    stop(client).await;
}

/// Two brokers live in one process, each with its own entities.
#[tokio::test]
async fn two_brokers_live_in_one_process() {
    let (_, one) = client().await;
    let (_, other) = client().await;
    one.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    assert_eq!(one.admin().queue("orders").await.unwrap().counts.active, 1);
    assert_eq!(other.admin().queue("orders").await.unwrap().counts.active, 0);
    stop(one).await;
    other.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    stop(other).await;
}

/// ENT-15, ADR-14: a handle of a deleted queue reports that the entity is gone, also while it
/// waits, and also after its path was created again.
#[tokio::test]
async fn deleting_a_queue_fails_waiting_receives() {
    let (_, client) = client().await;
    let receiver = client.receiver("orders").unwrap();
    let mut waiting = Box::pin(receiver.receive(TimeSpan::from_seconds(60)));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    client.admin().delete_queue("Orders").await.unwrap();
    assert_eq!(waiting.await.unwrap_err().condition().name(), "EntityNotFound");
    client.admin().create_queue("orders").await.unwrap();
    let gone = receiver.receive(TimeSpan::ZERO).await.unwrap_err();
    assert_eq!(gone.condition().name(), "EntityNotFound");
    assert!(client.receiver("orders").unwrap().receive(TimeSpan::ZERO).await.unwrap().is_none());
    stop(client).await;
}

/// Typed bodies: a value survives the round trip.
#[tokio::test]
async fn bodies_are_typed_by_serde() {
    let (_, client) = client().await;
    let order = vec![("coffee".to_owned(), 2u32)];
    client.sender("orders").unwrap().send(json_message(&order).unwrap()).await.unwrap();
    let receiver = client.receiver("orders").unwrap();
    let received = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(received.message().content_type.as_deref(), Some("application/json"));
    assert_eq!(received.json::<Vec<(String, u32)>>().unwrap(), order);
    assert!(received.json::<u32>().unwrap_err().to_string().contains("message 1"));
    stop(client).await;
}

/// The test actor; the body of a message determines its action.
struct Worker {
    seen: mpsc::UnboundedSender<(String, u32)>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Handler<Delivery> for Worker {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, delivery: Delivery, _: &mut Self::Context) -> Self::Result {
        let body = String::from_utf8_lossy(delivery.message.body()).into_owned();
        self.seen.send((body.clone(), delivery.message.delivery_count())).unwrap();
        match (body.as_str(), delivery.message.delivery_count()) {
            ("abandon", 1) => Err(Refusal::Abandon { properties: Vec::new() }),
            ("defer", _) => Err(Refusal::Defer),
            ("dead-letter", _) => Err(Refusal::DeadLetter {
                reason: "Bad".to_owned(),
                description: "as asked".to_owned(),
            }),
            ("panic", 1) => panic!("as asked"),
            _ => Ok(()),
        }
    }
}

/// SET-01, SET-03, SET-05, DEF-01: an actor's outcome settles its message: `Ok` completes, a
/// refusal selects another settlement.
#[actix::test]
async fn the_outcome_of_an_actors_handler_settles() {
    let (_, client) = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let worker = Worker { seen }.start();
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", worker.recipient(), options).await.unwrap();
    let sender = client.sender("orders").unwrap();
    for body in ["complete", "abandon", "defer", "dead-letter", "last"] {
        sender.send(Message::new(body)).await.unwrap();
    }
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "last") {
        order.push(arrivals.recv().await.unwrap());
    }
    let expected = [
        ("complete", 1),
        ("abandon", 1),
        ("abandon", 2),
        ("defer", 1),
        ("dead-letter", 1),
        ("last", 1),
    ];
    assert!(order.iter().map(|(body, count)| (body.as_str(), *count)).eq(expected));
    consumer.stop().await;
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.deferred, counts.dead_letter), (0, 1, 1));
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    let letter = dead.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(letter.dead_letter_reason(), Some("Bad"));
    stop(client).await;
}

/// A handler that panics abandons its message: nothing is lost, and the next consumer gets it. The
/// consumer ends and reports the reason, because it has no handler any more.
#[actix::test]
async fn a_panicking_actor_abandons_its_message() {
    let (_, client) = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    client.sender("orders").unwrap().send(Message::new("panic")).await.unwrap();
    let worker = Worker { seen: seen.clone() }.start();
    let options = ConsumerOptions::default();
    let consumer = client.consume("orders", worker.recipient(), options).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap().1, 1);
    let why = consumer.ended().await.unwrap();
    assert_eq!(why.condition(), Condition::OperationCancelled);
    assert!(why.detail().contains("actor"), "{why}");
    let next = Worker { seen }.start();
    let consumer = client.consume("orders", next.recipient(), options).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap(), ("panic".to_owned(), 2));
    consumer.stop().await;
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    stop(client).await;
}

/// ENT-24: a consumer ends with the reason when its queue is disabled for receiving.
#[actix::test]
async fn a_consumer_ends_when_the_queue_is_disabled() {
    let (_, client) = client().await;
    let (seen, _arrivals) = mpsc::unbounded_channel();
    let worker = Worker { seen }.start();
    let options = ConsumerOptions::default();
    let consumer = client.consume("orders", worker.recipient(), options).await.unwrap();
    let status = peeklock_core::description::EntityStatus::ReceiveDisabled;
    let update = QueueUpdate { status: Some(status), ..QueueUpdate::default() };
    client.admin().update_queue("orders", update).await.unwrap();
    assert_eq!(consumer.ended().await.unwrap().condition().name(), "EntityDisabled");
    stop(client).await;
}

/// SND-07: several sends of a sender are in flight at a time; each has its own result.
#[tokio::test]
async fn sends_are_pipelined_and_settled_one_by_one() {
    let (store, client) = held_client().await;
    let orders = client.sender("orders").unwrap();
    let too_long = "x".repeat(client.broker.settings().limits.message_id_chars_max + 1);
    let mut first = Box::pin(orders.send(Message::new("a")));
    let mut second = Box::pin(orders.send(Message::new("b").with_message_id(too_long)));
    let mut third = Box::pin(orders.send(Message::new("c")));
    for send in [&mut first, &mut second, &mut third] {
        assert!(futures_util::poll!(send).is_pending());
    }
    let_go(&store, &client).await;
    assert_eq!(third.await.unwrap().0, 2);
    assert_eq!(second.await.unwrap_err().condition().name(), "ArgumentOutOfRange");
    assert_eq!(first.await.unwrap().0, 1);
    stop(client).await;
}

/// RCV-19, RCV-20: a prefetched message is locked from the time it was received, and counts as a
/// failed delivery when its lock expires.
#[actix::test]
async fn a_message_taken_ahead_is_locked_and_counts_when_its_lock_ends() {
    struct Stuck(mpsc::UnboundedSender<u32>);
    impl Actor for Stuck {
        type Context = Context<Self>;
    }
    impl Handler<Delivery> for Stuck {
        type Result = actix::ResponseFuture<Result<(), Refusal>>;

        fn handle(&mut self, delivery: Delivery, _: &mut Self::Context) -> Self::Result {
            self.0.send(delivery.message.delivery_count()).unwrap();
            Box::pin(std::future::pending())
        }
    }
    let (clock, client) = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let stuck = Stuck(seen).start();
    let options = ConsumerOptions::at_once(2);
    let consumer = client.consume("orders", stuck.recipient(), options).await.unwrap();
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(1));
    let other = client.receiver("orders").unwrap();
    assert!(other.receive(TimeSpan::ZERO).await.unwrap().is_none(), "it is locked");
    clock.advance(TimeSpan::from_seconds(61));
    assert_eq!(arrivals.recv().await, Some(2), "its credit allows one more");
    drop(consumer);
    stop(client).await;
}

/// The absence of a queue is a result; only an invalid path is an error.
#[tokio::test]
async fn a_queue_exists_or_not() {
    let (_, client) = client().await;
    let admin = client.admin();
    assert!(admin.queue_exists("Orders").await.unwrap(), "paths have no case (ADR-06)");
    assert!(!admin.queue_exists("others").await.unwrap());
    let refused = admin.queue_exists(&dead_letter_path("orders")).await;
    assert!(refused.is_err(), "a sub-queue is no queue (DLQ-02)");
    stop(client).await;
}

/// A stop waits for a handler's message as long as its lock lasts, instead of the whole grace
/// period.
#[tokio::test]
async fn a_stop_returns_when_nothing_is_held() {
    let (_, client) = client().await;
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let handler = {
        let gate = Arc::clone(&gate);
        move |_: Delivery| {
            seen.send(()).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    };
    let _consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    arrivals.recv().await.unwrap();
    let broker = client.broker.clone();
    let mut stopping = std::pin::pin!(broker.stop(std::time::Duration::from_secs(3_600)));
    assert!(futures_util::poll!(&mut stopping).is_pending());
    broker.idle().await;
    assert!(futures_util::poll!(&mut stopping).is_pending());
    gate.add_permits(1);
    stopping.await.unwrap();
}

/// CON-24: a client in the broker's process is listed with its links.
#[tokio::test]
async fn client_is_listed_with_its_links() {
    let (_, client) = client().await;
    let sender = client.sender("orders").unwrap();
    let query = ClientQuery { count_max: 10, ..ClientQuery::default() };
    let page = client.broker.clients(&query).await;
    let [listed] = &page.clients[..] else { panic!("{page:?}") };
    assert_eq!((&*listed.transport, listed.peer), ("in-process", None));
    let [link] = &listed.links[..] else { panic!("{listed:?}") };
    assert_eq!((&*link.path, link.role), ("orders", LinkRole::Sender));
    drop(sender);
    assert!(client.broker.clients(&query).await.clients[0].links.is_empty());
    stop(client).await;
}

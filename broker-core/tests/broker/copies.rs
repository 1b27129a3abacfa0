//! The number of copies of one message is bounded over all its hops: through topics that forward to
//! topics, over restarts, and from broker to broker.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::command::{Command, Outcome, PeerArrival, ReceivedMessage, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::machine::peers::PeerSource;
use peeklock_core::message::{Message, MessageId, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::store::Store;
use peeklock_core::store::memory::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};

/// Limit of copies of one message over all its hops in these tests.
const MAX: u16 = 20;

async fn start(store: &Arc<MemoryStore>) -> Broker {
    let mut settings = Settings::default();
    settings.limits.message_copy_count_max = MAX;
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Broker::builder().settings(settings).store(store).arbiters(1).start().await.unwrap()
}

async fn stop(broker: Broker) {
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Creates a topic with this number of subscriptions, from `s0` on.
async fn topic(broker: &Broker, name: &str, subscriptions: usize) {
    broker.create_topic(name, TopicUpdate::default()).await.unwrap();
    for number in 0..subscriptions {
        let none = SubscriptionUpdate::default();
        let subscription = format!("s{number}");
        broker.create_subscription(name, &subscription, none, Vec::new()).await.unwrap();
    }
}

async fn forward(broker: &Broker, from: &str, to: &str) {
    let update = SubscriptionUpdate { forward_to: Some(to.into()), ..Default::default() };
    broker.update_subscription(from, update, None).await.unwrap();
}

async fn send(broker: &Broker, to: &str) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(Message::new("a"));
    broker.entity(to).unwrap().call(Command::Send { message }).await
}

/// Receives the first `count` messages of an entity.
async fn received(broker: &Broker, path: &str, count: usize) -> Vec<ReceivedMessage> {
    let entity: Entity = broker.entity(path).unwrap();
    let mut all = Vec::new();
    while all.len() < count {
        let command = crate::receive::under_lock(1, TimeSpan::from_minutes(1));
        let Outcome::Received(messages) = entity.call(command).await.unwrap() else { panic!() };
        assert_eq!(messages.len(), 1, "{path}: {} of {count}", all.len());
        all.extend(messages);
    }
    all
}

async fn property(message: &ReceivedMessage, name: &str) -> String {
    let loaded = message.load().await.unwrap();
    let message = loaded.message;
    match message.application_property(name) {
        Some(Value::String(text)) => text.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn dead(path: &str) -> String {
    format!("{path}/$Transfer/$deadletterqueue")
}

/// FWD-33: a circle of topics ends when a message would exceed its number of copies. The message
/// that would exceed it stays with its reason in its source.
#[tokio::test]
async fn a_circle_of_topics_ends_at_the_limit() {
    let broker = start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
    topic(&broker, "t1", 3).await;
    topic(&broker, "t2", 3).await;
    for (from, to) in [("t1", "t2"), ("t2", "t1")] {
        for number in 0..3 {
            forward(&broker, &format!("{from}/Subscriptions/s{number}"), to).await;
        }
    }
    // 3 copies leave 17, that is 5 for each. Each becomes 3 at the other topic, which leaves none.
    send(&broker, "t1").await.unwrap();
    for number in 0..3 {
        let path = dead(&format!("t2/Subscriptions/s{number}"));
        for message in received(&broker, &path, 3).await {
            let reason = property(&message, "DeadLetterReason").await;
            assert_eq!(reason, "MaxTransferCopiesExceeded");
            let description = property(&message, "DeadLetterErrorDescription").await;
            let expected = "would become 3 copies in the subscriptions, but only 0 of at most 20";
            assert!(description.contains(expected), "{description}");
        }
    }
    for number in 0..3 {
        let path = format!("t1/Subscriptions/s{number}");
        let counts = broker.describe_subscription(&path).await.unwrap().counts;
        assert_eq!(counts.total(), 0, "{path}");
    }
    stop(broker).await;
}

/// FWD-33, FWD-06: the count survives a restart, and continues if messages are forwarded only after
/// it.
#[tokio::test]
async fn the_copies_are_counted_over_a_restart() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = start(&store).await;
    topic(&broker, "t1", 3).await;
    topic(&broker, "t2", 3).await;
    topic(&broker, "t3", 3).await;
    send(&broker, "t1").await.unwrap();
    stop(broker).await;
    let broker = start(&store).await;
    // 5 are left for it: 3 at the next topic, then none.
    forward(&broker, "t1/Subscriptions/s1", "t2").await;
    received(&broker, "t2/Subscriptions/s2", 1).await;
    stop(broker).await;
    let broker = start(&store).await;
    forward(&broker, "t2/Subscriptions/s0", "t3").await;
    let path = dead("t2/Subscriptions/s0");
    let refused = received(&broker, &path, 1).await;
    assert_eq!(property(&refused[0], "DeadLetterReason").await, "MaxTransferCopiesExceeded");
    let counts = broker.describe_subscription("t3/Subscriptions/s0").await.unwrap().counts;
    assert_eq!(counts.total(), 0);
    stop(broker).await;
}

/// FWD-33: if only one of many copies is forwarded, it gets half of the remainder instead of an
/// equal share. A queue on the way makes no copies and uses none.
#[tokio::test]
async fn a_forwarded_copy_gets_half_of_the_remaining_copies() {
    let broker = start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    topic(&broker, "wide", 10).await;
    topic(&broker, "narrow", 5).await;
    let update = QueueUpdate { forward_to: Some("narrow".into()), ..Default::default() };
    broker.update_queue("q", update, None).await.unwrap();
    forward(&broker, "wide/Subscriptions/s4", "q").await;
    // An equal share of the remaining 10 would be 1.
    send(&broker, "wide").await.unwrap();
    for number in 0..5 {
        received(&broker, &format!("narrow/Subscriptions/s{number}"), 1).await;
    }
    stop(broker).await;
}

/// FWD-33: a client's message may become at most the maximum of copies. Otherwise the send is
/// refused and nothing is stored.
#[tokio::test]
async fn a_send_over_the_copy_limit_is_refused() {
    let broker = start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
    topic(&broker, "t", usize::from(MAX)).await;
    send(&broker, "t").await.unwrap();
    let none = SubscriptionUpdate::default();
    broker.create_subscription("t", "more", none, Vec::new()).await.unwrap();
    let error = send(&broker, "t").await.unwrap_err();
    assert_eq!(error.condition(), Condition::QuotaExceeded);
    assert!(error.detail().contains("21 copies"), "{error:?}");
    assert!(error.detail().contains("`message_copy_count_max`"), "{error:?}");
    let counts = broker.describe_subscription("t/Subscriptions/s0").await.unwrap().counts;
    assert_eq!(counts.active, 1);
    stop(broker).await;
}

/// FWD-33, FWD-28: a dead letter that would exceed the limit stays in its queue and can be
/// received.
#[tokio::test]
async fn a_dead_letter_over_the_copy_limit_stays() {
    let broker = start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
    topic(&broker, "t1", 10).await;
    topic(&broker, "t2", 3).await;
    send(&broker, "t1").await.unwrap();
    // One copy is left for each of the 10.
    let path = "t1/Subscriptions/s0";
    let token = received(&broker, path, 1).await[0].facts.lock.unwrap().token;
    let settlement = Settlement::DeadLetter { properties: None };
    let command = Command::Settle { token, settlement };
    broker.entity(path).unwrap().call(command).await.unwrap();
    let update = SubscriptionUpdate {
        forward_dead_lettered_messages_to: Some("t2".into()),
        ..Default::default()
    };
    broker.update_subscription(path, update, None).await.unwrap();
    // The topic refuses it. Afterwards receivers can get it.
    let entity = broker.entity(&format!("{path}/$deadletterqueue")).unwrap();
    loop {
        let command = crate::receive::under_lock(1, TimeSpan::ZERO);
        match entity.call(command).await {
            Ok(Outcome::Received(messages)) if messages.len() == 1 => break,
            // Not yet: dead letters are being forwarded and cannot be received meanwhile (FWD-27).
            Ok(_) | Err(_) => tokio::task::yield_now().await,
        }
    }
    let counts = broker.describe_subscription("t2/Subscriptions/s0").await.unwrap().counts;
    assert_eq!(counts.total(), 0);
    stop(broker).await;
}

/// FWD-33: a message from another broker carries its count. The topic refuses it with a condition
/// for which its source dead-letters it.
#[tokio::test]
async fn the_copies_are_counted_across_brokers() {
    let broker = start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
    topic(&broker, "t", 3).await;
    let arrival = |number: u64, copies_spent: u16| PeerArrival {
        message: broker.inbound(Message::new("a")),
        sequence: SequenceNumber(number),
        enqueued_at: Timestamp::from_unix_ms(1_800_000_000_000),
        enqueued_sequence: SequenceNumber(number),
        hops: 1,
        copies_spent,
        dead_letter_source: None,
    };
    let source = PeerSource { broker: 7, entity: EntityId(1), sub_queue: SubQueue::Main };
    let messages = vec![arrival(1, MAX - 3), arrival(2, MAX - 2), arrival(3, 0)];
    let command = Command::TransferFromPeer { source, messages };
    let entity = broker.entity("t").unwrap();
    let Outcome::TakenOver(results) = entity.call(command).await.unwrap() else { panic!() };
    assert_eq!(results.len(), 2, "the first that is refused ends the list");
    assert_eq!(results[0], Ok(()));
    let refused = results[1].as_ref().unwrap_err();
    assert_eq!(refused.condition(), Condition::MaxTransferCopiesExceeded);
    let counts = broker.describe_subscription("t/Subscriptions/s0").await.unwrap().counts;
    assert_eq!(counts.active, 1);
    stop(broker).await;
}

/// EXP-05, EXP-16: a time to live that an entity has lowered stays lowered when the message is
/// forwarded, to a queue and through a topic to a queue.
#[tokio::test]
async fn a_lowered_time_to_live_travels() {
    let broker = start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
    broker.create_queue("last", QueueUpdate::default()).await.unwrap();
    topic(&broker, "t", 1).await;
    forward(&broker, "t/Subscriptions/s0", "last").await;
    for (name, destination) in [("short", "last"), ("round", "t")] {
        let short = QueueUpdate {
            default_message_time_to_live: Some(TimeSpan::from_seconds(10)),
            forward_to: Some(destination.into()),
            ..QueueUpdate::default()
        };
        broker.create_queue(name, short).await.unwrap();
        for (own, left) in [(TimeSpan::from_minutes(60), 10), (TimeSpan::from_seconds(5), 5)] {
            let message = broker.inbound(Message::new("a").with_time_to_live(own));
            broker.entity(name).unwrap().call(Command::Send { message }).await.unwrap();
            let received = received(&broker, "last", 1).await;
            let left = Some(TimeSpan::from_seconds(left));
            assert_eq!(received[0].facts.time_to_live, left, "{name}, {own}");
        }
        // A message without a time to live has the default of its last queue (EXP-13).
        send(&broker, name).await.unwrap();
        assert_eq!(received(&broker, "last", 1).await[0].facts.time_to_live, Some(TimeSpan::MAX));
    }
    stop(broker).await;
}

/// MSG-07, DLQ-16, SET-11: limits of ids and reasons apply to clients. They apply neither to ids
/// that the broker assigns nor to its own reasons, wherever the message goes.
#[tokio::test]
async fn limits_do_not_apply_to_values_of_the_broker() {
    let mut settings = Settings::default();
    settings.limits.message_id_chars_max = 8;
    settings.limits.dead_letter_reason_chars_max = 5;
    settings.limits.dead_letter_description_chars_max = 5;
    let broker = Broker::builder().settings(settings).arbiters(1).start().await.unwrap();
    broker.create_queue("last", QueueUpdate::default()).await.unwrap();
    topic(&broker, "t", 1).await;
    forward(&broker, "t/Subscriptions/s0", "last").await;
    send(&broker, "t").await.unwrap();
    let arrived = received(&broker, "last", 1).await[0].load().await.unwrap().message;
    assert!(matches!(arrived.message_id, Some(MessageId::String(id)) if id.len() == 32));
    let long = broker.inbound(Message::new("a").with_message_id("123456789"));
    let refused = broker.entity("t").unwrap().call(Command::Send { message: long }).await;
    assert_eq!(refused.unwrap_err().condition(), Condition::ArgumentOutOfRange);
    broker.delete_entity("last").await.unwrap();
    send(&broker, "t").await.unwrap();
    let dead = received(&broker, &dead("t/Subscriptions/s0"), 1).await;
    let reason = property(&dead[0], "DeadLetterReason").await;
    assert!(reason.len() > 5, "{reason}");
    stop(broker).await;
}

//! Messages that another broker forwards: each is stored once, even if it is handed over again.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Outcome, PeerArrival, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityStatus, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::machine::peers::{PeerSource, REMEMBERED_MAX, SOURCES_MAX};
use peeklock_core::message::{Message, Overlay};
use peeklock_core::path::SubQueue;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::Timestamp;

fn source(broker: u128) -> PeerSource {
    PeerSource { broker, entity: EntityId(18), sub_queue: SubQueue::Main }
}

fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ms(seconds * 1_000)
}

async fn start(store: &Arc<MemoryStore>) -> Broker {
    Broker::builder().arbiters(1).store(Arc::clone(store) as Arc<_>).start().await.unwrap()
}

async fn with_queue(update: QueueUpdate) -> (Arc<MemoryStore>, Broker) {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = start(&store).await;
    broker.create_queue("q", update).await.unwrap();
    (store, broker)
}

fn arrival(broker: &Broker, number: u64, message: Message) -> PeerArrival {
    PeerArrival {
        message: broker.inbound(message),
        sequence: SequenceNumber(number),
        enqueued_at: instant(1),
        enqueued_sequence: SequenceNumber(number + 100),
        hops: 2,
        copies_spent: 0,
        dead_letter_source: None,
    }
}

fn numbered(broker: &Broker, numbers: impl IntoIterator<Item = u64>) -> Vec<PeerArrival> {
    numbers
        .into_iter()
        .map(|number| arrival(broker, number, Message::new(number.to_string())))
        .collect()
}

async fn hand_over(
    broker: &Broker,
    source: PeerSource,
    messages: Vec<PeerArrival>,
) -> Vec<Result<(), Rejection>> {
    let entity = broker.entity("q").unwrap();
    match entity.call(Command::TransferFromPeer { source, messages }).await.unwrap() {
        Outcome::TakenOver(results) => results,
        other => panic!("{other:?}"),
    }
}

async fn stored(broker: &Broker) -> Vec<ReceivedMessage> {
    let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
    match broker.entity("q").unwrap().call(command).await.unwrap() {
        Outcome::Peeked(messages) => messages,
        other => panic!("{other:?}"),
    }
}

/// Sequence numbers of the messages in their first entity.
async fn numbers(broker: &Broker) -> Vec<u64> {
    let messages = stored(broker).await;
    messages.iter().map(|message| message.facts.enqueued_sequence.0 - 100).collect()
}

/// FWD-09: each message gets a new number and keeps its first one, in order.
#[tokio::test]
async fn forwarded_messages_arrive_in_order() {
    let (_, broker) = with_queue(QueueUpdate::default()).await;
    let results = hand_over(&broker, source(1), numbered(&broker, [7, 9, 8])).await;
    assert_eq!(results, vec![Ok(()); 3]);
    let messages = stored(&broker).await;
    let facts: Vec<_> =
        messages.iter().map(|one| (one.facts.sequence.0, one.facts.enqueued_sequence.0)).collect();
    assert_eq!(facts, [(1, 107), (2, 109), (3, 108)]);
    assert!(messages.iter().all(|one| one.facts.delivery_count == 0));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// A transfer whose answer was lost is handed over again, also after a restart.
#[tokio::test]
async fn an_accepted_message_is_not_stored_again() {
    let (store, broker) = with_queue(QueueUpdate::default()).await;
    hand_over(&broker, source(1), numbered(&broker, [3, 1, 2])).await;
    let again = hand_over(&broker, source(1), numbered(&broker, [3, 1, 2, 4])).await;
    assert_eq!(again, vec![Ok(()); 4]);
    assert_eq!(numbers(&broker).await, [3, 1, 2, 4]);
    broker.stop(Duration::ZERO).await.unwrap();

    let broker = start(&store).await;
    let again = hand_over(&broker, source(1), numbered(&broker, [3, 1, 2, 4, 5])).await;
    assert_eq!(again, vec![Ok(()); 5]);
    assert_eq!(numbers(&broker).await, [3, 1, 2, 4, 5]);

    // Other brokers, entities and instants have independent numbers.
    hand_over(&broker, source(2), numbered(&broker, [3])).await;
    let other = PeerSource { entity: EntityId(19), ..source(1) };
    hand_over(&broker, other, numbered(&broker, [3])).await;
    let other = PeerSource { sub_queue: SubQueue::DeadLetter, ..source(1) };
    hand_over(&broker, other, numbered(&broker, [3])).await;
    let mut restored = numbered(&broker, [3]);
    restored[0].enqueued_at = instant(2);
    hand_over(&broker, source(1), restored).await;
    assert_eq!(numbers(&broker).await, [3, 1, 2, 4, 5, 3, 3, 3, 3]);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// A refused message may be handed over again, and is then judged again.
#[tokio::test]
async fn a_refused_message_is_not_remembered() {
    let (_, broker) = with_queue(QueueUpdate::default()).await;
    let disabled = |status| QueueUpdate { status: Some(status), ..QueueUpdate::default() };
    broker.update_queue("q", disabled(EntityStatus::SendDisabled), None).await.unwrap();
    let refused = hand_over(&broker, source(1), numbered(&broker, [1, 2])).await;
    let conditions: Vec<_> =
        refused.iter().map(|result| result.as_ref().unwrap_err().condition()).collect();
    assert_eq!(conditions, [Condition::EntityDisabled]);
    broker.update_queue("q", disabled(EntityStatus::Active), None).await.unwrap();
    assert_eq!(hand_over(&broker, source(1), numbered(&broker, [1, 2])).await, vec![Ok(()); 2]);
    assert_eq!(numbers(&broker).await, [1, 2]);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-12, FWD-13: a message that exceeds the hop limit of this broker is refused, regardless of
/// the limit of the other broker.
#[tokio::test]
async fn hops_are_counted_across_brokers() {
    let (_, broker) = with_queue(QueueUpdate::default()).await;
    let mut messages = numbered(&broker, [1, 2]);
    messages[0].hops = 4;
    messages[1].hops = 5;
    let results = hand_over(&broker, source(1), messages).await;
    assert_eq!(results[0], Ok(()));
    assert!(results[1].as_ref().unwrap_err().detail().contains("5 hops"), "{results:?}");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-10, FWD-22, FWD-23, SND-24: a duplicate is accepted, a message that is too large or has no
/// room is refused, and no later message of the same list is accepted.
#[tokio::test]
async fn a_destination_applies_its_own_rules() {
    let (_, broker) = with_queue(QueueUpdate {
        requires_duplicate_detection: Some(true),
        max_size_in_megabytes: Some(1),
        ..QueueUpdate::default()
    })
    .await;
    let one = |number: u64, id: &str, bytes: usize| {
        arrival(&broker, number, Message::new(vec![0; bytes]).with_message_id(id))
    };
    let mut messages = vec![
        one(1, "a", 10),
        one(2, "a", 10),
        one(3, "b", 2 << 20),
        one(4, "c", 900_000),
        one(5, "d", 900_000),
        one(6, "e", 10),
    ];
    for (taken, refusal) in
        [(2, Some(Condition::MessageSizeExceeded)), (1, Some(Condition::QuotaExceeded)), (1, None)]
    {
        let results = hand_over(&broker, source(1), messages.clone()).await;
        let conditions: Vec<_> =
            results.iter().map(|result| result.as_ref().err().map(Rejection::condition)).collect();
        let mut expected = vec![None; taken];
        expected.extend(refusal.map(Some));
        assert_eq!(conditions, expected);
        messages.drain(..results.len());
    }
    assert_eq!(numbers(&broker).await, [1, 4, 6]);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-10: a message that may be accepted later ends the list too.
#[tokio::test]
async fn a_temporary_refusal_ends_the_list() {
    let store = Arc::new(MemoryStore::new(1, 64 << 10));
    let broker = start(&store).await;
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    let large = arrival(&broker, 1, Message::new(vec![0; 128 << 10]));
    let messages = vec![large, arrival(&broker, 2, Message::new("small"))];
    let results = hand_over(&broker, source(1), messages).await;
    let conditions: Vec<_> =
        results.iter().map(|result| result.as_ref().unwrap_err().condition()).collect();
    assert_eq!(conditions, [Condition::ServerBusy]);
    assert!(stored(&broker).await.is_empty());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// The remembered numbers are bounded for each source and in total.
#[tokio::test]
async fn the_last_messages_of_the_last_sources_are_remembered() {
    let (store, broker) = with_queue(QueueUpdate::default()).await;
    let last = REMEMBERED_MAX + 10;
    for from in (1..=last).step_by(100) {
        let list = numbered(&broker, from..(from + 100).min(last + 1));
        hand_over(&broker, source(1), list).await;
    }
    let count = |broker: &Broker| {
        let broker = broker.clone();
        async move { broker.describe_queue("q").await.unwrap().counts.active }
    };
    assert_eq!(count(&broker).await, last);
    broker.stop(Duration::ZERO).await.unwrap();
    let broker = start(&store).await;
    hand_over(&broker, source(1), numbered(&broker, last - 255..=last)).await;
    assert_eq!(count(&broker).await, last, "the last lists are known");
    hand_over(&broker, source(1), numbered(&broker, [1])).await;
    assert_eq!(count(&broker).await, last + 1, "the first is not");

    for broker_id in 0..SOURCES_MAX as u128 {
        hand_over(&broker, source(1_000 + broker_id), numbered(&broker, [1])).await;
    }
    let before = count(&broker).await;
    hand_over(&broker, source(1_001), numbered(&broker, [1])).await;
    assert_eq!(count(&broker).await, before, "a source that was heard of late is known");
    hand_over(&broker, source(1), numbered(&broker, [last])).await;
    assert_eq!(count(&broker).await, before + 1, "the one that was silent longest is not");
    broker.stop(Duration::ZERO).await.unwrap();
    // Forgotten numbers are removed from the store, too.
    let broker = start(&store).await;
    hand_over(&broker, source(1_000), numbered(&broker, [1])).await;
    assert_eq!(count(&broker).await, before + 2);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DLQ-21, FWD-26: a queue that requires sessions refuses a message without a session id. The
/// dead-letter source is kept.
#[tokio::test]
async fn a_message_arrives_as_from_a_queue_of_the_same_broker() {
    let update = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    let (store, broker) = with_queue(update).await;
    let mut messages = vec![
        arrival(&broker, 1, Message::new("a").with_session_id("s")),
        arrival(&broker, 2, Message::new("b")),
    ];
    messages[0].dead_letter_source = Some("elsewhere".into());
    let results = hand_over(&broker, source(1), messages).await;
    assert_eq!(results[0], Ok(()));
    assert_eq!(results[1].as_ref().unwrap_err().condition(), Condition::SessionIdIsNull);
    broker.stop(Duration::ZERO).await.unwrap();
    let broker = start(&store).await;
    let counts = broker.describe_queue("q").await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (1, 0));
    let overlays = &stored(&broker).await[0].overlays;
    let map = overlays[0].load().await.unwrap();
    let overlay = Overlay::from_bytes(map);
    assert_eq!(Overlay::dead_letter_source_of([overlay].iter()), Some("elsewhere"));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-09, FWD-13, MSG-15: a topic publishes a message from another broker once. Its copies have
/// the hops and the first number of the message.
#[tokio::test]
async fn a_topic_publishes_a_forwarded_message_once() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = start(&store).await;
    broker.create_topic("q", TopicUpdate::default()).await.unwrap();
    for name in ["one", "two"] {
        let update = SubscriptionUpdate::default();
        broker.create_subscription("q", name, update, Vec::new()).await.unwrap();
    }
    let mut messages = numbered(&broker, [7, 5]);
    messages[1].dead_letter_source = Some("elsewhere".into());
    assert_eq!(hand_over(&broker, source(1), messages).await, vec![Ok(()); 2]);
    broker.stop(Duration::ZERO).await.unwrap();

    let broker = start(&store).await;
    let mut messages = numbered(&broker, [7, 5, 6, 8]);
    messages[2].hops = 5;
    let results = hand_over(&broker, source(1), messages).await;
    assert!(results[2].as_ref().unwrap_err().detail().contains("5 hops"), "{results:?}");
    assert_eq!(results.len(), 3);
    let rest = numbered(&broker, [8]);
    assert_eq!(hand_over(&broker, source(1), rest).await, vec![Ok(())]);
    for name in ["one", "two"] {
        let entity = broker.entity(&format!("q/Subscriptions/{name}")).unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(copies) = entity.call(command).await.unwrap() else { panic!() };
        let firsts: Vec<u64> =
            copies.iter().map(|copy| copy.facts.enqueued_sequence.0 - 100).collect();
        assert_eq!(firsts, [7, 5, 8], "{name}");
        let map = copies[1].overlays[0].load().await.unwrap();
        assert_eq!(
            Overlay::dead_letter_source_of([Overlay::from_bytes(map)].iter()),
            Some("elsewhere")
        );
        // A subscription itself accepts nothing.
        let messages = numbered(&broker, [9]);
        let command = Command::TransferFromPeer { source: source(1), messages };
        let error = entity.call(command).await.unwrap_err();
        assert_eq!(error.condition(), Condition::InvalidOperation);
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SQL-08, SQL-09, MSG-15, FWD-26: the rules of a topic see the first number and the dead-letter
/// source of a message from another broker.
#[tokio::test]
async fn rules_see_the_source_of_a_message_from_another_broker() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = start(&store).await;
    broker.create_topic("q", TopicUpdate::default()).await.unwrap();
    let text = "sys.EnqueuedSequenceNumber = 107 AND sys.DeadLetterSource = 'elsewhere'";
    let rule = RuleDescription::new("from", Filter::sql(text), instant(0));
    let properties = SubscriptionUpdate::default();
    broker.create_subscription("q", "one", properties, vec![rule]).await.unwrap();
    let mut messages = numbered(&broker, [7, 8, 7]);
    messages[0].dead_letter_source = Some("elsewhere".into());
    messages[1].dead_letter_source = Some("elsewhere".into());
    messages[2].enqueued_at = instant(2);
    assert_eq!(hand_over(&broker, source(1), messages).await, vec![Ok(()); 3]);
    let entity = broker.entity("q/Subscriptions/one").unwrap();
    let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
    let Outcome::Peeked(copies) = entity.call(command).await.unwrap() else { panic!() };
    let firsts: Vec<u64> = copies.iter().map(|copy| copy.facts.enqueued_sequence.0).collect();
    assert_eq!(firsts, [107]);
    broker.stop(Duration::ZERO).await.unwrap();
}

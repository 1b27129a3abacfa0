//! Memory limits over all entities of a broker: at a limit a command that would exceed it is
//! refused, for every entity, and removals make room.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/receive.rs"]
mod receive;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, PeerArrival, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Principal;
use peeklock_core::declaration::{Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic};
use peeklock_core::description::{
    Jitter, QueueUpdate, RetryKind, RetryPolicy, Settings, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{EntityId, LockToken, SequenceNumber};
use peeklock_core::limits::Limits;
use peeklock_core::machine::peers::PeerSource;
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts the warnings of all threads about the limit of delayed messages.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicU64>);

impl Warnings {
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Warnings {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "limit" && value == "broker_delayed_count_max" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

async fn broker(limits: impl FnOnce(&mut Limits)) -> Broker {
    let mut settings = Settings::default();
    limits(&mut settings.limits);
    let broker = Broker::builder().settings(settings).arbiters(1).start().await.unwrap();
    for name in ["one", "other"] {
        broker.create_queue(name, QueueUpdate::default()).await.unwrap();
    }
    broker
}

async fn send(broker: &Broker, to: &str, message: Message) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(message);
    broker.entity(to).unwrap().call(Command::Send { message }).await
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, BrokerError>, limit: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.condition(), Condition::QuotaExceeded);
    assert!(error.detail().contains(limit), "{error}");
}

#[tokio::test]
async fn scheduled_messages_of_all_entities_have_a_bound() {
    let broker = broker(|limits| limits.broker_delayed_count_max = 3).await;
    let later = || {
        let at = Timestamp::from_unix_ms(4_000_000_000_000);
        Message::new("x").with_scheduled_enqueue_time(at)
    };
    for to in ["one", "one", "other"] {
        send(&broker, to, later()).await.unwrap();
    }
    refused(send(&broker, "other", later()).await, "broker_delayed_count_max");
    send(&broker, "other", Message::new("now")).await.unwrap();
    let sequences = vec![SequenceNumber(1)];
    broker.entity("one").unwrap().call(Command::CancelScheduled { sequences }).await.unwrap();
    send(&broker, "other", later()).await.unwrap();
    broker.delete_entity("one").await.unwrap();
    send(&broker, "other", later()).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

async fn receive(broker: &Broker, from: &str, count_max: u32) -> Vec<(LockToken, u32)> {
    let command = receive::under_lock(count_max, TimeSpan::ZERO);
    let Outcome::Received(received) = broker.entity(from).unwrap().call(command).await.unwrap()
    else {
        panic!()
    };
    let facts = received.iter().map(|message| &message.facts);
    facts.map(|facts| (facts.lock.unwrap().token, facts.delivery_count)).collect()
}

/// DEF-11: one receive by sequence numbers returns at most the limit in bytes, but always one
/// message. A refused request locks and removes nothing.
#[tokio::test]
async fn a_receive_by_numbers_has_a_bound_in_bytes() {
    let broker = broker(|limits| limits.deferred_bytes_max = 2_000).await;
    let queue = broker.entity("one").unwrap();
    for _ in 0..3 {
        send(&broker, "one", Message::new("x".repeat(900))).await.unwrap();
    }
    send(&broker, "one", Message::new("x".repeat(3_000))).await.unwrap();
    for (token, _) in receive(&broker, "one", 4).await {
        let settlement = Settlement::Defer { properties: None };
        queue.call(Command::Settle { token, settlement }).await.unwrap();
    }
    let ask = async |mode, numbers: &[u64]| {
        let sequences = numbers.iter().map(|number| SequenceNumber(*number)).collect();
        queue.call(Command::ReceiveDeferred { mode, sequences, holder: None }).await
    };
    let (lock, delete) = (ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete);
    for mode in [lock, delete] {
        refused(ask(mode, &[1, 2, 3]).await, "`deferred_bytes_max`");
        refused(ask(mode, &[4, 1]).await, "`deferred_bytes_max`");
    }
    for (mode, numbers) in [(delete, &[1, 2][..]), (lock, &[4][..]), (lock, &[3][..])] {
        let Outcome::Received(received) = ask(mode, numbers).await.unwrap() else { panic!() };
        assert_eq!(received.len(), numbers.len());
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

/// RTY-32: at the limit an abandon that would delay its message is refused, by a policy or by its
/// own delay, and the lock stays. A delay of 0 is accepted. A failure that cannot be refused makes
/// its message available immediately and counted, with at most one warning per minute. With room
/// the policy applies again.
#[tokio::test]
async fn delayed_messages_of_all_entities_have_a_bound() {
    // No other test in this binary causes this warning.
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let mut settings = Settings::default();
    settings.limits.broker_delayed_count_max = 1;
    let builder = Broker::builder().settings(settings).arbiters(1);
    let broker = builder.clock(Arc::clone(&clock) as _).start().await.unwrap();
    let minute = TimeSpan::from_minutes(1);
    let policy = RetryPolicy {
        kind: RetryKind::Fixed,
        delay: minute,
        delay_max: None,
        jitter: Jitter::NONE,
    };
    let lock_duration = Some(TimeSpan::from_seconds(10));
    let update =
        QueueUpdate { retry_policy: Some(Some(policy)), lock_duration, ..QueueUpdate::default() };
    broker.create_queue("retried", update).await.unwrap();
    for text in ["a", "b", "c"] {
        send(&broker, "retried", Message::new(text)).await.unwrap();
    }
    let abandon = async |token, delay| {
        let settlement = Settlement::Abandon { properties: None, delay };
        broker.entity("retried").unwrap().call(Command::Settle { token, settlement }).await
    };
    let held = receive(&broker, "retried", 3).await;
    abandon(held[0].0, None).await.unwrap();
    for delay in [None, Some(minute)] {
        refused(abandon(held[1].0, delay).await, "broker_delayed_count_max");
    }
    abandon(held[1].0, Some(TimeSpan::ZERO)).await.unwrap();
    let again = receive(&broker, "retried", 3).await;
    assert_eq!(again.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1], "at once");
    // The locks of both time out, without a client to refuse.
    clock.advance(TimeSpan::from_seconds(10));
    let counts = broker.describe_queue("retried").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed), (3, 1));
    assert_eq!(warnings.count(), 1, "of both");
    let again = receive(&broker, "retried", 3).await;
    assert_eq!(again.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 1]);
    clock.advance(TimeSpan::from_seconds(10));
    let again = receive(&broker, "retried", 3).await;
    assert_eq!(again.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(warnings.count(), 1, "a minute is not over");
    // The first delayed message is due, so there is room.
    clock.advance(TimeSpan::from_seconds(40));
    let again = receive(&broker, "retried", 1).await;
    abandon(again[0].0, None).await.unwrap();
    let counts = broker.describe_queue("retried").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed), (3, 1));
    assert_eq!(receive(&broker, "retried", 3).await.len(), 2);
    clock.advance(TimeSpan::from_seconds(10));
    assert_eq!(receive(&broker, "retried", 3).await.len(), 2, "at once");
    assert_eq!(warnings.count(), 2, "a minute after the first");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// RTY-04: 10,000 messages that are due in the same second all become available within that second,
/// without a request.
#[tokio::test]
async fn ten_thousand_due_messages_are_available_within_their_second() {
    const COUNT: usize = 10_000;
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let builder = Broker::builder().arbiters(1);
    let broker = builder.clock(Arc::clone(&clock) as _).start().await.unwrap();
    broker.create_queue("retried", QueueUpdate::default()).await.unwrap();
    let queue = broker.entity("retried").unwrap();
    for _ in 0..COUNT / 100 {
        let messages = (0..100).map(|_| broker.inbound(Message::new("x"))).collect();
        queue.call(Command::SendBatch { messages }).await.unwrap();
    }
    let mut delays = (5_000..6_000).cycle().map(TimeSpan::from_ms);
    let mut delayed = 0;
    while delayed < COUNT {
        for (token, _) in receive(&broker, "retried", 1_000).await {
            let settlement = Settlement::Abandon { properties: None, delay: delays.next() };
            queue.call(Command::Settle { token, settlement }).await.unwrap();
            delayed += 1;
        }
    }
    clock.advance(TimeSpan::from_seconds(6));
    // The clock does not move meanwhile: this needs turns of the broker, but no time.
    let counts = loop {
        let counts = broker.describe_queue("retried").await.unwrap().counts;
        if counts.delayed == 0 {
            break counts;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(counts.active, COUNT as u64);
    let mut available = 0;
    while available < COUNT {
        let again = receive(&broker, "retried", 1_000).await;
        assert!(!again.is_empty(), "{available}");
        assert!(again.iter().all(|(_, count)| *count == 1));
        available += again.len();
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn sessions_of_all_entities_have_a_bound() {
    let broker = broker(|limits| limits.broker_session_count_max = 2).await;
    for name in ["s1", "s2"] {
        let update = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        broker.create_queue(name, update).await.unwrap();
    }
    let of = |session: &str| Message::new("x").with_session_id(session);
    send(&broker, "s1", of("a")).await.unwrap();
    send(&broker, "s2", of("a")).await.unwrap();
    refused(send(&broker, "s1", of("b")).await, "broker_session_count_max");
    send(&broker, "s1", of("a")).await.unwrap();
    let messages = vec![broker.inbound(of("a")), broker.inbound(of("c"))];
    let batch = broker.entity("s2").unwrap().call(Command::SendBatch { messages }).await;
    refused(batch, "broker_session_count_max");
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn message_ids_of_all_entities_have_a_bound() {
    let broker = broker(|limits| limits.broker_duplicate_id_count_max = 2).await;
    for name in ["d1", "d2"] {
        let update = QueueUpdate {
            requires_duplicate_detection: Some(true),
            duplicate_detection_history_time_window: Some(TimeSpan::from_minutes(10)),
            ..QueueUpdate::default()
        };
        broker.create_queue(name, update).await.unwrap();
    }
    let of = |id: &str| Message::new("x").with_message_id(id);
    send(&broker, "d1", of("a")).await.unwrap();
    send(&broker, "d2", of("a")).await.unwrap();
    refused(send(&broker, "d1", of("b")).await, "broker_duplicate_id_count_max");
    // A duplicate adds no id.
    send(&broker, "d1", of("a")).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn subscriptions_and_rules_of_all_topics_have_a_bound() {
    let broker = broker(|limits| {
        limits.broker_subscription_count_max = 2;
        limits.broker_rule_count_max = 3;
    })
    .await;
    for name in ["t1", "t2"] {
        broker.create_topic(name, TopicUpdate::default()).await.unwrap();
        let properties = SubscriptionUpdate::default();
        broker.create_subscription(name, "s", properties, vec![]).await.unwrap();
    }
    let properties = SubscriptionUpdate::default();
    let more = broker.create_subscription("t1", "more", properties, vec![]).await;
    refused(more, "broker_subscription_count_max");
    let rule = |name: &str| RuleDescription::new(name, Filter::True, Timestamp::NONE);
    broker.create_rule("t1/Subscriptions/s", rule("r")).await.unwrap();
    refused(broker.create_rule("t2/Subscriptions/s", rule("r")).await, "broker_rule_count_max");
    broker.delete_entity("t1").await.unwrap();
    broker.create_rule("t2/Subscriptions/s", rule("r")).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// QUO-08: deleted subscriptions make room, directly and with their topic, and a failed creation
/// uses none.
#[tokio::test]
async fn deleted_subscriptions_make_room() {
    let broker = broker(|limits| limits.broker_subscription_count_max = 2).await;
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let create = async |topic: &str, name: &str, filter: Filter| {
        let rules = vec![RuleDescription::new("r", filter, Timestamp::NONE)];
        broker.create_subscription(topic, name, SubscriptionUpdate::default(), rules).await
    };
    create("t", "stays", Filter::True).await.unwrap();
    for _ in 0..3 {
        let wrong = create("t", "s", Filter::sql("a =")).await.map(drop).unwrap_err();
        assert_eq!(wrong.condition(), Condition::ArgumentError);
        create("t", "s", Filter::True).await.unwrap();
        refused(create("t", "more", Filter::True).await, "broker_subscription_count_max");
        broker.delete_entity("t/Subscriptions/s").await.unwrap();
        broker.create_topic("t2", TopicUpdate::default()).await.unwrap();
        create("t2", "s", Filter::True).await.unwrap();
        refused(create("t", "more", Filter::True).await, "broker_subscription_count_max");
        broker.delete_entity("t2").await.unwrap();
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

/// QUO-08, TOP-10: a copy counts as a message. Received messages make room.
#[tokio::test]
async fn messages_of_all_entities_have_a_bound() {
    let broker = broker(|limits| limits.broker_message_count_max = 5).await;
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    for name in ["a", "b"] {
        broker.create_subscription("t", name, SubscriptionUpdate::default(), vec![]).await.unwrap();
    }
    let some = || Message::new("x");
    // A publisher is answered before the subscriptions take and count their copies. The answer of
    // a subscription shows that it has.
    let publish = async || {
        send(&broker, "t", some()).await.unwrap();
        for name in ["a", "b"] {
            broker.describe_subscription(&format!("t/Subscriptions/{name}")).await.unwrap();
        }
    };
    send(&broker, "one", some()).await.unwrap();
    publish().await;
    send(&broker, "other", some()).await.unwrap();
    // Four messages, so that the topic cannot make two copies.
    refused(send(&broker, "t", some()).await, "broker_message_count_max");
    let messages = vec![broker.inbound(some()), broker.inbound(some())];
    let batch = broker.entity("one").unwrap().call(Command::SendBatch { messages }).await;
    refused(batch, "broker_message_count_max");
    let destination = "other".into();
    let messages = vec![broker.inbound(some()), broker.inbound(some())];
    let via = Command::SendVia { destination, messages };
    refused(broker.entity("one").unwrap().call(via).await, "broker_message_count_max");
    send(&broker, "other", some()).await.unwrap();
    refused(send(&broker, "other", some()).await, "broker_message_count_max");
    let receive = Command::Receive {
        mode: ReceiveMode::ReceiveAndDelete,
        count_max: 2,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    broker.entity("other").unwrap().call(receive).await.unwrap();
    publish().await;
    refused(send(&broker, "one", some()).await, "broker_message_count_max");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// QUO-08: rules and descriptions together are bounded in bytes, regardless of their number.
#[tokio::test]
async fn rules_and_descriptions_of_all_entities_have_a_bound_in_bytes() {
    const LIMIT: &str = "broker_description_bytes_max";
    let broker = broker(|limits| limits.broker_description_bytes_max = 1 << 20).await;
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), vec![]).await.unwrap();
    let rule = |name: &str, bytes: usize| {
        let filter = CorrelationFilter::property("p", "x".repeat(bytes));
        RuleDescription::new(name, Filter::Correlation(filter), Timestamp::NONE)
    };
    broker.create_rule("t/Subscriptions/s", rule("small", 1)).await.unwrap();
    let mut count = 0;
    let refusal = loop {
        match broker.create_rule("t/Subscriptions/s", rule(&count.to_string(), 15 << 10)).await {
            Ok(_) => count += 1,
            Err(refusal) => break refusal,
        }
    };
    refused(Err::<(), _>(refusal), LIMIT);
    // Each rule is stored once.
    assert!((60..70).contains(&count), "{count} rules of 15 KiB in 1 MiB");
    // The remaining room is too small for a thousand characters of four bytes in any property.
    let filler = |number: usize| rule(&format!("filler{number}"), 1);
    let mut fillers = 0;
    while broker.create_rule("t/Subscriptions/s", filler(fillers)).await.is_ok() {
        fillers += 1;
    }
    let metadata = || Some("\u{1f600}".repeat(1_024).into());
    let queue = || QueueUpdate { user_metadata: metadata(), ..QueueUpdate::default() };
    let topic = || TopicUpdate { user_metadata: metadata(), ..TopicUpdate::default() };
    let subscription =
        || SubscriptionUpdate { user_metadata: metadata(), ..SubscriptionUpdate::default() };
    for round in 0..2 {
        let results = [
            broker.create_queue("q", queue()).await.map(|_| ()),
            broker.create_topic("u", topic()).await.map(|_| ()),
            broker.create_subscription("t", "u", subscription(), vec![]).await.map(|_| ()),
            broker.update_queue("one", queue(), None).await.map(|_| ()),
            broker.update_topic("t", topic(), None).await.map(|_| ()),
            broker.update_subscription("t/Subscriptions/s", subscription(), None).await.map(|_| ()),
            broker.update_rule("t/Subscriptions/s", rule("small", 10_000)).await.map(|_| ()),
        ];
        for (at, result) in results.into_iter().enumerate() {
            match round {
                0 => refused(result, LIMIT),
                _ => result.unwrap_or_else(|error| panic!("{at}: {error}")),
            }
        }
        // A shorter rule is accepted and makes room.
        for name in ["0", "1", "2", "3"] {
            broker.update_rule("t/Subscriptions/s", rule(name, 1)).await.unwrap();
        }
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-09, QUO-08: remembered numbers of messages from other brokers count with the ids of
/// duplicate detection, regardless of the number of sources and entities.
#[tokio::test]
async fn remembered_numbers_of_forwarded_messages_have_a_bound() {
    let broker = broker(|limits| limits.broker_duplicate_id_count_max = 3).await;
    let taken = async |to: &str, from: u128, numbers: &[u64]| {
        let entity = EntityId(1);
        let source = PeerSource { broker: from, entity, sub_queue: SubQueue::Main };
        let arrivals = numbers.iter().map(|number| PeerArrival {
            message: broker.inbound(Message::new("x")),
            sequence: SequenceNumber(*number),
            enqueued_at: Timestamp::from_unix_ms(1),
            enqueued_sequence: SequenceNumber(*number),
            hops: 1,
            copies_spent: 0,
            dead_letter_source: None,
        });
        let command = Command::TransferFromPeer { source, messages: arrivals.collect() };
        match broker.entity(to).unwrap().call(command).await.unwrap() {
            Outcome::TakenOver(mut results) => results.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    };
    taken("one", 1, &[1, 2]).await.unwrap();
    taken("other", 2, &[1]).await.unwrap();
    for (to, from) in [("one", 1), ("one", 3), ("other", 2)] {
        let refusal = taken(to, from, &[9]).await.unwrap_err();
        assert_eq!(refusal.condition(), Condition::QuotaExceeded);
        assert!(refusal.detail().contains("broker_duplicate_id_count_max"), "{refusal}");
    }
    // A remembered number uses no further room.
    taken("one", 1, &[2]).await.unwrap();
    broker.delete_entity("other").await.unwrap();
    taken("one", 3, &[9]).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// ENT-30, QUO-09: a request for all rules returns all of them, although a single command reads at
/// most a thousand.
#[tokio::test]
async fn all_rules_can_be_read() {
    let broker = broker(|_| {}).await;
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let rule = |number: usize| {
        RuleDescription::new(format!("r{number:04}"), Filter::False, Timestamp::NONE)
    };
    let rules = (0..2_500).map(rule).collect();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), rules).await.unwrap();
    for (skip, top, first, count) in [
        (0, usize::MAX, 0, 2_500),
        (100, 1_500, 100, 1_500),
        (1_500, 1_000, 1_500, 1_000),
        (0, 0, 0, 0),
    ] {
        let listed = broker.rules("t/Subscriptions/s", skip, top).await.unwrap();
        let names: Vec<_> = listed.iter().map(|rule| rule.name.to_string()).collect();
        let expected: Vec<_> = (first..first + count).map(|at| format!("r{at:04}")).collect();
        assert_eq!(names, expected, "{skip} {top}");
    }
    assert!(broker.rules("t/Subscriptions/none", 0, 0).await.is_err());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DEC-10, DESIGN D6: declarations that are carried out at the same time share a budget in bytes:
/// many small ones, or few that may report many rules. A caller without room is refused as busy,
/// and after planning a declaration keeps only the bytes that its plan needs.
#[tokio::test]
async fn declarations_in_progress_have_a_bound_in_bytes() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let builder = Broker::builder().clock(Arc::clone(&clock) as Arc<_>).arbiters(1);
    let broker = builder.start().await.unwrap();
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), vec![]).await.unwrap();
    let access = broker.access(Principal::default());
    let small = Declaration::new().with_queue(DeclaredQueue::new("a"));
    let subscription = DeclaredSubscription::new("s").with_rules([]);
    let topic = DeclaredTopic::new("t").with_subscription(subscription);
    let large = Declaration::new().with_topic(topic);
    let digest = access.plan(&large).await.unwrap().digest();
    let carry_out = |declaration: &Declaration| {
        let declaration = Box::new(declaration.clone());
        Management::CarryOut { declaration, digest, steps_max: Some(1) }
    };
    let mut held = Vec::new();
    for _ in 0..1_000 {
        held.push(access.turn_at("", carry_out(&small)).await.unwrap());
    }
    held.clear();
    for _ in 0..31 {
        held.push(access.turn_at("", carry_out(&large)).await.unwrap());
    }
    {
        let mut waiting = pin!(access.turn_at("", carry_out(&large)));
        let refused = loop {
            tokio::select! {
                biased;
                turn = waiting.as_mut() => break turn.unwrap_err(),
                () = tokio::task::yield_now() => clock.advance(TimeSpan::from_seconds(1)),
            }
        };
        assert_eq!(refused.condition(), Condition::ServerBusy);
        assert!(refused.detail().contains("536870912 bytes"), "{refused}");
    }
    // The default rule of the subscription is removed, which is the whole report.
    let (carried_out, _turn) = held.swap_remove(0).carry_out().await.unwrap();
    assert!(matches!(carried_out, Managed::CarriedOut(it) if it.done == 1));
    held.push(access.turn_at("", carry_out(&large)).await.unwrap());
    drop(held);
    broker.stop(Duration::ZERO).await.unwrap();
}

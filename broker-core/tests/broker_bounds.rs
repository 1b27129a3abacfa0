//! What all entities of a broker together may keep in memory: at the bound a command that would add one is
//! refused, whichever entity it is for, and what goes makes room.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{
    Jitter, QueueUpdate, RetryKind, RetryPolicy, Settings, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::limits::Limits;
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};

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
    let sequences = vec![peeklock_core::ids::SequenceNumber(1)];
    broker.entity("one").unwrap().call(Command::CancelScheduled { sequences }).await.unwrap();
    send(&broker, "other", later()).await.unwrap();
    broker.delete_entity("one").await.unwrap();
    send(&broker, "other", later()).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

async fn receive(broker: &Broker, from: &str, count_max: u32) -> Vec<(LockToken, u32)> {
    let command = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let Outcome::Received(received) = broker.entity(from).unwrap().call(command).await.unwrap()
    else {
        panic!()
    };
    let facts = received.iter().map(|message| &message.facts);
    facts.map(|facts| (facts.lock.unwrap().token, facts.delivery_count)).collect()
}

/// RTY-32: at the bound an abandon that would delay its message is refused, by a policy and by its own delay, and its
/// lock stays; a delay of 0 is taken, and what nobody can refuse comes again at once, counted. With room the policy
/// holds again.
#[tokio::test]
async fn delayed_messages_of_all_entities_have_a_bound() {
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
    // The locks of both end, and nobody can be told.
    clock.advance(TimeSpan::from_seconds(10));
    let counts = broker.describe_queue("retried").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed), (3, 1));
    let again = receive(&broker, "retried", 3).await;
    assert_eq!(again.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 1]);
    // The first is due, and there is room.
    clock.advance(TimeSpan::from_seconds(50));
    let again = receive(&broker, "retried", 1).await;
    abandon(again[0].0, None).await.unwrap();
    let counts = broker.describe_queue("retried").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed), (3, 1));
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
    // A duplicate adds none.
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

//! A publish with slow rules: other entities of the arbiter get turns meanwhile, commands of the
//! topic keep their order, and a stop does not wait for the publish.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::Timestamp;
use peeklock_core::{Broker, BrokerBuilder, Entity};

/// A broker with one arbiter, a queue, and a topic with `rules` rules that are slow for a long `p`.
async fn broker(rules: usize) -> Broker {
    with_rules(Broker::builder(), rules).await
}

async fn with_rules(builder: BrokerBuilder, rules: usize) -> Broker {
    let broker = builder.arbiters(1).start().await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let rules = (0..rules).map(|number| {
        let text = format!("p LIKE '%{}_b%'", "a".repeat(950));
        RuleDescription::new(format!("r{number}"), Filter::sql(&*text), Timestamp::NONE)
    });
    let rules = rules.collect();
    broker
        .create_subscription("events", "all", SubscriptionUpdate::default(), rules)
        .await
        .unwrap();
    broker
}

fn send(broker: &Broker, to: &Entity, property_bytes: usize) -> Command {
    let mut message = Message::new("x");
    message.application_properties = vec![("p".to_owned(), "a".repeat(property_bytes).into())];
    assert!(to.path().len() > 1);
    Command::Send { message: broker.inbound(message) }
}

/// Other entities are served during a publish, whose result is unaffected. A later message stays
/// after it (TOP-07).
#[tokio::test]
async fn other_entities_get_turns_during_a_publish() {
    let broker = broker(60).await;
    let (queue, topic) = (broker.entity("orders").unwrap(), broker.entity("events").unwrap());
    let heavy = topic.call(send(&broker, &topic, 32_000));
    let behind = topic.call(send(&broker, &topic, 1));
    let (mut heavy, mut behind) = (pin!(heavy), pin!(behind));
    // Both are submitted in this order before the queue is used.
    poll_fn(|context| {
        assert!(heavy.as_mut().poll(context).is_pending());
        assert!(behind.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    for _ in 0..5 {
        queue.call(send(&broker, &queue, 1)).await.unwrap();
        poll_fn(|context| {
            assert!(heavy.as_mut().poll(context).is_pending(), "it has kept the arbiter");
            assert!(behind.as_mut().poll(context).is_pending(), "it has overtaken");
            Poll::Ready(())
        })
        .await;
    }
    let Outcome::Accepted(first) = heavy.await.unwrap() else { panic!() };
    let Outcome::Accepted(second) = behind.await.unwrap() else { panic!() };
    assert_eq!((first, second), (SequenceNumber(1), SequenceNumber(2)));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Polls all calls once. Each must be pending.
async fn begin(calls: &mut [Pin<&mut impl Future>]) {
    poll_fn(|context| {
        assert!(calls.iter_mut().all(|call| call.as_mut().poll(context).is_pending()));
        Poll::Ready(())
    })
    .await;
}

/// QUO-02, ERR-06: commands that wait for a publish and use all the room are refused after their
/// time if other commands need the room. They are not refused earlier, nor if no command needs the
/// room.
#[tokio::test]
async fn commands_waiting_for_a_publish_return_their_room() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let mut settings = Settings::default();
    settings.limits.broker_inbound_bytes_max = 1 << 20;
    settings.limits.publish_step_count_max = u64::MAX;
    let builder = Broker::builder().settings(settings).clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let broker = with_rules(builder, 2_000).await;
    let (queue, topic) = (broker.entity("orders").unwrap(), broker.entity("events").unwrap());
    let mut heavy = pin!(topic.call(send(&broker, &topic, 32_000)));
    begin(&mut [heavy.as_mut()]).await;
    // They use the remaining room.
    let mut behind = Vec::new();
    for _ in 0..(1 << 20) / 4_096 {
        let mut call = Box::pin(topic.call(send(&broker, &topic, 1)));
        begin(&mut [call.as_mut()]).await;
        behind.push(call);
    }
    let wait_max = broker.settings().limits.send_wait_max;
    clock.advance(wait_max);
    // No other command needs room, except those that are still without.
    queue.call(send(&broker, &queue, 1)).await.unwrap();
    let refused = behind.swap_remove(0).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::ServerBusy, "{refused}");
    assert!(refused.to_string().contains("limits.send_wait_max"), "{refused}");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// A stop ends a publish in progress, and its sender gets an error.
#[tokio::test]
async fn a_stop_does_not_wait_for_a_publish() {
    let broker = broker(60).await;
    let topic = broker.entity("events").unwrap();
    let mut heavy = pin!(topic.call(send(&broker, &topic, 32_000)));
    poll_fn(|context| {
        assert!(heavy.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    broker.stop(Duration::ZERO).await.unwrap();
    let error = heavy.await.unwrap_err();
    assert_eq!(error.condition(), Condition::OperationCancelled, "{error}");
}

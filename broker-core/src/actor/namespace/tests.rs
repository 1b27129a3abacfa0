//! What waits before the namespace is bounded.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::*;
use crate::Broker;
use crate::clock::ManualClock;
use crate::description::{QueueDescription, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::permits::Budget;
use crate::rule::{Filter, RuleDescription};
use crate::time::{TimeSpan, Timestamp};

async fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
    let mut future = future;
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// DESIGN D6: a creation takes room before it is sent to the namespace, and gives it back with its answer.
#[tokio::test]
async fn a_creation_waits_for_room_before_it_is_mail() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let all = broker.shared.management.try_acquire(u64::MAX).unwrap();
    let mut creation = pin!(broker.create_queue("orders", QueueUpdate::default()));
    assert!(!is_ready(creation.as_mut()).await);
    // Mail is taken in its order: what was sent before this was looked at before.
    let (answer, answered) = Answer::new(Budget::new(0).try_acquire(1).unwrap());
    let description = QueueDescription::new("orders", &broker.settings().limits);
    broker.namespace.do_send(Create { root: Root::Queue(description), answer });
    assert_eq!(answered.await.unwrap(), Ok(()), "nobody has taken the path");
    drop(all);
    let refused = creation.await.unwrap_err();
    assert_eq!(refused.condition(), crate::condition::Condition::EntityAlreadyExists);
    assert!(broker.shared.management.try_acquire(u64::MAX).is_some(), "all room is back");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DESIGN D6: a transport that holds room for what a client has asked still learns of entities, however many
/// others do the same.
#[tokio::test]
async fn management_does_not_wait_for_room_of_what_asks_for_it() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let held: Vec<Permit> =
        std::iter::from_fn(|| broker.shared.budget.try_acquire(u64::MAX >> 1)).collect();
    let rest: Vec<Permit> = std::iter::from_fn(|| broker.shared.budget.try_acquire(1)).collect();
    assert!(!held.is_empty() && !rest.is_empty());
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    broker.update_queue("orders", QueueUpdate::default(), None).await.unwrap();
    broker.delete_entity("orders").await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// ERR-09, DESIGN D6: who waits for room of management for too long is told to come back, and nothing was done.
#[tokio::test]
async fn management_is_not_waited_for_without_end() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_000_000)));
    let broker =
        Broker::builder().arbiters(1).clock(Arc::clone(&clock) as Arc<_>).start().await.unwrap();
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), vec![]).await.unwrap();
    let all = broker.shared.management.try_acquire(u64::MAX).unwrap();
    let rule = RuleDescription::new("r", Filter::True, Timestamp::NONE);
    let mut creation = pin!(broker.create_queue("orders", QueueUpdate::default()));
    let mut change = pin!(broker.create_rule("t/Subscriptions/s", rule));
    assert!(!is_ready(creation.as_mut()).await && !is_ready(change.as_mut()).await);
    clock.advance(TimeSpan::from_seconds(5));
    for refused in [creation.await.unwrap_err(), change.await.unwrap_err()] {
        assert_eq!(refused.condition(), crate::condition::Condition::ServerBusy, "{refused}");
        assert!(refused.detail().contains("broker_inbound_bytes_max"), "{refused}");
    }
    drop(all);
    assert!(broker.describe_queue("orders").await.is_err());
    assert_eq!(broker.rules("t/Subscriptions/s", 0, 10).await.unwrap().len(), 1);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DESIGN D6: room of management goes to the connection that has less of it, not to the one that has asked first.
#[tokio::test]
async fn management_is_done_for_who_has_least() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let (greedy, modest) = (broker.placed(), broker.placed());
    let room = broker.shared.management.clone();
    let mut held: Vec<Permit> = Vec::new();
    while let Ok(Ok(permit)) =
        tokio::time::timeout(Duration::ZERO, greedy.management_room(1, 1 << 20)).await
    {
        held.push(permit);
    }
    let rest: Vec<Permit> = std::iter::from_fn(|| room.try_acquire(1)).collect();
    assert!(held.len() > 100, "half of 256 MiB");
    let mut more = pin!(greedy.management_room(1, 1 << 20));
    assert!(!is_ready(more.as_mut()).await);
    let mut other = pin!(modest.management_room(1, 1));
    assert!(!is_ready(other.as_mut()).await);
    drop(held.pop());
    assert!(!is_ready(more.as_mut()).await, "it has the most");
    let other = other.await.unwrap();
    drop((held, rest, other));
    more.await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

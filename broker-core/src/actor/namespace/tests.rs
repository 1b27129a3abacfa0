//! Tests of the bound on requests that wait for the namespace.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use peeklock_store_testing::{Fate, FaultStore};

use super::*;
use crate::Broker;
use crate::admission::Budget;
use crate::clock::ManualClock;
use crate::description::{QueueDescription, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::BrokerError;
use crate::rule::{Filter, RuleDescription};
use crate::store::Shard;
use crate::time::{TimeSpan, Timestamp};

/// Takes all management room once it is free: room is released on another thread, after the answer.
async fn all_room(broker: &Broker) -> Permit {
    loop {
        match broker.shared.management.try_take(u64::MAX) {
            Some(room) => return room,
            None => tokio::task::yield_now().await,
        }
    }
}

async fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
    let mut future = future;
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// DESIGN D6: a creation takes room before it is sent to the namespace, and releases it with its
/// answer.
#[tokio::test]
async fn creation_takes_room_before_it_is_sent() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let all = all_room(&broker).await;
    let mut creation = pin!(broker.create_queue("orders", QueueUpdate::default()));
    assert!(!is_ready(creation.as_mut()).await);
    // Mail is processed in order: earlier mail has been processed before this.
    let room = Arc::new(Budget::new(0).try_take(1).unwrap());
    let (answer, answered) = AnswerTo::new(&room);
    let description = QueueDescription::new("orders", &broker.settings().limits);
    broker.namespace.do_send(Create { root: NewRoot::Queue(description), answer });
    assert_eq!(answered.await.unwrap(), Ok(()), "nobody has taken the path");
    drop(all);
    let refused = creation.await.unwrap_err();
    assert_eq!(refused.condition(), crate::condition::Condition::EntityAlreadyExists);
    all_room(&broker).await;
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DESIGN D6: a transport that holds room for requests of its clients can still use management,
/// however many others do the same.
#[tokio::test]
async fn management_works_while_clients_hold_all_command_room() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let held: Vec<Permit> =
        std::iter::from_fn(|| broker.shared.budget.try_take(u64::MAX >> 1)).collect();
    let rest: Vec<Permit> = std::iter::from_fn(|| broker.shared.budget.try_take(1)).collect();
    assert!(!held.is_empty() && !rest.is_empty());
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    broker.update_queue("orders", QueueUpdate::default(), None).await.unwrap();
    broker.delete_entity("orders").await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// ERR-09, DESIGN D6: a management request that waits too long for room is refused, and has no
/// effect.
#[tokio::test]
async fn management_wait_for_room_is_bounded() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_000_000)));
    let broker =
        Broker::builder().arbiters(1).clock(Arc::clone(&clock) as Arc<_>).start().await.unwrap();
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), vec![]).await.unwrap();
    let all = all_room(&broker).await;
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

/// DESIGN D6: management room goes to the connection that holds less, not to the first that
/// asked.
#[tokio::test]
async fn management_room_goes_to_connection_with_least() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let (greedy, modest) = (broker.with_connection_place(), broker.with_connection_place());
    let room = broker.shared.management.clone();
    let mut held: Vec<Permit> = Vec::new();
    while let Ok(Ok(permit)) =
        tokio::time::timeout(Duration::ZERO, greedy.management_room(1, 1 << 20)).await
    {
        held.push(permit);
    }
    let rest: Vec<Permit> = std::iter::from_fn(|| room.try_take(1)).collect();
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

/// ERR-09, DESIGN D6: a creation or replacement takes room once, for the change and for reading its
/// result. After the change is done, the answer is not "busy".
#[tokio::test]
async fn change_keeps_room_until_its_result_is_read() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_000_000)));
    let store = FaultStore::at_once(1, u64::MAX);
    let broker = Broker::builder()
        .arbiters(1)
        .store(Arc::clone(&store) as Arc<_>)
        .clock(Arc::clone(&clock) as Arc<_>)
        .start()
        .await
        .unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), vec![]).await.unwrap();
    let rule = |filter| RuleDescription::new("r", filter, Timestamp::NONE);
    let path = "t/Subscriptions/s";
    let update = || QueueUpdate { max_delivery_count: Some(3), ..QueueUpdate::default() };
    let subscription = || SubscriptionUpdate::default();
    for done in 0..6 {
        let doing: Pin<Box<dyn Future<Output = Result<(), BrokerError>>>> = match done {
            0 => Box::pin(async { broker.create_queue("new", update()).await.map(drop) }),
            1 => Box::pin(async { broker.update_queue("q", update(), None).await.map(drop) }),
            2 => Box::pin(async {
                broker.create_topic("other", TopicUpdate::default()).await.map(drop)
            }),
            3 => Box::pin(async {
                broker.create_subscription("t", "new", subscription(), vec![]).await.map(drop)
            }),
            4 => Box::pin(async { broker.create_rule(path, rule(Filter::True)).await.map(drop) }),
            _ => Box::pin(async { broker.update_rule(path, rule(Filter::False)).await.map(drop) }),
        };
        let mut doing = pin!(doing);
        // The room of earlier operations is released after their answers.
        drop(all_room(&broker).await);
        store.complete_at_once(false);
        while store.queued(Shard(0)) == 0 {
            assert!(!is_ready(doing.as_mut()).await, "{done}");
            tokio::task::yield_now().await;
        }
        // Others take all remaining room, and wait for more.
        let room = &broker.shared.management;
        let mut held: Vec<Permit> = std::iter::from_fn(|| room.try_take(1 << 20)).collect();
        held.extend(std::iter::from_fn(|| room.try_take(1)));
        let mut next = pin!(broker.management_room(1, 1));
        assert!(!is_ready(next.as_mut()).await);
        store.complete_at_once(true);
        while store.complete_next(Shard(0), Fate::Store) {}
        let told = loop {
            tokio::select! {
                biased;
                told = &mut doing => break told,
                _room = &mut next => panic!("{done} gave its room away before it was told"),
                () = tokio::task::yield_now() => {}
            }
        };
        told.unwrap();
        drop(next.await.unwrap());
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

//! What waits before the namespace is bounded.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::*;
use crate::Broker;
use crate::description::{QueueDescription, QueueUpdate};
use crate::permits::Budget;

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

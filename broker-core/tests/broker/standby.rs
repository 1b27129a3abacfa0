//! Several brokers over one store: one owns the shards, the others stand by. Leases are short and
//! run in real time; the driver decides when a lease is over for the others.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::cluster::ownership::LeaseTimes;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::{FaultStore, Member};

use crate::receive::under_lock;

const TIMES: LeaseTimes = LeaseTimes {
    renew: TimeSpan::from_ms(20),
    lease: TimeSpan::from_ms(700),
    margin: TimeSpan::from_ms(300),
};

/// An image for several brokers.
struct Place(Arc<FaultStore>);

impl Place {
    fn new() -> Self {
        Self(FaultStore::at_once(2, u64::MAX))
    }

    /// A broker that starts when it owns the shards.
    fn join(&self, name: &str) -> (Arc<Member>, tokio::task::JoinHandle<Broker>) {
        let (store, member) = self.0.join(name);
        let builder = Broker::builder().store(store).arbiters(1).lease(TIMES);
        (member, tokio::spawn(async move { builder.start().await.unwrap() }))
    }
}

async fn send(broker: &Broker) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(Message::new("text".to_owned()));
    broker.entity("queue").unwrap().call(Command::Send { message }).await
}

async fn active(broker: &Broker) -> u64 {
    broker.describe_queue("queue").await.unwrap().counts.active
}

async fn yield_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// CLU-07, CLU-18, CLU-20: a standby takes over when the lease of the owner is over. It has every
/// message that was acknowledged, nothing of the past owner is stored any more, and the past owner
/// ends when it learns of it.
#[tokio::test]
async fn a_standby_takes_over() {
    let place = Place::new();
    let (first, started) = place.join("first");
    let past = started.await.unwrap();
    past.create_queue("queue", QueueUpdate::default()).await.unwrap();
    let (second, starting) = place.join("second");
    for _ in 0..10 {
        send(&past).await.unwrap();
    }
    let received = past.entity("queue").unwrap().call(under_lock(3, TimeSpan::ZERO)).await;
    assert!(matches!(received, Ok(Outcome::Received(_))), "{received:?}");
    let seen = second.renewals();
    yield_until(|| second.renewals() > seen + 50).await;
    assert!(!starting.is_finished() && first.is_owner(), "the lease of the owner is in force");

    first.cut_off(true);
    first.end_lease();
    yield_until(|| second.is_owner()).await;
    let late = send(&past).await.unwrap_err();
    assert_eq!(late.condition(), Condition::InternalError, "fenced: {late}");
    let broker = starting.await.unwrap();
    assert_eq!(active(&broker).await, 10, "locks are gone, and no late message is there");
    send(&broker).await.unwrap();
    assert!(past.failure().is_none(), "it cannot know yet");

    first.cut_off(false);
    let why = past.failed().await;
    assert!(why.contains("another broker"), "{why}");
    let refused = send(&past).await.unwrap_err();
    assert!(refused.retryable(), "{refused}");
    past.stop(Duration::ZERO).await.ok();
    assert_eq!(active(&broker).await, 11);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17, CLU-21: a broker that cannot renew its lease lets nothing out, and goes on when it can.
#[tokio::test]
async fn a_suspended_broker_lets_nothing_out() {
    let (member, started) = Place::new().join("only");
    let broker = started.await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    send(&broker).await.unwrap();
    member.cut_off(true);
    yield_until(|| broker.is_suspended()).await;
    let entity = broker.entity("queue").unwrap();
    let (receiving, sending) = tokio::join!(
        async { tokio::spawn(async move { entity.call(under_lock(1, TimeSpan::ZERO)).await }) },
        async {
            let broker = broker.clone();
            tokio::spawn(async move { send(&broker).await })
        },
    );
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    assert!(!receiving.is_finished() && !sending.is_finished());
    member.cut_off(false);
    let Ok(Outcome::Received(messages)) = receiving.await.unwrap() else {
        panic!("the receive is not answered")
    };
    assert_eq!(messages.len(), 1);
    sending.await.unwrap().unwrap();
    assert!(broker.failure().is_none() && member.is_owner());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17: a broker that stops does not wait for the end of its suspension.
#[tokio::test]
async fn a_suspended_broker_stops() {
    let (member, started) = Place::new().join("only");
    let broker = started.await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    member.cut_off(true);
    yield_until(|| broker.is_suspended()).await;
    let waiting = {
        let broker = broker.clone();
        tokio::spawn(async move { send(&broker).await })
    };
    broker.stop(Duration::ZERO).await.ok();
    assert!(waiting.await.unwrap().is_err());
}

//! Several brokers over one store: one owns the shards, the others stand by. Leases are short and
//! run in real time; the driver decides when a lease is over for the others.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::{ManualClock, boot_time};
use peeklock_core::cluster::ownership::LeaseTimes;
use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{FaultStore, Member};
use tokio::task::JoinHandle;

use crate::receive::under_lock;

/// Leases that are over soon for the broker that holds them.
const SHORT: LeaseTimes = LeaseTimes {
    renew: TimeSpan::from_ms(20),
    lease: TimeSpan::from_ms(700),
    margin: TimeSpan::from_ms(300),
};
/// Leases of a broker that does not notice the end.
const LONG: LeaseTimes = LeaseTimes { lease: TimeSpan::from_minutes(10), ..SHORT };

/// An image for several brokers.
struct Place(Arc<FaultStore>);

impl Place {
    fn new() -> Self {
        Self(FaultStore::at_once(2, u64::MAX))
    }

    /// A broker that starts when it owns the shards.
    fn join(&self, name: &str, times: LeaseTimes) -> (Arc<Member>, JoinHandle<Broker>) {
        let (store, member) = self.0.join(name);
        let builder = Broker::builder().store(store).arbiters(1).lease(times);
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

/// Waits for an event of another thread; its limit only ends a test that hangs.
async fn until(mut is_so: impl FnMut() -> bool) {
    let event = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), event).await.expect("the event happens");
}

/// CLU-07, CLU-18, CLU-20: a standby takes over when the lease of the owner is over. It has every
/// message that was acknowledged, nothing of the past owner is stored any more, and the past owner
/// ends when it learns of it.
#[tokio::test]
async fn standby_takes_over() {
    let place = Place::new();
    let (first, started) = place.join("first", LONG);
    let past = started.await.unwrap();
    past.create_queue("queue", QueueUpdate::default()).await.unwrap();
    let (second, starting) = place.join("second", SHORT);
    for _ in 0..10 {
        send(&past).await.unwrap();
    }
    let received = past.entity("queue").unwrap().call(under_lock(3, TimeSpan::ZERO)).await;
    assert!(matches!(received, Ok(Outcome::Received(_))), "{received:?}");
    let seen = second.renewals();
    until(|| second.renewals() > seen + 50).await;
    assert!(!starting.is_finished() && first.is_owner(), "the lease of the owner is in force");

    first.cut_off(true);
    first.end_lease();
    until(|| second.is_owner()).await;
    let late = send(&past).await.unwrap_err();
    assert_eq!(late.condition(), Condition::InternalError, "fenced: {late}");
    let broker = starting.await.unwrap();
    assert_eq!(active(&broker).await, 10, "locks are gone, and no late message is there");
    send(&broker).await.unwrap();

    first.cut_off(false);
    past.failed().await;
    let refused = send(&past).await.unwrap_err();
    assert!(refused.retryable(), "{refused}");
    past.stop(Duration::ZERO).await.ok();
    assert!(second.is_owner(), "the past owner takes nothing back");
    assert_eq!(active(&broker).await, 11);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17, CLU-21: a broker that cannot renew its lease answers nothing, and goes on when it can.
#[tokio::test]
async fn suspended_broker_answers_nothing() {
    let (member, started) = Place::new().join("only", SHORT);
    let broker = started.await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    send(&broker).await.unwrap();
    member.cut_off(true);
    until(|| broker.is_suspended()).await;
    let entity = broker.entity("queue").unwrap();
    let receiving = tokio::spawn(async move { entity.call(under_lock(1, TimeSpan::ZERO)).await });
    let of = |broker: &Broker| (broker.clone(), broker.clone(), broker.clone());
    let (sender, describer, creator) = of(&broker);
    let sending = tokio::spawn(async move { send(&sender).await });
    let describing = tokio::spawn(async move { describer.describe_queue("queue").await });
    let creating =
        tokio::spawn(async move { creator.create_queue("queue", QueueUpdate::default()).await });
    let since = boot_time();
    until(|| boot_time() > since.plus(TimeSpan::from_ms(200))).await;
    assert!(!receiving.is_finished() && !sending.is_finished());
    assert!(!describing.is_finished() && !creating.is_finished());
    member.cut_off(false);
    let Ok(Outcome::Received(messages)) = receiving.await.unwrap() else {
        panic!("the receive is not answered")
    };
    assert_eq!(messages.len(), 1);
    sending.await.unwrap().unwrap();
    describing.await.unwrap().unwrap();
    assert!(creating.await.unwrap().is_err(), "it exists");
    assert!(broker.failure().is_none() && member.is_owner());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-22: a lock is prolonged by the time of a suspension.
#[tokio::test]
async fn suspension_prolongs_locks() {
    const LOCK: TimeSpan = TimeSpan::from_seconds(10);
    let (store, member) = Place::new().0.join("only");
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let builder = Broker::builder().store(store).arbiters(1).lease(SHORT);
    let broker = builder.clock(Arc::clone(&clock) as Arc<_>).start().await.unwrap();
    let short = QueueUpdate::default().with_lock_duration(LOCK);
    broker.create_queue("queue", short).await.unwrap();
    send(&broker).await.unwrap();
    let entity = broker.entity("queue").unwrap();
    let received = entity.call(under_lock(1, TimeSpan::ZERO)).await.unwrap();
    let Outcome::Received(messages) = received else { panic!("{received:?}") };
    let token = messages[0].facts.lock.unwrap().token;
    member.cut_off(true);
    until(|| broker.is_suspended()).await;
    let since = boot_time();
    until(|| boot_time() > since.plus(TimeSpan::from_ms(300))).await;
    clock.advance(LOCK.plus(TimeSpan::from_ms(100)));
    member.cut_off(false);
    let settle = Command::Settle { token, settlement: Settlement::Complete };
    entity.call(settle).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17: a broker that stops does not wait for the end of its suspension.
#[tokio::test]
async fn suspended_broker_stops() {
    let (member, started) = Place::new().join("only", SHORT);
    let broker = started.await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    member.cut_off(true);
    until(|| broker.is_suspended()).await;
    let waiting = {
        let broker = broker.clone();
        tokio::spawn(async move { send(&broker).await })
    };
    broker.stop(Duration::ZERO).await.ok();
    assert!(waiting.await.unwrap().is_err());
}

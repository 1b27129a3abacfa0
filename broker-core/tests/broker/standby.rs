//! Several brokers over one store: one owns the shards, the others stand by. Leases are short and
//! run in real time; the driver decides when a lease is over for the others.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::{ManualClock, boot_time};
use peeklock_core::cluster::ownership::LeaseTimes;
use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Principal};
use peeklock_core::description::{EntityKind, QueueUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::management::{Management, Page};
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
/// ends when it learns this.
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
    let access = broker.full_access();
    let paths = Management::Paths(EntityKind::Queue, Page { skip: 0, top: None });
    let listing = tokio::spawn(async move { access.manage("", paths).await });
    let since = boot_time();
    until(|| boot_time() > since.plus(TimeSpan::from_ms(200))).await;
    assert!(!receiving.is_finished() && !sending.is_finished());
    assert!(!describing.is_finished() && !creating.is_finished() && !listing.is_finished());
    member.cut_off(false);
    let Ok(Outcome::Received(messages)) = receiving.await.unwrap() else {
        panic!("the receive is not answered")
    };
    assert_eq!(messages.len(), 1);
    sending.await.unwrap().unwrap();
    describing.await.unwrap().unwrap();
    listing.await.unwrap().unwrap();
    assert!(creating.await.unwrap().is_err(), "it exists");
    assert!(broker.failure().is_none() && member.is_owner());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17, CLU-18: results of a turn in which the lease ends leave only after the next renewal. The
/// process may have been stopped there.
#[tokio::test]
async fn results_of_a_turn_wait_for_the_lease() {
    let (store, member) = Place::new().0.join("only");
    let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).arbiters(1);
    let broker = builder.lease(SHORT).start().await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    send(&broker).await.unwrap();
    let (cut, turning) = (Arc::clone(&member), broker.clone());
    store.on_reserve(move || {
        cut.cut_off(true);
        while !turning.is_suspended() {
            std::thread::yield_now();
        }
    });
    let message = broker.inbound(Message::new("text".to_owned()));
    let commands = vec![under_lock(1, TimeSpan::ZERO), Command::Send { message }];
    let entity = broker.entity("queue").unwrap();
    let answers = tokio::spawn(async move { entity.call_many(commands).await });
    until(|| broker.is_suspended()).await;
    let since = boot_time();
    until(|| boot_time() > since.plus(TimeSpan::from_ms(200))).await;
    assert!(!answers.is_finished());
    member.cut_off(false);
    for answer in answers.await.unwrap() {
        answer.unwrap();
    }
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
    broker.begin_stop();
    assert!(waiting.await.unwrap().is_err(), "transports that stop first may wait for it");
    broker.stop(Duration::ZERO).await.ok();
}

/// CLU-17: a suspended broker finds entities for connections without a wait, and takes tokens. It
/// does not report that an entity is missing, since another owner may have created it.
#[tokio::test]
async fn suspended_broker_finds_entities_for_connections() {
    let (member, started) = Place::new().join("only", SHORT);
    let broker = started.await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    member.cut_off(true);
    until(|| broker.is_suspended()).await;
    let access = broker.access(Principal::anonymous());
    access.entity("queue", Action::Send).await.unwrap();
    access.allow(Action::End, "queue").await.unwrap();
    let via = access.entity("queue", Action::SendVia).await.unwrap();
    let refused = [
        access.entity("absent", Action::Send).await.err(),
        access.entity_for_any("absent", &[Action::Send]).await.err(),
        access.transfer_destination("absent", &via).await.err(),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap().condition(), Condition::ServerBusy);
    }
    assert!(broker.is_suspended());
    member.cut_off(false);
    until(|| !broker.is_suspended()).await;
    let refused = access.entity("absent", Action::Send).await.err();
    assert_eq!(refused.unwrap().condition(), Condition::EntityNotFound);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17: pages of a list of entities over the end of a lease are answered after the next renewal.
#[tokio::test]
async fn list_over_the_end_of_a_lease_waits() {
    let (member, started) = Place::new().join("only", SHORT);
    let broker = started.await.unwrap();
    for path in ["a", "b"] {
        broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    }
    let first = Page { skip: 0, top: Some(1) };
    let paths = Management::Paths(EntityKind::Queue, first);
    // The right to list is checked before the lease ends.
    let turn = broker.full_access().turn_at("", paths).await.unwrap();
    assert!(turn.page(0, 1).await.is_ok());
    member.cut_off(true);
    until(|| broker.is_suspended()).await;
    let next = tokio::spawn(async move { turn.page(1, 1).await.map(drop) });
    let since = boot_time();
    until(|| boot_time() > since.plus(TimeSpan::from_ms(200))).await;
    assert!(!next.is_finished());
    member.cut_off(false);
    next.await.unwrap().unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-19: a broker that starts again under the name of the owner, after that owner's lease, waits
/// for no other lease.
#[tokio::test]
async fn barred_owner_is_replaced_at_once() {
    let place = Place::new();
    let (first, started) = place.join("one", LONG);
    let past = started.await.unwrap();
    first.cut_off(true);
    first.bar();
    let (second, starting) = place.join("one", LONG);
    let starting = tokio::time::timeout(Duration::from_secs(60), starting);
    let broker = starting.await.expect("it does not wait for a lease of 10 minutes").unwrap();
    assert!(second.is_owner());
    broker.stop(Duration::ZERO).await.unwrap();
    past.abandon();
}

/// CLU-15: the clock of a new owner begins after every instant of the past owner, whose clock was
/// ahead.
#[tokio::test]
async fn clock_of_a_new_owner_begins_after_the_past_one() {
    let place = Place::new();
    let (store, member) = place.0.join("first");
    let ahead = Timestamp::from_unix_ms(2_200_000_000_000);
    let clock = Arc::new(ManualClock::at(ahead));
    let builder = Broker::builder().store(store).arbiters(1).lease(LONG);
    let past = builder.clock(Arc::clone(&clock) as Arc<_>).start().await.unwrap();
    let seen = member.renewals();
    until(|| member.renewals() > seen + 1).await;
    member.cut_off(true);
    clock.advance(TimeSpan::from_minutes(9));
    member.end_lease();
    let (_, starting) = place.join("second", SHORT);
    let broker = starting.await.unwrap();
    assert!(broker.now() >= past.now(), "{} is before {}", broker.now(), past.now());
    broker.stop(Duration::ZERO).await.unwrap();
    past.abandon();
}

/// CLU-15: a broker that stops leaves its last instant, not the latest one that it could have
/// given.
#[tokio::test]
async fn clock_of_a_new_owner_begins_with_the_last_instant() {
    let place = Place::new();
    let (store, member) = place.0.join("first");
    let ahead = Timestamp::from_unix_ms(2_200_000_000_000);
    let clock = Arc::new(ManualClock::at(ahead));
    let builder = Broker::builder().store(store).arbiters(1).lease(LONG);
    let past = builder.clock(clock as Arc<_>).start().await.unwrap();
    let seen = member.renewals();
    until(|| member.renewals() > seen + 1).await;
    past.stop(Duration::ZERO).await.unwrap();
    let (_, starting) = place.join("second", SHORT);
    let broker = starting.await.unwrap();
    let error = broker.now().since(ahead);
    assert!(broker.now() >= ahead && error < TimeSpan::from_minutes(5), "{error}");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-17, CLU-18: a broker ends if another process has its name, since it never renews again.
#[tokio::test]
async fn broker_without_its_name_ends() {
    let (member, started) = Place::new().join("only", SHORT);
    let broker = started.await.unwrap();
    broker.create_queue("queue", QueueUpdate::default()).await.unwrap();
    member.replace();
    broker.failed().await;
    let refused = send(&broker).await.unwrap_err();
    assert!(refused.retryable(), "{refused}");
    broker.stop(Duration::ZERO).await.ok();
}

/// CLU-16: a broker that counts on longer or shorter leases than the registry gives does not start.
#[tokio::test]
async fn leases_of_another_length_are_refused() {
    for (lease, is_right) in [(700, true), (699, false), (3_000, false)] {
        let (store, member) = Place::new().0.join("only");
        member.name_lease(Duration::from_millis(lease));
        let started = Broker::builder().store(store).arbiters(1).lease(SHORT).start().await;
        assert_eq!(started.is_ok(), is_right, "{lease}");
        if let Ok(broker) = started {
            broker.stop(Duration::ZERO).await.unwrap();
        }
    }
}

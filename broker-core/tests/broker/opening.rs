//! Stores that take their time or are not available: other entities are served meanwhile, and nothing
//! is given up.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::{Clock as _, ManualClock};
use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Right, Rights};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::policies::PolicyUpdate;
use peeklock_core::store::Shard;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Crash, Fate, FaultStore};

/// A broker with one arbiter, two queues in different shards, and a topic in the shard of the
/// first one.
async fn start() -> (Broker, Arc<FaultStore>) {
    let (broker, store, _) = start_with_clock().await;
    (broker, store)
}

/// The same with the clock, which stands still.
async fn start_with_clock() -> (Broker, Arc<FaultStore>, Arc<ManualClock>) {
    let store = FaultStore::at_once(2, u64::MAX);
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).arbiters(1);
    let builder = builder.clock(Arc::clone(&clock) as Arc<_>).count_internal_work();
    let broker = builder.start().await.unwrap();
    for path in ["first", "second"] {
        broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    }
    broker.create_topic("topic", TopicUpdate::default()).await.unwrap();
    (broker, store, clock)
}

fn shard_of(broker: &Broker, path: &str) -> Shard {
    Shard(u16::try_from(broker.entity(path).unwrap().id().0 % 2).unwrap())
}

async fn send(broker: Broker, path: &'static str) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(Message::new(path.to_owned()));
    broker.entity(path).unwrap().call(Command::Send { message }).await
}

async fn yield_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// DESIGN D3: while the shard of a failed tree is taken over again and its records are read, which
/// takes its time, the namespace and entities of the same arbiter answer. Requests for the tree
/// wait.
#[tokio::test]
async fn entities_answer_while_another_is_restored() {
    let (broker, store) = start().await;
    send(broker.clone(), "first").await.unwrap();
    let shard = shard_of(&broker, "first");
    store.complete_at_once(false);
    store.hold_answers();
    let lost = tokio::spawn(send(broker.clone(), "first"));
    yield_until(|| store.queued(shard) > 0).await;
    store.complete_next(shard, Fate::Fail);
    store.complete_at_once(true);
    let lost = lost.await.unwrap().unwrap_err();
    assert_eq!(lost.condition(), Condition::InternalError);
    yield_until(|| store.held_answer_count() > 0).await;
    let waiting = tokio::spawn(send(broker.clone(), "first"));
    let mut answers = 0;
    while !waiting.is_finished() {
        if store.held_answer_count() > 0 {
            send(broker.clone(), "second").await.unwrap();
            let refused = broker.create_queue("second", QueueUpdate::default()).await.unwrap_err();
            assert_eq!(refused.condition(), Condition::EntityAlreadyExists);
            answers += 1;
            store.let_answer();
        }
        tokio::task::yield_now().await;
    }
    waiting.await.unwrap().unwrap();
    assert!(answers >= 3, "the shard, the records, and their end");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// TOP-17: a subscription whose records are read slowly is taken into the tree of its topic, which
/// answers meanwhile.
#[tokio::test]
async fn topic_answers_while_a_subscription_is_opened() {
    let (broker, store) = start().await;
    store.hold_answers();
    let new = broker.clone();
    let created = tokio::spawn(async move {
        new.create_subscription("topic", "s", SubscriptionUpdate::default(), Vec::new()).await
    });
    yield_until(|| store.held_answer_count() > 0).await;
    send(broker.clone(), "topic").await.unwrap();
    assert!(!created.is_finished());
    while !created.is_finished() {
        store.let_answer();
        tokio::task::yield_now().await;
    }
    created.await.unwrap().unwrap();
    let counts = broker.describe_subscription("topic/Subscriptions/s").await.unwrap().counts;
    assert_eq!(counts.active, 1, "the message that was sent meanwhile");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-10, DESIGN D9: if a destination fails and the store cannot report whether it has the
/// message, the source is restored from its records. So the message is in one place.
#[tokio::test]
async fn source_is_restored_if_the_result_of_a_transfer_stays_unknown() {
    for landed in [true, false] {
        let (broker, store) = start().await;
        let (source, destination) = (shard_of(&broker, "first"), shard_of(&broker, "second"));
        assert_ne!(source, destination);
        let to = QueueUpdate { forward_to: Some("second".into()), ..QueueUpdate::default() };
        broker.update_queue("first", to, None).await.unwrap();
        store.complete_at_once(false);
        let sent = tokio::spawn(send(broker.clone(), "first"));
        yield_until(|| {
            store.complete_next(source, Fate::Store);
            sent.is_finished()
        })
        .await;
        sent.await.unwrap().unwrap();
        store.refuse_exists();
        for _ in 0..2 {
            yield_until(|| store.queued(destination) > 0).await;
            store.complete_next(destination, Fate::Unknown { landed, holds: false });
        }
        // This thread stays the only driver: the restored trees may submit at any time from now on.
        let waiting = broker.clone();
        let idle = tokio::spawn(async move { waiting.idle().await });
        yield_until(|| {
            while [source, destination].iter().any(|at| store.complete_next(*at, Fate::Store)) {}
            idle.is_finished()
        })
        .await;
        assert!(!store.is_refusing_exists());
        for (path, expected) in [("first", 0), ("second", 1)] {
            let counts = broker.describe_queue(path).await.unwrap().counts;
            assert_eq!(counts.active, expected, "{path}, landed: {landed}");
        }
        store.complete_at_once(true);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// Runs `work`, while the store answers. Each second answer fails because the store is not
/// available, and the pauses after failures pass. Returns the number of failures too.
async fn through_outage<T: Send + 'static>(
    (store, clock): (&FaultStore, &ManualClock),
    work: impl Future<Output = T> + Send + 'static,
) -> (T, usize) {
    let work = tokio::spawn(work);
    let drive = async {
        let (mut answer_count, mut failure_count) = (0_usize, 0);
        yield_until(|| {
            while [Shard(0), Shard(1)].iter().any(|at| store.complete_next(*at, Fate::Store)) {}
            if store.held_answer_count() > 0 {
                answer_count += 1;
                match answer_count % 2 {
                    0 => store.let_answer(),
                    _ => store.refuse_answer(),
                };
                failure_count = answer_count.div_ceil(2);
            }
            work.is_finished()
        })
        .await;
        failure_count
    };
    let failure_count = clock.while_short_waits_pass(drive).await;
    (work.await.unwrap(), failure_count)
}

/// Sends a message, again if the entity is not there in time.
async fn send_in_the_end(broker: Broker, path: &'static str) {
    while let Err(error) = send(broker.clone(), path).await {
        assert_eq!(error.condition(), Condition::ServerBusy, "{error}");
    }
}

/// Lets a batch of a queue fail with this fate, so that its tree ends.
async fn fail_by(fate: Fate, broker: &Broker, store: &FaultStore, path: &'static str) {
    let shard = shard_of(broker, path);
    store.complete_at_once(false);
    let lost = tokio::spawn(send(broker.clone(), path));
    yield_until(|| store.queued(shard) > 0).await;
    store.complete_next(shard, fate);
    store.complete_at_once(true);
    let lost = lost.await.unwrap().unwrap_err();
    assert_eq!(lost.condition(), Condition::InternalError);
}

/// CLU-21, DESIGN D3: if the store is not available while a shard is taken over again or a tree is
/// restored, the broker repeats the call. Entities are not closed, however often it happens.
#[tokio::test]
async fn entities_outlast_outages_of_the_store() {
    let (broker, store, clock) = start_with_clock().await;
    store.hold_answers();
    for _ in 0..5 {
        fail_by(Fate::GiveUp { landed: false }, &broker, &store, "first").await;
        let sent = send_in_the_end(broker.clone(), "first");
        let ((), failure_count) = through_outage((&store, &clock), sent).await;
        assert!(failure_count >= 3, "the shard, the records, and their end: {failure_count}");
    }
    assert_eq!(broker.describe_queue("first").await.unwrap().counts.active, 5);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CLU-21: an outage that is over before the shard is taken over again is no failure of the entity
/// either.
#[tokio::test]
async fn short_outages_close_no_entity() {
    let (broker, store) = start().await;
    for landed in [false, true, false, true, false] {
        fail_by(Fate::GiveUp { landed }, &broker, &store, "first").await;
        send_in_the_end(broker.clone(), "first").await;
    }
    assert_eq!(broker.describe_queue("first").await.unwrap().counts.active, 7);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Runs `work`, while the store gives up its first two batches in turn, and stores all others.
async fn while_given_up<T: Send + 'static>(
    store: &FaultStore,
    landed: [bool; 2],
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    store.complete_at_once(false);
    let work = tokio::spawn(work);
    let mut fates = landed.into_iter();
    yield_until(|| {
        for shard in [Shard(0), Shard(1)] {
            if store.queued(shard) > 0 {
                let fate = fates.next().map_or(Fate::Store, |landed| Fate::GiveUp { landed });
                store.complete_next(shard, fate);
            }
        }
        work.is_finished()
    })
    .await;
    assert_eq!(fates.next(), None, "not so many batches");
    store.complete_at_once(true);
    work.await.unwrap()
}

/// The broker of the next process, over the records in the store.
async fn restart(broker: Broker, store: &FaultStore) -> (Broker, Arc<FaultStore>) {
    broker.stop(Duration::ZERO).await.unwrap();
    let store = store.crash(Crash::Loses);
    let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).arbiters(1);
    (builder.start().await.unwrap(), store)
}

const LANDED: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

/// CLU-21, ENT-32: a deletion is repeated until the store answers. Nothing of the entity is left.
#[tokio::test]
async fn deletion_is_repeated_after_an_outage() {
    for landed in LANDED {
        let (broker, store) = start().await;
        send(broker.clone(), "first").await.unwrap();
        let deleting = broker.clone();
        let delete = async move { deleting.delete_entity("first").await };
        while_given_up(&store, landed, delete).await.unwrap();
        assert!(broker.entity("first").is_err());
        broker.create_queue("first", QueueUpdate::default()).await.unwrap();
        let (broker, _) = restart(broker, &store).await;
        assert_eq!(broker.describe_queue("first").await.unwrap().counts.active, 0);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// CLU-21, CLU-28: a creation of unknown outcome is undone until the store answers. Later creations
/// of its path wait, and a restart finds one entity there.
#[tokio::test]
async fn creation_is_undone_after_an_outage() {
    for landed in LANDED {
        let (broker, store) = start().await;
        let creating = broker.clone();
        let create = async move {
            let failed = creating.create_queue("third", QueueUpdate::default()).await;
            let again = creating.create_queue("third", QueueUpdate::default()).await;
            (failed.map(drop), again.map(drop))
        };
        let (failed, again) = while_given_up(&store, landed, create).await;
        assert_eq!(failed.unwrap_err().condition(), Condition::InternalError, "{landed:?}");
        again.unwrap();
        send(broker.clone(), "third").await.unwrap();
        let (broker, _) = restart(broker, &store).await;
        assert_eq!(broker.describe_queue("third").await.unwrap().counts.active, 1);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// CLU-21, SEC-05: a change of policies that was given up during an outage is undone until the
/// store answers, and the broker stays healthy.
#[tokio::test]
async fn policies_are_restored_after_an_outage() {
    for landed in LANDED {
        let (broker, store) = start().await;
        let changing = broker.clone();
        let change = async move {
            let rights = Some(Rights::of(Right::Send));
            let properties = PolicyUpdate { rights, ..PolicyUpdate::default() };
            let failed = changing.create_policy("", "made", properties).await;
            // The undoing has ended when another change is allowed.
            while changing.create_queue("last", QueueUpdate::default()).await.is_err() {}
            failed.map(drop)
        };
        let failed = while_given_up(&store, landed, change).await;
        assert_eq!(failed.unwrap_err().condition(), Condition::InternalError, "{landed:?}");
        let (broker, _) = restart(broker, &store).await;
        let names = broker.policies("").unwrap();
        assert!(names.iter().all(|policy| &*policy.name != "made"), "{landed:?}: {names:?}");
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// FND-03, FWD-10: while the store cannot report the result of a transfer, the source keeps its
/// message, and offers it to nobody.
#[tokio::test]
async fn source_waits_while_the_result_of_a_transfer_is_not_available() {
    for landed in [true, false] {
        let (broker, store, clock) = start_with_clock().await;
        let (source, destination) = (shard_of(&broker, "first"), shard_of(&broker, "second"));
        let to = QueueUpdate { forward_to: Some("second".into()), ..QueueUpdate::default() };
        broker.update_queue("first", to, None).await.unwrap();
        store.complete_at_once(false);
        store.hold_answers();
        let sent = tokio::spawn(send(broker.clone(), "first"));
        yield_until(|| {
            store.complete_next(source, Fate::Store);
            sent.is_finished()
        })
        .await;
        sent.await.unwrap().unwrap();
        for _ in 0..2 {
            yield_until(|| store.queued(destination) > 0).await;
            store.complete_next(destination, Fate::Unknown { landed, holds: false });
        }
        let at_rest = broker.clone();
        let rest = async move {
            loop {
                at_rest.idle().await;
                let mut counts = Vec::new();
                for path in ["first", "second"] {
                    counts.extend(at_rest.describe_queue(path).await.map(|it| it.counts.active));
                }
                if counts == [0, 1] {
                    return;
                }
                assert!(counts.iter().sum::<u64>() <= 1, "{counts:?}, landed: {landed}");
                tokio::task::yield_now().await;
            }
        };
        let ((), failure_count) = through_outage((&store, &clock), rest).await;
        assert!(failure_count > 0);
        store.complete_at_once(true);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// A stop does not wait for the end of an outage.
#[tokio::test]
async fn broker_stops_during_an_outage() {
    let (broker, store, _) = start_with_clock().await;
    store.hold_answers();
    fail_by(Fate::Fail, &broker, &store, "first").await;
    yield_until(|| store.held_answer_count() > 0).await;
    store.refuse_answer();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SCH-01, RCV-31: a due message of a topic whose content cannot be loaded at present is published
/// a minute later.
#[tokio::test]
async fn due_message_is_published_after_an_outage() {
    let (broker, store, clock) = start_with_clock().await;
    let every = SubscriptionUpdate::default();
    broker.create_subscription("topic", "s", every, Vec::new()).await.unwrap();
    let at = clock.now().plus(TimeSpan::from_minutes(1));
    let message = broker.inbound(Message::new("late").with_scheduled_enqueue_time(at));
    broker.entity("topic").unwrap().call(Command::Send { message }).await.unwrap();
    store.hold_reads();
    for is_available in [false, true] {
        clock.advance(TimeSpan::from_minutes(1));
        yield_until(|| store.held_read_count() > 0).await;
        assert!(if is_available { store.let_read(0) } else { store.refuse_read(0) });
        broker.idle().await;
        let counts = broker.describe_subscription("topic/Subscriptions/s").await.unwrap().counts;
        assert_eq!(counts.active, u64::from(is_available));
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

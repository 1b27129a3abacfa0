//! A broker whose machine panics, whose store fails, or that is stopped and started again on the
//! same store: the memory store with switchable faults.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/receive.rs"]
mod receive;
mod sessions;
#[path = "../common/switched.rs"]
mod switched;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::command::{
    Act, ActResult, Command, Counts, Deed, JobStep, OperatorCommand, Outcome, ReceivedMessage,
    Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity, StartError};

use self::switched::Switched;

struct World {
    store: Arc<Switched>,
    clock: Arc<ManualClock>,
    broker: Broker,
    queue: Entity,
}

impl World {
    async fn new(properties: QueueUpdate) -> Self {
        let store = Switched::new(2);
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let broker = start(&store, &clock).await;
        broker.create_queue("orders", properties).await.unwrap();
        let queue = broker.entity("orders").unwrap();
        Self { store, clock, broker, queue }
    }

    async fn restarted(self) -> Self {
        self.broker.stop(Duration::ZERO).await.unwrap();
        let broker = start(&self.store, &self.clock).await;
        let queue = broker.entity("orders").unwrap();
        Self { broker, queue, ..self }
    }

    async fn send(&self, body: &str) -> Result<u64, BrokerError> {
        let message = self.broker.inbound(Message::new(body.to_owned()).with_message_id(body));
        match self.queue.call(Command::Send { message }).await? {
            Outcome::Accepted(sequence) => Ok(sequence.0),
            other => panic!("{other:?}"),
        }
    }

    async fn receive(&self, wait: TimeSpan) -> Result<Vec<ReceivedMessage>, BrokerError> {
        let command = receive::under_lock(100, wait);
        match self.queue.call(command).await? {
            Outcome::Received(messages) => Ok(messages),
            other => panic!("{other:?}"),
        }
    }

    async fn complete(&self, message: &ReceivedMessage) -> Result<(), BrokerError> {
        let token = message.facts.lock.unwrap().token;
        let command = Command::Settle { token, settlement: Settlement::Complete };
        self.queue.call(command).await.map(|_| ())
    }

    async fn counts(&self) -> Counts {
        self.broker.describe_queue("orders").await.unwrap().counts
    }
}

async fn start(store: &Arc<Switched>, clock: &Arc<ManualClock>) -> Broker {
    Broker::builder()
        .store(Arc::clone(store) as _)
        .clock(Arc::clone(clock) as _)
        .arbiters(1)
        .start()
        .await
        .unwrap()
}

fn numbers(messages: &[ReceivedMessage]) -> Vec<u64> {
    messages.iter().map(|message| message.facts.sequence.0).collect()
}

/// FND-07, FND-09: a broker whose clock reaches the last instant, which stands for every later
/// year, still accepts messages and loses none, although a lock cannot last then. A start at that
/// instant is refused with an error. With a correct clock the next start finds all messages.
#[tokio::test]
async fn a_clock_at_the_last_instant_loses_no_message() {
    let before = Timestamp::parse("9989-12-31T23:59:59Z").unwrap();
    let (store, clock) = (Switched::new(2), Arc::new(ManualClock::at(before)));
    let broker = start(&store, &clock).await;
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let queue = broker.entity("orders").unwrap();
    let world = World { store, clock, broker, queue };
    world.send("before").await.unwrap();
    world.clock.advance(Timestamp::NEVER.since(before));
    assert_eq!(world.broker.now(), Timestamp::NEVER);
    world.send("behind").await.unwrap();
    drop(world.receive(TimeSpan::ZERO).await.unwrap());
    assert_eq!(world.broker.failure(), None);
    assert_eq!(world.counts().await.active, 2);

    let World { store, clock, broker, .. } = world;
    broker.stop(Duration::ZERO).await.unwrap();
    let late = Broker::builder().store(Arc::clone(&store) as _).clock(clock).start().await;
    let Err(refused) = late else { panic!("it was started") };
    assert!(matches!(refused, StartError::Clock(now) if now == Timestamp::NEVER));
    assert!(refused.to_string().contains("before 9990"), "{refused}");
    let broker = start(&store, &Arc::new(ManualClock::at(before))).await;
    assert_eq!(broker.describe_queue("orders").await.unwrap().counts.active, 2);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// LIF-04, SET-27: after a panic the queue is rebuilt from the store: acknowledged messages are
/// there, completed ones stay gone, and locks end without a counted delivery.
#[tokio::test]
async fn a_panic_rebuilds_the_queue_and_loses_nothing() {
    let world = World::new(QueueUpdate::default()).await;
    for body in ["a", "b", "c"] {
        world.send(body).await.unwrap();
    }
    let held = world.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(numbers(&held), [1, 2, 3]);
    world.complete(&held[0]).await.unwrap();
    world.send("d").await.unwrap();
    world.store.panics.store(1, Ordering::SeqCst);
    let failed = world.receive(TimeSpan::ZERO).await.unwrap_err();
    assert_eq!(failed.condition(), Condition::InternalError);
    assert!(failed.retryable());
    let again = world.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(numbers(&again), [2, 3, 4]);
    assert!(again.iter().all(|message| message.facts.delivery_count == 0));
    let lost = world.complete(&held[1]).await.unwrap_err();
    assert_eq!(lost.condition(), Condition::MessageLockLost);
    assert_eq!(world.send("e").await.unwrap(), 5);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// FND-04: an expired message is in its queue until the append that dead-letters it is stored, and
/// only in the dead-letter queue afterwards. A failed append moves neither half.
#[tokio::test]
async fn a_failed_append_leaves_expired_messages_where_they_were() {
    let world = World::new(QueueUpdate {
        default_message_time_to_live: Some(TimeSpan::from_seconds(10)),
        dead_lettering_on_message_expiration: Some(true),
        ..QueueUpdate::default()
    })
    .await;
    world.send("a").await.unwrap();
    world.send("b").await.unwrap();
    world.clock.advance(TimeSpan::from_seconds(10));
    world.store.failures.store(1, Ordering::SeqCst);
    let failed = world.receive(TimeSpan::ZERO).await.unwrap_err();
    assert_eq!(failed.condition(), Condition::InternalError);
    let counts = world.counts().await;
    assert_eq!((counts.active, counts.dead_letter), (2, 0));
    assert_eq!(numbers(&world.receive(TimeSpan::ZERO).await.unwrap()), [0_u64; 0]);
    let counts = world.counts().await;
    assert_eq!((counts.active, counts.dead_letter), (0, 2));
    let world = world.restarted().await;
    let counts = world.counts().await;
    assert_eq!((counts.active, counts.dead_letter), (0, 2));
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// ERR-06: a send whose append failed gets an answer with an unknown outcome. Afterwards the queue
/// works, and the number is not lost (MSG-13).
#[tokio::test]
async fn a_failed_append_ends_in_an_error_and_a_working_queue() {
    let world = World::new(QueueUpdate::default()).await;
    world.send("a").await.unwrap();
    world.store.failures.store(1, Ordering::SeqCst);
    let failed = world.send("b").await.unwrap_err();
    assert_eq!(failed.condition(), Condition::InternalError);
    assert!(failed.retryable());
    assert_eq!(world.send("c").await.unwrap(), 2);
    assert_eq!(numbers(&world.receive(TimeSpan::ZERO).await.unwrap()), [1, 2]);
    assert_eq!(world.broker.failure(), None);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-15, LIF-04: a step and its receipt are stored together. After a failed append neither is
/// there, so that the repetition does the step. After a restart the step is recognised.
#[tokio::test]
async fn step_of_a_job_is_done_exactly_once() {
    let world = World::new(QueueUpdate::default()).await;
    for body in ["a", "b", "c"] {
        world.send(body).await.unwrap();
    }
    let step = |numbers: &[u64], number| {
        let sequences = numbers.iter().copied().map(SequenceNumber).collect();
        let step = Some(JobStep { job: JobId(7), number });
        let act = Act { step, sequences, deed: Deed::Delete, breaks_locks: false, kept: None };
        Command::OfOperator(OperatorCommand::Act(Box::new(act)))
    };
    let done = |outcome: Outcome| match outcome {
        Outcome::Acted(all) => all.iter().map(|one| one.result).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    world.store.failures.store(1, Ordering::SeqCst);
    let failed = world.queue.call(step(&[1, 9], 1)).await.unwrap_err();
    assert!(failed.retryable());
    let results = [ActResult::Done, ActResult::NotFound];
    assert_eq!(done(world.queue.call(step(&[1, 9], 1)).await.unwrap()), results);
    let world = world.restarted().await;
    assert_eq!(done(world.queue.call(step(&[1, 9], 1)).await.unwrap()), results);
    assert_eq!(done(world.queue.call(step(&[2], 2)).await.unwrap()), [ActResult::Done]);
    world.queue.call(Command::OfOperator(OperatorCommand::ForgetJob(JobId(7)))).await.unwrap();
    let world = world.restarted().await;
    assert_eq!(done(world.queue.call(step(&[2], 2)).await.unwrap()), [ActResult::NotFound]);
    assert_eq!(world.counts().await.active, 1);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-15, CON-17, MSG-13: messages of a job are in exactly one place over failed appends of both
/// entities and restarts. The step is answered from its receipt, and no number is given again.
#[tokio::test]
async fn sent_messages_are_in_one_place_over_failures() {
    // The step is an append, the transfer one of the destination, and the refused message another.
    let failing = [None, Some(0), Some(1), Some(2)];
    for (of_step, of_transfer) in failing.map(|at| (0, at)).into_iter().chain([(1, Some(1))]) {
        let world = World::new(QueueUpdate::default()).await;
        let ids = QueueUpdate::new().with_duplicate_detection(TimeSpan::from_minutes(60));
        world.broker.create_queue("other", ids).await.unwrap();
        for body in ["a", "b", "c"] {
            world.send(body).await.unwrap();
        }
        let message = world.broker.inbound(Message::new("").with_message_id("b"));
        world.broker.entity("other").unwrap().call(Command::Send { message }).await.unwrap();
        let step = || {
            let step = Some(JobStep { job: JobId(7), number: 1 });
            let sequences = [1, 2, 3].map(SequenceNumber).to_vec();
            let deed = Deed::Move { to: "other".into(), edit: None };
            let act = Act { step, sequences, deed, breaks_locks: false, kept: None };
            Command::OfOperator(OperatorCommand::Act(Box::new(act)))
        };
        let results = async |world: &World| match world.queue.call(step()).await {
            Ok(Outcome::Acted(all)) => Ok(all.iter().map(|one| one.result).collect::<Vec<_>>()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        let (failures, after) = (&world.store.failures, &world.store.failures_after);
        failures.store(of_step, Ordering::SeqCst);
        if of_step > 0 {
            assert!(results(&world).await.unwrap_err().retryable());
        }
        after.store(of_transfer.unwrap_or_default(), Ordering::SeqCst);
        failures.store(u32::from(of_transfer.is_some()), Ordering::SeqCst);
        let mut last = results(&world).await.unwrap_or_else(|_| vec![ActResult::Leaving]);
        while last.contains(&ActResult::Leaving) {
            world.clock.advance(TimeSpan::from_seconds(1));
            tokio::task::yield_now().await;
            last = results(&world).await.unwrap_or(last);
        }
        assert_eq!(failures.load(Ordering::SeqCst), 0, "{of_step} {of_transfer:?}");
        after.store(0, Ordering::SeqCst);
        let expected = [ActResult::Done, ActResult::Duplicate, ActResult::Done];
        assert_eq!(last, expected, "{of_step} {of_transfer:?}");
        let world = world.restarted().await;
        assert_eq!(results(&world).await.unwrap(), expected);
        let other = world.broker.describe_queue("other").await.unwrap();
        assert_eq!((world.counts().await.active, other.counts.active), (1, 3));
        assert_eq!(world.send("d").await.unwrap(), 4, "no number is given twice");
        world.broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// FND-02: an append with an unknown outcome is submitted again with its id. It is stored once,
/// whether or not it had been stored before.
#[tokio::test]
async fn an_unknown_append_is_submitted_again_and_lands_once() {
    let world = World::new(QueueUpdate::default()).await;
    world.store.unknown_lost.store(1, Ordering::SeqCst);
    assert_eq!(world.send("a").await.unwrap(), 1);
    world.store.unknown_landed.store(1, Ordering::SeqCst);
    assert_eq!(world.send("b").await.unwrap(), 2);
    assert_eq!(world.counts().await.active, 2);
    let world = world.restarted().await;
    assert_eq!(numbers(&world.receive(TimeSpan::ZERO).await.unwrap()), [1, 2]);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// An append whose outcome stays unknown fails its tree, which is rebuilt.
#[tokio::test]
async fn an_append_that_stays_unknown_rebuilds_the_queue() {
    let world = World::new(QueueUpdate::default()).await;
    world.store.unknown_lost.store(2, Ordering::SeqCst);
    let failed = world.send("a").await.unwrap_err();
    assert_eq!(failed.condition(), Condition::InternalError);
    assert_eq!(world.send("b").await.unwrap(), 1);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// After three failures within a minute the queue stays closed; other queues still work.
#[tokio::test]
async fn a_queue_that_fails_three_times_is_closed() {
    let world = World::new(QueueUpdate::default()).await;
    world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
    world.send("a").await.unwrap();
    for _ in 0..3 {
        world.store.panics.store(1, Ordering::SeqCst);
        world.receive(TimeSpan::ZERO).await.unwrap_err();
    }
    let closed = world.send("b").await.unwrap_err();
    assert_eq!(closed.condition(), Condition::OperationCancelled);
    assert!(closed.detail().contains("closed"), "{closed}");
    let other = world.broker.entity("other").unwrap();
    let message = world.broker.inbound(Message::new("a"));
    other.call(Command::Send { message }).await.unwrap();
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// If the broker cannot acquire the store again, it fails and reports that.
#[tokio::test]
async fn a_lost_store_fails_the_broker() {
    let world = World::new(QueueUpdate::default()).await;
    world.store.refuses_ownership.store(1, Ordering::SeqCst);
    world.store.failures.store(1, Ordering::SeqCst);
    world.send("a").await.unwrap_err();
    assert!(world.broker.failed().await.contains("the disk is gone"));
    assert!(world.broker.failure().is_some());
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// Sends wait for room in the store, in order, and are refused with `ServerBusy` after 5 s.
/// Commands that need no room are carried out meanwhile (DESIGN D11). ERR-06: no part of a refused
/// send was stored.
#[tokio::test]
async fn sends_wait_for_room_and_other_commands_continue() {
    let world = World::new(QueueUpdate::default()).await;
    world.send("a").await.unwrap();
    world.store.busy.store(u32::MAX, Ordering::SeqCst);
    let mut parked = Box::pin(world.send("b"));
    let busy = tokio::select! {
        biased;
        _ = &mut parked => panic!("the send did not wait"),
        held = world.receive(TimeSpan::ZERO) => held.unwrap(),
    };
    assert_eq!(numbers(&busy), [1]);
    world.complete(&busy[0]).await.unwrap();
    world.clock.advance(TimeSpan::from_seconds(6));
    let refused = parked.await.unwrap_err();
    assert_eq!(refused.condition(), Condition::ServerBusy);
    world.store.busy.store(1, Ordering::SeqCst);
    let mut parked = Box::pin(world.send("c"));
    tokio::select! {
        biased;
        _ = &mut parked => panic!("the send did not wait"),
        counts = world.counts() => assert_eq!(counts.total(), 0),
    }
    world.store.make_room();
    assert_eq!(parked.await.unwrap(), 2);
    // A store with enough wakers accepts no more and is asked again after a while. Earlier turns
    // ask too, and their number is unknown, so the store is busy until the test changes that.
    world.store.busy.store(u32::MAX, Ordering::SeqCst);
    world.store.takes_no_waker.store(u32::MAX, Ordering::SeqCst);
    let mut parked = Box::pin(world.send("d"));
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = &mut parked => panic!("the send did not wait"),
            counts = world.counts() => assert_eq!(counts.total(), 1),
        }
    }
    world.store.busy.store(0, Ordering::SeqCst);
    world.clock.advance(TimeSpan::from_ms(100));
    assert_eq!(parked.await.unwrap(), 3);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// SCH-08, DUP-08, SET-27, MSG-12, ENT-31: durable state is there after a restart: messages with
/// their states and counts, message ids of the window, the description. Numbers continue.
#[tokio::test]
async fn a_restart_brings_everything_back() {
    let world = World::new(QueueUpdate {
        requires_duplicate_detection: Some(true),
        max_delivery_count: Some(7),
        user_metadata: Some("mine".into()),
        ..QueueUpdate::default()
    })
    .await;
    for body in ["a", "b", "c", "d"] {
        world.send(body).await.unwrap();
    }
    let held = world.receive(TimeSpan::ZERO).await.unwrap();
    let settle = |index: usize, settlement: Settlement| {
        let token = held[index].facts.lock.unwrap().token;
        world.queue.call(Command::Settle { token, settlement })
    };
    settle(0, Settlement::Complete).await.unwrap();
    settle(1, Settlement::Abandon { properties: None, delay: None }).await.unwrap();
    settle(2, Settlement::Defer { properties: None }).await.unwrap();
    settle(3, Settlement::DeadLetter { properties: None }).await.unwrap();
    let later = world.broker.now().plus(TimeSpan::from_minutes(5));
    let message = Message::new("later").with_scheduled_enqueue_time(later);
    let message = world.broker.inbound(message);
    world.queue.call(Command::Send { message }).await.unwrap();
    let before = world.broker.describe_queue("orders").await.unwrap();
    let world = world.restarted().await;
    let after = world.broker.describe_queue("orders").await.unwrap();
    assert_eq!(after.description, before.description);
    assert_eq!(after.counts, before.counts);
    assert_eq!(after.size_bytes, before.size_bytes);
    assert_eq!(after.created_at, before.created_at);
    let again = world.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(numbers(&again), [2]);
    assert_eq!(again[0].facts.delivery_count, 1);
    assert_eq!(world.send("a").await.unwrap(), 0, "a duplicate is still dropped");
    assert_eq!(world.send("e").await.unwrap(), 6);
    world.clock.advance(TimeSpan::from_minutes(5));
    // Counts are returned when everything before them is durable, including the enqueued scheduled
    // message.
    assert_eq!(world.counts().await.scheduled, 0);
    assert_eq!(numbers(&world.receive(TimeSpan::ZERO).await.unwrap()).last(), Some(&7));
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// ENT-14, MSG-12: a deleted queue leaves nothing; a new one with its path is empty and numbers
/// from 1.
#[tokio::test]
async fn a_deleted_queue_leaves_nothing_behind() {
    let world = World::new(QueueUpdate::default()).await;
    world.send("a").await.unwrap();
    world.broker.delete_entity("orders").await.unwrap();
    world.broker.create_queue("ORDERS", QueueUpdate::default()).await.unwrap();
    let world = world.restarted().await;
    assert_eq!(world.counts().await.total(), 0);
    assert_eq!(world.send("a").await.unwrap(), 1);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// SET-27: a delivery that failed by the end of its lock is counted durably within a second,
/// without a request, and exactly at a graceful stop.
#[tokio::test]
async fn lock_ends_are_counted_over_a_restart() {
    let world = World::new(QueueUpdate::default()).await;
    world.send("a").await.unwrap();
    world.receive(TimeSpan::ZERO).await.unwrap();
    world.clock.advance(TimeSpan::from_seconds(61));
    assert_eq!(world.counts().await.active, 1);
    let world = world.restarted().await;
    let again = world.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(again[0].facts.delivery_count, 1);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// The id of a broker for forwarders is stored with its data and is unique.
#[tokio::test]
async fn a_broker_keeps_its_id_with_its_data() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let start = |store: Arc<MemoryStore>| async {
        Broker::builder().arbiters(1).store(store).start().await.unwrap()
    };
    let broker = start(Arc::clone(&store)).await;
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    let id = broker.id();
    broker.stop(Duration::ZERO).await.unwrap();
    let again = start(store).await;
    assert_eq!(again.id(), id);
    again.stop(Duration::ZERO).await.unwrap();
    let other = start(Arc::new(MemoryStore::new(2, u64::MAX))).await;
    assert_ne!(other.id(), id);
    other.stop(Duration::ZERO).await.unwrap();
}

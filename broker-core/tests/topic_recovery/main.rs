//! A topic and its subscriptions when an append fails, a machine panics, or the broker is stopped
//! halfway: the tree ends as a whole and is rebuilt as a whole (DESIGN D3).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod kept;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, ReceiveMode, TopicCommand};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Content, Message};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::store::Shard;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Crash, Fate, FaultStore, Random};

use self::store::Panicky;

const SHARD: Shard = Shard(0);
const AUDIT: &str = "events/Subscriptions/audit";
const BILLING: &str = "events/Subscriptions/billing";

struct World {
    store: Arc<Panicky>,
    clock: Arc<ManualClock>,
    broker: Broker,
}

impl World {
    /// Creates a topic with two subscriptions that get all messages.
    async fn new() -> Self {
        let store = Panicky::over(FaultStore::at_once(1, u64::MAX));
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let broker = start(&store, &clock).await;
        broker.create_topic("events", TopicUpdate::default()).await.unwrap();
        let world = Self { store, clock, broker };
        world.create("audit").await.unwrap();
        world.create("billing").await.unwrap();
        world
    }

    fn clock_plus(&self, seconds: i64) -> Timestamp {
        self.broker.now().plus(TimeSpan::from_seconds(seconds))
    }

    async fn create(&self, name: &str) -> Result<(), BrokerError> {
        let properties = SubscriptionUpdate::default();
        self.broker.create_subscription("events", name, properties, vec![]).await.map(|_| ())
    }

    async fn restarted(self) -> Self {
        self.store.inner.complete_at_once(true);
        self.broker.stop(Duration::ZERO).await.unwrap();
        let broker = start(&self.store, &self.clock).await;
        Self { broker, ..self }
    }

    async fn send(&self, body: &str) -> Result<u64, BrokerError> {
        let message = self.broker.inbound(Message::new(body.to_owned()));
        match self.broker.entity("events")?.call(Command::Send { message }).await? {
            Outcome::Accepted(sequence) => Ok(sequence.0),
            other => panic!("{other:?}"),
        }
    }

    async fn receive(
        &self,
        path: &str,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Result<Vec<(u64, String)>, BrokerError> {
        let command =
            Command::Receive { mode, count_max: 1_000, bytes_max: u64::MAX, wait, holder: None };
        let Outcome::Received(received) = self.broker.entity(path)?.call(command).await? else {
            panic!("a receive is answered with messages");
        };
        Ok(received
            .iter()
            .map(|one| {
                let content = Content::parse(one.content.loaded().unwrap().clone()).unwrap();
                let text = String::from_utf8(content.body_bytes().to_vec()).unwrap();
                (one.facts.sequence.0, text)
            })
            .collect())
    }

    async fn look(&self, path: &str) -> Vec<(u64, String)> {
        self.receive(path, ReceiveMode::PeekLock, TimeSpan::ZERO).await.unwrap()
    }

    /// Runs `work` while the next submitted batches have these fates. All later batches are stored.
    async fn with_fates<T>(&self, fates: &[Fate], work: impl Future<Output = T>) -> T {
        let store = &self.store.inner;
        store.complete_at_once(false);
        let completes = async {
            let mut fates = fates.iter().copied();
            let mut fate = fates.next().unwrap_or(Fate::Store);
            loop {
                if store.complete_next(SHARD, fate) {
                    fate = fates.next().unwrap_or(Fate::Store);
                }
                tokio::task::yield_now().await;
            }
        };
        let done = tokio::select! {
            done = work => done,
            () = completes => panic!("batches are completed as long as there is work"),
        };
        while store.complete_next(SHARD, Fate::Store) {}
        store.complete_at_once(true);
        done
    }
}

async fn start(store: &Arc<Panicky>, clock: &Arc<ManualClock>) -> Broker {
    let builder = Broker::builder().store(Arc::clone(store) as _).clock(Arc::clone(clock) as _);
    builder.arbiters(1).start().await.unwrap()
}

fn numbered(texts: &[&str]) -> Vec<(u64, String)> {
    (1..).zip(texts.iter().map(|text| (*text).to_owned())).collect()
}

#[track_caller]
fn failed<T: std::fmt::Debug>(result: Result<T, BrokerError>) {
    assert_eq!(result.unwrap_err().condition(), Condition::InternalError);
}

const UNKNOWN: Fate = Fate::Unknown { landed: true, holds: false };

/// TOP-07, FND-02, DESIGN D3: a lost publish is in no subscription, all callers in the tree get
/// errors, and acknowledged messages are there.
#[tokio::test]
async fn a_lost_publish_ends_the_tree_and_is_in_no_subscription() {
    let world = World::new().await;
    world.send("a").await.unwrap();
    world.receive(AUDIT, ReceiveMode::ReceiveAndDelete, TimeSpan::ZERO).await.unwrap();
    let wait = TimeSpan::from_minutes(1);
    let work = async {
        tokio::join!(world.send("lost"), world.receive(AUDIT, ReceiveMode::PeekLock, wait))
    };
    let (sent, waited) = world.with_fates(&[Fate::Fail], work).await;
    failed(sent);
    failed(waited);
    assert_eq!(world.send("b").await.unwrap(), 2);
    assert_eq!(world.look(AUDIT).await, [(2, "b".to_owned())]);
    assert_eq!(world.look(BILLING).await, numbered(&["a", "b"]));
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// DESIGN D3: a panic of a subscription ends its topic and its siblings too, and all are rebuilt.
#[tokio::test]
async fn a_panic_in_a_subscription_rebuilds_the_whole_tree() {
    let world = World::new().await;
    world.send("a").await.unwrap();
    let at = world.clock_plus(60);
    let scheduled = Message::new("scheduled").with_scheduled_enqueue_time(at);
    let message = world.broker.inbound(scheduled);
    world.broker.entity("events").unwrap().call(Command::Send { message }).await.unwrap();
    world.store.panics.store(1, Ordering::SeqCst);
    failed(world.receive(AUDIT, ReceiveMode::PeekLock, TimeSpan::ZERO).await);
    assert_eq!(world.send("b").await.unwrap(), 3);
    for path in [AUDIT, BILLING] {
        assert_eq!(world.look(path).await, numbered(&["a", "b"]));
    }
    // The topic panics when it loads due messages.
    world.store.panics.store(1, Ordering::SeqCst);
    world.clock.advance(TimeSpan::from_seconds(60));
    while world.broker.describe_topic("events").await.map_or(1, |described| described.scheduled) > 0
    {
        tokio::task::yield_now().await;
    }
    let world = world.restarted().await;
    for path in [AUDIT, BILLING] {
        assert_eq!(world.look(path).await, numbered(&["a", "b", "scheduled"]));
    }
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// TOP-17: the store decides whether a subscription exists, regardless of the answer.
#[tokio::test]
async fn a_creation_of_unknown_outcome_is_settled_by_the_store() {
    let world = World::new().await;
    failed(world.with_fates(&[Fate::Fail], world.create("lost")).await);
    assert_eq!(world.broker.subscription_paths("events", 0, 10).unwrap().len(), 2);
    world.create("lost").await.unwrap();
    world.with_fates(&[UNKNOWN, UNKNOWN], world.create("landed")).await.unwrap();
    world.send("a").await.unwrap();
    for name in ["audit", "billing", "lost", "landed"] {
        let path = format!("events/Subscriptions/{name}");
        assert_eq!(world.look(&path).await, numbered(&["a"]));
    }
    let world = world.restarted().await;
    assert_eq!(world.broker.subscription_paths("events", 0, 10).unwrap().len(), 4);
    assert_eq!(world.broker.describe_topic("events").await.unwrap().subscription_count, 4);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// ENT-14: a deletion that was lost with its tree is repeated by the next one.
#[tokio::test]
async fn a_lost_deletion_can_be_repeated() {
    for fates in [&[Fate::Fail][..], &[UNKNOWN, UNKNOWN]] {
        let world = World::new().await;
        world.send("a").await.unwrap();
        world.with_fates(fates, world.broker.delete_entity(AUDIT)).await.unwrap();
        assert_eq!(world.send("b").await.unwrap(), 2);
        assert_eq!(world.look(BILLING).await, numbered(&["a", "b"]));
        let missing = world.receive(AUDIT, ReceiveMode::PeekLock, TimeSpan::ZERO).await;
        assert_eq!(missing.unwrap_err().condition(), Condition::EntityNotFound);
        let described = world.broker.describe_topic("events").await.unwrap();
        assert_eq!(described.subscription_count, 1);
        world.create("audit").await.unwrap();
        assert!(world.look(AUDIT).await.is_empty());
        let world = world.restarted().await;
        assert!(world.look(AUDIT).await.is_empty());
        world.broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// MSG-13, FWD-09: a destination removes a forwarded message of a subscription in a batch of its
/// own. Its number is not given again, even if the broker crashes right after that batch.
#[tokio::test]
async fn a_forwarded_number_is_not_given_again() {
    let world = World::new().await;
    world.broker.create_queue("end", QueueUpdate::default()).await.unwrap();
    let forwards =
        SubscriptionUpdate { forward_to: Some("end".into()), ..SubscriptionUpdate::default() };
    world.broker.create_subscription("events", "on", forwards, vec![]).await.unwrap();
    for number in 1..=2 {
        world.send("a").await.unwrap();
        while world.broker.describe_queue("end").await.unwrap().counts.active < number {
            tokio::task::yield_now().await;
        }
    }
    // Changes that are not yet submitted are lost with the broker, whose clock does not move.
    let store = Panicky::over(world.store.inner.crash(Crash::Loses));
    let broker = start(&store, &world.clock).await;
    let on = broker.describe_subscription("events/Subscriptions/on").await.unwrap();
    assert_eq!((on.counts.total(), on.last_sequence.0), (0, 2));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// The broker's internal commands are refused from clients and change nothing: they could name
/// records of other entities, or remove a subscription that has an actor.
#[tokio::test]
async fn internal_commands_are_refused_from_clients() {
    let world = World::new().await;
    let broker = &world.broker;
    let (audit, topic) = (broker.entity(AUDIT).unwrap(), broker.entity("events").unwrap());
    let error = topic
        .call(Command::OfTopic(TopicCommand::RemoveSubscription { id: audit.id() }))
        .await
        .unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidOperation);
    assert_eq!(broker.describe_topic("events").await.unwrap().subscription_count, 2);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// ENT-15, LIF-04: a stop ends waiting calls and loses nothing, with a hundred subscriptions.
#[tokio::test]
async fn a_broker_with_many_subscriptions_stops_and_starts() {
    let world = World::new().await;
    for number in 0..100 {
        world.create(&format!("s{number}")).await.unwrap();
    }
    world.broker.delete_entity(AUDIT).await.unwrap();
    world.broker.delete_entity(BILLING).await.unwrap();
    world.send("a").await.unwrap();
    let wait = TimeSpan::from_minutes(1);
    world.look("events/Subscriptions/s7").await;
    let (waited, ()) = tokio::join!(
        world.receive("events/Subscriptions/s7", ReceiveMode::PeekLock, wait),
        async { world.broker.stop(Duration::ZERO).await.unwrap() },
    );
    assert!(waited.is_ok_and(|none| none.is_empty()));
    let broker = start(&world.store, &world.clock).await;
    let world = World { broker, ..world };
    for number in 0..100 {
        assert_eq!(world.look(&format!("events/Subscriptions/s{number}")).await, numbered(&["a"]));
    }
    world.broker.delete_entity("events").await.unwrap();
    let world = world.restarted().await;
    assert!(world.broker.topic_paths(0, 10).is_empty());
    world.create("audit").await.unwrap_err();
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// TOP-07, MSG-13: senders, receivers and an operator work while appends fail at random: each
/// acknowledged message is exactly once in every existing subscription, in the order of its number.
#[tokio::test]
async fn nothing_acknowledged_is_lost_or_doubled_while_appends_fail() {
    for seed in 0..12 {
        let world = World::new().await;
        world.store.inner.complete_at_once(false);
        let ends = AtomicBool::new(false);
        let store = async {
            let mut random = Random::new(seed);
            let mut failures = 0;
            while !ends.load(Ordering::SeqCst) {
                // Three failures within a minute would close the topic.
                let fails = failures < 2 && random.one_in(12);
                let fate = if fails { Fate::Fail } else { Fate::Store };
                if world.store.inner.complete_next(SHARD, fate) && fails {
                    failures += 1;
                }
                for _ in 0..random.below(4) {
                    tokio::task::yield_now().await;
                }
            }
            while world.store.inner.complete_next(SHARD, Fate::Store) {}
            world.store.inner.complete_at_once(true);
        };
        let sends = async {
            let mut acknowledged = Vec::new();
            for number in 0..40 {
                let text = format!("m{number}");
                if world.send(&text).await.is_ok() {
                    acknowledged.push(text);
                }
            }
            acknowledged
        };
        let manages = async {
            for number in 0..6 {
                let name = format!("t{number}");
                if world.create(&name).await.is_ok() {
                    let path = format!("events/Subscriptions/{name}");
                    let rule = RuleDescription::new("r", Filter::False, Timestamp::NONE);
                    world.broker.create_rule(&path, rule).await.ok();
                    world.broker.delete_entity(&path).await.ok();
                }
            }
        };
        let takes = async {
            let mut taken: Vec<(u64, String)> = Vec::new();
            for _ in 0..20 {
                let mode = ReceiveMode::ReceiveAndDelete;
                taken
                    .extend(world.receive(BILLING, mode, TimeSpan::ZERO).await.unwrap_or_default());
            }
            taken
        };
        let work = async {
            let done = tokio::join!(sends, manages, takes);
            ends.store(true, Ordering::SeqCst);
            done
        };
        let ((acknowledged, (), taken), ()) = tokio::join!(work, store);
        let world = world.restarted().await;
        let audit = world.look(AUDIT).await;
        let texts: Vec<&String> = audit.iter().map(|(_, text)| text).collect();
        for text in &acknowledged {
            let count = texts.iter().filter(|one| **one == text).count();
            assert_eq!(count, 1, "{text} is there {count} times, seed {seed}");
        }
        assert!(audit.is_sorted_by_key(|(number, _)| *number));
        let order = |text: &String| text.trim_start_matches('m').parse::<u32>().unwrap();
        assert!(texts.is_sorted_by_key(|text| order(text)), "out of order: {texts:?}");
        let billing = world.look(BILLING).await;
        for (number, text) in &taken {
            assert!(!billing.contains(&(*number, text.clone())), "{text} is handed out twice");
        }
        world.broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// SCH-03, SCH-07, DESIGN D8: contents of scheduled messages that are not in memory are loaded
/// outside the arbiter, a bounded number at a time. A failed load is tried again, and its message
/// can be cancelled in between.
#[tokio::test]
async fn scheduled_contents_are_loaded_and_tried_again() {
    const COUNT: u32 = 300;
    let world = World::new().await;
    let at = world.clock_plus(60);
    let topic = world.broker.entity("events").unwrap();
    let schedule = |number: u32| {
        let message = Message::new(format!("m{number}")).with_scheduled_enqueue_time(at);
        Command::Send { message: world.broker.inbound(message) }
    };
    let sent = topic.call_many((0..COUNT).map(schedule).collect()).await;
    assert!(sent.iter().all(Result::is_ok));
    world.store.is_elsewhere.store(true, Ordering::SeqCst);
    world.store.damaged.store(2, Ordering::SeqCst);
    let until = async |left: u64| {
        while world.broker.describe_topic("events").await.unwrap().scheduled != left {
            tokio::task::yield_now().await;
        }
    };
    world.clock.advance(TimeSpan::from_seconds(60));
    until(2).await;
    let cancel = |number: u64| Command::CancelScheduled { sequences: vec![SequenceNumber(number)] };
    topic.call(cancel(2)).await.unwrap();
    world.clock.advance(TimeSpan::from_minutes(1));
    until(0).await;
    world.store.is_elsewhere.store(false, Ordering::SeqCst);
    let expected: Vec<String> = (2..COUNT).chain([0]).map(|number| format!("m{number}")).collect();
    for path in [AUDIT, BILLING] {
        let texts: Vec<String> = world.look(path).await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, expected);
    }
    world.broker.stop(Duration::ZERO).await.unwrap();
}

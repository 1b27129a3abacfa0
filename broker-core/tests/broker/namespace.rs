//! Properties of the namespace, and the management nodes of entities.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use peeklock_core::change::codec::namespace_facts_key;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Right, Rights};
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::limits::Tier;
use peeklock_core::path::SubQueue;
use peeklock_core::policies::PolicyUpdate;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::store::memory::MemoryStore;
use peeklock_core::store::{Batch, Key, Shard, Store, Submission};
use peeklock_core::time::Timestamp;
use peeklock_core::{Broker, Namespace};
use peeklock_store_testing::{Fate, FaultStore, block_on};
use tokio::task::JoinHandle;

fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000 + seconds * 1_000)
}

async fn started(store: &Arc<MemoryStore>, settings: Settings, seconds: i64) -> Broker {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(instant(seconds)));
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    let builder = Broker::builder().settings(settings).clock(clock).store(store);
    builder.arbiters(1).start().await.unwrap()
}

async fn stop(broker: Broker) {
    broker.stop(Duration::ZERO).await.unwrap();
}

fn namespace_of(name: &str, tier: Tier, created: i64, modified: i64) -> Namespace {
    let (created_at, modified_at) = (instant(created), instant(modified));
    Namespace { name: name.into(), tier, created_at, modified_at }
}

fn named(name: &str, tier: Tier) -> Settings {
    Settings::new(name, tier)
}

/// CNT-10: name, tier, created and modified instants survive restarts. A start that changes name or
/// tier modifies the namespace.
#[tokio::test]
async fn a_namespace_has_created_and_modified_instants() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, named("shop", Tier::Premium), 0).await;
    assert_eq!(*broker.namespace(), namespace_of("shop", Tier::Premium, 0, 0));
    stop(broker).await;
    // The store is empty, so the namespace is created now.
    let broker = started(&store, named("shop", Tier::Premium), 10).await;
    assert_eq!(*broker.namespace(), namespace_of("shop", Tier::Premium, 10, 10));
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    stop(broker).await;
    for (seconds, name, tier, modified) in [
        (20, "shop", Tier::Premium, 10),
        (30, "store", Tier::Premium, 30),
        (40, "store", Tier::Premium, 30),
        (50, "store", Tier::Standard, 50),
        (60, "store", Tier::Standard, 50),
    ] {
        let broker = started(&store, named(name, tier), seconds).await;
        assert_eq!(*broker.namespace(), namespace_of(name, tier, 10, modified), "at {seconds}");
        stop(broker).await;
    }
}

/// CNT-10: data of a version without these facts counts as created with its oldest entity, also
/// after that entity is deleted.
#[tokio::test]
async fn a_namespace_of_older_data_is_as_old_as_its_oldest_entity() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, Settings::default(), 0).await;
    broker.create_queue("old", QueueUpdate::default()).await.unwrap();
    stop(broker).await;
    let broker = started(&store, Settings::default(), 100).await;
    broker.create_topic("young", TopicUpdate::default()).await.unwrap();
    stop(broker).await;
    forget_facts(&store);
    let name = Settings::default().name;
    let broker = started(&store, Settings::default(), 200).await;
    assert_eq!(*broker.namespace(), namespace_of(&name, Tier::Premium, 0, 0));
    broker.delete_entity("old").await.unwrap();
    stop(broker).await;
    let broker = started(&store, Settings::default(), 300).await;
    assert_eq!(*broker.namespace(), namespace_of(&name, Tier::Premium, 0, 0));
    stop(broker).await;
}

/// Makes the store as version 0.1 would have left it.
fn forget_facts(store: &Arc<MemoryStore>) {
    let (fence, id) = block_on(store.acquire(Shard(0))).unwrap();
    let mut batch = Batch::default();
    batch.delete(&namespace_facts_key());
    batch.require_sync();
    let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
    store.submit(submission, Box::new(|result| result.unwrap()));
}

/// ADR-13: each entity and sub-queue has a management node.
#[tokio::test]
async fn each_entity_has_a_management_node() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, Settings::default(), 0).await;
    broker.create_queue("Orders", QueueUpdate::default()).await.unwrap();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let none = SubscriptionUpdate::default();
    broker.create_subscription("events", "audit", none, Vec::new()).await.unwrap();
    for (path, managed, sub_queue) in [
        ("orders/$Management", "Orders", SubQueue::Main),
        ("orders/$deadletterqueue/$management", "Orders/$deadletterqueue", SubQueue::DeadLetter),
        ("events/$management", "events", SubQueue::Main),
        ("events/subscriptions/audit/$management", "events/Subscriptions/audit", SubQueue::Main),
    ] {
        let entity = broker.entity_of_management_node(path).unwrap();
        assert_eq!((entity.path(), entity.sub_queue()), (managed, sub_queue), "{path}");
        // The node is no entity.
        let error = broker.entity(path).err().unwrap();
        assert_eq!(error.condition(), Condition::EntityNotFound, "{path}");
    }
    for path in ["nowhere/$management", "events/$deadletterqueue/$management", "orders", "$cbs"] {
        let error = broker.entity_of_management_node(path).err().unwrap();
        assert_eq!(error.condition(), Condition::EntityNotFound, "{path}");
    }
    let error = broker.create_queue("orders/$management", QueueUpdate::default()).await;
    assert_eq!(error.unwrap_err().condition(), Condition::ArgumentError);
    stop(broker).await;
}

/// A broker whose writes wait for the test.
struct Held {
    broker: Broker,
    store: Arc<FaultStore>,
}

type RequestTask = JoinHandle<Result<(), BrokerError>>;

impl Held {
    async fn new() -> Self {
        let store = FaultStore::at_once(1, u64::MAX);
        let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).arbiters(1);
        let broker = builder.start().await.unwrap();
        // Afterwards it has a block of ids.
        broker.create_queue("there", QueueUpdate::default()).await.unwrap();
        broker.create_topic("t", TopicUpdate::default()).await.unwrap();
        store.complete_at_once(false);
        Self { broker, store }
    }

    /// Starts a request, and waits until its write is submitted.
    async fn begin<F>(&self, request: impl FnOnce(Broker) -> F) -> RequestTask
    where
        F: Future<Output = Result<(), BrokerError>> + Send + 'static,
    {
        let task = tokio::spawn(request(self.broker.clone()));
        while self.store.queued(Shard(0)) == 0 {
            tokio::task::yield_now().await;
        }
        task
    }

    /// Starts a request, and waits until it has reached its waiting place.
    async fn ask<F>(&self, request: impl FnOnce(Broker) -> F) -> RequestTask
    where
        F: Future<Output = Result<(), BrokerError>> + Send + 'static,
    {
        let task = tokio::spawn(request(self.broker.clone()));
        tokio::task::yield_now().await;
        // The namespace processes mail in order, so all earlier mail has been processed.
        let taken = self.broker.create_queue("there", QueueUpdate::default()).await.unwrap_err();
        assert_eq!(taken.condition(), Condition::EntityAlreadyExists);
        task
    }

    /// Decides the outcome of the pending write. All other writes succeed.
    fn decide(&self, fate: Fate) {
        assert!(self.store.complete_next(Shard(0), fate));
        self.store.complete_at_once(true);
        while self.store.complete_next(Shard(0), Fate::Store) {}
    }

    async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

async fn condition(task: RequestTask) -> Option<Condition> {
    task.await.unwrap().err().map(|error| error.condition())
}

async fn create(broker: Broker, path: &str) -> Result<(), BrokerError> {
    broker.create_queue(path, QueueUpdate::default()).await.map(drop)
}

async fn create_forwarding(broker: Broker) -> Result<(), BrokerError> {
    let to = QueueUpdate { forward_to: Some("q".into()), ..QueueUpdate::default() };
    broker.create_queue("source", to).await.map(drop)
}

/// ENT-32: requests that name a queue whose creation is pending wait for its outcome. They find the
/// queue, or nothing if the creation fails; another creation then succeeds.
#[tokio::test]
async fn requests_wait_for_a_creation_in_progress() {
    for fate in [Fate::Store, Fate::Fail] {
        let held = Held::new().await;
        let first = held.begin(|broker| async move { create(broker, "q").await }).await;
        let second = held.ask(|broker| async move { create(broker, "Q").await }).await;
        let found = held.ask(|broker| async move {
            broker.full_access().entity("q/$deadletterqueue", Action::Peek).await.map(drop)
        });
        let described =
            held.ask(|broker| async move { broker.describe_queue("q").await.map(drop) });
        let updated = held.ask(|broker| async move {
            broker.update_queue("q", QueueUpdate::default(), None).await.map(drop)
        });
        let forwarding = held.ask(create_forwarding);
        let policy = held.ask(|broker| async move {
            let properties =
                PolicyUpdate { rights: Some(Rights::of(Right::Send)), ..PolicyUpdate::default() };
            broker.create_policy("q", "p", properties).await.map(drop)
        });
        let mut waiting = vec![second];
        waiting.extend([found.await, described.await, updated.await]);
        waiting.extend([forwarding.await, policy.await]);
        assert!(!first.is_finished() && waiting.iter().all(|task| !task.is_finished()));
        held.decide(fate);
        let mut outcomes = Vec::new();
        for task in waiting {
            outcomes.push(condition(task).await);
        }
        let (second, others) = outcomes.split_first().unwrap();
        if fate == Fate::Store {
            assert_eq!(condition(first).await, None);
            assert_eq!(*second, Some(Condition::EntityAlreadyExists));
            assert!(others.iter().all(Option::is_none), "{others:?}");
        } else {
            assert_eq!(condition(first).await, Some(Condition::InternalError));
            assert_eq!(*second, None);
            held.broker.describe_queue("Q").await.unwrap();
        }
        held.stop().await;
    }
}

/// ENT-32: the same for a subscription and its rules, for the deletion of its topic meanwhile, and
/// for a topic that gets a subscription.
#[tokio::test]
async fn requests_wait_for_a_subscription_in_progress() {
    let subscribe = |topic: &'static str| {
        move |broker: Broker| async move {
            let none = SubscriptionUpdate::default();
            broker.create_subscription(topic, "s", none, Vec::new()).await.map(drop)
        }
    };
    let held = Held::new().await;
    let first = held.begin(subscribe("t")).await;
    let second = held.ask(subscribe("t")).await;
    let rules = held.ask(|broker| async move {
        let rule = RuleDescription::new("r", Filter::True, Timestamp::NONE);
        broker.create_rule("t/Subscriptions/s", rule).await.map(drop)
    });
    let rules = rules.await;
    assert!(![&first, &second, &rules].iter().any(|task| task.is_finished()));
    held.decide(Fate::Store);
    assert_eq!(condition(first).await, None);
    assert_eq!(condition(second).await, Some(Condition::EntityAlreadyExists));
    assert_eq!(condition(rules).await, None);
    held.store.complete_at_once(false);
    let topic = held.begin(|broker| async move {
        broker.create_topic("news", TopicUpdate::default()).await.map(drop)
    });
    let topic = topic.await;
    let subscription = held.ask(subscribe("news")).await;
    assert!(!topic.is_finished() && !subscription.is_finished());
    held.decide(Fate::Store);
    assert_eq!((condition(topic).await, condition(subscription).await), (None, None));
    held.store.complete_at_once(false);
    let created = held.begin(|broker| async move {
        let none = SubscriptionUpdate::default();
        broker.create_subscription("news", "late", none, Vec::new()).await.map(drop)
    });
    let created = created.await;
    let deleted = held.ask(|broker| async move { broker.delete_entity("news").await }).await;
    assert!(!created.is_finished() && !deleted.is_finished());
    held.decide(Fate::Store);
    // A creation returns the description, which the deletion may have removed by then.
    assert!(matches!(condition(created).await, None | Some(Condition::EntityNotFound)));
    assert_eq!(condition(deleted).await, None);
    held.stop().await;
}

/// CLU-28, DESIGN D4: ids are not given twice, although another broker reserves some in the same
/// store, or the outcome of a reservation is unknown. A creation whose ids could not be reserved
/// fails, and the next one succeeds.
#[tokio::test]
async fn ids_are_not_given_twice() {
    let store = FaultStore::at_once(1, u64::MAX);
    let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).arbiters(1);
    let broker = builder.start().await.unwrap();
    let counter = Key::of_space(0).then(&[1]);
    let mut batch = Batch::default();
    batch.put(&counter, |value| value.extend_from_slice(&5_000u64.to_be_bytes()));
    assert!(store.amend(&[(counter, None)], batch).await.unwrap());
    create(broker.clone(), "first").await.unwrap();
    assert_eq!(broker.entity("first").unwrap().id().0, 5_000);
    for number in 1..1_000 {
        create(broker.clone(), &format!("q{number}")).await.unwrap();
    }
    store.decide_amendment(Fate::Unknown { landed: true, holds: false });
    store.decide_amendment(Fate::Fail);
    for _ in 0..2 {
        let failed = create(broker.clone(), "last").await.unwrap_err();
        assert_eq!(failed.condition(), Condition::InternalError);
    }
    store.decide_amendment(Fate::GiveUp { landed: false });
    let busy = create(broker.clone(), "last").await.unwrap_err();
    assert_eq!(busy.condition(), Condition::ServerBusy);
    create(broker.clone(), "last").await.unwrap();
    assert_eq!(broker.entity("last").unwrap().id().0, 7_000);
    stop(broker).await;
}

/// A waker that looks up an entity without waiting, on the thread that answers a request.
struct Look {
    broker: Broker,
    found: Mutex<Option<Condition>>,
}

impl Look {
    fn look(&self) -> Option<Condition> {
        let found = self.broker.full_access().entity_now("second", Action::Peek);
        found.err().map(|error| error.condition())
    }
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        *self.found.lock().unwrap() = self.look();
    }
}

/// ENT-32: a creation that waits for an id is refused. Its wait ends before the answer, so that its
/// client finds nothing even where it cannot wait.
#[tokio::test]
async fn a_refused_creation_is_answered_after_its_wait() {
    let store = FaultStore::at_once(1, u64::MAX);
    let mut settings = Settings::default();
    settings.limits.entity_count_max = 1;
    let builder = Broker::builder().store(Arc::clone(&store) as Arc<_>).settings(settings);
    let broker = builder.arbiters(1).start().await.unwrap();
    store.hold_answers();
    let first = tokio::spawn(create(broker.clone(), "first"));
    while store.held_answer_count() == 0 {
        tokio::task::yield_now().await;
    }
    let look = Arc::new(Look { broker: broker.clone(), found: Mutex::default() });
    let waker = Waker::from(Arc::clone(&look));
    let mut context = Context::from_waker(&waker);
    let asker = broker.clone();
    let mut second = pin!(asker.create_queue("second", QueueUpdate::default()));
    assert!(second.as_mut().poll(&mut context).is_pending());
    while look.look() != Some(Condition::ServerBusy) {
        tokio::task::yield_now().await;
    }
    let refused = loop {
        store.let_answer();
        match second.as_mut().poll(&mut context) {
            Poll::Ready(created) => break created.unwrap_err(),
            Poll::Pending => tokio::task::yield_now().await,
        }
    };
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    // The thread that answers stores the value before it wakes, so the answer may be seen first.
    let found = loop {
        let found = *look.found.lock().unwrap();
        match found {
            Some(found) => break found,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(found, Condition::EntityNotFound);
    while !first.is_finished() {
        store.let_answer();
        tokio::task::yield_now().await;
    }
    first.await.unwrap().unwrap();
    stop(broker).await;
}

/// ENT-32: a creation waits for the pending deletion of its path, and so does another deletion. A
/// stop refuses waiting requests.
#[tokio::test]
async fn a_creation_waits_for_a_deletion_in_progress() {
    let held = Held::new().await;
    held.store.complete_at_once(true);
    create(held.broker.clone(), "q").await.unwrap();
    held.store.complete_at_once(false);
    let deleted = held.begin(|broker| async move { broker.delete_entity("q").await }).await;
    let created = held.ask(|broker| async move { create(broker, "q").await }).await;
    assert!(!deleted.is_finished() && !created.is_finished());
    held.decide(Fate::Store);
    assert_eq!((condition(deleted).await, condition(created).await), (None, None));
    held.broker.describe_queue("q").await.unwrap();
    held.store.complete_at_once(false);
    let deleted = held.begin(|broker| async move { broker.delete_entity("q").await }).await;
    let created = held.ask(|broker| async move { create(broker, "q").await }).await;
    let broker = held.broker.clone();
    let stopped = tokio::spawn(async move { broker.stop(Duration::ZERO).await });
    assert_eq!(condition(created).await, Some(Condition::OperationCancelled));
    held.store.complete_at_once(true);
    while held.store.complete_next(Shard(0), Fate::Store) {}
    stopped.await.unwrap().unwrap();
    drop(deleted);
}

/// FWD-02: a source can be changed although its destination is deleted. A new destination must
/// exist, and the error names the reason.
#[tokio::test]
async fn a_source_with_a_deleted_destination_can_be_changed() {
    let store = Arc::new(MemoryStore::new(2, u64::MAX));
    let broker = started(&store, Settings::default(), 0).await;
    let none = QueueUpdate::default;
    create(broker.clone(), "q").await.unwrap();
    create_forwarding(broker.clone()).await.unwrap();
    broker.delete_entity("q").await.unwrap();
    let to = |to: &str| QueueUpdate { forward_to: Some(to.into()), ..none() };
    for spelling in ["q", "Q", "/q"] {
        let changed = QueueUpdate { max_delivery_count: Some(7), ..to(spelling) };
        let described = broker.update_queue("source", changed, None).await.unwrap();
        assert_eq!(described.description.max_delivery_count, 7);
    }
    let refused = broker.update_queue("source", to("elsewhere"), None).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::EntityNotFound);
    assert!(refused.detail().contains("the destination in ForwardTo; create it first"));
    broker.update_queue("source", none(), None).await.unwrap();
    let refused = broker.update_queue("source", to("q"), None).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::EntityNotFound);
    stop(broker).await;
}

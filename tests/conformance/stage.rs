//! The stage of one scenario: a fresh broker, a clock that only the scenario moves, one transport.

use std::cell::Cell;
use std::fmt::Debug;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::change::codec;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Counts, DescribedTopic, Outcome, ReceiveMode};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::store::{Batch, MemoryStore, Shard, Store, Submission};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_inproc::Client;

use crate::faces;
use crate::subject::{Answer, Decision, Refusal, Seen, Subject, Via};
use crate::subjects::Transport;
use crate::subjects::handles::attached_via;

/// The queue that most scenarios use.
pub const ORDERS: &str = "orders";
/// Its dead-letter queue, as an SDK spells it.
pub const DLQ: &str = "orders/$DeadLetterQueue";
/// Its transfer dead-letter queue.
pub const TDLQ: &str = "orders/$Transfer/$DeadLetterQueue";
/// How the path of a transfer dead-letter queue ends.
const TRANSFER_DLQ: &str = "/$Transfer/$deadletterqueue";

/// A scenario that takes longer than this hangs.
const SCENARIO_TIME_MAX: Duration = Duration::from_secs(30);

/// What a scenario gets. It is its transport, too.
pub struct Stage {
    pub clock: Arc<ManualClock>,
    pub broker: Broker,
    pub transport: Transport,
    settings: Settings,
    store: Arc<MemoryStore>,
    subject: Box<dyn Subject>,
    stopped: Cell<bool>,
    /// Whether a part of the scenario was done in this process; of its restarts too.
    in_process: Rc<Cell<bool>>,
}

/// How the broker of a scenario differs from the default one.
#[derive(Default)]
pub struct Setup {
    pub settings: Settings,
    /// Bytes that the store takes; unlimited if none.
    pub capacity_bytes: Option<u64>,
}

/// Runs one scenario on one transport; then the counts must agree with what there is to see, and
/// every thread of the broker must end.
pub fn run(name: &str, transport: Transport, scenario: impl AsyncFnOnce(&Stage)) {
    run_with(name, transport, Setup::default(), scenario);
}

/// As [`run`], with a broker of the scenario's own.
pub fn run_with(
    name: &str,
    transport: Transport,
    setup: Setup,
    scenario: impl AsyncFnOnce(&Stage),
) {
    block_on(async {
        let stage = Stage::open(transport, setup).await;
        scenario(&stage).await;
        stage.check_counts().await;
        stage.stop().await;
        faces::check_in_process(name, transport, stage.in_process.get());
    });
}

/// Runs a test body with a guard against hanging.
pub fn block_on(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let guarded = async { tokio::time::timeout(SCENARIO_TIME_MAX, body).await };
    local.block_on(&runtime, guarded).unwrap();
}

impl Stage {
    pub async fn open(transport: Transport, setup: Setup) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let store = Arc::new(MemoryStore::new(4, setup.capacity_bytes.unwrap_or(u64::MAX)));
        Self::on(transport, setup.settings, clock, store, Rc::default()).await
    }

    async fn on(
        transport: Transport,
        settings: Settings,
        clock: Arc<ManualClock>,
        store: Arc<MemoryStore>,
        in_process: Rc<Cell<bool>>,
    ) -> Self {
        let broker = Broker::builder()
            .settings(settings.clone())
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .store(Arc::clone(&store) as _)
            .arbiters(1)
            .start()
            .await
            .unwrap();
        let subject = transport.open(&broker, &clock).await;
        let stopped = Cell::new(false);
        Self { clock, broker, transport, settings, store, subject, stopped, in_process }
    }

    /// Stops the broker and starts another on the same store and clock. The caller stops that one.
    pub async fn restart(&self) -> Self {
        self.stop().await;
        let (clock, store) = (Arc::clone(&self.clock), Arc::clone(&self.store));
        let in_process = Rc::clone(&self.in_process);
        Self::on(self.transport, self.settings.clone(), clock, store, in_process).await
    }

    /// As [`Stage::restart`], with a queue that has given this number last: its record is as it would be then.
    pub async fn restart_behind(&self, path: &str, last: u64) -> Self {
        let id = self.broker.entity(path).unwrap().id();
        self.stop().await;
        let key = codec::counters_key(id);
        let mut counters = None;
        self.store
            .scan(codec::space_key(id).as_bytes(), &mut |found, value| {
                if found == key.as_bytes() {
                    counters = Some(codec::read_counters(value).unwrap());
                }
            })
            .unwrap();
        let counters = codec::Counters { last_sequence: SequenceNumber(last), ..counters.unwrap() };
        let (fence, first) = self.store.acquire(Shard(0)).unwrap();
        let mut batch = Batch::default();
        batch.put(&key, |value| codec::write_counters(&counters, value));
        let submission = Submission { id: first, fences: vec![fence], batch: Arc::new(batch) };
        self.store.submit(submission, Box::new(|stored| assert!(stored.is_ok())));
        self.restart().await
    }

    /// A client in this process, for what the transport of the scenario has no operation for. The scenario
    /// stands in the list of [`faces`], then.
    pub fn in_process(&self) -> Client {
        self.in_process.set(true);
        Client::new(&self.broker)
    }

    /// Handles over the transport of the scenario; in this process if it has none.
    pub fn client(&self) -> Client {
        self.subject.client().unwrap_or_else(|| self.in_process())
    }

    /// A sender by way of an entity, attached; in this process if the transport has none.
    pub async fn sender_via(&self, destination: &str, via: &str) -> Answer<Box<dyn Via>> {
        match self.subject.sender_via(destination, via).await {
            Some(sender) => sender,
            None => attached_via(&self.in_process(), destination, via).await,
        }
    }

    /// Ends transport and broker; a second call does nothing.
    pub async fn stop(&self) {
        if self.stopped.replace(true) {
            return;
        }
        self.subject.stop().await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time pass, and waits until what is due has happened and is durable. Reading
    /// descriptions is no use of a queue (TMP-17) and makes no receiver.
    pub async fn advance(&self, span: TimeSpan) {
        self.clock.advance(span);
        self.tick().await;
    }

    async fn tick(&self) {
        for path in self.broker.queue_paths(0, usize::MAX) {
            // A queue that is deleted just now answers that it is gone.
            let _gone = self.broker.describe_queue(&path).await;
        }
        for topic in self.broker.topic_paths(0, usize::MAX) {
            let _gone = self.broker.describe_topic(&topic).await;
            let subscriptions = self.broker.subscription_paths(&topic, 0, usize::MAX);
            for path in subscriptions.unwrap_or_default() {
                let _gone = self.broker.describe_subscription(&path).await;
            }
        }
        // What they have begun is through then, such as the deletion of idle queues.
        self.broker.idle().await;
    }

    /// Waits until a receive that another task has begun is noted at the queue. The clock must have
    /// moved since the queue was used last.
    pub async fn until_used(&self, path: &str) {
        while self.broker.describe_queue(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// Lets the time pass that a queue may be idle, again and again, until it was: whatever kept it in
    /// use ends at no instant of this clock.
    pub async fn until_idle_is_over(&self, path: &str, allowed: TimeSpan) {
        while self.broker.queue_paths(0, usize::MAX).iter().any(|queue| **queue == *path) {
            self.advance(allowed).await;
            tokio::task::yield_now().await;
        }
    }

    /// As [`Stage::until_used`], of a subscription.
    pub async fn until_subscription_is_used(&self, path: &str) {
        while self.broker.describe_subscription(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// A queue with every property at its default.
    pub async fn open_queue(&self, path: &str) {
        self.open_queue_with(path, QueueUpdate::default()).await;
    }

    pub async fn open_queue_with(&self, path: &str, properties: QueueUpdate) {
        self.create(path, properties).await.unwrap();
    }

    /// Sends text.
    pub async fn put(&self, path: &str, text: &str) -> u64 {
        self.send(path, message(text)).await.unwrap()
    }

    /// Receives the next message under lock; there must be one.
    pub async fn take(&self, path: &str) -> Seen {
        let received = self.receive(path, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await.unwrap();
        received.into_iter().next().expect("a message is available")
    }

    /// Tries to receive one message.
    pub async fn take_from(&self, path: &str) -> Answer<Vec<Seen>> {
        self.receive(path, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await
    }

    /// Receives what is available under lock.
    pub async fn take_all(&self, path: &str) -> Vec<Seen> {
        self.receive(path, ReceiveMode::PeekLock, 1_000, TimeSpan::ZERO).await.unwrap()
    }

    /// Receives and deletes what is available, and tells the texts.
    pub async fn drain(&self, path: &str) -> Vec<String> {
        let mode = ReceiveMode::ReceiveAndDelete;
        texts(&self.receive(path, mode, 1_000, TimeSpan::ZERO).await.unwrap())
    }

    /// Nothing can be received.
    pub async fn assert_empty(&self, path: &str) {
        assert_eq!(texts(&self.take_all(path).await), Vec::<String>::new(), "{path} is not empty");
    }

    /// Looks at everything, up to the bound of one peek.
    pub async fn look(&self, path: &str) -> Vec<Seen> {
        self.peek(path, 0, 250).await.unwrap()
    }

    pub async fn counts(&self, path: &str) -> Counts {
        self.describe(path).await.unwrap().counts
    }

    /// Waits until the counts of a queue are as they should be. What is forwarded takes a few turns of
    /// the broker's threads, and no time.
    pub async fn until(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        loop {
            // Asked of the broker, so that no transport has to know forwarding.
            let counts = self.broker.describe_queue(path).await.unwrap().counts;
            if counts.transfer == 0 && holds(&counts) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// As [`Stage::until`], of a topic that messages are sent by way of.
    pub async fn until_topic(&self, path: &str, holds: impl Fn(&DescribedTopic) -> bool) {
        loop {
            let described = self.broker.describe_topic(path).await.unwrap();
            if described.transfer == 0 && holds(&described) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    pub async fn complete(&self, path: &str, seen: &Seen) {
        self.settle(path, seen.token(), Decision::Complete).await.unwrap();
    }

    pub async fn abandon(&self, path: &str, seen: &Seen) {
        self.settle(path, seen.token(), Decision::Abandon(vec![])).await.unwrap();
    }

    pub async fn defer(&self, path: &str, seen: &Seen) {
        self.settle(path, seen.token(), Decision::Defer(vec![])).await.unwrap();
    }

    pub async fn dead_letter(&self, path: &str, seen: &Seen) {
        let decision = Decision::DeadLetter { reason: None, description: None, properties: vec![] };
        self.settle(path, seen.token(), decision).await.unwrap();
    }

    /// Sends text, receives it and defers it; gives its number.
    pub async fn put_deferred(&self, path: &str, text: &str) -> u64 {
        let sequence = self.put(path, text).await;
        let seen = self.take(path).await;
        assert_eq!(seen.sequence, sequence);
        self.defer(path, &seen).await;
        sequence
    }

    /// In every queue the counts are those of the messages there, and the size is theirs, whatever
    /// the scenario has done (LIF-02, CNT-03, CNT-08).
    pub async fn check_counts(&self) {
        if self.stopped.get() {
            return;
        }
        for path in self.broker.queue_paths(0, usize::MAX) {
            let Ok(mut described) = self.broker.describe_queue(&path).await else { continue };
            // What is on its way is not shown (LIF-05); it arrives, and its source is told.
            while described.counts.transfer > 0 {
                tokio::task::yield_now().await;
                described = self.broker.describe_queue(&path).await.unwrap();
            }
            let (count, bytes) = self.held(&path).await;
            assert_eq!(described.counts.total(), count, "the counts of {path} are wrong");
            assert_eq!(described.size_bytes, bytes, "the size of {path} is wrong");
        }
        for topic in self.broker.topic_paths(0, usize::MAX) {
            let mut sum = 0;
            for path in self.broker.subscription_paths(&topic, 0, usize::MAX).unwrap() {
                let described = self.broker.describe_subscription(&path).await.unwrap();
                let (count, bytes) = self.held(&path).await;
                assert_eq!(described.counts.total(), count, "the counts of {path} are wrong");
                assert_eq!(described.size_bytes, bytes, "the size of {path} is wrong");
                sum += bytes;
            }
            let mut described = self.broker.describe_topic(&topic).await.unwrap();
            while described.transfer > 0 {
                tokio::task::yield_now().await;
                described = self.broker.describe_topic(&topic).await.unwrap();
            }
            let (count, bytes) = self.held_at(&format!("{topic}{TRANSFER_DLQ}")).await;
            assert_eq!(described.transfer_dead_letter, count, "the counts of {topic} are wrong");
            sum += bytes;
            assert!(described.scheduled > 0 || described.size_bytes == sum, "{topic} counts wrong");
        }
    }

    /// How many messages there are to see at a path and in its sub-queues, and their size.
    async fn held(&self, path: &str) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        for suffix in ["", "/$deadletterqueue", TRANSFER_DLQ] {
            let held = self.held_at(&format!("{path}{suffix}")).await;
            count += held.0;
            bytes += held.1;
        }
        (count, bytes)
    }

    async fn held_at(&self, path: &str) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        let entity = self.broker.entity(path).unwrap();
        let mut from = SequenceNumber(0);
        loop {
            let command = Command::Peek { from, count_max: 250 };
            let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else {
                panic!("a peek answers with messages");
            };
            let Some(last) = peeked.last() else { break };
            from = last.facts.sequence.next();
            count += peeked.len() as u64;
            bytes += peeked.iter().map(|one| u64::from(one.facts.size)).sum::<u64>();
        }
        (count, bytes)
    }
}

impl Deref for Stage {
    type Target = dyn Subject;

    fn deref(&self) -> &Self::Target {
        &*self.subject
    }
}

/// A message with this text.
pub fn message(text: &str) -> Message {
    Message::new(text.to_owned())
}

pub fn texts(messages: &[Seen]) -> Vec<String> {
    messages.iter().map(|seen| seen.text().to_owned()).collect()
}

pub fn sequences(messages: &[Seen]) -> Vec<u64> {
    messages.iter().map(|seen| seen.sequence).collect()
}

pub const fn seconds(count: i64) -> TimeSpan {
    TimeSpan::from_seconds(count)
}

pub const fn minutes(count: i64) -> TimeSpan {
    TimeSpan::from_minutes(count)
}

pub const fn ms(count: i64) -> TimeSpan {
    TimeSpan::from_ms(count)
}

/// The smallest step of time.
pub const TICK: TimeSpan = TimeSpan::from_ticks(1);

/// The refusal that an operation must have got: of this condition, marked as the catalogue has it,
/// with a text that ends as every text does (ERR-01, ERR-02, SND-06).
#[track_caller]
pub fn refused<T: Debug>(answer: Answer<T>, condition: &str) -> Refusal {
    let refusal = match answer {
        Ok(value) => panic!("expected {condition}, got {value:?}"),
        Err(refusal) => refusal,
    };
    assert_eq!(refusal.condition, condition, "{refusal:?}");
    assert_eq!(refusal.retryable, RETRYABLE.contains(&condition), "{refusal:?}");
    let identity = identity(&refusal.text);
    if let Some(tracking_id) = &refusal.tracking_id {
        assert_eq!(*tracking_id, identity.tracking_id);
    }
    refusal
}

/// What file 19 marks as retryable.
const RETRYABLE: [&str; 6] = [
    "ServiceTimeout",
    "ServerBusy",
    "UpdateConflict",
    "OperationCancelled",
    "CommunicationProblem",
    "InternalError",
];

/// The end of the text of a refusal (SND-06).
pub struct Identity {
    pub tracking_id: String,
    pub entity: String,
    pub timestamp: Timestamp,
}

#[track_caller]
pub fn identity(text: &str) -> Identity {
    let (_, end) = text.rsplit_once("TrackingId:").expect(text);
    let (tracking_id, end) = end.split_once(", Entity:").expect(text);
    let (entity, timestamp) = end.split_once(", Timestamp:").expect(text);
    let digits: Vec<&str> = tracking_id.split('-').collect();
    let lengths: Vec<usize> = digits.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{tracking_id} is no GUID");
    assert!(digits.concat().bytes().all(|byte| byte.is_ascii_hexdigit()), "{tracking_id}");
    Identity {
        tracking_id: tracking_id.to_owned(),
        entity: entity.to_owned(),
        timestamp: Timestamp::parse(timestamp).expect(text),
    }
}

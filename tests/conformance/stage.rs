//! The stage of one scenario: a new broker, a clock that only the scenario moves, one transport.
//!
//! The broker is private to the stage: a scenario acts through its transport. A function that needs
//! the broker in this process records that, and [`faces`] checks it. Only the checks in `look.rs`
//! are exempt.

mod look;

use std::cell::Cell;
use std::fmt::Debug;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use peeklock_client::Client;
use peeklock_core::Broker;
use peeklock_core::change::codec;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Counts, ReceiveMode};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::limits::Limits;
use peeklock_core::message::Message;
use peeklock_core::store::{Batch, MemoryStore, Shard, Store, Submission};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::faces;
use crate::subject::{Answer, Decision, Refusal, Seen, Subject, Via};
use crate::subjects::Transport;
use crate::subjects::handles::attached_via;

/// The queue that most scenarios use.
pub const ORDERS: &str = "orders";
/// Its dead-letter queue, in the spelling of an SDK.
pub const DLQ: &str = "orders/$DeadLetterQueue";
/// Its transfer dead-letter queue.
pub const TDLQ: &str = "orders/$Transfer/$DeadLetterQueue";

/// A scenario that takes longer than this hangs.
const SCENARIO_TIME_MAX: Duration = Duration::from_secs(120);

/// The environment of a scenario. It dereferences to its transport.
pub struct Stage {
    pub clock: Arc<ManualClock>,
    pub transport: Transport,
    broker: Broker,
    settings: Settings,
    store: Arc<MemoryStore>,
    subject: Box<dyn Subject>,
    stopped: Cell<bool>,
    /// Whether a part of the scenario ran in this process; shared with restarted stages.
    in_process: Rc<Cell<bool>>,
}

/// How the broker of a scenario differs from the default one.
#[derive(Default)]
pub struct Setup {
    pub settings: Settings,
    /// Bytes that the store accepts; `None` is unlimited.
    pub capacity_bytes: Option<u64>,
}

/// Runs one scenario over one transport. Afterwards the counts must agree with the visible
/// messages, and every thread of the broker must end.
pub fn run(name: &str, transport: Transport, scenario: impl AsyncFnOnce(&Stage)) {
    run_with(name, transport, Setup::default(), scenario);
}

/// Same as [`run`] with a setup for the broker.
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
        stage.end(name).await;
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

    /// Stops the broker and starts another on the same store and clock. The caller must stop the
    /// new one.
    pub async fn restart(&self) -> Self {
        self.stop().await;
        let (clock, store) = (Arc::clone(&self.clock), Arc::clone(&self.store));
        let in_process = Rc::clone(&self.in_process);
        Self::on(self.transport, self.settings.clone(), clock, store, in_process).await
    }

    /// Same as [`Stage::restart`], but the queue has already given the sequence number `last`. The
    /// record of that is written in this process.
    pub async fn restart_behind(&self, path: &str, last: u64) -> Self {
        let id = self.broker().entity(path).unwrap().id();
        self.stop().await;
        let key = codec::counters_key(id);
        let mut counters = None;
        let read = |_: &[u8], value: &[u8]| counters = Some(codec::read_counters(value).unwrap());
        self.store.scan(&key).for_each(read).await.unwrap();
        let counters = codec::Counters { last_sequence: SequenceNumber(last), ..counters.unwrap() };
        let (fence, first) = self.store.acquire(Shard(0)).await.unwrap();
        let mut batch = Batch::default();
        batch.put(&key, |value| codec::write_counters(&counters, value));
        let submission = Submission { id: first, fences: vec![fence], batch: Arc::new(batch) };
        self.store.submit(submission, Box::new(|stored| assert!(stored.is_ok())));
        self.restart().await
    }

    /// The broker, for operations that no client has. The scenario must be in the list of
    /// [`faces`].
    pub fn broker(&self) -> &Broker {
        self.in_process.set(true);
        &self.broker
    }

    /// A client in this process, for operations that the transport of the scenario lacks. The
    /// scenario must be in the list of [`faces`].
    pub fn in_process(&self) -> Client {
        Client::new(self.broker())
    }

    /// A second client over the transport of the scenario.
    pub async fn another(&self) -> Box<dyn Subject> {
        self.another_over(self.transport).await
    }

    /// A client over any transport. For the in-process transport the scenario must be in the list
    /// of [`faces`].
    pub async fn another_over(&self, transport: Transport) -> Box<dyn Subject> {
        if transport == Transport::Inproc {
            self.in_process.set(true);
        }
        transport.open(&self.broker, &self.clock).await
    }

    /// Handles over the transport of the scenario, or in this process if it has none.
    pub fn client(&self) -> Client {
        self.subject.client().unwrap_or_else(|| self.in_process())
    }

    /// An attached sender to `destination` through `via`, in this process if the transport has
    /// none.
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

    /// Ends transport and broker. The use of this process must agree with the entry of [`faces`]
    /// under this name.
    pub async fn end(&self, name: &str) {
        self.stop().await;
        faces::check_in_process(name, self.transport, self.in_process.get());
    }

    /// The limits that the broker was started with.
    pub const fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A queue with every property at its default.
    pub async fn open_queue(&self, path: &str) {
        self.open_queue_with(path, QueueUpdate::default()).await;
    }

    pub async fn open_queue_with(&self, path: &str, properties: QueueUpdate) {
        self.create(path, properties).await.unwrap();
    }

    /// Sends a text. Returns its sequence number.
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

    /// Receives all available messages under lock.
    pub async fn take_all(&self, path: &str) -> Vec<Seen> {
        self.receive(path, ReceiveMode::PeekLock, 1_000, TimeSpan::ZERO).await.unwrap()
    }

    /// Receives and deletes all available messages. Returns their texts.
    pub async fn drain(&self, path: &str) -> Vec<String> {
        let mode = ReceiveMode::ReceiveAndDelete;
        texts(&self.receive(path, mode, 1_000, TimeSpan::ZERO).await.unwrap())
    }

    /// Asserts that no message can be received.
    pub async fn assert_empty(&self, path: &str) {
        assert_eq!(texts(&self.take_all(path).await), Vec::<String>::new(), "{path} is not empty");
    }

    /// Peeks all messages, up to the maximum of one peek.
    pub async fn look(&self, path: &str) -> Vec<Seen> {
        self.peek(path, 0, 250).await.unwrap()
    }

    pub async fn counts(&self, path: &str) -> Counts {
        self.describe(path).await.unwrap().counts
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

    /// Sends a text, receives it and defers it. Returns its sequence number.
    pub async fn put_deferred(&self, path: &str, text: &str) -> u64 {
        let sequence = self.put(path, text).await;
        let seen = self.take(path).await;
        assert_eq!(seen.sequence, sequence);
        self.defer(path, &seen).await;
        sequence
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

/// Asserts that an operation was refused with this condition, which is marked as in the catalogue,
/// and with a text that ends in the usual form (ERR-01, ERR-02, SND-06). Returns the refusal.
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

/// Conditions that file 19 marks as retryable.
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

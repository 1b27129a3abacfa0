//! The memory that the broker uses for its own loads is bounded over all entities: contents in
//! transfer, and due messages of topics (DESIGN D6, decision 34). The store of these tests records
//! requests and answers them when the test commands it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::Command;
use peeklock_core::content_ref::{ContentRef, StoredContent};
use peeklock_core::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::limits::Limits;
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, MemoryStore, Records, Reserved, Shard,
    Store, StoreError, Submission, Waker,
};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};
use tokio::sync::oneshot;

const ROOM: usize = 1 << 20;

/// A store that returns contents on command, and can hold back writes.
struct CommandedStore {
    inner: MemoryStore,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    /// Pending requests with their sizes.
    asked: Vec<(usize, oneshot::Sender<()>)>,
    /// Number of requests.
    count: usize,
    /// Bytes requested and not released, now and at most.
    held_bytes: usize,
    most_bytes: usize,
    gives: bool,
    waits: bool,
    submitted: Vec<(Submission, Completion)>,
}

/// A content that must be loaded.
struct Elsewhere {
    bytes: Bytes,
    book: Arc<Mutex<Book>>,
}

/// A loaded content.
struct Given {
    bytes: Bytes,
    book: Arc<Mutex<Book>>,
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.book.lock().unwrap().held_bytes -= self.bytes.len();
    }
}

#[async_trait]
impl StoredContent for Elsewhere {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        let answered = {
            let mut book = self.book.lock().unwrap();
            book.count += 1;
            book.held_bytes += self.bytes.len();
            book.most_bytes = book.most_bytes.max(book.held_bytes);
            let (answer, answered) = oneshot::channel();
            match book.gives {
                true => answer.send(()).unwrap(),
                false => book.asked.push((self.bytes.len(), answer)),
            }
            answered
        };
        answered.await.ok();
        let given = Given { bytes: self.bytes.clone(), book: Arc::clone(&self.book) };
        Ok(Bytes::from_owner(given))
    }
}

impl CommandedStore {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Number of pending requests.
    fn asked(&self) -> usize {
        self.book().asked.len()
    }

    /// Number of pending requests, and of all requests.
    fn figures(&self) -> (usize, usize) {
        let book = self.book();
        (book.asked.len(), book.count)
    }

    /// Answers the oldest `count` pending requests.
    fn give(&self, count: usize) {
        let answers: Vec<_> = self.book().asked.drain(..count).collect();
        for (_, answer) in answers {
            answer.send(()).unwrap();
        }
    }

    /// Answers all requests from now on.
    fn give_all(&self) {
        self.book().gives = true;
        self.give(self.asked());
    }

    /// Completes held-back writes and all further ones.
    fn go_on(&self) {
        self.book().waits = false;
        let submitted = std::mem::take(&mut self.book().submitted);
        for (submission, completion) in submitted {
            self.inner.submit(submission, completion);
        }
    }
}

#[async_trait::async_trait]
impl Store for CommandedStore {
    fn name(&self) -> &'static str {
        "commanded"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        self.inner.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.inner.acquire(shard).await
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.inner.reserve(shard, bytes, waker)
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        self.inner.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        let mut book = self.book();
        if book.waits {
            book.submitted.push((submission, completion));
            return;
        }
        drop(book);
        self.inner.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.inner.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let before = contents.len();
        self.inner.pin(keys, contents);
        for content in contents.iter_mut().skip(before).flatten() {
            let Some(bytes) = content.loaded().cloned() else { continue };
            let book = Arc::clone(&self.book);
            *content = ContentRef::Stored(Arc::new(Elsewhere { bytes, book }));
        }
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        self.inner.scan(prefix)
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.inner.exists(keys).await
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

/// A forwarder that never answers.
struct Hangs;

struct HangingRoute;

impl Forwarder for Hangs {
    fn name(&self) -> &'static str {
        "hangs"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["hang"]
    }

    fn check(&self, _: &str) -> Result<(), Rejection> {
        Ok(())
    }

    fn route(&self, _: &str, _: Source) -> Result<Box<dyn Route>, Rejection> {
        Ok(Box::new(HangingRoute))
    }
}

#[async_trait]
impl Route for HangingRoute {
    async fn forward(&mut self, _: &[Outgoing]) -> Vec<Verdict> {
        std::future::pending().await
    }
}

/// A forwarder that sends everything to the entity `events`.
struct Sorts;

struct SortingRoute;

impl Forwarder for Sorts {
    fn name(&self) -> &'static str {
        "sorts"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["sort"]
    }

    fn check(&self, _: &str) -> Result<(), Rejection> {
        Ok(())
    }

    fn route(&self, _: &str, _: Source) -> Result<Box<dyn Route>, Rejection> {
        Ok(Box::new(SortingRoute))
    }
}

#[async_trait]
impl Route for SortingRoute {
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        messages.iter().map(|_| Verdict::To("events".into())).collect()
    }
}

/// A broker with room for 1 MiB of loads.
struct Stage {
    broker: Broker,
    clock: Arc<ManualClock>,
    store: Arc<CommandedStore>,
}

impl Stage {
    async fn open(change: impl FnOnce(&mut Limits)) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let store =
            Arc::new(CommandedStore { inner: MemoryStore::new(4, u64::MAX), book: Arc::default() });
        let mut settings = Settings::default();
        settings.limits.broker_loaded_bytes_max = ROOM as u64;
        change(&mut settings.limits);
        let broker = Broker::builder()
            .settings(settings)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .store(Arc::clone(&store) as _)
            .forwarder(Arc::new(Hangs))
            .forwarder(Arc::new(Sorts))
            .arbiters(1)
            .start()
            .await
            .unwrap();
        Self { broker, clock, store }
    }

    async fn create(&self, path: &str, forward_to: Option<&str>) {
        let properties = QueueUpdate {
            forward_to: forward_to.map(Box::from),
            max_message_size_in_kilobytes: Some(8_192),
            ..QueueUpdate::default()
        };
        self.broker.create_queue(path, properties).await.unwrap();
    }

    async fn send(&self, path: &str, message: Message) {
        let message = self.broker.inbound(message);
        self.entity(path).call(Command::Send { message }).await.unwrap();
    }

    /// A topic, and a message that it takes very long to publish.
    async fn create_slow_topic(&self) -> (Entity, Command) {
        self.broker.create_topic("events", TopicUpdate::default()).await.unwrap();
        let rules = (0..2_000).map(|number| {
            let text = format!("p LIKE '%{}_b%'", "a".repeat(950));
            RuleDescription::new(format!("r{number}"), Filter::sql(&*text), Timestamp::NONE)
        });
        let (all, rules) = (SubscriptionUpdate::default(), rules.collect());
        self.broker.create_subscription("events", "all", all, rules).await.unwrap();
        let heavy = Message::new("x").with_application_property("p", "a".repeat(32_000));
        let message = self.broker.inbound(heavy);
        (self.entity("events"), Command::Send { message })
    }

    fn entity(&self, path: &str) -> Entity {
        self.broker.entity(path).unwrap()
    }

    /// Waits until nothing happens without an answer of the store.
    async fn quiet(&self) {
        self.broker.idle_except_store().await;
    }

    async fn there_are(&self, path: &str) -> u64 {
        self.broker.describe_queue(path).await.unwrap().counts.active
    }

    async fn stop(self) {
        self.store.go_on();
        self.store.give_all();
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// Whether a call is still unanswered.
async fn goes_on(mut call: Pin<&mut impl Future>) -> bool {
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await
}

fn large(bytes: usize) -> Message {
    Message::new("x".repeat(bytes))
}

/// DESIGN D6: regardless of the number of forwarding queues, loads stay within their room, which is
/// held until the destination has stored the messages. All of them arrive.
#[tokio::test]
async fn transfers_of_many_sources_wait_for_room() {
    let stage = Stage::open(|_| {}).await;
    stage.create("to", None).await;
    for number in 0..20 {
        let source = format!("from{number}");
        stage.create(&source, Some("to")).await;
        stage.send(&source, large(200_000)).await;
    }
    stage.quiet().await;
    assert_eq!(stage.store.asked(), 5, "of 200 KB each");
    // They are at their destination, which has not stored them yet.
    stage.store.book().waits = true;
    stage.store.give(5);
    stage.quiet().await;
    assert_eq!(stage.store.figures(), (0, 5), "their room is not free");
    stage.store.go_on();
    stage.quiet().await;
    assert_eq!(stage.store.figures(), (5, 10));
    for given in 6..=20 {
        stage.store.give(1);
        stage.quiet().await;
        assert_eq!(stage.there_are("to").await, given);
        assert!(stage.store.asked() <= 5);
    }
    assert!(stage.store.book().most_bytes <= ROOM, "{}", stage.store.book().most_bytes);
    stage.stop().await;
}

/// DESIGN D6: a transfer that exceeds the whole room is loaded alone. Later small ones do not keep
/// it waiting.
#[tokio::test]
async fn a_transfer_larger_than_the_room_is_loaded_alone() {
    let stage = Stage::open(|_| {}).await;
    stage.create("to", None).await;
    for (number, bytes) in [100_000, 3 << 20, 100_000, 5 << 20, 100_000].into_iter().enumerate() {
        let source = format!("from{number}");
        stage.create(&source, Some("to")).await;
        stage.send(&source, large(bytes)).await;
        stage.quiet().await;
    }
    let mut given = Vec::new();
    while stage.there_are("to").await < 5 {
        let asked: Vec<usize> = stage.store.book().asked.iter().map(|(bytes, _)| *bytes).collect();
        assert!(asked.iter().sum::<usize>() <= ROOM || asked.len() == 1, "{asked:?}");
        given.push(asked[0] > ROOM);
        stage.store.give(1);
        stage.quiet().await;
    }
    assert_eq!(given, [false, true, false, true, false], "in their order");
    stage.stop().await;
}

/// DESIGN D6: an entity accepts transfers although its own transfer waits for the room that they
/// hold, so that no chain or circle of entities deadlocks.
#[tokio::test]
async fn a_transfer_waiting_for_room_blocks_no_arrivals() {
    let stage = Stage::open(|_| {}).await;
    for (path, to) in [("c", None), ("b", Some("c")), ("a", Some("b"))] {
        stage.create(path, to).await;
    }
    stage.send("a", large(900_000)).await;
    stage.quiet().await;
    stage.send("b", large(900_000)).await;
    stage.quiet().await;
    assert_eq!(stage.store.figures(), (1, 1), "that of `b` waits");
    stage.store.give(1);
    stage.quiet().await;
    assert_eq!(stage.store.figures(), (1, 2), "`b` has taken in what came");
    stage.store.give(1);
    stage.quiet().await;
    assert_eq!(stage.there_are("c").await, 1);
    stage.store.give_all();
    stage.quiet().await;
    assert_eq!(stage.there_are("c").await, 2);
    stage.stop().await;
}

/// DESIGN D6: due messages of many topics are loaded when there is room, and published as
/// scheduled.
#[tokio::test]
async fn due_messages_of_many_topics_wait_for_room() {
    let stage = Stage::open(|_| {}).await;
    let at = stage.broker.now().plus(TimeSpan::from_seconds(60));
    for number in 0..5 {
        let topic = format!("events{number}");
        stage.broker.create_topic(&topic, TopicUpdate::default()).await.unwrap();
        let all = SubscriptionUpdate::default();
        stage.broker.create_subscription(&topic, "all", all, Vec::new()).await.unwrap();
        stage.send(&topic, large(400_000).with_scheduled_enqueue_time(at)).await;
    }
    stage.clock.advance(TimeSpan::from_seconds(60));
    stage.quiet().await;
    for (asked, published) in [(2, 0), (2, 1), (2, 2), (2, 3), (1, 4)] {
        assert_eq!(stage.store.asked(), asked);
        let mut found = 0;
        for number in 0..5 {
            let path = format!("events{number}/Subscriptions/all");
            let described = stage.broker.describe_subscription(&path).await.unwrap();
            found += described.counts.active;
        }
        assert_eq!(found, published);
        stage.store.give(1);
        stage.quiet().await;
    }
    stage.stop().await;
}

/// DESIGN D6: a source without a thread for its forwarder loads nothing. Sources with a thread use
/// at most half of the room, so that transfers within the broker do not wait for forwarders that do
/// not answer.
#[tokio::test]
async fn hanging_forwarders_leave_room_to_others() {
    let stage = Stage::open(|limits| limits.forwarder_thread_count_max = 1).await;
    for number in 0..3 {
        let source = format!("from{number}");
        stage.create(&source, Some("hang://somewhere")).await;
        stage.send(&source, large(100_000)).await;
        stage.quiet().await;
    }
    assert_eq!(stage.store.asked(), 1, "there is one thread");
    stage.stop().await;

    let stage = Stage::open(|_| {}).await;
    for number in 0..6 {
        let source = format!("from{number}");
        stage.create(&source, Some("hang://somewhere")).await;
        stage.send(&source, large(200_000)).await;
    }
    stage.quiet().await;
    assert_eq!(stage.store.asked(), 2, "half of the room");
    stage.store.give(2);
    stage.create("to", None).await;
    stage.create("from", Some("to")).await;
    stage.send("from", large(200_000)).await;
    stage.quiet().await;
    assert_eq!(stage.store.asked(), 1);
    stage.store.give(1);
    stage.quiet().await;
    assert_eq!(stage.there_are("to").await, 1);
    stage.stop().await;
}

/// DESIGN D6: a transfer that waits for another publish at a topic with slow rules is returned
/// after a while if others need its room. Nothing is lost, and the others go on.
#[tokio::test]
async fn a_transfer_waiting_for_a_publish_returns_its_room() {
    let stage = Stage::open(|limits| limits.publish_step_count_max = u64::MAX).await;
    stage.store.give_all();
    let (topic, heavy) = stage.create_slow_topic().await;
    for (path, to) in [("to", None), ("slow", Some("events")), ("from", Some("to"))] {
        stage.create(path, to).await;
    }
    let mut heavy = pin!(topic.call(heavy));
    assert!(goes_on(heavy.as_mut()).await);
    // It has the room and waits for the publish; the other needs it.
    stage.send("slow", large(900_000)).await;
    while stage.store.book().count < 1 {
        tokio::task::yield_now().await;
    }
    stage.send("from", large(900_000)).await;
    while stage.broker.describe_queue("from").await.unwrap().counts.transfer < 1 {
        tokio::task::yield_now().await;
    }
    stage.clock.advance(stage.broker.settings().limits.send_wait_max);
    while stage.there_are("to").await < 1 {
        tokio::task::yield_now().await;
    }
    assert!(goes_on(heavy.as_mut()).await, "and keeps nobody waiting");
    assert_eq!(stage.broker.describe_queue("slow").await.unwrap().counts.total(), 1);
    stage.stop().await;
}

/// DESIGN D6: a forwarder that has answered holds no room of the other forwarders: its transfer
/// goes on to an entity, and a slow publish there delays no other forwarder.
#[tokio::test]
async fn an_answered_forwarder_holds_no_room() {
    let stage = Stage::open(|limits| limits.publish_step_count_max = u64::MAX).await;
    stage.store.give_all();
    let (topic, heavy) = stage.create_slow_topic().await;
    stage.create("sorted", Some("sort://anything")).await;
    stage.create("other", Some("hang://somewhere")).await;
    let mut heavy = pin!(topic.call(heavy));
    assert!(goes_on(heavy.as_mut()).await);
    // Its transfer waits for the publish.
    stage.send("sorted", large(400_000)).await;
    while stage.store.book().count < 1 {
        tokio::task::yield_now().await;
    }
    // Both together need more than half of the room.
    stage.send("other", large(400_000)).await;
    while stage.store.book().count < 2 {
        tokio::task::yield_now().await;
    }
    assert!(goes_on(heavy.as_mut()).await, "and it waits still");
    assert_eq!(stage.broker.describe_queue("sorted").await.unwrap().counts.total(), 1);
    stage.stop().await;
}

//! Inspection by operators, through a broker (CON-01 to CON-03).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_core::Broker;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, ReceiveMode};
use peeklock_core::content_ref::{ContentRef, StoredContent};
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    BODY_BYTES_MAX, Found, HeadOrder, HeadPage, HeadQuery, HeadStart, HeadState, HeadStates,
    LockOrder, LockQuery, Question, TimelineOf, TimelineQuery,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Body, Message};
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, MemoryStore, Records, Reserved, Shard,
    Store, StoreError, Submission, Waker,
};
use peeklock_core::time::{TimeSpan, Timestamp};

/// A store whose contents are elsewhere when they are pinned for operators. It counts the bytes that
/// are read.
struct Elsewhere {
    inner: MemoryStore,
    /// Whether contents with the word `lost` are gone.
    loses: AtomicBool,
    read: Arc<Mutex<u64>>,
}

struct Content {
    bytes: Bytes,
    read: Arc<Mutex<u64>>,
}

#[async_trait]
impl StoredContent for Content {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        Err(StoreError::Failed("a whole content was loaded".into()))
    }

    async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
        let range = ContentRef::Loaded(self.bytes.clone()).load_range(from, length).await?;
        *self.read.lock().unwrap() += range.len() as u64;
        Ok(Bytes::copy_from_slice(&range))
    }
}

#[async_trait::async_trait]
impl Store for Elsewhere {
    fn name(&self) -> &'static str {
        "elsewhere"
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
        self.inner.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.inner.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        self.inner.pin(keys, contents);
    }

    fn pin_unloaded(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let before = contents.len();
        self.inner.pin(keys, contents);
        for content in contents.iter_mut().skip(before) {
            let Some(bytes) = content.as_ref().and_then(ContentRef::loaded).cloned() else {
                continue;
            };
            let is_lost = bytes.windows(4).any(|word| word == b"lost");
            let read = Arc::clone(&self.read);
            *content = match is_lost && self.loses.load(Ordering::SeqCst) {
                true => None,
                false => Some(ContentRef::Stored(Arc::new(Content { bytes, read }))),
            };
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

struct Stage {
    broker: Broker,
    clock: Arc<ManualClock>,
    store: Arc<Elsewhere>,
}

impl Stage {
    async fn open(properties: QueueUpdate) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let inner = MemoryStore::new(1, u64::MAX);
        let (loses, read) = (AtomicBool::new(false), Arc::default());
        let store = Arc::new(Elsewhere { inner, loses, read });
        let broker = Broker::builder()
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .store(Arc::clone(&store) as _)
            .start()
            .await
            .unwrap();
        broker.create_queue("a", properties).await.unwrap();
        Self { broker, clock, store }
    }

    async fn send(&self, message: Message) {
        let message = self.broker.inbound(message);
        self.broker.entity("a").unwrap().call(Command::Send { message }).await.unwrap();
    }

    async fn ask(&self, question: Question) -> Found {
        let request = Management::Inspect(Box::new(question));
        match self.broker.full_access().manage("a", request).await.unwrap() {
            Managed::Findings(findings) => findings.found,
            other => panic!("{other:?}"),
        }
    }

    async fn heads(&self, count_max: u32) -> HeadPage {
        match self.ask(Question::Heads(heads(count_max))).await {
            Found::Heads(page) => page,
            other => panic!("{other:?}"),
        }
    }

    fn take_read(&self) -> u64 {
        std::mem::take(&mut *self.store.read.lock().unwrap())
    }
}

fn heads(count_max: u32) -> HeadQuery {
    HeadQuery {
        session: None,
        states: HeadStates::ALL,
        order: HeadOrder::Number,
        is_descending: false,
        start: HeadStart::End,
        count_max,
    }
}

fn large() -> QueueUpdate {
    QueueUpdate { max_message_size_in_kilobytes: Some(102_400), ..QueueUpdate::default() }
}

/// CON-02, CON-03: a page of heads reads no more of a large body than its start, and a part of the
/// body no more than that part with the units around it.
#[tokio::test]
async fn inspection_reads_only_the_needed_part_of_a_large_body() {
    const UNIT: u64 = 256 << 10;
    let stage = Stage::open(large()).await;
    let body: Vec<u8> = (0..20_000_000u32).map(|at| at.to_le_bytes()[1]).collect();
    stage.send(Message::new(body.clone()).with_subject("large")).await;
    stage.send(Message::new("small").with_message_id("2")).await;
    let page = stage.heads(10).await;
    assert!(stage.take_read() <= 2 * UNIT);
    let contents: Vec<_> = page.heads.iter().map(|head| head.content.as_ref().unwrap()).collect();
    let start = |length: usize| Body::Data(Bytes::copy_from_slice(&body[..length]));
    assert_eq!((contents[0].body_bytes, &contents[0].message.body), (20_000_000, &start(256)));
    assert_eq!(contents[0].message.subject.as_deref(), Some("large"));
    assert_eq!(contents[1].message.body, Body::Data("small".into()));
    for from in [0, 1_000_000, 19_999_990, 30_000_000] {
        let (sequence, length) = (SequenceNumber(1), BODY_BYTES_MAX);
        let Found::Body(part) = stage.ask(Question::Body { sequence, from, length }).await else {
            panic!("another answer")
        };
        assert_eq!((part.length, part.from), (20_000_000, from));
        let end = (from + BODY_BYTES_MAX).min(20_000_000);
        let wanted = usize::try_from(from.min(end)).unwrap()..usize::try_from(end).unwrap();
        assert!(part.bytes == body[wanted], "from {from}");
        assert!(stage.take_read() <= BODY_BYTES_MAX + 3 * UNIT);
    }
    stage.broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-02: a message whose content is gone, because the destination of its transfer has removed it
/// already, is left out of the page, and the entity works on.
#[tokio::test]
async fn inspection_leaves_out_a_message_whose_content_is_gone() {
    let stage = Stage::open(QueueUpdate::default()).await;
    for body in ["first", "lost", "last"] {
        stage.send(Message::new(body)).await;
    }
    assert_eq!(stage.heads(10).await.heads.len(), 3);
    stage.store.loses.store(true, Ordering::SeqCst);
    let page = stage.heads(10).await;
    let numbers: Vec<_> = page.heads.iter().map(|head| head.facts.message.sequence.0).collect();
    assert_eq!((numbers, page.examined, page.next), (vec![1, 3], 3, None));
    let (sequence, from, length) = (SequenceNumber(2), 0, 1);
    let body = Management::Inspect(Box::new(Question::Body { sequence, from, length }));
    assert!(stage.broker.full_access().manage("a", body).await.is_err());
    stage.send(Message::new("more")).await;
    assert_eq!(stage.heads(10).await.heads.len(), 3);
    stage.broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-01, TMP-17: inspecting a temporary queue does not keep it, and changes nothing that a
/// description shows.
#[tokio::test]
async fn inspection_is_no_use_of_a_temporary_queue() {
    let auto_delete_on_idle = Some(TimeSpan::from_minutes(5));
    let stage = Stage::open(QueueUpdate { auto_delete_on_idle, ..QueueUpdate::default() }).await;
    stage.send(Message::new("one")).await;
    let receive = Command::Receive {
        mode: ReceiveMode::ReceiveAndDelete,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    stage.broker.entity("a").unwrap().call(receive).await.unwrap();
    let before = format!("{:?}", stage.broker.describe_queue("a").await.unwrap());
    for _ in 0..4 {
        stage.clock.advance(TimeSpan::from_minutes(1));
        stage.broker.idle().await;
        assert_eq!(stage.heads(5).await.heads.len(), 0);
        let (order, from, after, count_max) = (LockOrder::Age, 0, None, 5);
        stage.ask(Question::Locks(LockQuery { order, from, after, count_max })).await;
        let (of, slot) = (TimelineOf::Scheduled, TimeSpan::from_minutes(1));
        let from = stage.broker.now();
        let query = TimelineQuery { of, from, slot, slot_count: 3, after: None };
        stage.ask(Question::Timeline(query)).await;
        let now = format!("{:?}", stage.broker.describe_queue("a").await.unwrap());
        assert_eq!(now, before);
    }
    stage.clock.advance(TimeSpan::from_minutes(2));
    stage.broker.idle().await;
    assert!(stage.broker.describe_queue("a").await.is_err(), "the queue was not deleted (TMP-07)");
    stage.broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-02, CON-25: a locked message shows its lock and its state, and no token.
#[tokio::test]
async fn inspection_shows_the_lock_of_a_message() {
    let stage = Stage::open(QueueUpdate::default()).await;
    stage.send(Message::new("one")).await;
    let holder = Some(stage.broker.receiver_id());
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder,
    };
    let taken_at = stage.broker.now();
    stage.broker.entity("a").unwrap().call(receive).await.unwrap();
    stage.clock.advance(TimeSpan::from_seconds(3));
    let head = stage.heads(1).await.heads.remove(0);
    let lock = head.facts.lock.unwrap();
    assert_eq!((head.facts.state, head.facts.message.lock), (HeadState::Locked, None));
    assert_eq!((lock.taken_at, lock.renewals, lock.is_of_session), (taken_at, 0, false));
    assert_eq!(lock.until, taken_at.plus(TimeSpan::from_minutes(1)));
    let (order, from, after, count_max) = (LockOrder::End, 0, None, 1);
    let question = Question::Locks(LockQuery { order, from, after, count_max });
    let Found::Locks(page) = stage.ask(question).await else { panic!("another answer") };
    assert_eq!((page.total, page.locks.len()), (1, 1));
    assert_eq!((page.locks[0].sequence, &page.locks[0].lock), (SequenceNumber(1), &lock));
    stage.broker.stop(Duration::ZERO).await.unwrap();
}

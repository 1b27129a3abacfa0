//! A whole broker on a journal whose disk becomes full or fails.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, ReceivedMessage, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::store::{Journal, JournalConfig, Reserved, Shard, Store, Waker};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};
use peeklock_store_testing::simulated_disk::{Call, Fault, Lost};
use peeklock_store_testing::{Fate, FaultStore, SimulatedDisk};

const SEGMENT_BYTES: u64 = 64 << 10;

/// A journal of small segments.
pub fn open(disk: &SimulatedDisk) -> Arc<Journal> {
    let config = JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 64 << 10,
        free_bytes_min: 4 * SEGMENT_BYTES,
        ..JournalConfig::default()
    };
    Journal::open_on(Arc::new(disk.clone()), config).unwrap()
}

async fn send(queue: &Entity, body: &str) -> Result<(), BrokerError> {
    let message = queue.broker().inbound(Message::new(body.as_bytes().to_vec()));
    queue.call(Command::Send { message }).await.map(|_| ())
}

async fn receive(queue: &Entity, count_max: u32) -> Vec<ReceivedMessage> {
    let receive = crate::receive::under_lock(count_max, TimeSpan::ZERO);
    let Ok(Outcome::Received(messages)) = queue.call(receive).await else { panic!("refused") };
    messages
}

async fn body(message: &ReceivedMessage) -> String {
    let content = message.content.load().await.unwrap();
    String::from_utf8_lossy(&content).into_owned()
}

async fn complete(queue: &Entity, message: &ReceivedMessage) -> Result<(), BrokerError> {
    let token = message.facts.lock.unwrap().token;
    let settlement = Settlement::Complete;
    queue.call(Command::Settle { token, settlement }).await.map(|_| ())
}

/// Waits until the journal has room for `bytes`. A refused reservation leaves a waker.
async fn room(journal: &Arc<Journal>, bytes: u64) {
    loop {
        let (sender, receiver) = channel();
        let waker = || -> Waker {
            let sender = sender.clone();
            Box::new(move || {
                sender.send(()).ok();
            })
        };
        if journal.reserve(Shard(0), bytes, &waker) == Reserved::Granted {
            journal.unreserve(Shard(0), bytes);
            return;
        }
        let waited = tokio::task::spawn_blocking(move || {
            receiver.recv_timeout(Duration::from_secs(20)).is_ok()
        });
        assert!(waited.await.unwrap(), "who was refused is called when there is room");
    }
}

/// QUO-05, QUO-03: on a full disk sends fail with `ServerBusy`, receiving and settling still work,
/// nothing is lost, and sends work again when there is room. The test repeats this three times to
/// find leaked room.
#[tokio::test]
async fn a_full_disk_refuses_sends_and_nothing_else() {
    let disk = SimulatedDisk::new(1);
    disk.set_quota(Some(24 * SEGMENT_BYTES));
    let journal = open(&disk);
    let broker = Broker::builder().store(Arc::clone(&journal) as _).start().await.unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    let queue = broker.entity("q").unwrap();
    for round in 0..3 {
        room(&journal, 700_000).await;
        let mut sent = 0;
        let refusal = loop {
            match send(&queue, &format!("{round} {sent} {}", "x".repeat(2_000))).await {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 10_000, "the disk is never full");
        };
        assert_eq!(refusal.condition(), Condition::ServerBusy, "{refusal}");
        assert!(refusal.retryable());
        let text = refusal.to_string();
        let floor = format!("{} must stay free (`journal.free_bytes_min`)", 4 * SEGMENT_BYTES);
        assert!(text.contains("bytes free") && text.contains(&floor), "{text}");
        assert!(broker.shortage().is_some() && broker.failure().is_none(), "degraded, and ready");
        assert!(sent > 300, "most of the disk is used before sends are refused: {sent}");
        let mut left = sent;
        let mut expected = 0;
        while left > 0 {
            let messages = receive(&queue, 50).await;
            assert!(!messages.is_empty(), "{left} of {sent} are lost");
            for message in &messages {
                let text = body(message).await;
                assert!(text.contains(&format!("{round} {expected} ")), "not number {expected}");
                expected += 1;
                complete(&queue, message).await.unwrap();
            }
            left -= messages.len();
        }
    }
    room(&journal, 4_096).await;
    send(&queue, "last").await.unwrap();
    room(&journal, 64 << 10).await;
    assert_eq!(broker.shortage(), None);
    broker.stop(Duration::ZERO).await.unwrap();
    drop(broker);

    let broker = Broker::builder().store(open(&disk)).start().await.unwrap();
    let queue = broker.entity("q").unwrap();
    let messages = receive(&queue, 10).await;
    assert_eq!(messages.len(), 1, "what was completed is not back");
    assert!(body(&messages[0]).await.ends_with("last"));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// A failed write or sync ends the store immediately: waiting callers get errors, later commands
/// are refused, and the broker reports the failure. The next broker finds every acknowledged
/// message.
#[tokio::test]
async fn a_failed_disk_ends_the_broker_and_loses_nothing() {
    let lost = [Lost::StillCached, Lost::ReadAnew];
    for (call, lost) in
        [Call::Write, Call::Sync].into_iter().flat_map(|call| lost.map(|lost| (call, lost)))
    {
        let disk = SimulatedDisk::new(2);
        let broker = Broker::builder().store(open(&disk)).start().await.unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        let queue = broker.entity("q").unwrap();
        for number in 0..5 {
            send(&queue, &format!("message {number}")).await.unwrap();
        }
        let locked = receive(&queue, 1).await;
        disk.fail(call, 1, Fault::Partly);
        let refusal = complete(&queue, &locked[0]).await.unwrap_err();
        assert_eq!(refusal.condition(), Condition::InternalError, "{refusal}");
        let why = broker.failed().await;
        assert!(!why.is_empty(), "the broker says why it has failed");
        assert!(broker.failure().is_some(), "it is not ready any more");
        disk.heal();
        assert!(send(&queue, "late").await.is_err(), "a failed sync is never tried again");
        broker.stop(Duration::ZERO).await.ok();
        drop((broker, queue));

        let broker = Broker::builder().store(open(&disk.kill(lost))).start().await.unwrap();
        let queue = broker.entity("q").unwrap();
        let messages = receive(&queue, 10).await;
        // The outcome of the completion was unknown.
        assert!((4..=5).contains(&messages.len()), "{}", messages.len());
        for (message, number) in messages.iter().rev().zip((0..5).rev()) {
            assert!(body(message).await.ends_with(&format!("message {number}")));
        }
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// A disk that fails while the broker is idle is reported too, so that a probe notices it before a
/// client.
#[tokio::test]
async fn a_disk_failure_is_reported_while_idle() {
    let disk = SimulatedDisk::new(3);
    let broker = Broker::builder().store(open(&disk)).start().await.unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    assert_eq!(broker.failure(), None);
    // The next write is the mark that follows a second without writes.
    disk.fail_from(Call::Sync, 1, Fault::Whole);
    let why = broker.failed().await;
    assert!(why.contains("sync"), "{why}");
    broker.stop(Duration::ZERO).await.ok();
}

/// A slow disk blocks no arbiter: waiting for the disk happens outside turns, so that a service
/// manager sees a live broker.
#[tokio::test]
async fn a_slow_disk_stalls_no_arbiter() {
    let store = FaultStore::at_once(1, u64::MAX);
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let builder = Broker::builder().store(Arc::clone(&store) as _).arbiters(1);
    let broker = builder.clock(Arc::clone(&clock) as _).start().await.unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    store.complete_at_once(false);
    let sending = tokio::spawn({
        let queue = broker.entity("q").unwrap();
        async move { send(&queue, "x").await }
    });
    while store.queued(Shard(0)) == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(TimeSpan::from_seconds(600));
    // The turn that submitted the write ends.
    let turns = async {
        while broker.stalled().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), turns).await.unwrap();
    assert!(!sending.is_finished() && store.queued(Shard(0)) > 0);
    store.complete_at_once(true);
    while !sending.is_finished() {
        store.complete_next(Shard(0), Fate::Store);
        tokio::task::yield_now().await;
    }
    sending.await.unwrap().unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

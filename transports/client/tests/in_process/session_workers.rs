//! Many workers take sessions from one queue during sends to it, on a broker with several threads:
//! each session has one holder, is processed in order, and no message is processed twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_client::{Client, SessionReceiver};
use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::SessionFilter;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::watch;

const SESSIONS: u64 = 40;
const MESSAGES_EACH: u64 = 25;
const SENDERS: u64 = 4;
const WORKERS: u64 = 6;

/// Progress of the sessions.
#[derive(Default)]
struct Book {
    /// Number of completed messages of a session.
    done: BTreeMap<String, u64>,
    /// Holders of a session.
    held: BTreeMap<String, u64>,
}

impl Book {
    /// Records that a holder got the next message of a session, and whether it completes it.
    fn meet(&mut self, session: &str, number: u64, completes: bool) {
        let done = self.done.entry(session.to_owned()).or_default();
        assert_eq!(*done, number, "session {session} out of order (SES-19)");
        *done += u64::from(completes);
    }
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 32
}

/// Sends to the sessions of a sender in turn; each session in order.
async fn send(client: Client, sender: u64) {
    let queue = client.sender("jobs").unwrap();
    for number in 0..MESSAGES_EACH {
        for session in (sender..SESSIONS).step_by(usize::try_from(SENDERS).unwrap()) {
            let job = Message::new(number.to_string()).with_session_id(format!("{session}"));
            queue.send(job).await.unwrap();
        }
    }
}

/// Processes messages of a session for a while.
async fn work_in(
    session: &SessionReceiver,
    random: &mut u64,
    book: &Mutex<Book>,
    total: &watch::Sender<u64>,
) {
    loop {
        let count = 1 + u32::try_from(next(random) % 3).unwrap();
        let jobs = session.receive_many(count, TimeSpan::ZERO).await.unwrap();
        if jobs.is_empty() {
            return;
        }
        for job in jobs {
            let number: u64 = std::str::from_utf8(job.body()).unwrap().parse().unwrap();
            let completes = !next(random).is_multiple_of(5);
            book.lock().unwrap().meet(session.session_id(), number, completes);
            if !completes {
                // Later messages are delivered again with it, in order (SES-20, SES-31).
                if next(random).is_multiple_of(2) {
                    session.abandon(&job, &[]).await.unwrap();
                }
                return;
            }
            session.complete(&job).await.unwrap();
            total.send_modify(|total| *total += 1);
        }
    }
}

async fn work(client: Client, worker: u64, book: Arc<Mutex<Book>>, total: watch::Sender<u64>) {
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ (worker << 40) ^ 77;
    let mut all_done = total.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = client.accept_next_session("jobs", TimeSpan::from_minutes(5)) => accepted,
            _ = all_done.wait_for(|total| *total == SESSIONS * MESSAGES_EACH) => return,
        };
        let session = accepted.unwrap();
        let id = session.session_id().to_owned();
        let other = book.lock().unwrap().held.insert(id.clone(), worker);
        assert_eq!(other, None, "session {id} has two holders (SES-11)");
        work_in(&session, &mut random, &book, &total).await;
        book.lock().unwrap().held.remove(&id);
        if next(&mut random).is_multiple_of(2) {
            session.close().await.unwrap();
        }
    }
}

/// SES-07, SES-08, SES-11, SES-16, SES-19, SES-20, SES-31, SES-33
#[tokio::test]
async fn workers_share_sessions_and_keep_their_order() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let broker = Broker::builder().clock(clock as Arc<_>).arbiters(2).start().await.unwrap();
    let client = Client::new(&broker);
    let jobs = QueueUpdate {
        requires_session: Some(true),
        max_delivery_count: Some(1_000_000),
        ..QueueUpdate::default()
    };
    client.admin().create_queue_with("jobs", jobs).await.unwrap();
    let book = Arc::new(Mutex::new(Book::default()));
    let total = watch::Sender::new(0);
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        tasks.spawn(work(client.clone(), worker, Arc::clone(&book), total.clone()));
    }
    for sender in 0..SENDERS {
        tasks.spawn(send(client.clone(), sender));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let done = book.lock().unwrap().done.values().sum::<u64>();
    assert_eq!(done, SESSIONS * MESSAGES_EACH);
    // Dropped sessions are still being released; this request is handled after that.
    assert_eq!(client.admin().queue("jobs").await.unwrap().counts.total(), 0);
    let left = client.sessions("jobs", SessionFilter::All, 0, 9).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    broker.stop(Duration::ZERO).await.unwrap();
}

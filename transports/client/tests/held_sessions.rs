//! Measures the cost of accepting, processing and giving back a session, the cost of a message
//! within a session, and the memory of a held session, compared with a plain queue in the same run.
//! Ignored, because other tests at the same time would distort the figures:
//!
//! ```console
//! cargo test --release -p peeklock-client --test held_sessions -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a measurement prints")]

use std::time::{Duration, Instant};

use peeklock_client::{Client, SessionReceiver};
use peeklock_core::Broker;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

/// Messages and sessions of each round, and the number of rounds; the median counts.
const COUNT: u32 = 5_000;
const ROUNDS: usize = 7;
const HELD: u32 = 4_000;

async fn send(client: &Client, path: &str, session: impl Fn(u32) -> Option<String>) {
    let list = (0..COUNT).map(|number| match session(number) {
        Some(session) => Message::new("body").with_session_id(session),
        None => Message::new("body"),
    });
    let sent = client.sender(path).unwrap().send_many(list.collect()).await;
    assert!(sent.iter().all(Result::is_ok));
}

/// Processes sessions with one message each, one step at a time. Returns the time.
async fn sessions(client: &Client) -> Duration {
    send(client, "sessions", |number| Some(format!("session {number}"))).await;
    let started = Instant::now();
    for _ in 0..COUNT {
        let session = client.accept_next_session("sessions", TimeSpan::ZERO).await.unwrap();
        let message = session.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        session.complete(&message).await.unwrap();
        session.close().await.unwrap();
    }
    started.elapsed() / COUNT
}

/// Receives and completes messages within a held session, one at a time. Returns the time.
async fn within(client: &Client) -> Duration {
    send(client, "sessions", |_| Some("held".to_owned())).await;
    let session = client.accept_session("sessions", "held").await.unwrap();
    let started = Instant::now();
    for _ in 0..COUNT {
        let message = session.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        session.complete(&message).await.unwrap();
    }
    let took = started.elapsed() / COUNT;
    session.close().await.unwrap();
    took
}

/// Receives and completes messages of a plain queue, one at a time. Returns the time.
async fn plain(client: &Client) -> Duration {
    send(client, "plain", |_| None).await;
    let receiver = client.receiver("plain").unwrap();
    let started = Instant::now();
    for _ in 0..COUNT {
        let message = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        receiver.complete(&message).await.unwrap();
    }
    started.elapsed() / COUNT
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// DESIGN D3: cost of a held session.
#[tokio::test]
#[ignore = "a measurement"]
async fn a_session_that_is_held() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let client = Client::new(&broker);
    let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("sessions", by_session.clone()).await.unwrap();
    client.admin().create_queue_with("idle", by_session).await.unwrap();
    client.admin().create_queue_with("plain", QueueUpdate::default()).await.unwrap();
    // Measured first, while no freed memory can be reused.
    let before = resident_kib();
    let mut held: Vec<SessionReceiver> = Vec::new();
    for number in 0..HELD {
        held.push(client.accept_session("idle", &format!("session {number}")).await.unwrap());
    }
    let bytes = (resident_kib() - before) * 1_024 / i64::from(HELD);
    for session in held {
        session.close().await.unwrap();
    }
    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let [whole, one, other] = &mut taken;
        whole.push(sessions(&client).await);
        one.push(within(&client).await);
        other.push(plain(&client).await);
    }
    let [whole, one, other] = taken.map(|mut rounds| {
        rounds.sort_unstable();
        (rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1])
    });
    broker.stop(Duration::ZERO).await.unwrap();
    eprintln!("a session of one message, accepted to closed: {whole:.1?}");
    eprintln!("a message within a held session: {one:.1?}");
    eprintln!("a message of a plain queue: {other:.1?}");
    eprintln!("a held session without messages, with its handle: {bytes} bytes");
}

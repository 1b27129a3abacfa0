//! Measures 100,000 sessions with one message each on the journal: their memory, the time of a
//! restart, and the time to find the next session compared with a thousand sessions. Ignored,
//! because other tests at the same time would distort the figures:
//!
//! ```console
//! cargo test --release -p peeklock-client --test many_sessions -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a measurement prints")]

mod local;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock_client::Client;
use peeklock_core::Broker;
use peeklock_core::command::SessionFilter;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::store::{Journal, JournalConfig};
use peeklock_core::time::TimeSpan;

use local::Local;

const SESSIONS: u64 = 100_000;
const FEW: u64 = 1_000;
const LIST: u64 = 1_000;
/// Number of accepts per measurement.
const ACCEPTS: u32 = 2_000;
const MEMORY_MAX_KIB: i64 = 300 << 10;
const OPENING_MAX: Duration = Duration::from_secs(2);
/// Maximum slowdown of an accept with a hundred times as many sessions. A linear search would take
/// a hundred times as long; a tree is two thirds higher.
const SLOWER_MAX: f64 = 4.0;

async fn open(path: &Path) -> Local {
    let store = Journal::open(path, JournalConfig::default()).unwrap();
    let broker = Broker::builder().store(store as Arc<_>).arbiters(1).start().await.unwrap();
    Local::new(broker)
}

/// Sends one message to each of these sessions.
async fn fill(client: &Client, path: &str, sessions: std::ops::Range<u64>) {
    let sender = client.sender(path).unwrap();
    let mut first = sessions.start;
    while first < sessions.end {
        let list = (first..sessions.end.min(first + LIST))
            .map(|number| Message::new("body").with_session_id(format!("session {number:012}")))
            .collect();
        assert!(sender.send_many(list).await.iter().all(Result::is_ok));
        first += LIST;
    }
}

/// Accepts and gives back the next session repeatedly. Returns the time per accept.
async fn accept(client: &Client, path: &str) -> Duration {
    let started = Instant::now();
    for _ in 0..ACCEPTS {
        let session = client.accept_next_session(path, TimeSpan::ZERO).await.unwrap();
        session.close().await.unwrap();
    }
    started.elapsed() / ACCEPTS
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// SES-07, SES-16, DESIGN D3: limits on memory and time per session.
#[tokio::test]
#[ignore = "a measurement"]
async fn a_hundred_thousand_sessions_are_cheap() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("many-sessions");
    std::fs::remove_dir_all(&directory).ok();
    std::fs::create_dir_all(&directory).unwrap();
    let client = open(&directory).await;
    let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    for path in ["few", "many"] {
        client.admin().create_queue_with(path, by_session.clone()).await.unwrap();
    }
    fill(&client, "few", 0..FEW).await;
    accept(&client, "few").await;
    let among_few = accept(&client, "few").await;

    let before = resident_kib();
    let started = Instant::now();
    fill(&client, "many", 0..SESSIONS).await;
    let sent_in = started.elapsed();
    let grown = resident_kib() - before;
    let among_many = accept(&client, "many").await;
    let counts = client.admin().queue("many").await.unwrap().sessions.unwrap();
    assert_eq!((counts.existing, counts.locked), (SESSIONS, 0));
    client.stop().await;

    let before_again = resident_kib();
    let started = Instant::now();
    let client = open(&directory).await;
    let session = client.accept_next_session("many", TimeSpan::ZERO).await.unwrap();
    let opened_in = started.elapsed();
    assert_eq!(session.session_id(), "session 000000000000");
    assert!(session.receive(TimeSpan::ZERO).await.unwrap().is_some());
    let last = SESSIONS - 2;
    let skip = last;
    let names = client.sessions("many", SessionFilter::All, skip, 10).await.unwrap();
    assert_eq!(names.len(), 2);
    session.close().await.unwrap();
    let after_restart = accept(&client, "many").await;
    client.stop().await;
    std::fs::remove_dir_all(&directory).unwrap();

    eprintln!(
        "{SESSIONS} sessions: {:.1} MiB ({:.0} bytes each) with the journal's share, sent in {sent_in:.2?}",
        grown as f64 / 1_024.0,
        grown as f64 * 1_024.0 / SESSIONS as f64,
    );
    eprintln!("opened, and the first accepted, in {opened_in:.2?} ({before_again} KiB before)");
    eprintln!(
        "accept next and close: {among_few:.1?} among {FEW}, {among_many:.1?} among {SESSIONS}, \
         {after_restart:.1?} after the restart"
    );
    assert!(grown <= MEMORY_MAX_KIB, "{grown} KiB");
    assert!(opened_in <= OPENING_MAX, "{opened_in:?}");
    let slower = among_many.as_secs_f64() / among_few.as_secs_f64();
    assert!(slower <= SLOWER_MAX, "{slower:.1} times as slow");
}

//! A backlog: everything is sent, the broker is opened again, then everything is received and
//! completed. What is deeper than the cache is read from disk.

use std::path::Path;
use std::time::{Duration, Instant};

use peeklock::Broker;
use peeklock::description::QueueUpdate;
use peeklock::message::Message;
use peeklock::store::{Journal, JournalConfig};

use super::cycle::{Cycle, drain, send};
use super::{BenchError, Scratch};

/// What it took.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Messages.
    pub messages: u64,
    /// To send all.
    pub sending: Duration,
    /// Resident memory with the whole backlog, in KiB, where the system tells.
    pub resident_kib: Option<u64>,
    /// To open it again.
    pub opening: Duration,
    /// To receive and complete all.
    pub draining: Duration,
    /// The most memory that was resident at any time, in KiB.
    pub resident_kib_max: Option<u64>,
    /// Segment files that are left.
    pub segments: usize,
}

/// Runs it with a size of the queue of 4096 megabytes.
pub async fn run(
    place: &Path,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<Backlog, BenchError> {
    let scratch = Scratch::within(place)?;
    let path = scratch.at("journal");
    let open = || Journal::open(&path, JournalConfig::default());
    let broker = Broker::builder().store(open()?).start().await?;
    let update = QueueUpdate { max_size_in_megabytes: Some(4_096), ..QueueUpdate::default() };
    broker.create_queue("load", update).await?;
    let share = cycle.messages / cycle.clients.max(1);
    let message = Message::new(vec![7; cycle.body_bytes]).with_message_id("id-of-the-message");
    let entity = broker.entity("load")?;
    let started = Instant::now();
    let senders = (0..cycle.clients).map(|_| async {
        let mut left = share;
        while left > 0 {
            let count = left.min(cycle.list);
            send(&entity, &broker, &message, count).await?;
            left -= count;
            progress(count);
        }
        Ok::<(), BenchError>(())
    });
    futures_util::future::try_join_all(senders).await?;
    let sending = started.elapsed();
    let resident_kib = resident("VmRSS");
    broker.stop(Duration::ZERO).await?;
    drop((broker, entity));

    let started = Instant::now();
    let broker = Broker::builder().store(open()?).start().await?;
    let entity = broker.entity("load")?;
    let opening = started.elapsed();

    let started = Instant::now();
    let receivers = (0..cycle.clients).map(|_| async {
        let mut left = share;
        while left > 0 {
            let count = left.min(cycle.list);
            drain(&entity, count, cycle.list).await?;
            left -= count;
            progress(count);
        }
        Ok::<(), BenchError>(())
    });
    futures_util::future::try_join_all(receivers).await?;
    let draining = started.elapsed();
    let resident_kib_max = resident("VmHWM");
    // What the keeper has not given back after a second it keeps.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let is_log = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".log");
    let segments = std::fs::read_dir(&path)?.flatten().filter(is_log).count();
    broker.stop(Duration::ZERO).await?;
    let messages = (share * cycle.clients) as u64;
    Ok(Backlog { messages, sending, resident_kib, opening, draining, resident_kib_max, segments })
}

fn resident(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

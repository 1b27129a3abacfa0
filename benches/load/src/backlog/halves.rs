//! A backlog in process: one process sends all messages; another opens the store, receives and
//! completes them. The memory of each process is measured separately.

use std::path::Path;
use std::time::{Duration, Instant};

use peeklock::Broker;
use peeklock::description::QueueUpdate;
use peeklock::message::Message;
use peeklock::store::{Journal, JournalConfig};

use crate::BenchError;
use crate::cycle::{Cycle, drain, in_shares, send};
use crate::process::Process;

/// Time and memory of one half.
#[derive(Clone, Copy, Debug, Default)]
pub struct Half {
    /// Time until the broker was ready.
    pub opening: Duration,
    /// Time to send, or to receive and complete.
    pub working: Duration,
    /// Maximum resident memory; none if the system does not report it.
    pub resident_bytes_max: Option<u64>,
}

/// Sends all messages to a queue of at most 4096 megabytes.
pub async fn fill(path: &Path, cycle: Cycle, progress: &dyn Fn(usize)) -> Result<Half, BenchError> {
    let started = Instant::now();
    let broker = open(path).await?;
    let update = QueueUpdate { max_size_in_megabytes: Some(4_096), ..QueueUpdate::default() };
    broker.create_queue("load", update).await?;
    let opening = started.elapsed();
    let message = Message::new(vec![7; cycle.body_bytes]).with_message_id("id-of-the-message");
    let entity = broker.entity("load")?;
    let started = Instant::now();
    in_shares(cycle, progress, |count| send(&entity, &broker, &message, count)).await?;
    let working = started.elapsed();
    let resident_bytes_max = Process::own().resident_bytes_max();
    broker.stop(Duration::ZERO).await?;
    Ok(Half { opening, working, resident_bytes_max })
}

/// Opens the store, then receives and completes all messages.
pub async fn empty(
    path: &Path,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<Half, BenchError> {
    let started = Instant::now();
    let broker = open(path).await?;
    let entity = broker.entity("load")?;
    let opening = started.elapsed();
    let started = Instant::now();
    in_shares(cycle, progress, |count| drain(&entity, count, cycle.list)).await?;
    let working = started.elapsed();
    let resident_bytes_max = Process::own().resident_bytes_max();
    // Memory that is not released after a second stays in use.
    tokio::time::sleep(Duration::from_secs(1)).await;
    broker.stop(Duration::ZERO).await?;
    Ok(Half { opening, working, resident_bytes_max })
}

async fn open(path: &Path) -> Result<Broker, BenchError> {
    let store = Journal::open(path, JournalConfig::default())?;
    Ok(Broker::builder().store(store).start().await?)
}

/// Number of files of the log.
pub fn segments(path: &Path) -> std::io::Result<usize> {
    let is_log = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".log");
    Ok(std::fs::read_dir(path)?.flatten().filter(is_log).count())
}

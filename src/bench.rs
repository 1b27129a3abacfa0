//! Loads on a broker in this process, and the floor under them: what the disk alone takes for the same
//! bytes in the same groups.

pub mod backlog;
pub mod beside;
pub mod cycle;
mod floor;
mod record;
pub mod scheduled;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peeklock::error::BrokerError;
use peeklock::store::journal::disk::OsDisk;
use peeklock::store::{Journal, JournalConfig, StoreError};
use peeklock::{Broker, StartError};

use cycle::Cycle;
use record::{Recorder, Step};

/// Why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The broker did not start.
    #[error("broker cannot start: {0}")]
    Start(#[from] StartError),
    /// The broker refused something.
    #[error("load was refused: {0}")]
    Refused(#[from] BrokerError),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The directory cannot be used.
    #[error("directory for the load: {0}")]
    Directory(#[from] io::Error),
}

/// What a load did.
#[derive(Clone, Copy, Debug)]
pub struct Durable {
    /// Messages that were sent, received and completed.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Bytes the store wrote.
    pub written_bytes: u64,
    /// Times it synced.
    pub syncs: u64,
}

/// What the store asked of the disk during a load, to be asked again without a broker.
pub struct Replay {
    scratch: Scratch,
    before: Vec<Step>,
    steps: Vec<Step>,
}

impl Replay {
    /// How long the disk takes for it alone.
    pub fn floor(&self) -> Result<Duration, BenchError> {
        Ok(floor::run(&self.scratch.at("floor"), &self.before, &self.steps)?)
    }
}

/// A directory that is removed with all in it when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory in another.
    pub fn within(path: &Path) -> io::Result<Self> {
        let path = path.join(format!("peeklock-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "what the load wrote is left behind");
        }
    }
}

/// Sends, receives and completes, durably. What the disk had to do for it comes back too.
pub async fn durable_cycles(
    place: &Path,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<(Durable, Replay), BenchError> {
    let scratch = Scratch::within(place)?;
    let disk = OsDisk::open(&scratch.at("journal"))?;
    let recorder = Arc::new(Recorder::new(Arc::new(disk)));
    let store = Journal::open_on(Arc::clone(&recorder) as _, JournalConfig::default())?;
    let broker = Broker::builder().store(store).start().await?;
    broker.create_queue("load", Default::default()).await?;
    // Threads, files and connections are warm when the load begins.
    let warm = Cycle { messages: cycle.clients * cycle.list, ..cycle };
    cycle::run(&broker, "load", warm, &|_| {}).await?;
    let before = recorder.take();
    let elapsed = cycle::run(&broker, "load", cycle, progress).await?;
    let steps = recorder.take();
    broker.stop(Duration::ZERO).await?;
    let before: Vec<Step> =
        before.into_iter().filter(|step| matches!(step, Step::Create { .. })).collect();
    let messages = cycle.messages as u64;
    let (mut written_bytes, mut syncs) = (0, 0);
    for step in &steps {
        match step {
            Step::Write { bytes, .. } => written_bytes += bytes,
            Step::Sync { .. } => syncs += 1,
            Step::Create { .. } => {}
        }
    }
    let body_bytes = messages * cycle.body_bytes as u64;
    let durable = Durable { messages, body_bytes, elapsed, written_bytes, syncs };
    Ok((durable, Replay { scratch, before, steps }))
}

//! The floor: writes and syncs the same bytes in the same groups without any other work.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock::Broker;
use peeklock::message::Message;
use peeklock::store::journal::disk::{Disk, DiskFile, OsDisk};
use peeklock::store::{Journal, JournalConfig};

use super::BenchError;
use super::cycle::send;
use super::latency::Latencies;
use super::record::{Recorder, Step};
use super::report::Report;

/// Repeats recorded steps on new files in an empty directory; returns the duration.
pub fn run(path: &Path, before: &[Step], steps: &[Step]) -> io::Result<Duration> {
    let disk = OsDisk::open(path)?;
    let mut files: HashMap<u64, Arc<dyn DiskFile>> = HashMap::new();
    let largest = steps.iter().map(|step| match step {
        Step::Write { bytes, .. } => *bytes,
        Step::Create { .. } | Step::Sync { .. } => 0,
    });
    let largest = usize::try_from(largest.max().unwrap_or(0)).unwrap_or(0);
    // Not zeros, which a disk may store in less space.
    let filling: Vec<u8> =
        (0..largest).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    // Files that existed at the start of the load.
    for step in before {
        carry_out(step, &disk, &mut files, &[])?;
    }
    let started = Instant::now();
    for step in steps {
        carry_out(step, &disk, &mut files, &filling)?;
    }
    Ok(started.elapsed())
}

fn carry_out(
    step: &Step,
    disk: &OsDisk,
    files: &mut HashMap<u64, Arc<dyn DiskFile>>,
    filling: &[u8],
) -> io::Result<()> {
    let (Step::Create { file, .. } | Step::Write { file, .. } | Step::Sync { file }) = step;
    if !files.contains_key(file) {
        files.insert(*file, disk.create(&format!("floor-{file}"))?);
    }
    let Some(opened) = files.get(file) else { return Ok(()) };
    match step {
        Step::Create { bytes, .. } => opened.allocate(*bytes),
        Step::Write { offset, bytes, .. } => {
            let length = usize::try_from(*bytes).unwrap_or(0);
            filling.get(..length).map_or(Ok(()), |bytes| opened.write_at(bytes, *offset))
        }
        Step::Sync { .. } => opened.sync(),
    }
}

/// Number of syncs before a load, and after it.
const SYNCS: usize = 500;
/// Number of sends for the measurement of the journal's bytes per send.
const SAMPLES: usize = 32;

/// The time of the disk to write and sync the bytes of one durable send. Half of it is measured
/// before the load and half after it, while the broker is idle.
pub struct SyncFloor {
    file: Arc<dyn DiskFile>,
    bytes: Vec<u8>,
    offset: u64,
    took: Latencies,
}

impl SyncFloor {
    /// Measures the first half in its own directory.
    pub async fn of(path: &Path, body_bytes: usize) -> Result<Self, BenchError> {
        let bytes = send_bytes(path, body_bytes).await?;
        // Not zeros, which a disk may store in less space.
        let bytes: Vec<u8> = (0..bytes).map(|at| at.to_le_bytes()[0] | 1).collect();
        let disk = OsDisk::open(path)?;
        let file = disk.create("syncs")?;
        file.allocate(2 * (SYNCS * bytes.len()) as u64)?;
        file.sync()?;
        let mut floor = Self { file, bytes, offset: 0, took: Latencies::new() };
        floor.again()?;
        Ok(floor)
    }

    /// Measures the other half.
    pub fn again(&mut self) -> Result<(), BenchError> {
        for _ in 0..SYNCS {
            let started = Instant::now();
            self.file.write_at(&self.bytes, self.offset)?;
            self.file.sync()?;
            self.took.record(started.elapsed());
            self.offset += self.bytes.len() as u64;
        }
        Ok(())
    }

    /// Adds the results to the report.
    pub fn report_to(&self, report: &mut Report) {
        report.bytes("floor_bytes", "floor: bytes per send", self.bytes.len() as u64);
        report.latency("floor_sync_latency", "floor: written and synced", self.took.summary());
    }
}

/// Number of bytes that the journal writes for one send.
async fn send_bytes(path: &Path, body_bytes: usize) -> Result<usize, BenchError> {
    let recorder = Arc::new(Recorder::new(Arc::new(OsDisk::open(&path.join("journal"))?)));
    let store = Journal::open_on(Arc::clone(&recorder) as _, JournalConfig::default())?;
    let broker = Broker::builder().store(store).start().await?;
    broker.create_queue("load", Default::default()).await?;
    let (entity, message) = (broker.entity("load")?, Message::new(vec![7; body_bytes]));
    let mut writes = Vec::new();
    for _ in 0..SAMPLES {
        recorder.take();
        send(&entity, &broker, &message, 1).await?;
        let steps = recorder.take();
        writes.push(
            steps
                .iter()
                .map(|step| match step {
                    Step::Write { bytes, .. } => *bytes,
                    Step::Create { .. } | Step::Sync { .. } => 0,
                })
                .sum::<u64>(),
        );
    }
    broker.stop(Duration::ZERO).await?;
    // Some writes include a mark or the head of a file.
    writes.sort_unstable();
    let median = writes.get(SAMPLES / 2).copied().unwrap_or(0);
    Ok(usize::try_from(median).unwrap_or(0))
}

//! The floor: the same bytes in the same groups, written and synced by a loop that does nothing else.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock::store::journal::disk::{Disk, DiskFile, OsDisk};

use super::record::Step;

/// Carries out recorded steps on files of its own in an empty directory; returns how long they took.
pub fn run(path: &Path, before: &[Step], steps: &[Step]) -> io::Result<Duration> {
    let disk = OsDisk::open(path)?;
    let mut files: HashMap<u64, Arc<dyn DiskFile>> = HashMap::new();
    let largest = steps.iter().map(|step| match step {
        Step::Write { bytes, .. } => *bytes,
        Step::Create { .. } | Step::Sync { .. } => 0,
    });
    let largest = usize::try_from(largest.max().unwrap_or(0)).unwrap_or(0);
    // No zeros: a disk may take those for less.
    let filling: Vec<u8> =
        (0..largest).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    // Files that were there when the load began.
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

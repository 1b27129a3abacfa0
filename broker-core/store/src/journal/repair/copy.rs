//! A copy of the whole directory, made before a repair changes the journal. `repair.rs` calls it,
//! and changes nothing if the copy fails.

use std::io;

use super::super::disk::Disk;
use super::super::verify::{Meter, Progress, Stage, TolerantDisk};
use super::patch::failed;
use crate::StoreError;

/// Number of bytes to read and write at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Maximum number of bytes of a copy.
pub(super) fn bytes(disk: &dyn Disk) -> Result<u64, StoreError> {
    let sum = || -> io::Result<u64> {
        let mut bytes = 0;
        for name in disk.list()? {
            bytes += disk.open(&name)?.length()?;
        }
        Ok(bytes)
    };
    sum().map_err(|error| failed("the directory", &error))
}

/// Copies every file, with zeros in place of unreadable bytes, and makes the copy durable.
pub(super) fn copy(
    from: &dyn Disk,
    to: &dyn Disk,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), StoreError> {
    let total = bytes(from)?;
    let free = to.free_bytes().map_err(|error| failed("the copy", &error))?;
    if free < total {
        let detail =
            format!("not enough space for a copy: it needs {total} bytes, and {free} are free");
        return Err(StoreError::Failed(detail.into()));
    }
    let from = TolerantDisk::new(from);
    let mut meter = Meter::new(Stage::Copy, total, progress);
    for name in from.list().map_err(|error| failed("the directory", &error))? {
        copy_file(&from, to, &name, &mut meter).map_err(|error| failed(&name, &error))?;
    }
    to.sync().map_err(|error| failed("the copy", &error))?;
    meter.end();
    Ok(())
}

fn copy_file(from: &dyn Disk, to: &dyn Disk, name: &str, meter: &mut Meter<'_>) -> io::Result<()> {
    let (from, to) = (from.open(name)?, to.create(name)?);
    let length = from.length()?;
    // The rest is zeros, like most of an unfilled segment.
    to.truncate(length)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < length {
        let count = from.read_at(&mut piece, at)?;
        let read = piece.get(..count).filter(|read| !read.is_empty());
        let Some(read) = read else { break };
        if read.iter().any(|byte| *byte != 0) {
            to.write_at(read, at)?;
        }
        at += count as u64;
        meter.add(count as u64);
    }
    to.sync()
}

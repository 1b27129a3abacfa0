//! A copy of the whole directory, before anything is changed in it.

use std::io;

use super::super::disk::Disk;
use super::super::verify::{Meter, Progress, Stage, Tolerant};
use super::patch::failed;
use crate::StoreError;

/// Read and written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// How many bytes a copy takes at most.
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

/// Copies every file, with zeros for what cannot be read, and makes the copy durable.
pub(super) fn copy(
    from: &dyn Disk,
    to: &dyn Disk,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), StoreError> {
    let total = bytes(from)?;
    let free = to.free_bytes().map_err(|error| failed("the copy", &error))?;
    if free < total {
        let what =
            format!("not enough space for a copy: it needs {total} bytes, and {free} are free");
        return Err(StoreError::Failed(what.into()));
    }
    let from = Tolerant::new(from);
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
    // What is not written is zeros, as most of a segment that was not filled.
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

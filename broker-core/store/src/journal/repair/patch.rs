//! Replacements of damaged parts: headers, holes, and whole segments. Only repair uses them.

use std::io;

use super::super::disk::{Disk, DiskFile};
use super::super::format::{
    ALIGNMENT, FRAME_HEAD, FrameKind, FrameWriter, HEADER_BYTES, SegmentHeader, hole_payload,
};
use super::super::segment::name_of;
use super::super::verify::{FRAME_BYTES_MIN, Gap};
use crate::StoreError;

/// Maximum size of a piece of a hole, so that reading it takes little memory.
const PIECE_BYTES: u64 = 1 << 20;

/// Writes a copy of a header again.
pub(super) fn write_header(
    disk: &dyn Disk,
    header: &SegmentHeader,
    at: u64,
) -> Result<(), StoreError> {
    let name = name_of(header.number);
    let page = header.write();
    let copy = usize::try_from(at).ok().and_then(|at| page.get(at..at + HEADER_COPY_BYTES));
    let write = || -> io::Result<()> {
        let file = disk.open(&name)?;
        file.write_at(copy.unwrap_or_default(), at)?;
        file.sync()
    };
    write().map_err(|error| failed(&name, &error))
}

const HEADER_COPY_BYTES: usize = 2_048;

/// Overwrites gaps with holes.
pub(super) fn make_holes(
    disk: &dyn Disk,
    header: &SegmentHeader,
    gaps: &[Gap],
) -> Result<(), StoreError> {
    if gaps.is_empty() {
        return Ok(());
    }
    let name = name_of(header.number);
    let write = || -> io::Result<()> {
        let file = disk.open(&name)?;
        for gap in gaps {
            write_hole(&*file, header.seed, (gap.from, gap.to), gap.first_lsn, gap.next_lsn)?;
        }
        file.sync()
    };
    write().map_err(|error| failed(&name, &error))
}

/// Writes a hole as consecutive frames. Only the lsn after the last one matters.
fn write_hole(
    file: &dyn DiskFile,
    seed: u32,
    (from, to): (u64, u64),
    lsn: u64,
    next_lsn: u64,
) -> io::Result<()> {
    if to < from + FRAME_BYTES_MIN || !(to - from).is_multiple_of(ALIGNMENT) {
        return Err(io::Error::other("a gap is too small for a hole"));
    }
    let mut at = from;
    while at < to {
        let left = to - at;
        let is_last = left <= PIECE_BYTES + FRAME_BYTES_MIN;
        let bytes = if is_last { left } else { PIECE_BYTES };
        let lsn_after = if is_last { next_lsn } else { lsn };
        let payload = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(FRAME_HEAD);
        let mut buffer = Vec::new();
        let frame = FrameWriter::begin(&mut buffer);
        buffer.extend_from_slice(&hole_payload(lsn_after, payload));
        frame.finish(&mut buffer, &[], FrameKind::Hole, lsn, lsn.saturating_sub(1), seed);
        file.write_at(&buffer, at)?;
        at += bytes;
    }
    Ok(())
}

/// The replacement of a dropped segment: a header, and a hole up to its end.
pub(super) struct ReplacementSegment {
    pub(super) header: SegmentHeader,
    pub(super) end: u64,
    pub(super) next_lsn: u64,
}

impl ReplacementSegment {
    /// Writes the replacement durably, in place of the file.
    pub(super) fn write(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let name = name_of(self.header.number);
        // Opening removes the draft if the repair is interrupted here.
        let draft = format!("spare-r{:09}.log", self.header.number);
        let write = || -> io::Result<()> {
            if disk.list()?.contains(&draft) {
                disk.remove(&draft)?;
            }
            let file = disk.create(&draft)?;
            file.write_at(&self.header.write(), 0)?;
            if self.end > HEADER_BYTES {
                let span = (HEADER_BYTES, self.end);
                write_hole(&*file, self.header.seed, span, self.header.first_lsn, self.next_lsn)?;
            }
            file.sync()?;
            disk.rename(&draft, &name)?;
            disk.sync()
        };
        write().map_err(|error| failed(&name, &error))
    }
}

pub(super) fn failed(name: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("`{name}` cannot be repaired: {error}").into())
}

//! Converts records of a segment to operations on the index. Opening, sweeps and verification use
//! it; side files have their own reader.

use super::format::{FRAME_HEAD, LogPosition, Reading};
use super::segment::{FoundFrame, Segment};
use crate::StoreError;
use peeklock_store_log::{LogSegment as _, ReplayOp};

/// Passes the records of a checked frame to `visit`, each with its offset in the segment. Other
/// frames have none.
pub(super) fn records(
    segment: &Segment,
    frame: &FoundFrame<'_>,
    mut visit: impl FnMut(u32, &Reading<'_>),
) -> Result<(), StoreError> {
    if !frame.holds_records() {
        return Ok(());
    }
    let start = frame.offset + FRAME_HEAD as u64;
    peeklock_store_log::records(frame.payload, segment.header.version, |at, read| {
        visit(u32::try_from(start + at as u64).unwrap_or(u32::MAX), read);
    })
    .map_err(|(at, flaw)| segment.damaged(start + at as u64, flaw))
}

/// The operation of a record in the log.
pub(super) fn op_in_log(segment: &Segment, offset: u32, read: &Reading<'_>) -> Option<ReplayOp> {
    peeklock_store_log::op_in_log(LogPosition { segment: segment.number(), offset }, read)
}

//! Converts records of the log to operations on the index. Opening, sweeps, side files and
//! verification use it.

use std::sync::Arc;

use super::format::{
    FRAME_HEAD, LogPosition, LogRecord, Reading, RecordContent, RecordReader, part_count,
};
use super::index::{ContentAt, IndexEntry, Op, PartPositions};
use super::segment::{FoundFrame, Segment};
use crate::{Key, StoreError};

/// The operation of a record, and the parts of its large content.
#[derive(PartialEq, Eq)]
pub(super) struct ReplayOp {
    pub(super) op: Op,
    pub(super) parts: Option<PartPositions>,
}

impl ReplayOp {
    /// Whether it removes keys.
    pub(super) const fn is_removal(&self) -> bool {
        matches!(self.op, Op::Delete { .. } | Op::DeletePrefix { .. })
    }
}

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
    let mut reader = RecordReader::trusting(segment.header.version);
    let mut at = 0;
    while let Some(rest) = frame.payload.get(at..).filter(|rest| !rest.is_empty()) {
        let offset = start + at as u64;
        let read = reader.read(rest).map_err(|flaw| segment.damaged(offset, flaw))?;
        visit(u32::try_from(offset).unwrap_or(u32::MAX), &read);
        at += read.span;
    }
    Ok(())
}

/// The operation of a record in the log.
pub(super) fn op_in_log(segment: &Segment, offset: u32, read: &Reading<'_>) -> Option<ReplayOp> {
    let place = LogPosition { segment: segment.number(), offset };
    op(&read.record, place, read.bytes(), |content| match content {
        RecordContent::Here(bytes) => {
            content_behind(place, read.bytes(), u32::try_from(bytes.len()).ok()?)
        }
        other => content_of(other),
    })
}

/// The operation of a record at `place` with `record_bytes` bytes, without an embedded content.
/// `None` if the record is invalid.
pub(super) fn op(
    record: &LogRecord<'_>,
    place: LogPosition,
    record_bytes: u32,
    content_at: impl FnOnce(&RecordContent<'_>) -> Option<ContentAt>,
) -> Option<ReplayOp> {
    let mut large_parts = None;
    let op = match record {
        LogRecord::Delete { key } => Op::Delete { key: Key::from_bytes(key)? },
        LogRecord::DeletePrefix { prefix } => Op::DeletePrefix { prefix: Key::from_bytes(prefix)? },
        LogRecord::Put { key, content, .. } => {
            let at = match content {
                RecordContent::None => None,
                some => Some(content_at(some)?),
            };
            if let RecordContent::Parts { places, length } = content {
                if places.len() != part_count(*length) {
                    return None;
                }
                large_parts = Some(Arc::from(places.as_slice()));
            }
            let entry = IndexEntry::new(place, record_bytes, at);
            Op::Put { key: Key::from_bytes(key)?, entry, content_is_new: true }
        }
    };
    Some(ReplayOp { op, parts: large_parts })
}

/// The position of an embedded content: after the first `record_bytes` bytes of its record.
pub(super) fn content_behind(
    record: LogPosition,
    record_bytes: u32,
    length: u32,
) -> Option<ContentAt> {
    let place = LogPosition { offset: record.offset.checked_add(record_bytes)?, ..record };
    Some(ContentAt { place, length, is_large: false })
}

/// The position of a content that is not embedded.
pub(super) fn content_of(content: &RecordContent<'_>) -> Option<ContentAt> {
    match content {
        RecordContent::None | RecordContent::Here(_) => None,
        RecordContent::At { place, length } => {
            Some(ContentAt { place: *place, length: *length, is_large: false })
        }
        RecordContent::Parts { places, length } => {
            Some(ContentAt { place: places.first().copied()?, length: *length, is_large: true })
        }
    }
}

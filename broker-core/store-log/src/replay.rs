//! Converts records of the log to operations on the index. Everything that reads a log uses it.

use std::sync::Arc;

use peeklock_record::Key;

use crate::{
    ContentAt, Flaw, IndexEntry, LogPosition, LogRecord, Op, PartPositions, Reading, RecordContent,
    RecordReader, Version, part_count,
};

/// The operation of a record, and the parts of its large content.
#[derive(PartialEq, Eq, Debug)]
pub struct ReplayOp {
    /// The operation.
    pub op: Op,
    /// The parts, which the index must have before it applies the operation.
    pub parts: Option<PartPositions>,
}

impl ReplayOp {
    /// Whether it removes keys.
    #[must_use]
    pub const fn is_removal(&self) -> bool {
        matches!(self.op, Op::Delete { .. } | Op::DeletePrefix { .. })
    }
}

/// Passes the records of checked bytes to `visit`, each with its distance from the start.
///
/// # Errors
/// If a record cannot be read, with its distance.
pub fn records(
    bytes: &[u8],
    version: Version,
    mut visit: impl FnMut(usize, &Reading<'_>),
) -> Result<(), (usize, Flaw)> {
    let mut reader = RecordReader::trusting(version);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let read = reader.read(rest).map_err(|flaw| (at, flaw))?;
        visit(at, &read);
        at += read.span;
    }
    Ok(())
}

/// The operation of a record with its content, if it embeds one.
#[must_use]
pub fn op_in_log(place: LogPosition, read: &Reading<'_>) -> Option<ReplayOp> {
    op(&read.record, place, read.bytes(), |content| match content {
        RecordContent::Here(bytes) => {
            content_behind(place, read.bytes(), u32::try_from(bytes.len()).ok()?)
        }
        other => content_of(other),
    })
}

/// The operation of a record at `place` with `record_bytes` bytes, without an embedded content.
/// `None` if the record is invalid.
#[must_use]
pub fn op(
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
#[must_use]
pub fn content_behind(record: LogPosition, record_bytes: u32, length: u32) -> Option<ContentAt> {
    let place = LogPosition { offset: record.offset.checked_add(record_bytes)?, ..record };
    Some(ContentAt { place, length, is_large: false })
}

/// The position of a content that is not embedded.
#[must_use]
pub fn content_of(content: &RecordContent<'_>) -> Option<ContentAt> {
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

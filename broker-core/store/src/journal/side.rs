//! Side files: a sealed segment has one next to it, `segment-….idx`, with its records in use
//! without their contents, so that opening need not read the segment itself (DESIGN D12). The
//! keeper writes them, and opening and verification read them.
//!
//! ```text
//!  header │ item │ item │ ...      item: distance from the one before │ record, as in the segment
//! ```
//!
//! A side file lists, in the order of the log, the puts that were in use when it was made, and all
//! removals. In the oldest segment, removals are omitted, because no older segment has a record
//! that they remove. Each item has the bytes of its record in the segment, without a content that
//! is embedded there. The file has the version of the log's format. If a side file is damaged or
//! missing, it is made again from its segment, and no data is lost.
//!
//! Distances have seven bits per byte, like lengths in the log. Version 1 has an offset (4 bytes)
//! before each record, and the place of an embedded content.

use std::io;

use crc32c::crc32c;

use super::disk::Disk;
use super::format::{
    Fields, Flaw, HEADER_BYTES, LogPosition, LogRecord, Reading, RecordContent, RecordReader,
    Version, write_length,
};
use super::log::make_sized_file;
use super::replay;
use super::segment::{FrameReader, Index, Segment, name_of};
use crate::StoreError;
use peeklock_store_log::{LogSegment as _, ReplayOp, content_behind, content_of, op};

const MAGIC: [u8; 8] = *b"PEEKSIDE";
/// Magic, version, segment, seed, end, length of the items, checksum of the items, checksum.
const HEAD: usize = 8 + 4 + 4 + 4 + 8 + 8 + 4 + 4;
const SUFFIX: &str = ".idx";

/// The name of a segment's side file.
pub(super) fn name_of_side(number: u32) -> String {
    name_of(number).replace(".log", SUFFIX)
}

/// The name of an unfinished side file.
pub(super) fn name_of_draft(number: u32) -> String {
    format!("{}.draft", name_of_side(number))
}

/// The segment of a side file, finished or not, from its file name.
pub(super) fn segment_of(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".draft").unwrap_or(name);
    super::segment::number_of(&name.strip_suffix(SUFFIX).map(|stem| format!("{stem}.log"))?)
}

/// Whether a file is an unfinished side file.
pub(super) fn is_draft(name: &str) -> bool {
    name.ends_with(".draft") && segment_of(name).is_some()
}

/// Writes the side file of a sealed segment as a draft: durable, not yet under its final name. The
/// draft omits a put if a later record has removed or replaced it. This later record must be
/// durable before [`publish`].
pub(super) fn draft(
    disk: &dyn Disk,
    segment: &Segment,
    index: &Index,
    is_oldest: bool,
) -> Result<(), StoreError> {
    let mut items = Vec::new();
    let seed = segment.header.seed;
    let mut last = 0;
    let mut reader = FrameReader::new(&*segment.file, seed, segment.end());
    let end = reader.each(HEADER_BYTES, segment.header.first_lsn, |frame| {
        replay::records(segment, frame, |offset, read| {
            let is_listed = match &read.record {
                LogRecord::Put { key, .. } => {
                    let place = LogPosition { segment: segment.number(), offset };
                    index.get(key).is_some_and(|entry| entry.record == place)
                }
                // Without older segments, there is no record that it could have removed.
                LogRecord::Delete { .. } | LogRecord::DeletePrefix { .. } => !is_oldest,
            };
            if is_listed {
                write_length(offset - std::mem::replace(&mut last, offset), &mut items);
                items.extend_from_slice(read.known);
            }
        })
    })?;
    if let Some(flaw) = end.flaw {
        return Err(segment.damaged(end.offset, flaw));
    }
    let mut bytes = Vec::with_capacity(HEAD + items.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&Version::CURRENT.number().to_le_bytes());
    bytes.extend_from_slice(&segment.number().to_le_bytes());
    bytes.extend_from_slice(&seed.to_le_bytes());
    bytes.extend_from_slice(&segment.end().to_le_bytes());
    bytes.extend_from_slice(&(items.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&items).to_le_bytes());
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&items);
    let name = name_of_draft(segment.number());
    let write = || -> io::Result<()> {
        if disk.list()?.contains(&name) {
            disk.remove(&name)?;
        }
        let draft = make_sized_file(disk, &name, bytes.len() as u64)?;
        draft.file.write_at(&bytes, 0)?;
        draft.file.sync()
    };
    write()
        .map_err(|error| StoreError::Failed(format!("`{name}` cannot be written: {error}").into()))
}

/// Replays a side file. `Err` has the reason why it is unusable.
pub(super) fn replay(
    disk: &dyn Disk,
    segment: &Segment,
    end: u64,
    visit: &mut dyn FnMut(ReplayOp),
) -> io::Result<Result<(), Flaw>> {
    items(disk, segment, end, &mut |_, op| visit(op))
}

/// Passes the operations of a side file to `visit`, each with the offset of its record in the
/// segment.
pub(super) fn items(
    disk: &dyn Disk,
    segment: &Segment,
    end: u64,
    visit: &mut dyn FnMut(u32, ReplayOp),
) -> io::Result<Result<(), Flaw>> {
    let name = name_of_side(segment.number());
    if !disk.list()?.contains(&name) {
        return Ok(Err(Flaw::Absent));
    }
    let file = disk.open(&name)?;
    let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(read(&bytes, segment, end, visit))
}

fn read(
    bytes: &[u8],
    segment: &Segment,
    end: u64,
    visit: &mut dyn FnMut(u32, ReplayOp),
) -> Result<(), Flaw> {
    let (head, items) = bytes.split_at_checked(HEAD).ok_or(Flaw::Short)?;
    let (covered, checksum) = head.split_at(HEAD - 4);
    if crc32c(covered).to_le_bytes() != checksum {
        return Err(Flaw::Checksum);
    }
    let mut fields = Fields(covered);
    if fields.take(MAGIC.len())? != MAGIC {
        return Err(Flaw::Magic);
    }
    let version = Version::of(fields.u32()?).ok_or(Flaw::Version)?;
    let seed = segment.header.seed;
    if (fields.u32()?, fields.u32()?, fields.u64()?) != (segment.number(), seed, end) {
        return Err(Flaw::Order);
    }
    let length = usize::try_from(fields.u64()?).map_err(|_| Flaw::Short)?;
    let items = items.get(..length).ok_or(Flaw::Short)?;
    if crc32c(items) != fields.u32()? {
        return Err(Flaw::Checksum);
    }
    let mut items = Fields(items);
    let mut reader = RecordReader::trusting(segment.header.version);
    let mut offset: u32 = 0;
    while !items.0.is_empty() {
        offset = match version {
            Version::V1 => items.u32()?,
            Version::V2 => offset.checked_add(items.length()?).ok_or(Flaw::Form)?,
        };
        let (read, held) = reader.read_cut(items.0)?;
        items.take(read.span)?;
        let place = LogPosition { segment: segment.number(), offset };
        let op = match version {
            Version::V1 => op_v1(&read, place),
            Version::V2 => op(&read.record, place, read.bytes(), |content| match held {
                Some(length) => content_behind(place, read.bytes(), length),
                None => content_of(content),
            }),
        };
        visit(offset, op.ok_or(Flaw::Form)?);
    }
    Ok(())
}

/// The operation of a version 1 item. In the log, its record may embed the content whose place the
/// item has; then the record in the log has no place.
fn op_v1(read: &Reading<'_>, record: LogPosition) -> Option<ReplayOp> {
    let mut bytes = read.bytes();
    if let LogRecord::Put { content: RecordContent::At { place, .. }, .. } = &read.record {
        let without_place = bytes.saturating_sub(8);
        let offset = record.offset.saturating_add(without_place);
        if *place == (LogPosition { offset, ..record }) {
            bytes = without_place;
        }
    }
    op(&read.record, record, bytes, content_of)
}

/// Gives the draft its final name. All records that removed or replaced omitted puts must be
/// durable.
pub(super) fn publish(disk: &dyn Disk, number: u32) -> io::Result<()> {
    disk.rename(&name_of_draft(number), &name_of_side(number))?;
    disk.sync()
}

/// Removes the side file of a released segment.
pub(super) fn remove(disk: &dyn Disk, number: u32) -> io::Result<()> {
    let names = disk.list()?;
    for name in [name_of_side(number), name_of_draft(number)] {
        if names.contains(&name) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

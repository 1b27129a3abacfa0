//! Side files: what a sealed segment still says, without its contents, so that opening need not read
//! the segment itself (DESIGN D12).
//!
//! ```text
//!  header │ item │ item │ ...     item: distance from the one before in the segment │ bytes of the
//!                                       record there, without its content │ record, as in the log
//! ```
//!
//! A side file lists, in the order of the log, the puts that were alive when it was made and all
//! removals. A content that lies in the segment is told by its place. A side file that is damaged or
//! missing is made again from its segment; nothing is lost with it.
//!
//! Distances and bytes are in seven bits a byte, as lengths are in the log. In version 1 there is an
//! offset (4) before each record, and nothing more; its records are of version 1.

use std::io;

use crc32c::crc32c;

use super::disk::Disk;
use super::format::{
    Fields, Flaw, HEADER_BYTES, LogRecord, Place, Reading, RecordContent, RecordReader, Version,
    write_length,
};
use super::index::Index;
use super::log::make_spare;
use super::replay::{self, ReplayOp};
use super::segment::{FrameReader, Segment, name_of};
use crate::store::StoreError;

const MAGIC: [u8; 8] = *b"PEEKSIDE";
/// The version that is written.
const VERSION: u32 = 2;
/// Magic, version, segment, seed, end, length of the items, checksum of the items, checksum.
const HEAD: usize = 8 + 4 + 4 + 4 + 8 + 8 + 4 + 4;
const SUFFIX: &str = ".idx";

/// The name of the side file of a segment.
pub(super) fn name_of_side(number: u32) -> String {
    name_of(number).replace(".log", SUFFIX)
}

/// The name that it has while it is made.
pub(super) fn name_of_draft(number: u32) -> String {
    format!("{}.draft", name_of_side(number))
}

/// Whether a file is, or was to become, a side file; and of which segment.
pub(super) fn segment_of(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".draft").unwrap_or(name);
    super::segment::number_of(&name.strip_suffix(SUFFIX).map(|stem| format!("{stem}.log"))?)
}

/// Whether a file was to become a side file.
pub(super) fn is_draft(name: &str) -> bool {
    name.ends_with(".draft") && segment_of(name).is_some()
}

/// Writes the draft of the side file of a sealed segment: durable, not yet under its name. What it
/// leaves out must be durable before it gets that.
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
            let record = match &read.record {
                LogRecord::Put { key, value, content } => {
                    let entry = index.get(key);
                    let place = Place { segment: segment.number(), offset };
                    let Some(entry) = entry.filter(|entry| entry.record == place) else { return };
                    let content = match content {
                        RecordContent::Here(bytes) => RecordContent::At {
                            place: entry.content,
                            length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                        },
                        told => told.clone(),
                    };
                    LogRecord::Put { key, value, content }
                }
                // Nothing older is there that it could have removed.
                LogRecord::Delete { .. } | LogRecord::DeletePrefix { .. } if is_oldest => return,
                removal => removal.clone(),
            };
            write_length(offset - std::mem::replace(&mut last, offset), &mut items);
            write_length(read.bytes, &mut items);
            record.write(&mut items, seed);
        })
    })?;
    if let Some(flaw) = end.flaw {
        return Err(segment.damaged(end.offset, flaw));
    }
    let mut bytes = Vec::with_capacity(HEAD + items.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
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
        let draft = make_spare(disk, &name, bytes.len() as u64)?;
        draft.file.write_at(&bytes, 0)?;
        draft.file.sync()
    };
    write()
        .map_err(|error| StoreError::Failed(format!("`{name}` cannot be written: {error}").into()))
}

/// Replays a side file. `Err` tells why it cannot be used.
pub(super) fn replay(
    disk: &dyn Disk,
    segment: &Segment,
    end: u64,
    visit: &mut dyn FnMut(ReplayOp),
) -> io::Result<Result<(), Flaw>> {
    items(disk, segment, end, &mut |_, op| visit(op))
}

/// Shows what a side file says, each with the byte of the segment where that is said.
pub(super) fn items(
    disk: &dyn Disk,
    segment: &Segment,
    end: u64,
    visit: &mut dyn FnMut(u32, ReplayOp),
) -> io::Result<Result<(), Flaw>> {
    let name = name_of_side(segment.number());
    if !disk.list()?.contains(&name) {
        return Ok(Err(Flaw::Empty));
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
    let mut reader = RecordReader::new(version, seed);
    let mut offset: u32 = 0;
    while !items.0.is_empty() {
        let bytes_in_log = match version {
            Version::V1 => {
                offset = items.u32()?;
                None
            }
            Version::V2 => {
                offset = offset.checked_add(items.length()?).ok_or(Flaw::Form)?;
                Some(items.length()?)
            }
        };
        let read = reader.read(items.0)?;
        items.take(read.span)?;
        let place = Place { segment: segment.number(), offset };
        let record_bytes = bytes_in_log.unwrap_or_else(|| bytes_in_log_v1(&read, place));
        let op = replay::op(&read.record, place, record_bytes, |content| match content {
            // Only the log itself has contents in its records.
            RecordContent::Here(_) => None,
            told => replay::content_of(told),
        });
        visit(offset, op.ok_or(Flaw::Form)?);
    }
    Ok(())
}

/// How long a record of version 1 is in the log. There it may hold the content whose place it tells
/// here, behind it: then it tells none.
fn bytes_in_log_v1(read: &Reading<'_>, record: Place) -> u32 {
    let LogRecord::Put { content: RecordContent::At { place, .. }, .. } = read.record else {
        return read.bytes;
    };
    let without_place = read.bytes.saturating_sub(8);
    let behind = Place { offset: record.offset.saturating_add(without_place), ..record };
    if place == behind { without_place } else { read.bytes }
}

/// Gives the draft its name. Everything that it left out as dead must be durably so.
pub(super) fn publish(disk: &dyn Disk, number: u32) -> io::Result<()> {
    disk.rename(&name_of_draft(number), &name_of_side(number))?;
    disk.sync()
}

/// Removes the side file of a segment that is given up.
pub(super) fn remove(disk: &dyn Disk, number: u32) -> io::Result<()> {
    let names = disk.list()?;
    for name in [name_of_side(number), name_of_draft(number)] {
        if names.contains(&name) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

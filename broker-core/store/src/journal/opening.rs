//! Opening: reads the files into the index, or refuses with a file and byte (DESIGN D12). The
//! journal calls it once at its start, and repair calls it too.
//!
//! Every segment but the newest was synced before its successor was begun, and the header of the
//! successor states where it ends. So any unreadable byte before that end is damage.
//!
//! The newest segment has no such end: reading ends at the first invalid frame. Let its lsn be n. A
//! valid frame after it may state that n was durable when that frame was written. Then acknowledged
//! data is damaged. If no frame states this, no data from n on was ever acknowledged, and it is
//! dropped. Valid frames after an invalid one are normal there, since the frames of an unsynced
//! group reach the disk in any order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::disk::Disk;
use super::format::{FRAME_HEAD, Flaw, FrameKind, HEADER_BYTES, SegmentHeader, read_mark};
use super::log::is_spare;
use super::manifest::{Manifest, ManifestState};
use super::replay;
use super::segment::{FrameReader, Index, Segment, Segments, damaged, missing, number_of};
use super::side;
use crate::StoreError;
use peeklock_store_log::{LogSegment as _, ReplayOp};

/// The result of opening.
pub(super) struct Opened {
    pub(super) segments: Arc<Segments>,
    pub(super) index: Arc<Index>,
    pub(super) manifest: Manifest,
    /// The header of the newest segment; `None` for a new journal.
    pub(super) newest: Option<SegmentHeader>,
    /// End of the log in the newest segment.
    pub(super) end: u64,
    /// Above every lsn in the log.
    pub(super) next_lsn: u64,
    pub(super) oldest: u32,
}

/// The end of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    pub(super) offset: u64,
    /// Start of the frames that no later frame states to be durable.
    unproven: u64,
    /// Above every lsn in the newest segment, even after the end.
    pub(super) next_lsn: u64,
    /// The oldest segment in use.
    pub(super) oldest: u32,
    /// Whether there are non-zero bytes after the end, which were never acknowledged.
    pub(super) dropped: bool,
}

/// Size of the pieces in which bytes are written again.
const REWRITE_BYTES: usize = 256 << 10;

/// Reads the log, and removes files that are no longer used.
pub(super) fn open(disk: &dyn Disk) -> Result<Opened, StoreError> {
    let names = disk.list().map_err(|error| failed("the directory", &error))?;
    let (manifest, manifest_state) =
        Manifest::open(disk).map_err(|error| failed("the manifest", &error))?;
    let files = segment_files(disk, &names)?;
    let segments = Arc::new(Segments::default());
    let index = Arc::new(Index::new(Arc::clone(&segments)));
    let Some((_, newest)) = files.last_key_value() else {
        if manifest_state.newest > 0 {
            return Err(missing(manifest_state.newest));
        }
        remove_leftovers(disk, &names, u32::MAX)?;
        return Ok(Opened {
            segments,
            index,
            manifest,
            newest: None,
            end: 0,
            next_lsn: 1,
            oldest: 1,
        });
    };
    let log_end = find_end(newest, &manifest_state)?;
    check_chain(&files, log_end.oldest, &manifest_state)?;
    rewrite_unproven(newest, &log_end).map_err(|error| failed(&newest.name(), &error))?;
    let needed: Vec<Arc<Segment>> =
        files.range(log_end.oldest..).map(|(_, segment)| Arc::clone(segment)).collect();
    for (place, segment) in needed.iter().enumerate() {
        let end = match needed.get(place + 1) {
            Some(next) => next.header.previous_end,
            None => log_end.offset,
        };
        segment.set_end(end);
        segment.seal();
        segments.insert(Arc::clone(segment));
        replay_segment(disk, segment, end, &index)?;
    }
    index.open_account().map_err(missing)?;
    if log_end.dropped {
        tracing::info!(
            segment = newest.number(),
            offset = log_end.offset,
            "dropped an unfinished write from the end of the last process; it was never \
             acknowledged"
        );
    }
    let header = newest.header;
    // The segment gets no more frames, and a series of restarts must not fill the disk.
    if let Err(error) = newest.trim(0) {
        tracing::debug!(%error, "could not trim the newest segment");
    }
    remove_leftovers(disk, &names, log_end.oldest)?;
    Ok(Opened {
        segments,
        index,
        manifest,
        newest: Some(header),
        end: log_end.offset,
        next_lsn: log_end.next_lsn,
        oldest: log_end.oldest,
    })
}

/// Opens all files with the name of a segment.
pub(super) fn segment_files(
    disk: &dyn Disk,
    names: &[String],
) -> Result<BTreeMap<u32, Arc<Segment>>, StoreError> {
    let mut files = BTreeMap::new();
    for name in names {
        let Some(number) = number_of(name) else { continue };
        let file = disk.open(name).map_err(|error| failed(name, &error))?;
        let mut page = vec![0; usize::try_from(HEADER_BYTES).unwrap_or(0)];
        let count = file.read_at(&mut page, 0).map_err(|error| failed(name, &error))?;
        page.truncate(count);
        let header = SegmentHeader::read(&page)
            .map_err(|flaw| damaged(name, 0, &format!("the head of the segment: {flaw}")))?;
        if header.number != number {
            let detail = format!("this is segment {} under another name", header.number);
            return Err(damaged(name, 0, &detail));
        }
        files.insert(number, Arc::new(Segment::new(header, file, HEADER_BYTES)));
    }
    Ok(files)
}

/// Finds the end of the log in its newest segment, by the rule at the top of this file.
pub(super) fn find_end(
    newest: &Segment,
    manifest_state: &ManifestState,
) -> Result<LogEnd, StoreError> {
    let header = newest.header;
    let length = newest.file.length().map_err(|error| failed(&newest.name(), &error))?;
    let mut oldest = header.oldest;
    let mut reader = FrameReader::new(&*newest.file, header.seed, length);
    let mut unproven: VecDeque<(u64, u64)> = VecDeque::new();
    let end = reader.each(HEADER_BYTES, header.first_lsn, |frame| {
        if frame.head.kind == FrameKind::Mark {
            let marked =
                read_mark(frame.payload).map_err(|flaw| newest.damaged(frame.offset, flaw))?;
            oldest = oldest.max(marked);
        }
        while unproven.front().is_some_and(|(lsn, _)| *lsn <= frame.head.synced) {
            unproven.pop_front();
        }
        unproven.push_back((frame.head.lsn, frame.offset));
        Ok(())
    })?;
    let flaw = end.flaw.unwrap_or(Flaw::Short);
    if manifest_state.newest == header.number && end.offset < manifest_state.closed_end {
        return Err(newest.damaged(end.offset, flaw));
    }
    let mut next_lsn = end.next_lsn;
    let mut dropped = false;
    let mut from = end.offset;
    loop {
        let found = reader.find_from(from).map_err(|error| failed(&newest.name(), &error))?;
        let Some((offset, head)) = found else { break };
        if head.synced >= end.next_lsn {
            return Err(newest.damaged(end.offset, flaw));
        }
        dropped = true;
        next_lsn = next_lsn.max(head.lsn + 1);
        from = offset + FRAME_HEAD as u64;
    }
    let unproven = unproven.front().map_or(end.offset, |(_, offset)| *offset);
    Ok(LogEnd { offset: end.offset, unproven, next_lsn, oldest, dropped })
}

/// Makes the bytes durable that were read, because the journal builds on them from now on.
///
/// A sync is not enough. If an earlier process failed to sync and ended, its unwritten bytes can
/// still be in the page cache and count as written: the next sync succeeds, and a power failure
/// loses them. So all bytes that no frame proves to be durable are written again.
fn rewrite_unproven(newest: &Segment, log_end: &LogEnd) -> io::Result<()> {
    let mut piece = vec![0; REWRITE_BYTES];
    let mut offset = log_end.unproven;
    while offset < log_end.offset {
        let left = usize::try_from(log_end.offset - offset).unwrap_or(usize::MAX);
        let piece = piece.get_mut(..left.min(REWRITE_BYTES)).unwrap_or_default();
        let count = newest.file.read_at(piece, offset)?;
        let found = piece.get(..count).filter(|found| !found.is_empty());
        let found = found.ok_or(io::ErrorKind::UnexpectedEof)?;
        newest.file.write_at(found, offset)?;
        offset += found.len() as u64;
    }
    newest.file.sync()
}

/// Checks that all segments in use exist and belong to the same journal.
pub(super) fn check_chain(
    files: &BTreeMap<u32, Arc<Segment>>,
    oldest: u32,
    manifest_state: &ManifestState,
) -> Result<(), StoreError> {
    let newest = files.last_key_value().map_or(0, |(number, _)| *number).max(manifest_state.newest);
    if oldest > newest {
        return Err(missing(oldest));
    }
    let mut journal = None;
    let mut first_lsn = 0;
    for number in oldest..=newest {
        let segment = files.get(&number).ok_or_else(|| missing(number))?;
        let name = segment.name();
        if *journal.get_or_insert(segment.header.journal) != segment.header.journal {
            return Err(damaged(&name, 0, "the segment belongs to another journal"));
        }
        if segment.header.first_lsn < first_lsn {
            return Err(damaged(&name, 0, "the segment is older than its predecessor"));
        }
        first_lsn = segment.header.first_lsn;
    }
    Ok(())
}

/// Reads a segment into the index, from its side file if possible.
fn replay_segment(
    disk: &dyn Disk,
    segment: &Segment,
    end: u64,
    index: &Index,
) -> Result<(), StoreError> {
    let name = segment.name();
    let carry_out = |found: ReplayOp| {
        if let Some(parts) = found.parts {
            index.add_large(parts);
        }
        index.replay(&[found.op]);
    };
    // The side file is checked as a whole before its first item is applied.
    let replayed = side::replay(disk, segment, end, &mut |op| carry_out(op))
        .map_err(|error| failed(&name, &error))?;
    match replayed {
        Ok(()) => {
            segment.note_side();
            return Ok(());
        }
        Err(Flaw::Absent) => {}
        Err(flaw) => tracing::warn!(segment = segment.number(), %flaw, "writing the side file \
            again"),
    }
    let mut reader = FrameReader::new(&*segment.file, segment.header.seed, end);
    let read = reader.each(HEADER_BYTES, segment.header.first_lsn, |frame| {
        let mut odd = None;
        replay::records(segment, frame, |offset, record| {
            match replay::op_in_log(segment, offset, record) {
                Some(op) => carry_out(op),
                None => odd = Some(offset),
            }
        })?;
        odd.map_or(Ok(()), |offset| Err(segment.damaged(u64::from(offset), Flaw::Form)))
    })?;
    match read.flaw {
        Some(flaw) => Err(segment.damaged(read.offset, flaw)),
        // Frames never cross the end that the next segment states.
        None if read.offset != end => Err(segment.damaged(end, Flaw::Order)),
        None => Ok(()),
    }
}

/// Removes unused files: spares, drafts, and segments below the oldest one in use.
pub(super) fn remove_leftovers(
    disk: &dyn Disk,
    names: &[String],
    oldest: u32,
) -> Result<(), StoreError> {
    for name in names {
        let is_left = is_spare(name)
            || side::is_draft(name)
            || number_of(name).is_some_and(|number| number < oldest)
            || side::segment_of(name).is_some_and(|number| number < oldest);
        if is_left {
            disk.remove(name).map_err(|error| failed(name, &error))?;
        }
    }
    Ok(())
}

fn failed(name: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{name} cannot be read: {error}").into())
}

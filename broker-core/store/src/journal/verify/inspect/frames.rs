//! Records of frames: checked in valid frames, and read one by one in damaged ones. Only the
//! inspection uses it.

use std::io;

use super::super::super::format::{
    FRAME_HEAD, Flaw, FrameHead, FrameKind, LogRecord, Reading, RecordContent, read_content,
    read_mark,
};
use super::super::super::replay;
use super::super::super::segment::{FoundFrame, Index, Segment};
use super::super::walk::{Extent, Gap, SegmentItem, walk};
use peeklock_store_log::ReplayOp;

/// Checks the records of a frame and their contents, and returns their operations.
pub(super) fn prove_frame(
    segment: &Segment,
    frame: &FoundFrame<'_>,
) -> Result<Vec<(u32, ReplayOp)>, Flaw> {
    match frame.head.kind {
        FrameKind::Mark => read_mark(frame.payload).map(|_| Vec::new()),
        FrameKind::Part | FrameKind::Hole => Ok(Vec::new()),
        FrameKind::Batch | FrameKind::Moved => {
            let start = frame.offset + FRAME_HEAD as u64;
            let mut ops = Vec::new();
            let read =
                each_record(segment, frame.payload, start, &mut |offset, op, read, whole| {
                    if let LogRecord::Put { content: RecordContent::Here(_), .. } = read.record {
                        let content = whole.get(read.known.len()..).unwrap_or_default();
                        read_content(content, segment.header.seed)?;
                    }
                    ops.push((offset, op));
                    Ok(())
                });
            read.map(|()| ops)
        }
    }
}

/// Receives a record: its offset, its operation, the record, and all its bytes.
type VisitRecord<'v> = &'v mut dyn FnMut(u32, ReplayOp, &Reading<'_>, &[u8]) -> Result<(), Flaw>;

/// Passes records to `visit` until one is unreadable.
fn each_record(
    segment: &Segment,
    payload: &[u8],
    start: u64,
    visit: VisitRecord<'_>,
) -> Result<(), Flaw> {
    let mut reader = segment.reader();
    let mut at = 0;
    while let Some(rest) = payload.get(at..).filter(|rest| !rest.is_empty()) {
        let offset = u32::try_from(start + at as u64).map_err(|_| Flaw::Form)?;
        let read = reader.read(rest)?;
        let op = replay::op_in_log(segment, offset, &read).ok_or(Flaw::Form)?;
        visit(offset, op, &read, rest.get(..read.span).unwrap_or_default())?;
        at += read.span;
    }
    Ok(())
}

/// Reads the frames of a segment into an index; `with_gaps` adds readable records in gaps.
pub(super) fn replay_frames(
    segment: &Segment,
    extent: Extent,
    index: &Index,
    with_gaps: bool,
) -> io::Result<()> {
    walk(segment, extent, &mut |item| {
        match item {
            SegmentItem::Frame(frame) => {
                prove_frame(segment, frame)?.into_iter().for_each(|(_, op)| carry_out(index, op));
            }
            SegmentItem::Gap(gap) if with_gaps => {
                readable_records(segment, gap, &mut |op| carry_out(index, op));
            }
            SegmentItem::Gap(_) => {}
        }
        Ok(())
    })
    .map(|_| ())
}

/// Passes the readable records of a gap to `visit`. Returns their number, and whether they are all.
pub(super) fn readable_records(
    segment: &Segment,
    gap: &Gap,
    visit: &mut dyn FnMut(ReplayOp),
) -> (u64, bool) {
    let (mut at, mut lsn, mut count) = (gap.from, gap.first_lsn, 0);
    let mut are_all = true;
    while at < gap.to && gap.last_lsn.is_none_or(|last| lsn <= last) {
        let Some((head, payload)) = claimed_frame(segment, gap, at, lsn) else {
            return (count, false);
        };
        if matches!(head.kind, FrameKind::Batch | FrameKind::Moved) {
            let start = at + FRAME_HEAD as u64;
            let read = each_record(segment, &payload, start, &mut |_, op, _, _| {
                count += 1;
                visit(op);
                Ok(())
            });
            are_all &= read.is_ok();
        }
        at += head.span();
        lsn += 1;
    }
    (count, are_all)
}

/// The frame that an unchecked head describes, if it is plausible.
fn claimed_frame(segment: &Segment, gap: &Gap, at: u64, lsn: u64) -> Option<(FrameHead, Vec<u8>)> {
    let head = FrameHead::read_claim(&segment.read(at, FRAME_HEAD).ok()?).ok()?;
    if head.lsn != lsn || at + head.span() > gap.to {
        return None;
    }
    let payload = segment.read(at + FRAME_HEAD as u64, head.length as usize).ok()?;
    Some((head, payload))
}

pub(super) fn carry_out(index: &Index, found: ReplayOp) {
    if let Some(parts) = found.parts {
        index.add_large(parts);
    }
    index.replay(&[found.op]);
}

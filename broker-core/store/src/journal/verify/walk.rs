//! Walks from frame to frame through a segment, and continues after damage. Verification and repair
//! use it.
//!
//! ```text
//!  n │ n+1 │ ?????????? │ n+4 │ n+5 │ ??
//!            damage: n+2, n+3         the end of the newest: damage only where something behind it
//!                                     says that it was durable (the opening rule)
//! ```

use std::io;

use super::super::format::{ALIGNMENT, FRAME_HEAD, Flaw, FrameKind, HEADER_BYTES, read_hole};
use super::super::segment::{FoundFrame, FrameReader, Segment};

/// Minimum length of a frame: its head and eight bytes.
pub(in super::super) const FRAME_BYTES_MIN: u64 = FRAME_HEAD as u64 + ALIGNMENT;

/// The known end of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Extent {
    /// The next segment has the end, and the lsn that follows.
    Sealed { end: u64, lsn: u64 },
    /// Sealed, but the segment with its end is unreadable.
    Open,
    /// The newest segment, which was closed in order up to `closed_end`.
    Newest { closed_end: u64 },
}

/// A range of a segment without a usable frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Gap {
    pub(in super::super) from: u64,
    pub(in super::super) to: u64,
    /// The expected lsn at its start.
    pub(in super::super) first_lsn: u64,
    /// The last acknowledged lsn in it, if known.
    pub(in super::super) last_lsn: Option<u64>,
    /// The lsn of the frame after it.
    pub(in super::super) next_lsn: u64,
    /// The flaw at its start.
    pub(in super::super) flaw: Flaw,
}

/// The next part of a segment.
pub(in super::super) enum SegmentItem<'a> {
    Frame(&'a FoundFrame<'a>),
    Gap(&'a Gap),
}

/// The result of walking through a segment.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct SegmentWalk {
    /// End of the segment.
    pub(in super::super) end: u64,
    /// Above every lsn in the segment, even after the end.
    pub(in super::super) next_lsn: u64,
    pub(in super::super) gaps: Vec<Gap>,
    /// Range of the write in progress when the process ended. It was never acknowledged.
    pub(in super::super) unfinished: Option<(u64, u64)>,
}

/// Facts from the valid frames after a damaged place.
#[derive(Clone, Copy)]
struct LaterFrames {
    synced: u64,
    lsn: u64,
    end: u64,
}

/// Walks through a segment. A frame that `visit` refuses as invalid is a gap too.
pub(in super::super) fn walk(
    segment: &Segment,
    extent: Extent,
    visit: &mut dyn FnMut(SegmentItem<'_>) -> Result<(), Flaw>,
) -> io::Result<SegmentWalk> {
    let length = segment.file.length()?;
    let (limit, closed_end) = match extent {
        Extent::Sealed { end, .. } => (end, end),
        Extent::Open => (length, 0),
        Extent::Newest { closed_end } => (length.max(closed_end), closed_end),
    };
    let mut reader = FrameReader::new(&*segment.file, segment.header.seed, limit);
    let mut walked = SegmentWalk::default();
    let (mut at, mut lsn) = (HEADER_BYTES, segment.header.first_lsn);
    let mut later: Option<LaterFrames> = None;
    while at < limit {
        let flaw = match reader.frame_at(at)? {
            Ok(found) if found.head.lsn == lsn => {
                let to = at + found.head.span();
                let next_lsn = match found.head.kind {
                    FrameKind::Hole => read_hole(found.payload).unwrap_or(lsn + 1),
                    FrameKind::Batch | FrameKind::Part | FrameKind::Moved | FrameKind::Mark => {
                        lsn + 1
                    }
                };
                if let Err(flaw) = visit(SegmentItem::Frame(&found)) {
                    let last_lsn = Some(lsn);
                    let gap = Gap { from: at, to, first_lsn: lsn, last_lsn, next_lsn, flaw };
                    visit(SegmentItem::Gap(&gap)).ok();
                    walked.gaps.push(gap);
                }
                (at, lsn) = (to, next_lsn);
                continue;
            }
            Ok(_) => Flaw::Order,
            Err(flaw) => flaw,
        };
        let resume = next_frame(&mut reader, at + ALIGNMENT, lsn)?;
        let gap = match extent {
            Extent::Sealed { end, lsn: next } => match resume {
                Some((to, found)) => gap(at, to, lsn, Some(found - 1), found, flaw),
                None => {
                    let next = next.max(lsn);
                    gap(at, end, lsn, next.checked_sub(1).filter(|last| *last >= lsn), next, flaw)
                }
            },
            Extent::Open => match resume {
                Some((to, found)) => gap(at, to, lsn, Some(found - 1), found, flaw),
                None => break,
            },
            Extent::Newest { .. } => {
                let later = match later {
                    Some(later) => later,
                    None => *later.insert(scan_later_frames(&mut reader, at + ALIGNMENT)?),
                };
                if at >= closed_end && lsn > later.synced {
                    let torn = torn_end(&mut reader, at, lsn)?.max(later.end);
                    walked.unfinished = (torn > at).then_some((at, torn.min(limit)));
                    lsn = lsn.max(later.lsn + 1);
                    break;
                }
                match resume {
                    Some((to, found)) if found <= later.synced + 1 || to < closed_end => {
                        gap(at, to, lsn, Some(found - 1), found, flaw)
                    }
                    // Frames after the gap were never acknowledged and are part of the gap.
                    _ => {
                        let to = later.end.max(closed_end).max(at + FRAME_BYTES_MIN);
                        let last = (at >= closed_end).then_some(later.synced);
                        let next = (later.lsn + 1).max(lsn + (to - at) / FRAME_BYTES_MIN);
                        gap(at, to, lsn, last, next, flaw)
                    }
                }
            }
        };
        visit(SegmentItem::Gap(&gap)).ok();
        (at, lsn) = (gap.to, gap.next_lsn);
        walked.gaps.push(gap);
    }
    walked.end = at;
    walked.next_lsn = lsn;
    Ok(walked)
}

const fn gap(
    from: u64,
    to: u64,
    first_lsn: u64,
    last_lsn: Option<u64>,
    next_lsn: u64,
    flaw: Flaw,
) -> Gap {
    Gap { from, to, first_lsn, last_lsn, next_lsn, flaw }
}

/// The next valid frame with an lsn above `missing`.
fn next_frame(
    reader: &mut FrameReader<'_>,
    from: u64,
    missing: u64,
) -> io::Result<Option<(u64, u64)>> {
    let mut from = from;
    while let Some((offset, head)) = reader.find_from(from)? {
        if head.lsn > missing {
            return Ok(Some((offset, head.lsn)));
        }
        from = offset + ALIGNMENT;
    }
    Ok(None)
}

/// Collects the facts from all valid frames after a damaged place.
fn scan_later_frames(reader: &mut FrameReader<'_>, from: u64) -> io::Result<LaterFrames> {
    let mut later = LaterFrames { synced: 0, lsn: 0, end: 0 };
    let mut from = from;
    while let Some((offset, head)) = reader.find_from(from)? {
        later.synced = later.synced.max(head.synced);
        later.lsn = later.lsn.max(head.lsn);
        later.end = later.end.max(offset + head.span());
        from = offset + head.span();
    }
    Ok(later)
}

/// The end of a frame that was started at `at` and not finished; 0 if there is none. Bytes of an
/// earlier use of the file have other lsns.
fn torn_end(reader: &mut FrameReader<'_>, at: u64, lsn: u64) -> io::Result<u64> {
    Ok(reader.claim_at(at)?.filter(|head| head.lsn == lsn).map_or(0, |head| at + head.span()))
}

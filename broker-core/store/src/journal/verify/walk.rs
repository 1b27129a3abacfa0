//! From frame to frame through a segment, and on behind what is damaged.
//!
//! ```text
//!  n │ n+1 │ ?????????? │ n+4 │ n+5 │ ??
//!            damage: n+2, n+3         the end of the newest: damage only where something behind it
//!                                     says that it was durable (the opening rule)
//! ```

use std::io;

use super::super::format::{ALIGNMENT, FRAME_HEAD, Flaw, FrameKind, HEADER_BYTES, read_hole};
use super::super::segment::{FoundFrame, FrameReader, Segment};

/// No frame is shorter than its head and eight bytes.
pub(in super::super) const FRAME_BYTES_MIN: u64 = FRAME_HEAD as u64 + ALIGNMENT;

/// What is known of the end of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Extent {
    /// The segment behind it tells where it ends, and the lsn that follows.
    Sealed { end: u64, lsn: u64 },
    /// Sealed, but the segment that tells the end cannot be read.
    Open,
    /// The newest; up to `closed_end` it was closed in order.
    Newest { closed_end: u64 },
}

/// A stretch of a segment in which no frame can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Gap {
    pub(in super::super) from: u64,
    pub(in super::super) to: u64,
    /// The lsn that should stand at its beginning.
    pub(in super::super) first_lsn: u64,
    /// The last lsn that was acknowledged in it, as far as that is known.
    pub(in super::super) last_lsn: Option<u64>,
    /// The lsn of the frame behind it.
    pub(in super::super) next_lsn: u64,
    /// What is wrong at its beginning.
    pub(in super::super) flaw: Flaw,
}

/// What stands next in a segment.
pub(in super::super) enum Met<'a> {
    Frame(&'a FoundFrame<'a>),
    Gap(&'a Gap),
}

/// A whole segment.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Walked {
    /// Where it ends.
    pub(in super::super) end: u64,
    /// Above every lsn that was seen, also behind the end.
    pub(in super::super) next_lsn: u64,
    pub(in super::super) gaps: Vec<Gap>,
    /// Bytes at the end that were being written when the process ended, and never acknowledged.
    pub(in super::super) unfinished: Option<(u64, u64)>,
}

/// Frames that verify behind a bad place.
#[derive(Clone, Copy)]
struct Behind {
    synced: u64,
    lsn: u64,
    end: u64,
}

/// Walks through a segment. A frame that `visit` refuses, because it says nonsense, is a gap too.
pub(in super::super) fn walk(
    segment: &Segment,
    extent: Extent,
    visit: &mut dyn FnMut(Met<'_>) -> Result<(), Flaw>,
) -> io::Result<Walked> {
    let length = segment.file.length()?;
    let (limit, closed_end) = match extent {
        Extent::Sealed { end, .. } => (end, end),
        Extent::Open => (length, 0),
        Extent::Newest { closed_end } => (length.max(closed_end), closed_end),
    };
    let mut reader = FrameReader::new(&*segment.file, segment.header.seed, limit);
    let mut walked = Walked::default();
    let (mut at, mut lsn) = (HEADER_BYTES, segment.header.first_lsn);
    let mut behind: Option<Behind> = None;
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
                if let Err(flaw) = visit(Met::Frame(&found)) {
                    let last_lsn = Some(lsn);
                    let gap = Gap { from: at, to, first_lsn: lsn, last_lsn, next_lsn, flaw };
                    visit(Met::Gap(&gap)).ok();
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
                let behind = match behind {
                    Some(behind) => behind,
                    None => *behind.insert(look_behind(&mut reader, at + ALIGNMENT)?),
                };
                if at >= closed_end && lsn > behind.synced {
                    let torn = torn_end(&mut reader, at, lsn)?.max(behind.end);
                    walked.unfinished = (torn > at).then_some((at, torn.min(limit)));
                    lsn = lsn.max(behind.lsn + 1);
                    break;
                }
                match resume {
                    Some((to, found)) if found <= behind.synced + 1 || to < closed_end => {
                        gap(at, to, lsn, Some(found - 1), found, flaw)
                    }
                    // What follows the gap was never acknowledged: it goes with it.
                    _ => {
                        let to = behind.end.max(closed_end).max(at + FRAME_BYTES_MIN);
                        let last = (at >= closed_end).then_some(behind.synced);
                        let next = (behind.lsn + 1).max(lsn + (to - at) / FRAME_BYTES_MIN);
                        gap(at, to, lsn, last, next, flaw)
                    }
                }
            }
        };
        visit(Met::Gap(&gap)).ok();
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

/// The next frame that verifies and has a higher lsn than the one missing.
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

/// What all frames that verify behind a bad place say together.
fn look_behind(reader: &mut FrameReader<'_>, from: u64) -> io::Result<Behind> {
    let mut behind = Behind { synced: 0, lsn: 0, end: 0 };
    let mut from = from;
    while let Some((offset, head)) = reader.find_from(from)? {
        behind.synced = behind.synced.max(head.synced);
        behind.lsn = behind.lsn.max(head.lsn);
        behind.end = behind.end.max(offset + head.span());
        from = offset + head.span();
    }
    Ok(behind)
}

/// Where a frame would end that was begun at a place and not finished; 0 if none was. Bytes of an
/// earlier use of the file have other lsns.
fn torn_end(reader: &mut FrameReader<'_>, at: u64, lsn: u64) -> io::Result<u64> {
    Ok(reader.claim_at(at)?.filter(|head| head.lsn == lsn).map_or(0, |head| at + head.span()))
}

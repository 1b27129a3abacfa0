//! The bytes of the journal, version 2: segment headers, frames, records. The log writes them, and
//! reading, opening, repair and verification decode them. No other state is kept here.
//!
//! ```text
//!  segment file   header, its copy at 2048 │ frame │ frame │ ... │ zeros, or bytes of an earlier use
//!                 0                        4096
//!  frame          magic │ length │ lsn │ synced │ kind │ proof │ crc32c │ payload │ padding to 8 bytes
//!                 0       4        8     16       24     25      28       32
//!  record         see `peeklock-store-log`
//! ```
//!
//! Version 1 has other records and is otherwise the same. Each segment has one version, in its
//! header.
//!
//! Integers are little-endian. The random number in the header of a segment seeds every checksum of
//! its frames and records. So bytes of an earlier use of the file, or a copy of the journal inside
//! a message, never pass for a frame. The head of a frame has a checksum of its own (proof), so
//! that content that looks like a frame costs no further reads.
//!
//! To change a stored type: give the segment header the next version, write only that version, and
//! keep reading every earlier one. Golden files of each version stay in the tests permanently.

mod checksum;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};

pub(super) use checksum::{SUMMED_BYTES_MIN, SummedPart};
pub(super) use peeklock_store_log::{
    CONTENT_HEAD, Fields, Flaw, LogPosition, LogRecord, PART_BYTES, PLACE_BYTES, RECORD_HEAD_MAX,
    REMOVAL_HEAD, Reading, RecordContent, RecordReader, Version, part_count, put, read_content,
    write_length,
};

/// Start of the frames, after the header and its copy.
pub(super) const HEADER_BYTES: u64 = 4_096;
/// Position of the header's copy.
const HEADER_COPY_AT: usize = 2_048;
pub(super) const HEADER_LENGTH: usize = 92;
const SEGMENT_MAGIC: [u8; 8] = *b"PEEKLOCK";

/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD: usize = 32;
pub(super) const FRAME_MAGIC: [u8; 4] = *b"PKf1";
/// Frames begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 8;

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    /// The encoding of its records.
    pub(super) version: Version,
    /// Identity of the journal, the same in all its segments.
    pub(super) journal: u128,
    /// Its number; one more than the previous segment's.
    pub(super) number: u32,
    /// Number of shards of the store.
    pub(super) shard_count: u16,
    /// Seed of every checksum in the segment.
    pub(super) seed: u32,
    /// The lsn of its first frame.
    pub(super) first_lsn: u64,
    /// The highest durable lsn when the segment was made.
    pub(super) synced: u64,
    /// The oldest segment in use when the segment was made.
    pub(super) oldest: u32,
    /// End of the previous segment; bytes after it were never acknowledged. 0 in the first segment.
    pub(super) previous_end: u64,
}

impl SegmentHeader {
    /// The first bytes of the file: the header, its copy, zeros.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEADER_LENGTH);
        head.extend_from_slice(&SEGMENT_MAGIC);
        head.extend_from_slice(&self.version.number().to_le_bytes());
        head.extend_from_slice(&self.journal.to_le_bytes());
        head.extend_from_slice(&self.number.to_le_bytes());
        head.extend_from_slice(&u32::from(self.shard_count).to_le_bytes());
        head.extend_from_slice(&self.seed.to_le_bytes());
        head.extend_from_slice(&self.first_lsn.to_le_bytes());
        head.extend_from_slice(&self.synced.to_le_bytes());
        head.extend_from_slice(&u64::from(self.oldest).to_le_bytes());
        head.extend_from_slice(&self.previous_end.to_le_bytes());
        // Reserved bytes for later versions, which must not move the checksum.
        head.resize(HEADER_LENGTH - 4, 0);
        let checksum = crc32c(&head);
        head.extend_from_slice(&checksum.to_le_bytes());
        let mut page = vec![0; usize::try_from(HEADER_BYTES).unwrap_or(0)];
        for at in [0, HEADER_COPY_AT] {
            if let Some(place) = page.get_mut(at..at + head.len()) {
                place.copy_from_slice(&head);
            }
        }
        page
    }

    /// Reads the header, or its copy if the header is damaged.
    pub(super) fn read(page: &[u8]) -> Result<Self, Flaw> {
        let first = Self::read_at(page, 0);
        match first {
            Ok(header) => Ok(header),
            Err(flaw) => Self::read_at(page, HEADER_COPY_AT).map_err(|_| flaw),
        }
    }

    /// Reads the header and its copy separately.
    pub(super) fn read_both(page: &[u8]) -> [(u64, Result<Self, Flaw>); 2] {
        [0, HEADER_COPY_AT].map(|at| (at as u64, Self::read_at(page, at)))
    }

    fn read_at(page: &[u8], at: usize) -> Result<Self, Flaw> {
        let head = page.get(at..at + HEADER_LENGTH).ok_or(Flaw::Short)?;
        let (covered, checksum) = head.split_at(HEADER_LENGTH - 4);
        let mut fields = Fields(covered);
        if fields.take(SEGMENT_MAGIC.len())? != SEGMENT_MAGIC {
            return Err(if head.iter().all(|byte| *byte == 0) { Flaw::Empty } else { Flaw::Magic });
        }
        if checksum != crc32c(covered).to_le_bytes() {
            return Err(Flaw::Checksum);
        }
        let version = Version::of(fields.u32()?).ok_or(Flaw::Version)?;
        Ok(Self {
            version,
            journal: fields.u128()?,
            number: fields.u32()?,
            shard_count: u16::try_from(fields.u32()?).map_err(|_| Flaw::Form)?,
            seed: fields.u32()?,
            first_lsn: fields.u64()?,
            synced: fields.u64()?,
            oldest: u32::try_from(fields.u64()?).map_err(|_| Flaw::Form)?,
            previous_end: fields.u64()?,
        })
    }
}

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// The records of a batch: all or none count.
    Batch,
    /// A part of a large content. A later batch contains the places of the parts.
    Part,
    /// Records that were written again because their segment is about to be released.
    Moved,
    /// States that all frames before it are durable, and the oldest segment in use.
    Mark,
    /// Replaces damaged frames that `repair` has given up, and states the lsn of the frame after
    /// it.
    Hole,
}

impl FrameKind {
    const fn code(self) -> u8 {
        match self {
            Self::Batch => 1,
            Self::Part => 2,
            Self::Moved => 3,
            Self::Mark => 4,
            Self::Hole => 5,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Batch,
            2 => Self::Part,
            3 => Self::Moved,
            4 => Self::Mark,
            5 => Self::Hole,
            _ => return None,
        })
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHead {
    pub(super) kind: FrameKind,
    /// Bytes of the payload.
    pub(super) length: u32,
    /// Number of the frame. The header of the segment has the number of its first frame.
    pub(super) lsn: u64,
    /// The highest durable lsn when this frame was written.
    pub(super) synced: u64,
}

impl FrameHead {
    /// Bytes from the frame's beginning to the next one's.
    pub(super) fn span(&self) -> u64 {
        frame_span(u64::from(self.length))
    }

    /// Reads and checks a head without its payload.
    pub(super) fn read_alone(bytes: &[u8], seed: u32) -> Result<Self, Flaw> {
        let head = bytes.get(..FRAME_HEAD).ok_or(Flaw::Short)?;
        let mut fields = Fields(head);
        if fields.take(4)? != FRAME_MAGIC {
            return Err(if head.iter().all(|byte| *byte == 0) { Flaw::Empty } else { Flaw::Magic });
        }
        let length = fields.u32()?;
        let (lsn, synced) = (fields.u64()?, fields.u64()?);
        let kind = fields.u32()?;
        if kind & !KIND_MASK != head_proof(head, seed) {
            return Err(Flaw::Checksum);
        }
        let kind = u8::try_from(kind & KIND_MASK).ok().and_then(FrameKind::of).ok_or(Flaw::Form)?;
        Ok(Self { kind, length, lsn, synced })
    }

    /// Reads a head and checks the payload, which follows in `bytes`.
    pub(super) fn read(bytes: &[u8], seed: u32) -> Result<(Self, &[u8]), Flaw> {
        let frame = Self::read_alone(bytes, seed)?;
        let (head, rest) = bytes.split_at_checked(FRAME_HEAD).ok_or(Flaw::Short)?;
        let (covered, checksum) = head.split_at_checked(FRAME_HEAD - 4).ok_or(Flaw::Short)?;
        let length = usize::try_from(frame.length).map_err(|_| Flaw::Short)?;
        let payload = rest.get(..length).ok_or(Flaw::Short)?;
        if crc32c_append(crc32c_append(seed, covered), payload).to_le_bytes() != checksum {
            return Err(Flaw::Checksum);
        }
        Ok((frame, payload))
    }

    /// The fields of a head, unchecked.
    pub(super) fn read_claim(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut fields = Fields(bytes.get(..FRAME_HEAD).ok_or(Flaw::Short)?);
        if fields.take(4)? != FRAME_MAGIC {
            return Err(Flaw::Magic);
        }
        let length = fields.u32()?;
        let (lsn, synced) = (fields.u64()?, fields.u64()?);
        let kind = u8::try_from(fields.u32()? & KIND_MASK)
            .ok()
            .and_then(FrameKind::of)
            .ok_or(Flaw::Form)?;
        Ok(Self { kind, length, lsn, synced })
    }
}

/// The bits of the kind field with the kind; the others are the proof of the head.
const KIND_MASK: u32 = 0xff;

/// The proof of a head: bits of a checksum of all fields before the kind.
fn head_proof(head: &[u8], seed: u32) -> u32 {
    crc32c_append(seed, head.get(..24).unwrap_or_default()) & !KIND_MASK
}

/// Number of bytes that a frame with this payload takes in its segment.
pub(super) const fn frame_span(payload: u64) -> u64 {
    (FRAME_HEAD as u64 + payload).next_multiple_of(ALIGNMENT)
}

/// Writes a frame at the end of a buffer, in two steps: begin, then append the payload and finish.
pub(super) struct FrameWriter {
    start: usize,
}

impl FrameWriter {
    pub(super) fn begin(buffer: &mut Vec<u8>) -> Self {
        let start = buffer.len();
        buffer.resize(start + FRAME_HEAD, 0);
        Self { start }
    }

    /// Fills in the head after the payload, and pads the frame. Parts of the payload with a known
    /// checksum are not read again.
    pub(super) fn finish(
        self,
        buffer: &mut Vec<u8>,
        summed: &[SummedPart],
        kind: FrameKind,
        lsn: u64,
        synced: u64,
        seed: u32,
    ) {
        let payload_start = self.start + FRAME_HEAD;
        let length = u32::try_from(buffer.len() - payload_start).unwrap_or(u32::MAX);
        let mut head = [0; FRAME_HEAD];
        put(&mut head, 0, &FRAME_MAGIC);
        put(&mut head, 4, &length.to_le_bytes());
        put(&mut head, 8, &lsn.to_le_bytes());
        put(&mut head, 16, &synced.to_le_bytes());
        let kind = u32::from(kind.code()) | head_proof(&head, seed);
        put(&mut head, 24, &kind.to_le_bytes());
        let (covered, _) = head.split_at(FRAME_HEAD - 4);
        let payload = buffer.get(payload_start..).unwrap_or_default();
        let checksum = checksum::append(crc32c_append(seed, covered), payload, summed, seed);
        debug_assert_eq!(checksum, crc32c_append(crc32c_append(seed, covered), payload));
        put(&mut head, 28, &checksum.to_le_bytes());
        put(buffer, self.start, &head);
        let alignment = usize::try_from(ALIGNMENT).unwrap_or(8);
        buffer.resize(buffer.len().next_multiple_of(alignment), 0);
    }
}

/// The payload of a mark: the oldest segment in use.
pub(super) const fn mark_payload(oldest: u32) -> [u8; 8] {
    let [a, b, c, d] = oldest.to_le_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

/// Reads the payload of a mark.
pub(super) fn read_mark(payload: &[u8]) -> Result<u32, Flaw> {
    Fields(payload).u32()
}

/// The payload of a hole of `bytes` bytes, at least eight.
pub(super) fn hole_payload(next_lsn: u64, bytes: usize) -> Vec<u8> {
    let mut payload = next_lsn.to_le_bytes().to_vec();
    payload.resize(bytes.max(payload.len()), 0);
    payload
}

/// Reads the start of a hole's payload: the lsn of the frame after it.
pub(super) fn read_hole(payload: &[u8]) -> Result<u64, Flaw> {
    Fields(payload).u64()
}

/// Joins the parts of a large content.
pub(super) fn join(parts: Vec<Bytes>, length: usize) -> Bytes {
    let mut whole = Vec::with_capacity(length);
    for part in parts {
        whole.extend_from_slice(&part);
    }
    whole.into()
}

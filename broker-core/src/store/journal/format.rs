//! What the journal writes, version 1: segment headers, frames, records. (Bytes and back, nothing else.)
//!
//! ```text
//!  segment file   header, its copy at 2048 │ frame │ frame │ ... │ zeros, or bytes of an earlier use
//!                 0                        4096
//!  frame          magic │ length │ lsn │ synced │ kind │ proof │ crc32c │ payload │ padding to 8 bytes
//!                 0       4        8     16       24     25      28       32
//!  record         kind │ key length │ content kind │ 0 │ value length │ content length │ crc32c │
//!                 0      1            2              3   4              8                12
//!                 key │ value │ nothing, or crc32c and content, or place, or places of parts
//!                 16
//! ```
//!
//! Integers are little-endian. Every checksum of frames and records is seeded by the random number in
//! the header of their segment, so that bytes of an earlier use of the file, or a copy of the journal
//! inside a message, never pass for a frame. The head of a frame has a proof of its own, so that nothing
//! is read in vain where clients wrote what looks like one.
//!
//! To change a stored type: give the segment header the next version, write only that, and go on
//! reading every earlier one. Golden files of each version stay in the tests for ever.

mod chain;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};

pub(super) use chain::{PART_BYTES_MIN as SUMMED_BYTES_MIN, Part as Summed};

/// The version that is written.
pub(super) const VERSION: u32 = 1;
/// Frames begin here; the header and its copy stand before.
pub(super) const HEADER_BYTES: u64 = 4_096;
/// Where the copy of the header stands.
const HEADER_COPY_AT: usize = 2_048;
pub(super) const HEADER_LENGTH: usize = 92;
const SEGMENT_MAGIC: [u8; 8] = *b"PEEKLOCK";

/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD: usize = 32;
pub(super) const FRAME_MAGIC: [u8; 4] = *b"PKf1";
/// Frames begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 8;

/// Bytes of a record before its key.
pub(super) const RECORD_HEAD: usize = 16;
/// Bytes of the checksum in front of a content within its record.
pub(super) const CONTENT_HEAD: usize = 4;
/// Bytes of a place.
const PLACE_BYTES: usize = 8;
/// Contents above this size go ahead of their batch, in parts of at most this size (DESIGN D12).
pub(super) const PART_BYTES: usize = 256 << 10;

/// Where something lies: in which segment, and at which byte of its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Place {
    /// The number of the segment; 0 is none.
    pub(super) segment: u32,
    /// The byte.
    pub(super) offset: u32,
}

/// What is wrong with bytes that were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Flaw {
    /// Only zeros: nothing was written here.
    #[error("nothing is written here")]
    Empty,
    /// Not the beginning of what should begin here.
    #[error("no frame begins here")]
    Magic,
    /// The bytes end before what begins in them.
    #[error("it ends in the middle")]
    Short,
    /// The checksum differs.
    #[error("its checksum differs")]
    Checksum,
    /// The number is not the one that follows the one before.
    #[error("its number does not follow the one before")]
    Order,
    /// Written by a later version.
    #[error("it was written by a later version")]
    Version,
    /// The checksum is right and the contents make no sense.
    #[error("it makes no sense")]
    Form,
}

/// The head of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    /// Names the journal; all its segments carry it.
    pub(super) journal: u128,
    /// Its number; one more than that of the segment before.
    pub(super) number: u32,
    /// How many shards the store has.
    pub(super) shard_count: u16,
    /// Seeds every checksum of the segment.
    pub(super) seed: u32,
    /// The lsn of its first frame.
    pub(super) first_lsn: u64,
    /// The highest lsn that was durable when it was made.
    pub(super) synced: u64,
    /// The oldest segment still needed when it was made.
    pub(super) oldest: u32,
    /// Where the segment before ends; what lies behind was never acknowledged. 0 in the first.
    pub(super) previous_end: u64,
}

impl SegmentHeader {
    /// The first bytes of the file: the header, its copy, zeros.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEADER_LENGTH);
        head.extend_from_slice(&SEGMENT_MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&self.journal.to_le_bytes());
        head.extend_from_slice(&self.number.to_le_bytes());
        head.extend_from_slice(&u32::from(self.shard_count).to_le_bytes());
        head.extend_from_slice(&self.seed.to_le_bytes());
        head.extend_from_slice(&self.first_lsn.to_le_bytes());
        head.extend_from_slice(&self.synced.to_le_bytes());
        head.extend_from_slice(&u64::from(self.oldest).to_le_bytes());
        head.extend_from_slice(&self.previous_end.to_le_bytes());
        // Room for what a later version may need without moving the checksum.
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

    /// Reads the header, or its copy where the header is damaged.
    pub(super) fn read(page: &[u8]) -> Result<Self, Flaw> {
        let first = Self::read_at(page, 0);
        match first {
            Ok(header) => Ok(header),
            Err(flaw) => Self::read_at(page, HEADER_COPY_AT).map_err(|_| flaw),
        }
    }

    /// Reads the header and its copy, each for itself.
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
        if fields.u32()? != VERSION {
            return Err(Flaw::Version);
        }
        Ok(Self {
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

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// The records of one batch: all of them count, or none.
    Batch,
    /// A piece of a large content, of which a later batch tells the places.
    Part,
    /// Records written again because their segment is about to be given up.
    Moved,
    /// Says what is durable, and which segment is the oldest still needed.
    Mark,
    /// Stands where damaged frames stood that `repair` has given up.
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
    /// Counts frames; the one of its segment's first frame stands in the header.
    pub(super) lsn: u64,
    /// The highest lsn that was durable when this was written.
    pub(super) synced: u64,
}

impl FrameHead {
    /// Bytes from the frame's beginning to the next one's.
    pub(super) fn span(&self) -> u64 {
        frame_span(u64::from(self.length))
    }

    /// Reads a head alone, and proves it.
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

    /// Reads the head and proves the payload, which follows in `bytes`.
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

    /// What a frame's head says, without proving anything.
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

/// The bits of the field that tell the kind; the others prove the head.
const KIND_MASK: u32 = 0xff;

/// The proof of a head: bits of a checksum of everything before the kind.
fn head_proof(head: &[u8], seed: u32) -> u32 {
    crc32c_append(seed, head.get(..24).unwrap_or_default()) & !KIND_MASK
}

/// Bytes that a frame with such a payload takes in its segment.
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

    /// Fills the head in, now that the payload is complete, and pads the frame. The parts of the
    /// payload that have a checksum already are not read again for that.
    pub(super) fn finish(
        self,
        buffer: &mut Vec<u8>,
        summed: &[Summed],
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
        let checksum = chain::append(crc32c_append(seed, covered), payload, summed, seed);
        debug_assert_eq!(checksum, crc32c_append(crc32c_append(seed, covered), payload));
        put(&mut head, 28, &checksum.to_le_bytes());
        put(buffer, self.start, &head);
        let alignment = usize::try_from(ALIGNMENT).unwrap_or(8);
        buffer.resize(buffer.len().next_multiple_of(alignment), 0);
    }
}

fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = buffer.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// What a record says about content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RecordContent<'a> {
    /// There is none.
    None,
    /// It follows in the record.
    Here(&'a [u8]),
    /// It lies in another record.
    At { place: Place, length: u32 },
    /// It lies in part frames; the places are those of their payloads.
    Parts { places: Vec<Place>, length: u32 },
}

/// A record as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogRecord<'a> {
    Put { key: &'a [u8], value: &'a [u8], content: RecordContent<'a> },
    Delete { key: &'a [u8] },
    DeletePrefix { prefix: &'a [u8] },
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_PREFIX: u8 = 3;

const CONTENT_NONE: u8 = 0;
const CONTENT_HERE: u8 = 1;
const CONTENT_AT: u8 = 2;
const CONTENT_PARTS: u8 = 3;

impl LogRecord<'_> {
    /// Appends the record. Returns the distance from its beginning to its content's checksum, for one
    /// that holds its content.
    pub(super) fn write(&self, buffer: &mut Vec<u8>, seed: u32) -> usize {
        let start = buffer.len();
        let (kind, key, value): (u8, &[u8], &[u8]) = match self {
            Self::Put { key, value, .. } => (PUT, key, value),
            Self::Delete { key } => (DELETE, key, &[]),
            Self::DeletePrefix { prefix } => (DELETE_PREFIX, prefix, &[]),
        };
        let (content_kind, content_length) = match self {
            Self::Put { content: RecordContent::Here(bytes), .. } => {
                (CONTENT_HERE, u32::try_from(bytes.len()).unwrap_or(u32::MAX))
            }
            Self::Put { content: RecordContent::At { length, .. }, .. } => (CONTENT_AT, *length),
            Self::Put { content: RecordContent::Parts { length, .. }, .. } => {
                (CONTENT_PARTS, *length)
            }
            Self::Put { content: RecordContent::None, .. }
            | Self::Delete { .. }
            | Self::DeletePrefix { .. } => (CONTENT_NONE, 0),
        };
        let key_length = u8::try_from(key.len()).unwrap_or(u8::MAX);
        buffer.extend_from_slice(&[kind, key_length, content_kind, 0]);
        buffer.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        buffer.extend_from_slice(&content_length.to_le_bytes());
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value);
        let content_at = buffer.len() - start;
        if let Self::Put { content, .. } = self {
            match content {
                RecordContent::None | RecordContent::Here(_) => {}
                RecordContent::At { place, .. } => write_place(*place, buffer),
                RecordContent::Parts { places, .. } => {
                    for place in places {
                        write_place(*place, buffer);
                    }
                }
            }
        }
        let written = buffer.get(start..).unwrap_or_default();
        let checksum = record_checksum(written, seed);
        put(buffer, start + 12, &checksum.to_le_bytes());
        if let Self::Put { content: RecordContent::Here(bytes), .. } = self {
            buffer.extend_from_slice(&crc32c_append(seed, bytes).to_le_bytes());
            buffer.extend_from_slice(bytes);
        }
        content_at
    }
}

fn write_place(place: Place, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&place.segment.to_le_bytes());
    buffer.extend_from_slice(&place.offset.to_le_bytes());
}

/// The checksum over a record without its own field.
fn record_checksum(record: &[u8], seed: u32) -> u32 {
    let (head, rest) = record.split_at_checked(RECORD_HEAD).unwrap_or((record, &[]));
    crc32c_append(crc32c_append(seed, head.get(..12).unwrap_or_default()), rest)
}

/// How many parts a large content of this size has.
pub(super) const fn part_count(length: u32) -> usize {
    (length as usize).div_ceil(PART_BYTES)
}

/// Reads one record off the front of `bytes`. Returns it and how long it is. A content that follows
/// is not proven: its frame was, or its reader does it.
pub(super) fn read_record(bytes: &[u8], seed: u32) -> Result<(LogRecord<'_>, usize), Flaw> {
    let (head, rest) = bytes.split_at_checked(RECORD_HEAD).ok_or(Flaw::Short)?;
    let mut fields = Fields(head);
    let (kind, key_length) = (fields.u8()?, usize::from(fields.u8()?));
    let (content_kind, _) = (fields.u8()?, fields.u8()?);
    let value_length = fields.u32()? as usize;
    let content_length = fields.u32()?;
    let checksum = fields.u32()?;
    let mut fields = Fields(rest);
    let key = fields.take(key_length)?;
    let value = fields.take(value_length)?;
    let mut places = Vec::new();
    let place_count = match content_kind {
        CONTENT_NONE | CONTENT_HERE => 0,
        CONTENT_AT => 1,
        CONTENT_PARTS => part_count(content_length),
        _ => return Err(Flaw::Form),
    };
    let mut raw_places = Fields(fields.take(place_count * PLACE_BYTES)?);
    for _ in 0..place_count {
        places.push(Place { segment: raw_places.u32()?, offset: raw_places.u32()? });
    }
    let covered = RECORD_HEAD + rest.len() - fields.0.len();
    if record_checksum(bytes.get(..covered).ok_or(Flaw::Short)?, seed) != checksum {
        return Err(Flaw::Checksum);
    }
    let mut length = covered;
    let record = match kind {
        PUT => {
            let content = match content_kind {
                CONTENT_NONE => RecordContent::None,
                CONTENT_HERE => {
                    fields.take(CONTENT_HEAD)?;
                    let content = fields.take(content_length as usize)?;
                    length += CONTENT_HEAD + content.len();
                    RecordContent::Here(content)
                }
                CONTENT_AT => RecordContent::At {
                    place: places.first().copied().ok_or(Flaw::Form)?,
                    length: content_length,
                },
                _ => RecordContent::Parts { places, length: content_length },
            };
            LogRecord::Put { key, value, content }
        }
        DELETE => LogRecord::Delete { key },
        DELETE_PREFIX => LogRecord::DeletePrefix { prefix: key },
        _ => return Err(Flaw::Form),
    };
    Ok((record, length))
}

/// Proves the value of a record that was read alone: its head, key and value. For a record that tells
/// places they must follow.
pub(super) fn read_value(bytes: &[u8], seed: u32, key: &[u8]) -> Result<Vec<u8>, Flaw> {
    // The content of the record is not there; `Here` would ask for it.
    let mut fields = Fields(bytes);
    let kind = fields.u8()?;
    let key_length = usize::from(fields.u8()?);
    let content_kind = fields.u8()?;
    fields.u8()?;
    let value_length = fields.u32()? as usize;
    let content_length = fields.u32()?;
    let checksum = fields.u32()?;
    if kind != PUT || fields.take(key_length)? != key {
        return Err(Flaw::Form);
    }
    let value = fields.take(value_length)?.to_vec();
    let place_count = match content_kind {
        CONTENT_AT => 1,
        CONTENT_PARTS => part_count(content_length),
        _ => 0,
    };
    fields.take(place_count * PLACE_BYTES)?;
    let covered = bytes.len() - fields.0.len();
    if record_checksum(bytes.get(..covered).ok_or(Flaw::Short)?, seed) != checksum {
        return Err(Flaw::Checksum);
    }
    Ok(value)
}

/// Proves a content: its checksum, then its bytes.
pub(super) fn read_content(bytes: &[u8], seed: u32) -> Result<&[u8], Flaw> {
    let (checksum, content) = bytes.split_at_checked(CONTENT_HEAD).ok_or(Flaw::Short)?;
    if crc32c_append(seed, content).to_le_bytes() == checksum {
        Ok(content)
    } else {
        Err(Flaw::Checksum)
    }
}

/// How long a record is, without the places of parts.
pub(super) const fn record_bytes(key: usize, value: usize) -> u64 {
    (RECORD_HEAD + key + value) as u64
}

/// The payload of a mark: the oldest segment still needed.
pub(super) const fn mark_payload(oldest: u32) -> [u8; 8] {
    let [a, b, c, d] = oldest.to_le_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

/// Reads the payload of a mark.
pub(super) fn read_mark(payload: &[u8]) -> Result<u32, Flaw> {
    Fields(payload).u32()
}

/// The payload of a hole of so many bytes, at least eight.
pub(super) fn hole_payload(next_lsn: u64, bytes: usize) -> Vec<u8> {
    let mut payload = next_lsn.to_le_bytes().to_vec();
    payload.resize(bytes.max(payload.len()), 0);
    payload
}

/// The payload of a hole begins with the lsn of the frame behind it.
pub(super) fn read_hole(payload: &[u8]) -> Result<u64, Flaw> {
    Fields(payload).u64()
}

/// Reads fields off the front.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Flaw::Short)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        self.take(N)?.try_into().map_err(|_| Flaw::Short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Flaw> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Flaw> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Flaw> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn u128(&mut self) -> Result<u128, Flaw> {
        Ok(u128::from_le_bytes(self.array()?))
    }
}

/// Joins the parts of a large content.
pub(super) fn join(parts: Vec<Bytes>, length: usize) -> Bytes {
    let mut whole = Vec::with_capacity(length);
    for part in parts {
        whole.extend_from_slice(&part);
    }
    whole.into()
}

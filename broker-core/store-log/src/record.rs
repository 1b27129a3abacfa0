//! Records: the changes of single keys in the log.
//!
//! ```text
//!  crc32c │ form │ key length │ value length │ content length │ key, value, places │ nothing, or
//!  4        1      1            0 to 5         0 to 5                                crc32c and content
//! ```
//!
//! The form has the kind of the record, the kind of its content, and whether key, value and places
//! are [packed](crate::packing). A removal has no value length, and only records with content have
//! a content length. Lengths have seven bits per byte, the lowest first; the highest bit of a byte
//! means that another one follows. The checksum covers everything after it except the content,
//! which has its own.
//!
//! Version 1 has fields of fixed width:
//!
//! ```text
//!  kind │ key length │ content kind │ 0 │ value length │ content length │ crc32c │ key │ value │ ...
//!  1      1            1              1   4              4                4
//! ```

#[cfg(test)]
mod tests;

use crc32c::crc32c_append;

use crate::packing::{PACKED_MAX, pack, unpack};
use crate::{Fields, Flaw, LogPosition, put};

/// Contents above this size are written before their batch, in parts of at most this size (DESIGN
/// D12).
pub const PART_BYTES: usize = 256 << 10;

/// The encoding of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Fields of fixed width.
    V1,
    /// Packed fields.
    V2,
}

impl Version {
    /// The version that is written.
    pub const CURRENT: Self = Self::V2;

    /// Its number in files.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The version with this number.
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }
}

/// Maximum bytes of a put without its key, value, places and content.
pub const RECORD_HEAD_MAX: usize = REMOVAL_HEAD + 2 * LENGTH_MAX;
/// Maximum bytes of a removal without its key.
pub const REMOVAL_HEAD: usize = CHECKSUM + 2;
const CHECKSUM: usize = 4;
/// Maximum bytes of a length.
const LENGTH_MAX: usize = 5;
/// Bytes of the checksum before a content in its record.
pub const CONTENT_HEAD: usize = 4;
/// Bytes of a place.
pub const PLACE_BYTES: usize = 8;
/// Bytes of a version 1 record before its key. The last ones are its checksum.
const RECORD_HEAD_V1: usize = 16;

/// The content of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordContent<'a> {
    /// No content.
    None,
    /// The content follows in the record.
    Here(&'a [u8]),
    /// The content is in another record.
    At {
        /// Its place.
        place: LogPosition,
        /// Its length.
        length: u32,
    },
    /// The content is in part frames; the places point to their payloads.
    Parts {
        /// The places of the parts.
        places: Vec<LogPosition>,
        /// Length of the whole content.
        length: u32,
    },
}

impl RecordContent<'_> {
    const fn code(&self) -> u8 {
        match self {
            Self::None => CONTENT_NONE,
            Self::Here(_) => CONTENT_HERE,
            Self::At { .. } => CONTENT_AT,
            Self::Parts { .. } => CONTENT_PARTS,
        }
    }

    fn places(&self) -> &[LogPosition] {
        match self {
            Self::None | Self::Here(_) => &[],
            Self::At { place, .. } => std::slice::from_ref(place),
            Self::Parts { places, .. } => places,
        }
    }

    fn length(&self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Here(bytes) => Some(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Self::At { length, .. } | Self::Parts { length, .. } => Some(*length),
        }
    }
}

/// An encoded record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRecord<'a> {
    /// Sets the value and the content of a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The content.
        content: RecordContent<'a>,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Removes all keys with a prefix.
    DeletePrefix {
        /// The prefix.
        prefix: &'a [u8],
    },
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_PREFIX: u8 = 3;
const KIND_BITS: u8 = 0b11;

const CONTENT_NONE: u8 = 0;
const CONTENT_HERE: u8 = 1;
const CONTENT_AT: u8 = 2;
const CONTENT_PARTS: u8 = 3;
const CONTENT_SHIFT: u8 = 2;

const PACKED: u8 = 1 << 4;
const FORM_BITS: u8 = PACKED | CONTENT_PARTS << CONTENT_SHIFT | KIND_BITS;

impl LogRecord<'_> {
    /// Appends the record with its content, if it embeds one. Returns its length without it, which is
    /// the distance to the content's checksum.
    pub fn write(&self, buffer: &mut Vec<u8>, seed: u32) -> u32 {
        let length = self.write_cut(buffer, seed);
        if let Self::Put { content: RecordContent::Here(bytes), .. } = self {
            write_content(bytes, buffer, seed);
        }
        length
    }

    /// Appends the record without a content that it embeds. Returns its length.
    pub fn write_cut(&self, buffer: &mut Vec<u8>, seed: u32) -> u32 {
        let start = buffer.len();
        let nothing = &RecordContent::None;
        let (kind, key, value, content): (u8, &[u8], &[u8], _) = match self {
            Self::Put { key, value, content } => (PUT, key, value, content),
            Self::Delete { key } => (DELETE, key, &[], nothing),
            Self::DeletePrefix { prefix } => (DELETE_PREFIX, prefix, &[], nothing),
        };
        if let RecordContent::Parts { places, length } = content {
            debug_assert_eq!(places.len(), part_count(*length), "readers rely on it");
        }
        let form = kind | content.code() << CONTENT_SHIFT;
        buffer.extend_from_slice(&[0; CHECKSUM]);
        buffer.extend_from_slice(&[form, u8::try_from(key.len()).unwrap_or(u8::MAX)]);
        if kind == PUT {
            write_length(u32::try_from(value.len()).unwrap_or(u32::MAX), buffer);
        }
        if let Some(length) = content.length() {
            write_length(length, buffer);
        }
        let body_at = buffer.len();
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value);
        for place in content.places() {
            buffer.extend_from_slice(&place.segment.to_le_bytes());
            buffer.extend_from_slice(&place.offset.to_le_bytes());
        }
        if pack(buffer, body_at) {
            put(buffer, start + CHECKSUM, &[form | PACKED]);
        }
        let covered = buffer.get(start + CHECKSUM..).unwrap_or_default();
        let checksum = crc32c_append(seed, covered);
        put(buffer, start, &checksum.to_le_bytes());
        u32::try_from(buffer.len() - start).unwrap_or(u32::MAX)
    }
}

/// Appends a content, after its checksum.
pub fn write_content(content: &[u8], buffer: &mut Vec<u8>, seed: u32) {
    buffer.extend_from_slice(&crc32c_append(seed, content).to_le_bytes());
    buffer.extend_from_slice(content);
}

/// Appends a length or a distance with seven bits per byte.
pub fn write_length(length: u32, buffer: &mut Vec<u8>) {
    let mut left = length;
    loop {
        let [low, ..] = left.to_le_bytes();
        left >>= 7;
        if left == 0 {
            buffer.push(low);
            return;
        }
        buffer.push(low | 0x80);
    }
}

/// Number of parts of a large content of this length.
pub const fn part_count(length: u32) -> usize {
    (length as usize).div_ceil(PART_BYTES)
}

/// A decoded record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<'a> {
    /// The record.
    pub record: LogRecord<'a>,
    /// Its bytes, without an embedded content.
    pub known: &'a [u8],
    /// Distance to the next record.
    pub span: usize,
}

impl Reading<'_> {
    /// Length of the record without an embedded content.
    pub fn bytes(&self) -> u32 {
        u32::try_from(self.known.len()).unwrap_or(u32::MAX)
    }
}

/// Decodes the records of a segment, and of side files.
pub struct RecordReader {
    version: Version,
    /// Seed of the checksums; `None` if the bytes were checked already.
    seed: Option<u32>,
    /// Buffer for unpacked keys, values and places.
    unpacked: [u8; PACKED_MAX],
}

impl RecordReader {
    /// A reader that checks every record.
    pub const fn new(version: Version, seed: u32) -> Self {
        Self { version, seed: Some(seed), unpacked: [0; PACKED_MAX] }
    }

    /// A reader for bytes that were checked already.
    pub const fn trusting(version: Version) -> Self {
        Self { version, seed: None, unpacked: [0; PACKED_MAX] }
    }

    /// Reads the first record, without a check of an embedded content: the checksum of the frame
    /// covers it, or the reader of the content checks it.
    pub fn read<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Reading<'a>, Flaw> {
        let (head, known, mut record) = self.read_known(bytes)?;
        let mut span = known.len();
        if let LogRecord::Put { content: RecordContent::Here(content), .. } = &mut record {
            let mut rest = Fields(bytes.get(span..).ok_or(Flaw::Short)?);
            rest.take(CONTENT_HEAD)?;
            *content = rest.take(head.content_length as usize)?;
            span += CONTENT_HEAD + content.len();
        }
        Ok(Reading { record, known, span })
    }

    /// Reads a record without its embedded content, and returns the length of the content too.
    pub fn read_cut<'a>(&'a mut self, bytes: &'a [u8]) -> Result<(Reading<'a>, Option<u32>), Flaw> {
        let (head, known, record) = self.read_known(bytes)?;
        let held = (head.content == CONTENT_HERE).then_some(head.content_length);
        Ok((Reading { record, known, span: known.len() }, held))
    }

    /// Reads and checks the value of a single record, without an embedded content.
    pub fn read_value(&mut self, bytes: &[u8], wanted: &[u8]) -> Result<Vec<u8>, Flaw> {
        match self.read_known(bytes)? {
            (_, _, LogRecord::Put { key, value, .. }) if key == wanted => Ok(value.to_vec()),
            _ => Err(Flaw::Form),
        }
    }

    /// Reads everything but an embedded content.
    fn read_known<'a>(
        &'a mut self,
        bytes: &'a [u8],
    ) -> Result<(Head, &'a [u8], LogRecord<'a>), Flaw> {
        let (head, mut fields) = match self.version {
            Version::V1 => Head::read_v1(bytes)?,
            Version::V2 => Head::read(bytes)?,
        };
        let places = match head.content {
            CONTENT_NONE | CONTENT_HERE => 0,
            CONTENT_AT => 1,
            _ => part_count(head.content_length),
        };
        let raw_length = head.key_length + head.value_length + places * PLACE_BYTES;
        let body = if head.is_packed {
            let unpacked = self.unpacked.get_mut(..raw_length).ok_or(Flaw::Form)?;
            unpack(&mut fields, unpacked)?;
            unpacked
        } else {
            fields.take(raw_length)?
        };
        let known = bytes.get(..bytes.len() - fields.0.len()).ok_or(Flaw::Short)?;
        if self.seed.is_some_and(|seed| checksum(self.version, known, seed) != head.checksum) {
            return Err(Flaw::Checksum);
        }
        let record = head.record(Fields(body), places)?;
        Ok((head, known, record))
    }
}

/// The checksum of a record without an embedded content.
fn checksum(version: Version, known: &[u8], seed: u32) -> u32 {
    let [before, after] = match version {
        Version::V1 => [known.get(..RECORD_HEAD_V1 - CHECKSUM), known.get(RECORD_HEAD_V1..)],
        Version::V2 => [None, known.get(CHECKSUM..)],
    };
    let before = crc32c_append(seed, before.unwrap_or_default());
    crc32c_append(before, after.unwrap_or_default())
}

/// The fields before the key.
struct Head {
    checksum: u32,
    kind: u8,
    content: u8,
    is_packed: bool,
    key_length: usize,
    value_length: usize,
    content_length: u32,
}

impl Head {
    /// Reads the head, and returns it with the remaining bytes.
    fn read(bytes: &[u8]) -> Result<(Self, Fields<'_>), Flaw> {
        let mut fields = Fields(bytes);
        let checksum = fields.u32()?;
        let (form, key_length) = (fields.u8()?, usize::from(fields.u8()?));
        if form & !FORM_BITS != 0 {
            return Err(Flaw::Form);
        }
        let (kind, content) = (form & KIND_BITS, form >> CONTENT_SHIFT & CONTENT_PARTS);
        let is_packed = form & PACKED != 0;
        if kind != PUT && content != CONTENT_NONE {
            return Err(Flaw::Form);
        }
        let value_length = if kind == PUT { fields.length()? as usize } else { 0 };
        let content_length = if content == CONTENT_NONE { 0 } else { fields.length()? };
        let head =
            Self { checksum, kind, content, is_packed, key_length, value_length, content_length };
        Ok((head, fields))
    }

    fn read_v1(bytes: &[u8]) -> Result<(Self, Fields<'_>), Flaw> {
        let mut fields = Fields(bytes);
        let (kind, key_length) = (fields.u8()?, usize::from(fields.u8()?));
        let (content, _) = (fields.u8()?, fields.u8()?);
        let (value_length, content_length) = (fields.u32()? as usize, fields.u32()?);
        let checksum = fields.u32()?;
        if content > CONTENT_PARTS {
            return Err(Flaw::Form);
        }
        let is_packed = false;
        let head =
            Self { checksum, kind, content, is_packed, key_length, value_length, content_length };
        Ok((head, fields))
    }

    /// The record with this head. An embedded content is left empty.
    fn record<'a>(&self, mut body: Fields<'a>, place_count: usize) -> Result<LogRecord<'a>, Flaw> {
        let (key, value) = (body.take(self.key_length)?, body.take(self.value_length)?);
        let mut place = || -> Result<LogPosition, Flaw> {
            Ok(LogPosition { segment: body.u32()?, offset: body.u32()? })
        };
        match self.kind {
            PUT => {
                let length = self.content_length;
                let content = match self.content {
                    CONTENT_NONE => RecordContent::None,
                    CONTENT_HERE => RecordContent::Here(&[]),
                    CONTENT_AT => RecordContent::At { place: place()?, length },
                    _ => {
                        let places: Result<_, _> = (0..place_count).map(|_| place()).collect();
                        RecordContent::Parts { places: places?, length }
                    }
                };
                Ok(LogRecord::Put { key, value, content })
            }
            DELETE => Ok(LogRecord::Delete { key }),
            DELETE_PREFIX => Ok(LogRecord::DeletePrefix { prefix: key }),
            _ => Err(Flaw::Form),
        }
    }
}

/// Checks a content: its checksum, then its bytes.
pub fn read_content(bytes: &[u8], seed: u32) -> Result<&[u8], Flaw> {
    let (checksum, content) = bytes.split_at_checked(CONTENT_HEAD).ok_or(Flaw::Short)?;
    if crc32c_append(seed, content).to_le_bytes() == checksum {
        Ok(content)
    } else {
        Err(Flaw::Checksum)
    }
}

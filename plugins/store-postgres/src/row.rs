//! The rows of a log: a head with records, and a body with contents.
//!
//! ```text
//!  head   crc32c │ format │ kind │ 0 │ epoch │ batch │ body length │ crc32c of the body │ records
//!         0        4        5      6   8       16      24            28                   32
//! ```
//!
//! The id of a row is a position: the number of its leaf, and the offset at which it begins. Its
//! body comes first, then its records, and then the next row begins. So a missing row is noticed,
//! and positions of contents are known before all records of a row are. The first checksum covers
//! the id and the rest of the head. Integers are little-endian.

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};
use peeklock_store_log::{Fields, Flaw, LogPosition};

/// Bytes of a head before its records.
pub const META_BYTES: usize = 32;
/// Bytes at which a head takes no more records: rows of at most this size are not compressed or
/// stored elsewhere by the server. A longer record has a row of its own.
pub const HEAD_BYTES_MAX: usize = 8_000;
/// Maximum bytes of a body. Longer contents continue in the next row.
pub const BODY_BYTES_MAX: usize = 64 << 10;

const FORMAT: u8 = 1;
const EPOCH_AT: usize = 8;

/// The content of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    /// Records of batches, or records that were written again; and their contents.
    Records,
    /// A piece of a content that is written before its batch, or the start of a long body.
    Body,
    /// No content: it names the highest id of a batch. Its body has one byte, so that the next row
    /// has another id.
    Mark,
}

/// A row to insert.
pub struct Row {
    pub id: i64,
    pub head: Vec<u8>,
    pub body: Bytes,
}

/// Facts that all rows of an append have.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub epoch: u64,
    /// The highest id of a batch in the append or before it.
    pub batch: u64,
}

/// The id of the row that begins at a position.
pub fn id_of(position: LogPosition) -> i64 {
    i64::from(position.segment) << 32 | i64::from(position.offset)
}

/// The position at which the row with this id begins; `None` if no row can have it.
pub fn position_of(id: i64) -> Option<LogPosition> {
    let segment = u32::try_from(id >> 32).ok()?;
    let offset = u32::try_from(id & i64::from(u32::MAX)).ok()?;
    Some(LogPosition { segment, offset })
}

/// A number as the database has it.
pub fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Row {
    /// A row that begins at a position.
    pub fn new(at: LogPosition, kind: RowKind, stamp: Stamp, records: &[u8], body: Bytes) -> Self {
        let id = id_of(at);
        let mut head = Vec::with_capacity(META_BYTES + records.len());
        head.extend_from_slice(&[0; 4]);
        let kind = match kind {
            RowKind::Records => 1,
            RowKind::Body => 2,
            RowKind::Mark => 3,
        };
        head.extend_from_slice(&[FORMAT, kind, 0, 0]);
        head.extend_from_slice(&stamp.epoch.to_le_bytes());
        head.extend_from_slice(&stamp.batch.to_le_bytes());
        head.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        head.extend_from_slice(&crc32c(&body).to_le_bytes());
        head.extend_from_slice(records);
        let mut row = Self { id, head, body };
        row.seal();
        row
    }

    /// Sets the epoch, for another attempt after the epoch of the owner was raised.
    pub fn set_epoch(&mut self, epoch: u64) {
        peeklock_store_log::put(&mut self.head, EPOCH_AT, &epoch.to_le_bytes());
        self.seal();
    }

    fn seal(&mut self) {
        let checksum = checksum(self.id, &self.head);
        peeklock_store_log::put(&mut self.head, 0, &checksum.to_le_bytes());
    }

    /// The head without its records. It has the checksum of the whole head.
    pub fn meta(&self) -> &[u8] {
        self.head.get(..META_BYTES).unwrap_or_default()
    }
}

fn checksum(id: i64, head: &[u8]) -> u32 {
    crc32c_append(crc32c(&id.to_le_bytes()), head.get(4..).unwrap_or_default())
}

/// A head that was read and checked.
#[derive(Debug)]
pub struct RowHead<'a> {
    /// The position at which the row begins, with its body.
    pub start: LogPosition,
    pub kind: RowKind,
    pub stamp: Stamp,
    pub body_length: u32,
    body_checksum: u32,
    pub records: &'a [u8],
}

impl<'a> RowHead<'a> {
    /// Reads the head of a row.
    pub fn read(id: i64, head: &'a [u8]) -> Result<Self, Flaw> {
        let (meta, records) = head.split_at_checked(META_BYTES).ok_or(Flaw::Short)?;
        let mut fields = Fields(meta);
        if fields.u32()? != checksum(id, head) {
            return Err(Flaw::Checksum);
        }
        if fields.u8()? != FORMAT {
            return Err(Flaw::Version);
        }
        let kind = match fields.u8()? {
            1 => RowKind::Records,
            2 => RowKind::Body,
            3 => RowKind::Mark,
            _ => return Err(Flaw::Form),
        };
        fields.take(2)?;
        let stamp = Stamp { epoch: fields.u64()?, batch: fields.u64()? };
        let (body_length, body_checksum) = (fields.u32()?, fields.u32()?);
        let start = position_of(id).ok_or(Flaw::Form)?;
        Ok(Self { start, kind, stamp, body_length, body_checksum, records })
    }

    /// Checks the body of the row.
    pub fn check_body(&self, body: &[u8]) -> Result<(), Flaw> {
        if body.len() != self.body_length as usize {
            return Err(Flaw::Short);
        }
        if crc32c(body) == self.body_checksum { Ok(()) } else { Err(Flaw::Checksum) }
    }

    /// The offset of its records.
    pub const fn records_at(&self) -> u32 {
        self.start.offset.saturating_add(self.body_length)
    }

    /// The offset of the next row.
    pub fn end(&self) -> u32 {
        let length = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        self.records_at().saturating_add(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { epoch: 7, batch: 99 };

    #[test]
    fn row_is_read_back_and_damage_does_not_pass() {
        let at = LogPosition { segment: 3, offset: 500 };
        let row = Row::new(at, RowKind::Records, STAMP, b"records", Bytes::from_static(b"body"));
        let head = RowHead::read(row.id, &row.head).unwrap();
        assert_eq!((head.start, head.kind, head.records), (at, RowKind::Records, &b"records"[..]));
        assert_eq!((head.stamp.epoch, head.stamp.batch), (7, 99));
        assert_eq!((head.records_at(), head.end()), (504, 511));
        assert_eq!(head.check_body(b"body"), Ok(()));
        assert_eq!(head.check_body(b"bodx"), Err(Flaw::Checksum));
        assert_eq!(head.check_body(b"bod"), Err(Flaw::Short));
        assert!(RowHead::read(row.id + 1, &row.head).is_err(), "a row in another place");
        for at in 0..row.head.len() {
            let mut damaged = row.head.clone();
            damaged[at] ^= 0x10;
            assert!(RowHead::read(row.id, &damaged).is_err(), "byte {at}");
            assert!(RowHead::read(row.id, &row.head[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn row_has_another_epoch_after_it_was_set() {
        let at = LogPosition { segment: 3, offset: 500 };
        let mut row = Row::new(at, RowKind::Mark, STAMP, b"", Bytes::from_static(&[0]));
        row.set_epoch(8);
        let head = RowHead::read(row.id, &row.head).unwrap();
        assert_eq!((head.stamp.epoch, head.stamp.batch, head.end()), (8, 99, 501));
        assert_eq!(row.meta(), row.head);
    }

    #[test]
    fn ids_are_positions() {
        for at in [(1, 0), (1, u32::MAX), (u32::MAX >> 1, 5)] {
            let at = LogPosition { segment: at.0, offset: at.1 };
            assert_eq!(position_of(id_of(at)), Some(at));
        }
        assert_eq!(position_of(-1), None);
    }
}

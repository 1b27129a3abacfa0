//! Segments: the files of the log, and reading from them. All parts of the journal use them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::disk::DiskFile;
use super::format::{
    ALIGNMENT, CONTENT_HEAD, FRAME_HEAD, FRAME_MAGIC, Flaw, FrameHead, FrameKind, HEADER_BYTES,
    LogPosition, RecordReader, SegmentHeader, read_content,
};
use crate::StoreError;
use peeklock_store_log::{IndexEntry, LogSegment, SegmentState};

/// The segments of the journal.
pub(super) type Segments = peeklock_store_log::Segments<Segment>;
/// The index of the journal.
pub(super) type Index = peeklock_store_log::Index<Segment>;

const PREFIX: &str = "segment-";
const SUFFIX: &str = ".log";

/// The name of the file of a segment.
pub(super) fn name_of(number: u32) -> String {
    format!("{PREFIX}{number:010}{SUFFIX}")
}

/// The number of the segment with this file name.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?;
    (name_of(number) == name).then_some(number)
}

/// A file of the log.
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) file: Arc<dyn DiskFile>,
    state: SegmentState,
    /// Whether its side file is durable.
    has_side: AtomicBool,
}

impl Segment {
    pub(super) fn new(header: SegmentHeader, file: Arc<dyn DiskFile>, end: u64) -> Self {
        Self {
            header,
            file,
            state: SegmentState::new(header.number, end),
            has_side: AtomicBool::new(false),
        }
    }

    pub(super) fn name(&self) -> String {
        name_of(self.header.number)
    }

    /// Truncates the unused end of the file, if it has more than `more_than` bytes.
    pub(super) fn trim(&self, more_than: u64) -> io::Result<()> {
        let (end, length) = (self.end(), self.file.length()?);
        if length.saturating_sub(end) > more_than {
            self.file.truncate(end)?;
        }
        Ok(())
    }

    pub(super) fn has_side(&self) -> bool {
        self.has_side.load(Ordering::Acquire)
    }

    pub(super) fn note_side(&self) {
        self.has_side.store(true, Ordering::Release);
    }

    /// The error for damage at a byte of this segment.
    pub(super) fn damaged(&self, offset: u64, flaw: Flaw) -> StoreError {
        damaged(&self.name(), offset, &flaw.to_string())
    }

    fn failed(&self, offset: u64, error: &io::Error) -> StoreError {
        let name = self.name();
        StoreError::Failed(format!("`{name}` cannot be read at byte {offset}: {error}").into())
    }

    /// Writes bytes at a position.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        self.file.write_at(bytes, at).map_err(|error| self.unusable("written", &error))
    }

    /// Makes all written bytes durable. A failed sync must never be retried.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync().map_err(|error| self.unusable("synced", &error))
    }

    fn unusable(&self, action: &str, error: &io::Error) -> StoreError {
        StoreError::Failed(format!("`{}` cannot be {action}: {error}", self.name()).into())
    }

    /// Reads exactly `length` bytes.
    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; length];
        let count =
            self.file.read_at(&mut bytes, offset).map_err(|error| self.failed(offset, &error))?;
        if count < length {
            return Err(self.damaged(offset + count as u64, Flaw::Short));
        }
        Ok(bytes)
    }

    /// Reads the part frame whose payload is at `place`, and returns the payload.
    pub(super) fn read_part(&self, place: LogPosition) -> Result<Bytes, StoreError> {
        let start = u64::from(place.offset).saturating_sub(FRAME_HEAD as u64);
        let head = self.read(start, FRAME_HEAD)?;
        let head = FrameHead::read_alone(&head, self.header.seed);
        let length = head.map_err(|flaw| self.damaged(start, flaw))?.length as usize;
        if start + (FRAME_HEAD + length) as u64 > self.end() {
            return Err(self.damaged(start, Flaw::Short));
        }
        let frame = self.read(start, FRAME_HEAD + length)?;
        let (head, _) =
            FrameHead::read(&frame, self.header.seed).map_err(|flaw| self.damaged(start, flaw))?;
        if head.kind != FrameKind::Part {
            return Err(self.damaged(start, Flaw::Form));
        }
        Ok(Bytes::from(frame).slice(FRAME_HEAD..))
    }

    /// Reads and checks the value of a record.
    pub(super) fn read_value(&self, entry: &IndexEntry, key: &[u8]) -> Result<Vec<u8>, StoreError> {
        let bytes = self.read(u64::from(entry.record.offset), entry.record_bytes as usize)?;
        self.value_in(&bytes, entry, key)
    }

    /// Checks and returns the value of a record at the start of `bytes`.
    pub(super) fn value_in(
        &self,
        bytes: &[u8],
        entry: &IndexEntry,
        key: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        self.reader()
            .read_value(bytes, key)
            .map_err(|flaw| self.damaged(u64::from(entry.record.offset), flaw))
    }

    /// A reader of its records.
    pub(super) const fn reader(&self) -> RecordReader {
        RecordReader::new(self.header.version, self.header.seed)
    }

    /// Reads and checks a content that is not in parts.
    pub(super) fn read_content(
        &self,
        place: LogPosition,
        length: usize,
    ) -> Result<Bytes, StoreError> {
        let bytes = self.read(u64::from(place.offset), CONTENT_HEAD + length)?;
        self.content_in(&bytes, place)?;
        Ok(Bytes::from(bytes).slice(CONTENT_HEAD..))
    }

    /// Checks a content in `bytes`, which are its checksum and the content.
    pub(super) fn content_in<'a>(
        &self,
        bytes: &'a [u8],
        place: LogPosition,
    ) -> Result<&'a [u8], StoreError> {
        read_content(bytes, self.header.seed)
            .map_err(|flaw| self.damaged(u64::from(place.offset), flaw))
    }
}

impl LogSegment for Segment {
    fn state(&self) -> &SegmentState {
        &self.state
    }
}

/// The error for damage, with file and position.
pub(super) fn damaged(file: &str, offset: u64, flaw: &str) -> StoreError {
    StoreError::Damaged(format!("`{file}` at byte {offset}: {flaw}").into())
}

/// A valid frame and its position.
pub(super) struct FoundFrame<'a> {
    pub(super) offset: u64,
    pub(super) head: FrameHead,
    pub(super) payload: &'a [u8],
}

impl FoundFrame<'_> {
    /// Whether the payload consists of records.
    pub(super) const fn holds_records(&self) -> bool {
        matches!(self.head.kind, FrameKind::Batch | FrameKind::Moved)
    }
}

/// The end of reading frames, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FramesEnd {
    pub(super) offset: u64,
    /// The expected lsn at this position.
    pub(super) next_lsn: u64,
    /// The flaw at this position; `None` at the limit.
    pub(super) flaw: Option<Flaw>,
}

/// Reads the frames of a segment through a buffer.
pub(super) struct FrameReader<'a> {
    file: &'a dyn DiskFile,
    seed: u32,
    /// End of the readable bytes.
    limit: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

const READ_BYTES: usize = 1 << 20;
const ALIGNMENT_BYTES: usize = 8;
const _: () = assert!(ALIGNMENT_BYTES as u64 == ALIGNMENT);

impl<'a> FrameReader<'a> {
    pub(super) const fn new(file: &'a dyn DiskFile, seed: u32, limit: u64) -> Self {
        Self { file, seed, limit, buffer: Vec::new(), buffer_at: 0 }
    }

    /// Reads the frame at a position.
    pub(super) fn frame_at(&mut self, offset: u64) -> io::Result<Result<FoundFrame<'_>, Flaw>> {
        let seed = self.seed;
        let head = self.bytes_at(offset, FRAME_HEAD)?;
        let length = match FrameHead::read_alone(head, seed) {
            Ok(head) => head.length,
            Err(flaw) => return Ok(Err(flaw)),
        };
        if offset + (FRAME_HEAD as u64) + u64::from(length) > self.limit {
            return Ok(Err(Flaw::Short));
        }
        let bytes = self.bytes_at(offset, FRAME_HEAD + length as usize)?;
        Ok(FrameHead::read(bytes, seed).map(|(head, payload)| FoundFrame { offset, head, payload }))
    }

    /// The unchecked head of a frame at a position; `None` if no frame begins there.
    pub(super) fn claim_at(&mut self, offset: u64) -> io::Result<Option<FrameHead>> {
        Ok(FrameHead::read_claim(self.bytes_at(offset, FRAME_HEAD)?).ok())
    }

    /// Bytes from a position on; fewer at the limit.
    pub(super) fn bytes_at(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let wanted =
            u64::try_from(length).unwrap_or(u64::MAX).min(self.limit.saturating_sub(offset));
        let wanted = usize::try_from(wanted).unwrap_or(0);
        let buffered = offset >= self.buffer_at
            && offset + wanted as u64 <= self.buffer_at + self.buffer.len() as u64;
        if !buffered {
            let left = usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.buffer.resize(wanted.max(READ_BYTES).min(left), 0);
            let count = self.file.read_at(&mut self.buffer, offset)?;
            self.buffer.truncate(count);
            self.buffer_at = offset;
        }
        let start = usize::try_from(offset - self.buffer_at).unwrap_or(0);
        let end = (start + wanted).min(self.buffer.len());
        Ok(self.buffer.get(start..end).unwrap_or_default())
    }

    /// Passes all frames from a position on to `visit`, up to the first invalid one or one with an
    /// unexpected lsn.
    pub(super) fn each(
        &mut self,
        from: u64,
        first_lsn: u64,
        mut visit: impl FnMut(&FoundFrame<'_>) -> Result<(), StoreError>,
    ) -> Result<FramesEnd, StoreError> {
        let (mut offset, mut next_lsn) = (from, first_lsn);
        loop {
            if offset >= self.limit {
                return Ok(FramesEnd { offset, next_lsn, flaw: None });
            }
            let found = self.frame_at(offset).map_err(|error| {
                StoreError::Failed(format!("a segment cannot be read: {error}").into())
            })?;
            let found = match found {
                Ok(found) if found.head.lsn == next_lsn => found,
                Ok(_) => return Ok(FramesEnd { offset, next_lsn, flaw: Some(Flaw::Order) }),
                Err(flaw) => return Ok(FramesEnd { offset, next_lsn, flaw: Some(flaw) }),
            };
            visit(&found)?;
            next_lsn = match found.head.kind {
                FrameKind::Hole => super::format::read_hole(found.payload).unwrap_or(next_lsn + 1),
                FrameKind::Batch | FrameKind::Part | FrameKind::Moved | FrameKind::Mark => {
                    next_lsn + 1
                }
            };
            offset += found.head.span();
        }
    }

    /// The buffered bytes from a position on, at least the head of a frame. Reads only if the
    /// position is not buffered, so that a search reads every byte once.
    fn window_at(&mut self, offset: u64) -> io::Result<&[u8]> {
        let end = self.buffer_at + self.buffer.len() as u64;
        let is_here = offset >= self.buffer_at
            && (offset + FRAME_HEAD as u64 <= end || (offset < end && end >= self.limit));
        if !is_here {
            self.bytes_at(offset, READ_BYTES)?;
        }
        let start = usize::try_from(offset - self.buffer_at).unwrap_or(0);
        Ok(self.buffer.get(start..).unwrap_or_default())
    }

    /// The next valid frame at or after a position, with any lsn.
    pub(super) fn find_from(&mut self, from: u64) -> io::Result<Option<(u64, FrameHead)>> {
        let mut offset = from.next_multiple_of(ALIGNMENT);
        while offset < self.limit {
            let window = self.window_at(offset)?;
            let length = (window.len() as u64).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
            let mut words = window.chunks(ALIGNMENT_BYTES);
            let Some(skipped) = words.position(|word| word.starts_with(&FRAME_MAGIC)) else {
                offset += length;
                continue;
            };
            offset += skipped as u64 * ALIGNMENT;
            if let Ok(found) = self.frame_at(offset)? {
                return Ok(Some((offset, found.head)));
            }
            offset += ALIGNMENT;
        }
        Ok(None)
    }
}

/// The error for a lost segment.
pub(super) fn missing(number: u32) -> StoreError {
    damaged(&name_of(number), HEADER_BYTES, "the segment is missing")
}

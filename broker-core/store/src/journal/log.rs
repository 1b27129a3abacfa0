//! The end of the log: collects frames, writes and syncs them, and continues in the next segment.
//! Only the committer uses it.
//!
//! ```text
//!  frame ──► buffer ──(flush: one write)──► active segment ──(sync)──► durable
//!                 └───(start_write: both, by a thread, while frames go on)───┘
//!                                               │ full
//!                                               └─► the spare becomes the active one; sealed
//!                                                   when the index has all its records
//! ```
//!
//! A segment gets its name in the directory only after its header is durable, and after its
//! predecessor is synced. So a named segment without a header is damage, never the result of a
//! crash.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::buffers::Buffers;
use super::disk::{Disk, DiskFile};
use super::format::{
    CONTENT_HEAD, FrameKind, FrameWriter, HEADER_BYTES, LogPosition, SUMMED_BYTES_MIN,
    SegmentHeader, SummedPart, Version, frame_span, mark_payload,
};
use super::group_write::{FinishedWrite, GroupWrite, GroupWriter};
use super::manifest::Manifest;
use super::segment::{Segment, Segments, name_of};
use crate::StoreError;
use peeklock_store_log::{Cache, CachedPiece, LogSegment as _};

/// Size from which a piece of a group takes no more frames. A message from a piece keeps the memory
/// of the whole piece.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// More than a frame with the small records that a submitter commits itself (decision 46).
const SMALL_FRAME_BYTES: u64 = 128 << 10;

/// The buffer for the payload of a frame, and the position of its bytes in the log.
pub(super) struct Payload<'a> {
    pub(super) buffer: &'a mut Vec<u8>,
    buffer_at: u64,
    segment: u32,
    pub(super) seed: u32,
    /// Start of the payload in the buffer.
    start: usize,
    summed: &'a mut Vec<SummedPart>,
}

impl Payload<'_> {
    /// Records that a content with its checksum before it was written.
    pub(super) fn note_content(&mut self, at: LogPosition, length: usize) {
        let at = usize::try_from(u64::from(at.offset).saturating_sub(self.buffer_at)).unwrap_or(0);
        let at = at.saturating_sub(self.start) + CONTENT_HEAD;
        if length >= SUMMED_BYTES_MIN {
            self.summed.push(SummedPart { at, length });
        }
    }

    /// The place of the next byte.
    pub(super) fn place(&self) -> LogPosition {
        let offset = self.buffer_at + self.buffer.len() as u64;
        LogPosition { segment: self.segment, offset: u32::try_from(offset).unwrap_or(u32::MAX) }
    }
}

/// A file that is ready to become a segment.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: u64,
}

/// The spares: the keeper adds them, a roll takes one. There are a few.
pub(super) type Spares = Mutex<Vec<Spare>>;

/// Takes a spare that is large enough.
fn take_spare(spares: &Spares, bytes: u64) -> Option<Spare> {
    let mut spares = spares.lock().unwrap_or_else(PoisonError::into_inner);
    let place = spares.iter().position(|spare| spare.bytes >= bytes)?;
    Some(spares.remove(place))
}

/// Everything that the segments of a journal share.
pub(super) struct LogParts {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) segments: Arc<Segments>,
    pub(super) cache: Arc<Cache>,
    pub(super) spares: Arc<Spares>,
    pub(super) manifest: Manifest,
    pub(super) random: Box<dyn FnMut() -> u32 + Send>,
    pub(super) segment_bytes: u64,
    pub(super) journal: u128,
    pub(super) shard_count: u16,
}

/// The end of the log.
pub(super) struct Log {
    parts: LogParts,
    active: Arc<Segment>,
    active_bytes: u64,
    /// Encoded frames that are not written yet: complete pieces, and the current piece `buffer`
    /// after them.
    pieces: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    /// Position of the start of `buffer` in the segment.
    buffer_at: u64,
    buffers: Buffers,
    next_lsn: u64,
    synced_lsn: u64,
    oldest: u32,
    /// Whether data was written after the last mark.
    unmarked: bool,
    /// Full segments that contain frames of the current group, or of an earlier one.
    rolled: Vec<Arc<Segment>>,
    writer: GroupWriter,
    /// Number of writes in the background.
    background_writes: usize,
    /// Number of finished background writes that are not reported yet.
    finished: usize,
    /// Contents of the current frame.
    summed: Vec<SummedPart>,
}

impl Log {
    /// Begins a new segment after the last valid frame: the log never continues after a tear.
    pub(super) fn begin(
        mut parts: LogParts,
        number: u32,
        next_lsn: u64,
        oldest: u32,
        previous_end: u64,
    ) -> Result<Self, StoreError> {
        let header = SegmentHeader {
            version: Version::CURRENT,
            journal: parts.journal,
            number,
            shard_count: parts.shard_count,
            seed: (parts.random)(),
            first_lsn: next_lsn,
            synced: next_lsn - 1,
            oldest,
            previous_end,
        };
        let bytes = parts.segment_bytes;
        let active = open_segment(&mut parts, header, bytes)?;
        Ok(Self {
            parts,
            active,
            active_bytes: bytes,
            pieces: Vec::new(),
            buffer: Vec::new(),
            buffer_at: HEADER_BYTES,
            buffers: Buffers::default(),
            next_lsn,
            synced_lsn: next_lsn - 1,
            oldest,
            unmarked: false,
            rolled: Vec::new(),
            writer: GroupWriter::default(),
            background_writes: 0,
            finished: 0,
            summed: Vec::new(),
        })
    }

    /// Makes `writer` carry out background writes.
    pub(super) fn set_writer(&mut self, writer: GroupWriter) {
        self.writer = writer;
    }

    /// Number of bytes that wait to be written.
    pub(super) fn buffered(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum::<usize>() + self.buffer.len()
    }

    /// Whether written data is not durable.
    pub(super) const fn is_unsynced(&self) -> bool {
        self.synced_lsn + 1 < self.next_lsn
    }

    /// Whether data was written after the last mark.
    pub(super) const fn is_unmarked(&self) -> bool {
        self.unmarked
    }

    /// Whether the active segment has room for a frame of small records.
    pub(super) const fn has_room(&self) -> bool {
        let left = self.active_bytes.saturating_sub(self.buffer_at + self.buffer.len() as u64);
        // Segments of tests are smaller than the usual room.
        left > SMALL_FRAME_BYTES || left > self.active_bytes / 8
    }

    /// Adds a frame whose payload has at most `payload_max` bytes. Continues in the next segment if
    /// it does not fit.
    pub(super) fn frame<T>(
        &mut self,
        kind: FrameKind,
        payload_max: u64,
        write: impl FnOnce(&mut Payload<'_>) -> T,
    ) -> Result<T, StoreError> {
        let end = self.buffer_at + self.buffer.len() as u64;
        if end + frame_span(payload_max) > self.active_bytes {
            self.roll(payload_max)?;
        }
        let span = usize::try_from(frame_span(payload_max)).unwrap_or(0);
        if self.buffer.capacity() - self.buffer.len() < span {
            self.end_piece();
            // The new piece is as large as all buffered bytes together, so that many small batches
            // make few pieces.
            let bytes = span.max(self.buffered().min(PIECE_BYTES_MAX));
            self.buffer = self.buffers.take(bytes);
        }
        let start = self.buffer.len();
        let frame = FrameWriter::begin(&mut self.buffer);
        self.summed.clear();
        let written = write(&mut Payload {
            start: self.buffer.len(),
            summed: &mut self.summed,
            buffer: &mut self.buffer,
            buffer_at: self.buffer_at,
            segment: self.active.number(),
            seed: self.active.header.seed,
        });
        debug_assert!(
            self.buffer.len() - start <= span,
            "a frame fits into the space that it reserved"
        );
        let seed = self.active.header.seed;
        frame.finish(&mut self.buffer, &self.summed, kind, self.next_lsn, self.synced_lsn, seed);
        self.next_lsn += 1;
        Ok(written)
    }

    /// Writes the buffer.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        self.wait_for_writes()?;
        let Some(group_write) = self.take_pieces() else { return Ok(()) };
        group_write.write()?;
        self.note_written(group_write);
        Ok(())
    }

    /// Writes the buffer, and makes all written data durable.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        if self.synced_lsn + 1 < self.next_lsn {
            self.active.sync()?;
            self.synced_lsn = self.next_lsn - 1;
        }
        Ok(())
    }

    /// Writes and syncs the buffer in the background, after the previous background write. One
    /// write runs at a time, and at most one more waits. Returns false if the buffer is empty; then
    /// everything is durable.
    pub(super) fn start_write(&mut self) -> Result<bool, StoreError> {
        let Some(group_write) = self.take_pieces() else {
            self.sync()?;
            return Ok(false);
        };
        self.writer.start(group_write);
        self.background_writes += 1;
        Ok(true)
    }

    /// Takes the last background write back if it has not started. Returns whether it did. The
    /// buffer must be empty.
    pub(super) fn take_back(&mut self) -> bool {
        if self.background_writes < 2 || self.buffered() > 0 {
            return false;
        }
        let Some(group_write) = self.writer.take_back() else { return false };
        self.background_writes -= 1;
        self.pieces = group_write.pieces;
        true
    }

    /// Discards the buffer: nothing is written after a failure.
    pub(super) fn discard(&mut self) {
        (self.pieces, self.buffer) = (Vec::new(), Vec::new());
        while self.writer.take_back().is_some() {}
    }

    /// Whether a further background write has finished; returns true once for each.
    pub(super) fn take_finished(&mut self) -> Result<bool, StoreError> {
        if self.finished == 0
            && self.background_writes > 0
            && let Some(finished) = self.writer.poll_finished()?
        {
            self.note_finished(finished)?;
        }
        let has_finished = self.finished > 0;
        self.finished = self.finished.saturating_sub(1);
        Ok(has_finished)
    }

    /// Waits until all background writes have finished.
    pub(super) fn wait_for_writes(&mut self) -> Result<(), StoreError> {
        while self.background_writes > 0 {
            let finished = self.writer.wait()?;
            self.note_finished(finished)?;
        }
        Ok(())
    }

    /// Whether background writes finish only when the caller waits for them.
    pub(super) const fn is_manual(&self) -> bool {
        self.writer.is_manual()
    }

    fn note_finished(&mut self, (group_write, outcome): FinishedWrite) -> Result<(), StoreError> {
        self.background_writes -= 1;
        outcome?;
        self.synced_lsn = group_write.last_lsn;
        self.note_written(group_write);
        self.finished += 1;
        Ok(())
    }

    /// Ends the current piece, so that the next frame begins another one.
    fn end_piece(&mut self) {
        let mut piece = std::mem::take(&mut self.buffer);
        self.buffer_at += piece.len() as u64;
        // The cache counts the capacity of a piece, so most should be used.
        if piece.len() < piece.capacity() / 2 && !piece.is_empty() {
            let mut fitting = self.buffers.take(piece.len());
            fitting.extend_from_slice(&piece);
            self.buffers.give(std::mem::replace(&mut piece, fitting));
        }
        if piece.is_empty() {
            self.buffers.give(piece);
        } else {
            self.pieces.push(piece);
        }
    }

    /// Takes the buffered pieces as a background write.
    fn take_pieces(&mut self) -> Option<GroupWrite> {
        self.end_piece();
        if self.pieces.is_empty() {
            return None;
        }
        self.unmarked = true;
        let at = self.buffer_at - self.buffered() as u64;
        let (segment, pieces) = (Arc::clone(&self.active), std::mem::take(&mut self.pieces));
        Some(GroupWrite { segment, at, pieces, last_lsn: self.next_lsn - 1 })
    }

    fn note_written(&mut self, group_write: GroupWrite) {
        let GroupWrite { segment, mut at, pieces, .. } = group_write;
        for piece in pieces {
            let start = LogPosition {
                segment: segment.number(),
                offset: u32::try_from(at).unwrap_or(u32::MAX),
            };
            at += piece.len() as u64;
            let (memory_bytes, bytes) = (piece.capacity(), Bytes::from(piece));
            let dropped = self
                .parts
                .cache
                .insert(start, CachedPiece { bytes, memory_bytes, is_written: true });
            for piece in dropped {
                // A message from the piece may still be in use.
                if let Ok(mut unused) = piece.bytes.try_into_mut() {
                    unused.clear();
                    self.buffers.give(Vec::from(unused));
                }
            }
        }
        segment.set_end(at);
    }

    /// Writes a mark, which states that everything before it is durable: opening can then
    /// distinguish damage from data that was never acknowledged. It also states the oldest segment
    /// in use, if that has changed. The caller must have applied all written data to the index.
    pub(super) fn mark(&mut self, oldest: Option<u32>) -> Result<(), StoreError> {
        self.sync()?;
        let oldest = oldest.unwrap_or(self.oldest).max(self.oldest);
        self.frame(FrameKind::Mark, 8, |payload| {
            payload.buffer.extend_from_slice(&mark_payload(oldest));
        })?;
        self.sync()?;
        self.oldest = oldest;
        self.unmarked = false;
        for segment in self.rolled.drain(..) {
            segment.seal();
        }
        Ok(())
    }

    /// Takes the segments that became full since the last call. The caller must seal them only
    /// after it has applied all frames up to now to the index: the keeper judges a sealed segment
    /// by the index. Records that the index lacks would look dead, and would be missing in the side
    /// file or be released with the segment.
    pub(super) fn take_rolled(&mut self, rolled: &mut Vec<Arc<Segment>>) {
        rolled.append(&mut self.rolled);
    }

    /// Closes the log: everything is durable, and the manifest records the end.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.mark(None)?;
        let (number, end) = (self.active.number(), self.buffer_at);
        self.parts
            .manifest
            .record(number, end)
            .map_err(|error| failed("written", super::manifest::NAME, &error))
    }

    /// Ends the active segment and begins the next one. The full one is sealed later; see
    /// [`Log::take_rolled`].
    fn roll(&mut self, payload_max: u64) -> Result<(), StoreError> {
        self.sync()?;
        let header = SegmentHeader {
            number: self.active.number() + 1,
            seed: (self.parts.random)(),
            first_lsn: self.next_lsn,
            synced: self.synced_lsn,
            oldest: self.oldest,
            previous_end: self.buffer_at,
            ..self.active.header
        };
        let bytes = self.parts.segment_bytes.max(HEADER_BYTES + frame_span(payload_max));
        let next = open_segment(&mut self.parts, header, bytes)?;
        self.rolled.push(std::mem::replace(&mut self.active, next));
        self.active_bytes = bytes;
        self.buffer_at = HEADER_BYTES;
        Ok(())
    }
}

/// Makes a segment file with this header: durable, under its name, and in the list of segments.
fn open_segment(
    parts: &mut LogParts,
    header: SegmentHeader,
    bytes: u64,
) -> Result<Arc<Segment>, StoreError> {
    let name = name_of(header.number);
    let fail = |error: &io::Error| failed("made", &name, error);
    let spare = match take_spare(&parts.spares, bytes) {
        Some(spare) => spare,
        None => make_sized_file(&*parts.disk, &format!("spare-{:010}.log", header.number), bytes)
            // The keeper may have used the last disk space for a spare.
            .or_else(|error| take_spare(&parts.spares, bytes).ok_or(error))
            .map_err(|error| fail(&error))?,
    };
    spare.file.write_at(&header.write(), 0).map_err(|error| fail(&error))?;
    spare.file.sync().map_err(|error| fail(&error))?;
    parts.disk.rename(&spare.name, &name).map_err(|error| fail(&error))?;
    parts.disk.sync().map_err(|error| fail(&error))?;
    // From here on, the segment may contain acknowledged data.
    parts.manifest.record(header.number, 0).map_err(|error| fail(&error))?;
    let segment = Arc::new(Segment::new(header, spare.file, HEADER_BYTES));
    parts.segments.insert(Arc::clone(&segment));
    Ok(segment)
}

/// Makes a file with `bytes` of allocated space.
pub(super) fn make_sized_file(disk: &dyn Disk, name: &str, bytes: u64) -> io::Result<Spare> {
    let file = disk.create(name)?;
    if let Err(error) = file.allocate(bytes).and_then(|()| file.sync()) {
        // Another file needs its space now.
        disk.remove(name).ok();
        return Err(error);
    }
    Ok(Spare { name: name.to_owned(), file, bytes })
}

/// Whether a file is a spare. Opening removes spares of an earlier process.
pub(super) fn is_spare(name: &str) -> bool {
    name.strip_prefix("spare-")
        .and_then(|rest| rest.strip_suffix(".log"))
        .map(|rest| rest.strip_prefix('k').unwrap_or(rest))
        .is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

fn failed(action: &str, name: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("`{name}` cannot be {action}: {error}").into())
}

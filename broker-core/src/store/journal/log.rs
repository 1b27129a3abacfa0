//! The end of the log: frames are collected, written, synced; segments follow one another.
//!
//! ```text
//!  frame ──► buffer ──(flush: one write)──► active segment ──(sync)──► durable
//!                                               │ full
//!                                               └─► the spare becomes the active one; sealed
//!                                                   when the index knows all that it holds
//! ```
//!
//! A segment is in the directory under its name only when its header is durable, and its predecessor
//! is synced before that. So a named segment without a header is damage, never a crash.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::cache::{Cache, Piece};
use super::disk::{Disk, DiskFile};
use super::format::{
    FrameKind, FrameWriter, HEADER_BYTES, Place, SegmentHeader, frame_span, mark_payload,
};
use super::manifest::Manifest;
use super::segment::{Segment, Segments, name_of};
use crate::store::StoreError;

/// Where the payload of a frame is written, and at which place of the log each byte will lie.
pub(super) struct Payload<'a> {
    pub(super) buffer: &'a mut Vec<u8>,
    buffer_at: u64,
    segment: u32,
    pub(super) seed: u32,
}

impl Payload<'_> {
    /// The place of the next byte.
    pub(super) fn place(&self) -> Place {
        let offset = self.buffer_at + self.buffer.len() as u64;
        Place { segment: self.segment, offset: u32::try_from(offset).unwrap_or(u32::MAX) }
    }
}

/// A file that is ready to become a segment.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: u64,
}

/// Where spares are: the keeper brings them, a roll takes one. There are one or two.
pub(super) type Spares = Mutex<Vec<Spare>>;

/// Takes a spare that is large enough.
fn take_spare(spares: &Spares, bytes: u64) -> Option<Spare> {
    let mut spares = spares.lock().unwrap_or_else(PoisonError::into_inner);
    let place = spares.iter().position(|spare| spare.bytes >= bytes)?;
    Some(spares.remove(place))
}

/// What all segments of a journal have in common.
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
    buffer: Vec<u8>,
    buffer_at: u64,
    next_lsn: u64,
    synced_lsn: u64,
    oldest: u32,
    /// Whether something was written since the last mark.
    unmarked: bool,
    /// Full segments that still hold frames of the group being written.
    rolled: Vec<Arc<Segment>>,
}

impl Log {
    /// Begins a new segment behind what was found: never is anything written behind a tear.
    pub(super) fn begin(
        mut parts: LogParts,
        number: u32,
        next_lsn: u64,
        oldest: u32,
        previous_end: u64,
    ) -> Result<Self, StoreError> {
        let header = SegmentHeader {
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
            buffer: Vec::new(),
            buffer_at: HEADER_BYTES,
            next_lsn,
            synced_lsn: next_lsn - 1,
            oldest,
            unmarked: false,
            rolled: Vec::new(),
        })
    }

    /// Bytes that wait to be written.
    pub(super) const fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether something was written that is not durable.
    pub(super) const fn is_unsynced(&self) -> bool {
        self.synced_lsn + 1 < self.next_lsn
    }

    /// Whether something was written since the last mark.
    pub(super) const fn is_unmarked(&self) -> bool {
        self.unmarked
    }

    /// Adds a frame whose payload has at most `payload_max` bytes.
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
        let frame = FrameWriter::begin(&mut self.buffer);
        let written = write(&mut Payload {
            buffer: &mut self.buffer,
            buffer_at: self.buffer_at,
            segment: self.active.number(),
            seed: self.active.header.seed,
        });
        let seed = self.active.header.seed;
        frame.finish(&mut self.buffer, kind, self.next_lsn, self.synced_lsn, seed);
        self.next_lsn += 1;
        Ok(written)
    }

    /// Writes what is buffered.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let active = &self.active;
        active
            .file
            .write_at(&self.buffer, self.buffer_at)
            .map_err(|error| failed("written", &active.name(), &error))?;
        let start = Place {
            segment: active.number(),
            offset: u32::try_from(self.buffer_at).unwrap_or(u32::MAX),
        };
        self.buffer_at += self.buffer.len() as u64;
        active.set_end(self.buffer_at);
        self.unmarked = true;
        // The next group is likely of this size; what the piece did not use is given back.
        let mut piece = std::mem::replace(
            &mut self.buffer,
            Vec::with_capacity(start_capacity(start, self.buffer_at)),
        );
        piece.shrink_to_fit();
        self.parts.cache.insert(start, Piece { bytes: Bytes::from(piece), is_written: true });
        Ok(())
    }

    /// Writes what is buffered, and makes everything written durable.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        if self.synced_lsn + 1 < self.next_lsn {
            self.active
                .file
                .sync()
                .map_err(|error| failed("synced", &self.active.name(), &error))?;
            self.synced_lsn = self.next_lsn - 1;
        }
        Ok(())
    }

    /// Says in the log what is durable by now, so that damage to it can be told from what was never
    /// acknowledged; and which segment is the oldest still needed, if that has changed. Everything
    /// written was carried out on the index before.
    pub(super) fn mark(&mut self, oldest: Option<u32>) -> Result<(), StoreError> {
        self.sync()?;
        let oldest = oldest.unwrap_or(self.oldest).max(self.oldest);
        self.frame(FrameKind::Mark, 8, |payload| {
            payload.buffer.extend_from_slice(&mark_payload(oldest));
        })?;
        self.sync()?;
        self.oldest = oldest;
        self.unmarked = false;
        self.seal();
        Ok(())
    }

    /// Seals the segments that are full, now that what was written was carried out on the index. A
    /// sealed segment is judged by the index: sealed before, its last records would look dead, be left
    /// out of its side file, or go with the segment.
    pub(super) fn seal(&mut self) {
        for segment in self.rolled.drain(..) {
            segment.seal();
        }
    }

    /// Ends the log in order: everything is durable, and the manifest tells where it ends.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.mark(None)?;
        let (number, end) = (self.active.number(), self.buffer_at);
        self.parts
            .manifest
            .tell(number, end)
            .map_err(|error| failed("written", super::manifest::NAME, &error))
    }

    /// Ends the active segment and begins the next. It is sealed by [`Log::seal`].
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

/// A buffer for a group as large as the one before, within reason.
fn start_capacity(start: Place, end: u64) -> usize {
    let last = end.saturating_sub(u64::from(start.offset));
    usize::try_from(last.clamp(4 << 10, 1 << 20)).unwrap_or(4 << 10)
}

/// Makes a segment file with this header: durable, under its name, and known.
fn open_segment(
    parts: &mut LogParts,
    header: SegmentHeader,
    bytes: u64,
) -> Result<Arc<Segment>, StoreError> {
    let name = name_of(header.number);
    let fail = |error: &io::Error| failed("made", &name, error);
    let spare = match take_spare(&parts.spares, bytes) {
        Some(spare) => spare,
        None => make_spare(&*parts.disk, &format!("spare-{:010}.log", header.number), bytes)
            // The keeper may have taken the last room for just this.
            .or_else(|error| take_spare(&parts.spares, bytes).ok_or(error))
            .map_err(|error| fail(&error))?,
    };
    spare.file.write_at(&header.write(), 0).map_err(|error| fail(&error))?;
    spare.file.sync().map_err(|error| fail(&error))?;
    parts.disk.rename(&spare.name, &name).map_err(|error| fail(&error))?;
    parts.disk.sync().map_err(|error| fail(&error))?;
    // From here on the segment may hold something acknowledged.
    parts.manifest.tell(header.number, 0).map_err(|error| fail(&error))?;
    let segment = Arc::new(Segment::new(header, spare.file, HEADER_BYTES));
    parts.segments.insert(Arc::clone(&segment));
    Ok(segment)
}

/// Makes a file of a size, with its space taken.
pub(super) fn make_spare(disk: &dyn Disk, name: &str, bytes: u64) -> io::Result<Spare> {
    let file = disk.create(name)?;
    if let Err(error) = file.allocate(bytes).and_then(|()| file.sync()) {
        // The space that it took is needed by somebody else now.
        disk.remove(name).ok();
        return Err(error);
    }
    Ok(Spare { name: name.to_owned(), file, bytes })
}

/// Whether a file is a spare; none outlives the process that made it.
pub(super) fn is_spare(name: &str) -> bool {
    name.strip_prefix("spare-")
        .and_then(|rest| rest.strip_suffix(".log"))
        .map(|rest| rest.strip_prefix('k').unwrap_or(rest))
        .is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

fn failed(what: &str, name: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("`{name}` cannot be {what}: {error}").into())
}

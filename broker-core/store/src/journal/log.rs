//! The end of the log: frames are collected, written, synced; segments follow one another.
//!
//! ```text
//!  frame ──► buffer ──(flush: one write)──► active segment ──(sync)──► durable
//!                 └───(launch: both, by another thread, while frames go on)──┘
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

use super::buffers::Buffers;
use super::cache::{Cache, Piece};
use super::disk::{Disk, DiskFile};
use super::flight::{Flight, Landing, Pilot};
use super::format::{
    CONTENT_HEAD, FrameKind, FrameWriter, HEADER_BYTES, Place, SUMMED_BYTES_MIN, SegmentHeader,
    Summed, Version, frame_span, mark_payload,
};
use super::manifest::Manifest;
use super::segment::{Segment, Segments, name_of};
use crate::StoreError;

/// A piece of a group takes no more frames when it has so many bytes. Who holds messages of one holds
/// all of its memory.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Where the payload of a frame is written, and at which place of the log each byte will lie.
pub(super) struct Payload<'a> {
    pub(super) buffer: &'a mut Vec<u8>,
    buffer_at: u64,
    segment: u32,
    pub(super) seed: u32,
    /// Where the payload begins in the buffer.
    start: usize,
    summed: &'a mut Vec<Summed>,
}

impl Payload<'_> {
    /// Takes note that a content was written, behind its checksum.
    pub(super) fn note_content(&mut self, at: Place, length: usize) {
        let at = usize::try_from(u64::from(at.offset).saturating_sub(self.buffer_at)).unwrap_or(0);
        let at = at.saturating_sub(self.start) + CONTENT_HEAD;
        if length >= SUMMED_BYTES_MIN {
            self.summed.push(Summed { at, length });
        }
    }

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

/// Where spares are: the keeper brings them, a roll takes one. There are a few.
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
    /// What is put together, and where it will lie: `pieces`, and `buffer` behind them.
    pieces: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    buffer_at: u64,
    buffers: Buffers,
    next_lsn: u64,
    synced_lsn: u64,
    oldest: u32,
    /// Whether something was written since the last mark.
    unmarked: bool,
    /// Full segments that hold frames of the group being put together, or of one before it.
    rolled: Vec<Arc<Segment>>,
    pilot: Pilot,
    /// Flights that the pilot has.
    flying: usize,
    /// Flights that have landed, of which nobody was told.
    landed: usize,
    /// Contents of the frame that is being written.
    summed: Vec<Summed>,
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
            pilot: Pilot::default(),
            flying: 0,
            landed: 0,
            summed: Vec::new(),
        })
    }

    /// Lets somebody else carry out flights from now on.
    pub(super) fn hand_over(&mut self, pilot: Pilot) {
        self.pilot = pilot;
    }

    /// Bytes that wait to be written.
    pub(super) fn buffered(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum::<usize>() + self.buffer.len()
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
        let span = usize::try_from(frame_span(payload_max)).unwrap_or(0);
        if self.buffer.capacity() - self.buffer.len() < span {
            self.end_piece();
            // As large as all so far, so that many small batches make few pieces.
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

    /// Writes what is buffered.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        self.settle()?;
        let Some(flight) = self.take_pieces() else { return Ok(()) };
        flight.write()?;
        self.note_written(flight);
        Ok(())
    }

    /// Writes what is buffered, and makes everything written durable.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        if self.synced_lsn + 1 < self.next_lsn {
            self.active.sync()?;
            self.synced_lsn = self.next_lsn - 1;
        }
        Ok(())
    }

    /// Lets what is buffered be written and made durable while more is added, when the flight before it
    /// has landed; returns whether there is something. At most one flight is under way.
    pub(super) fn launch(&mut self) -> Result<bool, StoreError> {
        let Some(flight) = self.take_pieces() else {
            self.sync()?;
            return Ok(false);
        };
        self.pilot.depart(flight);
        self.flying += 1;
        Ok(true)
    }

    /// Takes back what was launched last, if that still waits for the one before it; returns whether it
    /// does. Nothing was added since.
    pub(super) fn take_back(&mut self) -> bool {
        if self.flying < 2 || self.buffered() > 0 {
            return false;
        }
        let Some(flight) = self.pilot.take_back() else { return false };
        self.flying -= 1;
        self.pieces = flight.pieces;
        true
    }

    /// Forgets what is buffered: after a failure nothing is written any more.
    pub(super) fn forget(&mut self) {
        (self.pieces, self.buffer) = (Vec::new(), Vec::new());
        while self.pilot.take_back().is_some() {}
    }

    /// Whether another flight is over; told once of each.
    pub(super) fn has_landed(&mut self) -> Result<bool, StoreError> {
        if self.landed == 0
            && self.flying > 0
            && let Some(landing) = self.pilot.look()?
        {
            self.land(landing)?;
        }
        let has_landed = self.landed > 0;
        self.landed = self.landed.saturating_sub(1);
        Ok(has_landed)
    }

    /// Waits until no flight is under way.
    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        while self.flying > 0 {
            let landing = self.pilot.wait()?;
            self.land(landing)?;
        }
        Ok(())
    }

    /// Whether flights are over only when somebody waits for them.
    pub(super) const fn is_by_hand(&self) -> bool {
        self.pilot.is_by_hand()
    }

    fn land(&mut self, (flight, outcome): Landing) -> Result<(), StoreError> {
        self.flying -= 1;
        outcome?;
        self.synced_lsn = flight.last_lsn;
        self.note_written(flight);
        self.landed += 1;
        Ok(())
    }

    /// What follows lies in a piece of its own.
    fn end_piece(&mut self) {
        let mut piece = std::mem::take(&mut self.buffer);
        self.buffer_at += piece.len() as u64;
        // The cache counts what it holds; little of that should be unused.
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

    /// What is buffered, as it goes to the disk.
    fn take_pieces(&mut self) -> Option<Flight> {
        self.end_piece();
        if self.pieces.is_empty() {
            return None;
        }
        self.unmarked = true;
        let at = self.buffer_at - self.buffered() as u64;
        let (segment, pieces) = (Arc::clone(&self.active), std::mem::take(&mut self.pieces));
        Some(Flight { segment, at, pieces, last_lsn: self.next_lsn - 1 })
    }

    fn note_written(&mut self, flight: Flight) {
        let Flight { segment, mut at, pieces, .. } = flight;
        for piece in pieces {
            let start =
                Place { segment: segment.number(), offset: u32::try_from(at).unwrap_or(u32::MAX) };
            at += piece.len() as u64;
            let (held, bytes) = (piece.capacity(), Bytes::from(piece));
            let gone = self.parts.cache.insert(start, Piece { bytes, held, is_written: true });
            for piece in gone {
                // Somebody may still hold a message of it.
                if let Ok(mut unused) = piece.bytes.try_into_mut() {
                    unused.clear();
                    self.buffers.give(Vec::from(unused));
                }
            }
        }
        segment.set_end(at);
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
        for segment in self.rolled.drain(..) {
            segment.seal();
        }
        Ok(())
    }

    /// The segments that became full since the last call. They are to be sealed when everything that
    /// was framed until now was carried out on the index, no sooner: a sealed segment is judged by the
    /// index, where its last records would look dead, be left out of its side file, or go with it.
    pub(super) fn take_rolled(&mut self, rolled: &mut Vec<Arc<Segment>>) {
        rolled.append(&mut self.rolled);
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

    /// Ends the active segment and begins the next. It is sealed later; see [`Log::take_rolled`].
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

fn failed(action: &str, name: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("`{name}` cannot be {action}: {error}").into())
}

//! Contents in the log: pinned, and read on demand by a small pool of threads. The store's `pin`
//! makes them, and transports load them.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};

use super::format::{CONTENT_HEAD, LogPosition, PART_BYTES};
use super::reads::{ReadSize, Reads};
use super::segment::Segment;
use crate::StoreError;
use crate::content_ref::{ContentRef, StoredContent, range_within};
use peeklock_store_log::{Cache, CacheLookup, CachedBytes, CachedPiece, LogSegment as _, Pinned};

/// The threads, by the size that each prefers. So a small content waits for at most one large one,
/// and the reverse.
const READERS: [ReadSize; 2] = [ReadSize::Small, ReadSize::Large];
/// Maximum number of waiting reads of each size. Further callers wait until there is room.
const READS_MAX: usize = 1_024;
/// Maximum bytes of a read from disk, which includes the neighbourhood of a content.
const PIECE_BYTES: u64 = 64 << 10;

/// A content, the range of its bytes to read, the receiver of the result, and the slot that the
/// read occupies.
type Job = (
    Arc<PinnedContent>,
    Range<usize>,
    oneshot::Sender<Result<Bytes, StoreError>>,
    Result<OwnedSemaphorePermit, AcquireError>,
);

/// The pool.
pub(super) struct Readers {
    cache: Arc<Cache>,
    small_room: Arc<Semaphore>,
    large_room: Arc<Semaphore>,
    /// Closed without threads; then callers read.
    jobs: Arc<Reads<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    fn new(cache: Arc<Cache>, jobs: Reads<Job>) -> Self {
        Self {
            cache,
            small_room: Arc::new(Semaphore::new(READS_MAX)),
            large_room: Arc::new(Semaphore::new(READS_MAX)),
            jobs: Arc::new(jobs),
            threads: Mutex::default(),
        }
    }

    /// A pool without threads.
    pub(super) fn inline(cache: Arc<Cache>) -> Self {
        Self::new(cache, Reads::closed())
    }

    /// Starts the threads.
    pub(super) fn start(cache: Arc<Cache>) -> std::io::Result<Self> {
        let pool = Self::new(Arc::clone(&cache), Reads::open());
        for (number, first) in READERS.into_iter().enumerate() {
            let (jobs, cache) = (Arc::clone(&pool.jobs), Arc::clone(&cache));
            let thread = std::thread::Builder::new().name(format!("journal-read-{number}"));
            let thread = thread.spawn(move || serve(&jobs, first, &cache))?;
            pool.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(pool)
    }

    /// Ends the threads after all waiting reads. Later reads run on the caller's thread.
    pub(super) fn stop(&self) {
        self.jobs.close();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            thread.join().ok();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

fn serve(jobs: &Reads<Job>, first: ReadSize, cache: &Cache) {
    while let Some((content, range, answer, _place)) = jobs.next(first) {
        // The receiver may have been dropped.
        answer.send(content.read(range, cache)).ok();
    }
}

/// A content in the log. It keeps its segments readable.
pub(super) struct PinnedContent {
    place: LogPosition,
    length: usize,
    segment: Arc<Segment>,
    /// The parts of a large content.
    parts: Option<Vec<(LogPosition, Arc<Segment>)>>,
}

impl PinnedContent {
    pub(super) fn of(pinned: Pinned<Segment>) -> Self {
        let Pinned { content, segment, parts } = pinned;
        Self { place: content.place, length: content.length as usize, segment, parts }
    }

    /// A content is small if a single read returns it with its neighbourhood.
    const fn size(&self) -> ReadSize {
        if self.length as u64 <= PIECE_BYTES { ReadSize::Small } else { ReadSize::Large }
    }

    /// Reads a range of the content on this thread. May wait for the disk. Everything that is read
    /// is checked: each part that has bytes of the range, or the whole content if it has no parts.
    pub(super) fn read(&self, range: Range<usize>, cache: &Cache) -> Result<Bytes, StoreError> {
        match &self.parts {
            Some(parts) => self.read_parts(parts, range),
            None => Ok(cut(self.read_whole(cache)?, range)),
        }
    }

    fn read_parts(
        &self,
        parts: &[(LogPosition, Arc<Segment>)],
        range: Range<usize>,
    ) -> Result<Bytes, StoreError> {
        let mut bytes = Vec::with_capacity(range.len());
        let overlapping = range.start / PART_BYTES..range.end.div_ceil(PART_BYTES);
        for number in overlapping {
            let start = number * PART_BYTES;
            let wanted = range.start.max(start) - start..range.end.min(start + PART_BYTES) - start;
            let part = parts.get(number).map(|(place, segment)| segment.read_part(*place));
            let part = part.transpose()?.unwrap_or_default();
            let Some(found) = part.get(wanted) else {
                let at = u64::from(self.place.offset);
                return Err(self.segment.damaged(at, super::format::Flaw::Short));
            };
            bytes.extend_from_slice(found);
        }
        Ok(bytes.into())
    }

    fn read_whole(&self, cache: &Cache) -> Result<Bytes, StoreError> {
        if let Some(found) = self.cached(cache) {
            return found;
        }
        let start = u64::from(self.place.offset);
        let span = CONTENT_HEAD + self.length;
        let piece_start = start - start % PIECE_BYTES;
        let piece_end = (piece_start + PIECE_BYTES).max(start + span as u64);
        // Bytes after the end are not written yet and must not be cached in their current state.
        let piece_end = piece_end.min(self.segment.end().max(start + span as u64));
        let length = usize::try_from(piece_end - piece_start).unwrap_or(span);
        let piece = Bytes::from(self.segment.read(piece_start, length)?);
        let from = usize::try_from(start - piece_start).unwrap_or(0);
        let content = self
            .segment
            .content_in(piece.get(from..from + span).unwrap_or_default(), self.place)
            .map(Bytes::copy_from_slice)?;
        let at = LogPosition { offset: u32::try_from(piece_start).unwrap_or(0), ..self.place };
        let memory_bytes = piece.len();
        drop(cache.insert(at, CachedPiece { bytes: piece, memory_bytes, is_written: false }));
        Ok(content)
    }

    fn cached(&self, cache: &Cache) -> Option<Result<Bytes, StoreError>> {
        let found = self.lookup(&mut cache.lookup())?;
        Some(self.checked(&found.copied()))
    }

    /// The cached content, if any.
    pub(super) fn lookup(&self, lookup: &mut CacheLookup<'_>) -> Option<CachedBytes> {
        if self.parts.is_some() {
            return None;
        }
        lookup.get(self.place, CONTENT_HEAD + self.length)
    }

    /// The found content. Checked if it came from disk, because the read of another content may
    /// have cached it. Bytes that this process wrote need no check.
    pub(super) fn checked(&self, found: &CachedBytes) -> Result<Bytes, StoreError> {
        if !found.is_written {
            self.segment.content_in(&found.bytes, self.place)?;
        }
        Ok(found.bytes.slice(CONTENT_HEAD.min(found.bytes.len())..))
    }
}

/// A reference to a content on disk.
struct Pin {
    content: Arc<PinnedContent>,
    readers: Arc<Readers>,
}

#[async_trait]
impl StoredContent for Pin {
    fn length(&self) -> u64 {
        self.content.length as u64
    }

    // A read of a neighbour may have cached it after it was pinned.
    fn cached(&self) -> Option<Result<Bytes, StoreError>> {
        self.content.cached(&self.readers.cache)
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        self.fetch(0..self.content.length).await
    }

    async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
        self.fetch(range_within(self.content.length, from, length)).await
    }
}

impl Pin {
    /// Returns a range of the content, from the cache or from disk.
    async fn fetch(&self, range: Range<usize>) -> Result<Bytes, StoreError> {
        if let Some(found) = self.cached() {
            return Ok(cut(found?, range));
        }
        let (readers, size) = (&self.readers, self.content.size());
        let room = match size {
            ReadSize::Small => &readers.small_room,
            ReadSize::Large => &readers.large_room,
        };
        let place = Arc::clone(room).acquire_owned().await;
        let (answer, answered) = oneshot::channel();
        let job = (Arc::clone(&self.content), range.clone(), answer, place);
        if readers.jobs.push(size, job).is_err() {
            return self.content.read(range, &readers.cache);
        }
        answered.await.map_err(|_| StoreError::Failed("the store is closed".into()))?
    }
}

/// Returns the whole content, or a copy of a part: a slice would keep the whole in memory.
fn cut(content: Bytes, range: Range<usize>) -> Bytes {
    if range == (0..content.len()) {
        return content;
    }
    Bytes::copy_from_slice(content.get(range).unwrap_or_default())
}

/// A reference to a content on disk.
pub(super) fn stored(content: PinnedContent, readers: &Arc<Readers>) -> ContentRef {
    ContentRef::Stored(Arc::new(Pin { content: Arc::new(content), readers: Arc::clone(readers) }))
}

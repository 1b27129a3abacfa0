//! Pieces of the log in memory, bounded in bytes: the last written and the last read ones. The
//! writer of the log adds the written pieces, and readers the others.
//!
//! The log is written in order and mostly read in order, so the cache keeps whole pieces instead of
//! contents. Pieces from the writer need no copy, and a read from disk also serves the
//! neighbours of a content. The oldest piece is dropped first.
//!
//! Contents that are looked up together share the memory of their piece if they are most of its
//! bytes. Otherwise they are copied, so that a few bytes do not keep a large piece in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::LogPosition;

/// Bytes of a piece in addition to its content.
const PIECE_OVERHEAD: usize = 128;

/// The cache.
pub struct Cache {
    bytes_max: usize,
    state: Mutex<State>,
}

/// Maximum factor between the memory of a shared piece and the bytes that share it.
const SHARED_MEMORY_FACTOR: usize = 4;

/// A piece of the log.
#[derive(Clone)]
pub struct CachedPiece {
    /// Its bytes.
    pub bytes: Bytes,
    /// Bytes of memory that it occupies.
    pub memory_bytes: usize,
    /// Whether this process wrote it. Such bytes were never on a disk that may have changed them.
    pub is_written: bool,
}

#[derive(Default)]
struct State {
    pieces: BTreeMap<LogPosition, CachedPiece>,
    order: VecDeque<LogPosition>,
    bytes: usize,
}

impl Cache {
    /// A cache for at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self { bytes_max, state: Mutex::default() }
    }

    /// Adds a piece of the log that begins at `start`. Returns the pieces that were dropped for it.
    pub fn insert(&self, start: LogPosition, piece: CachedPiece) -> SmallVec<[CachedPiece; 2]> {
        let mut dropped = SmallVec::new();
        let memory_bytes = piece.memory_bytes + PIECE_OVERHEAD;
        if piece.bytes.is_empty() || memory_bytes > self.bytes_max {
            return dropped;
        }
        let mut state = self.lock();
        state.bytes += memory_bytes;
        if let Some(old) = state.pieces.insert(start, piece) {
            // The new piece keeps the old one's position in the order.
            state.bytes -= old.memory_bytes + PIECE_OVERHEAD;
        } else {
            state.order.push_back(start);
        }
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(old) = state.pieces.remove(&oldest) {
                state.bytes -= old.memory_bytes + PIECE_OVERHEAD;
                dropped.push(old);
            }
        }
        dropped
    }

    /// Locks the cache for several look-ups.
    pub fn lookup(&self) -> CacheLookup<'_> {
        CacheLookup { state: self.lock(), last: None }
    }

    /// Looks contents up together, by their places.
    pub fn find<C>(
        &self,
        contents: &[Option<C>],
        place: impl Fn(&C, &mut CacheLookup<'_>) -> Option<CachedBytes>,
    ) -> Vec<Option<CachedBytes>> {
        let mut lookup = self.lookup();
        let found = contents.iter().map(|content| place(content.as_ref()?, &mut lookup));
        let mut found: Vec<_> = found.collect();
        drop(lookup);
        copy_small_parts(&mut found);
        found
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A locked cache.
pub struct CacheLookup<'a> {
    state: MutexGuard<'a, State>,
    /// The piece of the last hit, with its start: the next look-up usually hits it too.
    last: Option<(LogPosition, CachedPiece)>,
}

/// Bytes of the log. They keep the memory of their piece.
pub struct CachedBytes {
    /// The bytes.
    pub bytes: Bytes,
    /// Whether this process wrote them.
    pub is_written: bool,
    /// Start and memory of the piece.
    piece: (LogPosition, usize),
}

impl CacheLookup<'_> {
    /// Bytes of the log, if a single piece has the whole range.
    pub fn get(&mut self, at: LogPosition, length: usize) -> Option<CachedBytes> {
        let is_there = |(start, piece): &(LogPosition, CachedPiece)| {
            start.segment == at.segment
                && (start.offset..).contains(&at.offset)
                && ((at.offset - start.offset) as usize) < piece.bytes.len()
        };
        if !self.last.as_ref().is_some_and(is_there) {
            let (start, piece) = self.state.pieces.range(..=at).next_back()?;
            self.last = Some((*start, piece.clone()));
        }
        let (start, piece) = self.last.as_ref()?;
        if start.segment != at.segment {
            return None;
        }
        let from = usize::try_from(at.offset - start.offset).ok()?;
        let end = from.checked_add(length).filter(|end| *end <= piece.bytes.len())?;
        Some(CachedBytes {
            bytes: piece.bytes.slice(from..end),
            is_written: piece.is_written,
            piece: (*start, piece.memory_bytes),
        })
    }
}

impl CachedBytes {
    /// A copy of the bytes with separate memory.
    pub fn copied(self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), ..self }
    }
}

/// Copies contents that were looked up together and are a small part of the piece whose memory they
/// would keep.
fn copy_small_parts(found: &mut [Option<CachedBytes>]) {
    let piece_of = |one: &Option<CachedBytes>| one.as_ref().map(|found| found.piece);
    for run in found.chunk_by_mut(|one, next| piece_of(one) == piece_of(next)) {
        let asked: usize = run.iter().flatten().map(|found| found.bytes.len()).sum();
        let memory_bytes =
            run.first().and_then(piece_of).map_or(0, |(_, memory_bytes)| memory_bytes);
        if memory_bytes > asked.saturating_mul(SHARED_MEMORY_FACTOR) {
            for one in run {
                *one = one.take().map(CachedBytes::copied);
            }
        }
    }
}

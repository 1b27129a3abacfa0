//! Pieces of the log in memory, bounded in bytes: what was written last, and what was read last.
//!
//! The log is written in order and mostly read in order, so whole pieces are kept, not contents: what
//! the committer has written costs no copy, and one read from disk serves the contents beside it. The
//! oldest piece goes first.
//!
//! Contents that are asked for together share the memory of their piece where they are a good part of
//! it; else they are copied out, so that who holds a few bytes does not hold a large piece.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use smallvec::SmallVec;

use super::format::Place;

/// What a piece takes beside its bytes.
const PIECE_OVERHEAD: usize = 128;

/// The cache.
pub(super) struct Cache {
    bytes_max: usize,
    state: Mutex<State>,
}

/// The memory of a piece is shared if it has at most so many times the bytes that are asked of it.
const SHARED_PART: usize = 4;

/// A piece of the log.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// The memory that it takes.
    pub(super) held: usize,
    /// Whether it was written by this process, and never was on a disk that may have changed it.
    pub(super) is_written: bool,
}

#[derive(Default)]
struct State {
    pieces: BTreeMap<Place, Piece>,
    order: VecDeque<Place>,
    bytes: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self { bytes_max, state: Mutex::default() }
    }

    /// Keeps a piece of the log that begins at a place. Returns those that had to go for it.
    pub(super) fn insert(&self, start: Place, piece: Piece) -> SmallVec<[Piece; 2]> {
        let mut gone = SmallVec::new();
        let held = piece.held + PIECE_OVERHEAD;
        if piece.bytes.is_empty() || held > self.bytes_max {
            return gone;
        }
        let mut state = self.lock();
        state.bytes += held;
        if let Some(old) = state.pieces.insert(start, piece) {
            // It keeps the place in the order that it has.
            state.bytes -= old.held + PIECE_OVERHEAD;
        } else {
            state.order.push_back(start);
        }
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(old) = state.pieces.remove(&oldest) {
                state.bytes -= old.held + PIECE_OVERHEAD;
                gone.push(old);
            }
        }
        gone
    }

    /// Looks several things up under one lock.
    pub(super) fn look(&self) -> Look<'_> {
        Look { state: self.lock(), last: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look into the cache, which stands still meanwhile.
pub(super) struct Look<'a> {
    state: MutexGuard<'a, State>,
    /// Where the piece begins in which something was found last: the next thing mostly lies there too.
    last: Option<(Place, Piece)>,
}

/// Bytes of the log that were found. They hold their piece.
pub(super) struct Found {
    pub(super) bytes: Bytes,
    pub(super) is_written: bool,
    /// Where the piece begins, and the memory that it takes.
    piece: (Place, usize),
}

impl Look<'_> {
    /// Bytes of the log, if one piece has them all.
    pub(super) fn get(&mut self, at: Place, length: usize) -> Option<Found> {
        let is_there = |(start, piece): &(Place, Piece)| {
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
        Some(Found {
            bytes: piece.bytes.slice(from..end),
            is_written: piece.is_written,
            piece: (*start, piece.held),
        })
    }
}

impl Found {
    /// The bytes in memory of their own.
    pub(super) fn copied(self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), ..self }
    }
}

/// Of contents that were asked for together, copies out those that are a small part of the piece that
/// they would hold.
pub(super) fn let_go(found: &mut [Option<Found>]) {
    let piece_of = |one: &Option<Found>| one.as_ref().map(|found| found.piece);
    for run in found.chunk_by_mut(|one, next| piece_of(one) == piece_of(next)) {
        let asked: usize = run.iter().flatten().map(|found| found.bytes.len()).sum();
        let held = run.first().and_then(piece_of).map_or(0, |(_, held)| held);
        if held > asked.saturating_mul(SHARED_PART) {
            for one in run {
                *one = one.take().map(Found::copied);
            }
        }
    }
}

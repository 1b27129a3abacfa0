//! Pieces of the log in memory, bounded in bytes: what was written last, and what was read last.
//!
//! The log is written in order and mostly read in order, so whole pieces are kept, not contents: what
//! the committer has written costs no copy, and one read from disk serves the contents beside it. The
//! oldest piece goes first. A content is copied out, so that who holds one holds no piece.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::format::Place;

/// What a piece takes beside its bytes.
const PIECE_OVERHEAD: usize = 128;

/// The cache.
pub(super) struct Cache {
    bytes_max: usize,
    state: Mutex<State>,
}

/// A piece of the log.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
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

    /// Keeps a piece of the log that begins at a place.
    pub(super) fn insert(&self, start: Place, piece: Piece) {
        let length = piece.bytes.len();
        if length == 0 || length + PIECE_OVERHEAD > self.bytes_max {
            return;
        }
        let mut state = self.lock();
        state.bytes += length + PIECE_OVERHEAD;
        if let Some(old) = state.pieces.insert(start, piece) {
            // It keeps the place in the order that it has.
            state.bytes -= old.bytes.len() + PIECE_OVERHEAD;
        } else {
            state.order.push_back(start);
        }
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(old) = state.pieces.remove(&oldest) {
                state.bytes -= old.bytes.len() + PIECE_OVERHEAD;
            }
        }
    }

    /// Looks several things up under one lock.
    pub(super) fn look(&self) -> Look<'_> {
        Look(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look into the cache, which stands still meanwhile.
pub(super) struct Look<'a>(MutexGuard<'a, State>);

impl Look<'_> {
    /// Bytes of the log, if one piece has them all. They hold the piece: to be copied, once the look is
    /// over.
    pub(super) fn get(&self, at: Place, length: usize) -> Option<Piece> {
        let (start, piece) = self.0.pieces.range(..=at).next_back()?;
        if start.segment != at.segment {
            return None;
        }
        let from = usize::try_from(at.offset - start.offset).ok()?;
        let end = from.checked_add(length).filter(|end| *end <= piece.bytes.len())?;
        Some(Piece { bytes: piece.bytes.slice(from..end), is_written: piece.is_written })
    }
}

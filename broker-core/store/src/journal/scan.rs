//! Showing all records under a prefix, as a tree does when it is opened.
//!
//! Values lie in the log. Messages mostly lie there in the order of their keys, so pieces are read that
//! grow as long as that holds.

use std::sync::Arc;

use super::index::{Entry, Index};
use super::segment::{Segment, Segments};
use crate::{Key, StoreError, Visit};

/// Entries that are copied from the index at a time.
const PAGE: usize = 1_024;
/// A piece is read with so many bytes, and twice as many each time the next lies behind it.
const PIECE_BYTES_MIN: usize = 4 << 10;
const PIECE_BYTES_MAX: usize = 512 << 10;

/// Shows the records, ascending by key.
pub(super) fn scan(
    index: &Index,
    segments: &Segments,
    prefix: &[u8],
    visit: Visit<'_>,
) -> Result<(), StoreError> {
    let mut after = None;
    let mut piece = Piece::default();
    let mut page = Vec::with_capacity(PAGE);
    loop {
        page.clear();
        index.page(prefix, after.as_ref(), PAGE, &mut page);
        for (key, entry) in &page {
            let Some(value) = read(index, segments, &mut piece, key, *entry)? else { continue };
            visit(key.as_bytes(), &value);
        }
        let Some((last, _)) = page.last().filter(|_| page.len() == PAGE) else { return Ok(()) };
        after = Some(*last);
    }
}

/// Reads the value of a key, wherever it lies by now; `None` if it is gone meanwhile.
fn read(
    index: &Index,
    segments: &Segments,
    piece: &mut Piece,
    key: &Key,
    mut entry: Entry,
) -> Result<Option<Vec<u8>>, StoreError> {
    loop {
        let read = match segments.get(entry.record.segment) {
            Some(segment) => piece.value(&segment, &entry, key),
            None => Err(Segments::missing(entry.record.segment)),
        };
        match (read, index.get(key.as_bytes())) {
            (Ok(value), _) => return Ok(Some(value)),
            (Err(error), Some(now)) if now == entry => return Err(error),
            // It was written again elsewhere.
            (Err(_), Some(now)) => entry = now,
            (Err(_), None) => return Ok(None),
        }
    }
}

/// What was read last.
#[derive(Default)]
struct Piece {
    segment: Option<Arc<Segment>>,
    start: u64,
    bytes: Vec<u8>,
    /// How much is read next time.
    size: usize,
}

impl Piece {
    fn value(
        &mut self,
        segment: &Arc<Segment>,
        entry: &Entry,
        key: &Key,
    ) -> Result<Vec<u8>, StoreError> {
        let span = entry.record_bytes as usize;
        let offset = u64::from(entry.record.offset);
        let is_here = self.segment.as_ref().is_some_and(|held| Arc::ptr_eq(held, segment));
        let end = self.start + self.bytes.len() as u64;
        if !is_here || offset < self.start || offset + span as u64 > end {
            let goes_on = is_here && offset >= self.start && offset < end + self.size as u64;
            self.size =
                if goes_on { (self.size * 2).min(PIECE_BYTES_MAX) } else { PIECE_BYTES_MIN };
            let left = usize::try_from(segment.end().saturating_sub(offset)).unwrap_or(usize::MAX);
            self.bytes = segment.read(offset, self.size.min(left).max(span))?;
            self.start = offset;
            self.segment = Some(Arc::clone(segment));
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(from..from + span).unwrap_or_default();
        segment.value_in(bytes, entry, key.as_bytes())
    }
}

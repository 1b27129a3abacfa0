//! Scans: pass all records with a prefix to a visitor, for example when a tree is opened.
//!
//! Values are in the log, usually in the order of their keys. So the scan reads pieces of the log,
//! which grow while reads are sequential.

use std::sync::Arc;

use super::index::{Index, IndexEntry};
use super::segment::{Segment, Segments};
use crate::{Key, StoreError, Visit};

/// Number of entries that are copied from the index at a time.
const PAGE: usize = 1_024;
/// Size of the first piece. It doubles with each sequential read.
const PIECE_BYTES_MIN: usize = 4 << 10;
const PIECE_BYTES_MAX: usize = 512 << 10;

/// Passes the records to `visit`, ascending by key.
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

/// Reads the value of a key at its current position; `None` if the key was removed meanwhile.
fn read(
    index: &Index,
    segments: &Segments,
    piece: &mut Piece,
    key: &Key,
    mut entry: IndexEntry,
) -> Result<Option<Vec<u8>>, StoreError> {
    loop {
        let read = match segments.get(entry.record.segment) {
            Some(segment) => piece.value(&segment, &entry, key),
            None => Err(Segments::missing(entry.record.segment)),
        };
        match (read, index.get(key.as_bytes())) {
            (Ok(value), _) => return Ok(Some(value)),
            (Err(error), Some(now)) if now == entry => return Err(error),
            // The keeper moved the record.
            (Err(_), Some(now)) => entry = now,
            (Err(_), None) => return Ok(None),
        }
    }
}

/// The last piece that was read.
#[derive(Default)]
struct Piece {
    segment: Option<Arc<Segment>>,
    start: u64,
    bytes: Vec<u8>,
    /// Number of bytes of the next read.
    size: usize,
}

impl Piece {
    fn value(
        &mut self,
        segment: &Arc<Segment>,
        entry: &IndexEntry,
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

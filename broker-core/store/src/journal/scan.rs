//! Scans: read all records with a prefix in slices, for example when a tree is opened.
//!
//! Values are in the log, usually in the order of their keys. So the scan reads pieces of the log,
//! which grow while reads are sequential.

use std::sync::Arc;

use async_trait::async_trait;

use super::queue::JobQueue;
use super::segment::{Index, Segment, Segments, missing};
use crate::{Key, RecordSlice, Records, StoreError};
use peeklock_store_log::{IndexEntry, LogSegment as _};

/// Number of entries that are copied from the index at a time.
const PAGE: usize = 1_024;
/// Size of the first piece. It doubles with each sequential read.
const PIECE_BYTES_MIN: usize = 4 << 10;
const PIECE_BYTES_MAX: usize = 512 << 10;

/// The records under a prefix, from a position on.
pub(super) struct Scan<'j> {
    index: &'j Index,
    segments: &'j Segments,
    queue: &'j JobQueue,
    prefix: Key,
    /// Entries of the index, of which the first `read_count` were read.
    page: Vec<(Key, IndexEntry)>,
    read_count: usize,
    is_last_page: bool,
    piece: Piece,
}

impl<'j> Scan<'j> {
    pub(super) fn new(
        index: &'j Index,
        segments: &'j Segments,
        queue: &'j JobQueue,
        prefix: Key,
    ) -> Self {
        Self {
            index,
            segments,
            queue,
            prefix,
            page: Vec::new(),
            read_count: 0,
            is_last_page: false,
            piece: Piece::default(),
        }
    }

    /// Returns the next entry of the index.
    fn next_entry(&mut self) -> Option<(Key, IndexEntry)> {
        if self.read_count == self.page.len() {
            if self.is_last_page {
                return None;
            }
            let after = self.page.last().map(|(key, _)| *key);
            self.page.clear();
            self.read_count = 0;
            self.index.page(self.prefix.as_bytes(), after.as_ref(), PAGE, &mut self.page);
            self.is_last_page = self.page.len() < PAGE;
        }
        let next = self.page.get(self.read_count).copied()?;
        self.read_count += 1;
        Some(next)
    }
}

#[async_trait]
impl Records for Scan<'_> {
    async fn next(&mut self, bytes: usize, slice: &mut RecordSlice) -> Result<(), StoreError> {
        slice.clear();
        // The content of a failed journal is unknown.
        self.queue.ended().map_or(Ok(()), Err)?;
        while !slice.is_full(bytes)
            && let Some((key, entry)) = self.next_entry()
        {
            if let Some(value) = read(self.index, self.segments, &mut self.piece, &key, entry)? {
                slice.push(key.as_bytes(), &value);
            }
        }
        Ok(())
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
            None => Err(missing(entry.record.segment)),
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

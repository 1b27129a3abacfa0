//! The account of the index: the number of records and contents of each segment that are in use, and
//! their bytes. Only the index uses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Index, lock};
use crate::{CONTENT_HEAD, ContentAt, IndexEntry, LogSegment, Segments};

/// Keeps the account while entries change.
pub(super) struct Account<'a, S: LogSegment> {
    index: &'a Index<S>,
    segments: SegmentCache<'a, S>,
    added: u64,
    freed: u64,
}

impl<'a, S: LogSegment> Account<'a, S> {
    pub(super) fn new(index: &'a Index<S>) -> Self {
        Self { index, segments: SegmentCache::new(&index.segments), added: 0, freed: 0 }
    }

    /// Counts a record as in use.
    pub(super) fn record(&mut self, entry: &IndexEntry) -> Option<()> {
        self.added += u64::from(entry.record_bytes);
        self.segments.get(entry.record.segment)?.add_use();
        Some(())
    }

    /// Counts a content as in use, which was not in use before.
    pub(super) fn content(&mut self, content: &ContentAt) -> Option<()> {
        self.added += CONTENT_HEAD as u64 + u64::from(content.length);
        if !content.is_large {
            self.segments.get(content.place.segment)?.add_use();
            return Some(());
        }
        let parts = lock(&self.index.contents).large.get(&content.place).map(Arc::clone)?;
        for part in parts.iter() {
            self.segments.get(part.segment)?.add_use();
        }
        Some(())
    }

    pub(super) fn put(&mut self, entry: &IndexEntry, is_new: bool, old: Option<&IndexEntry>) {
        debug_assert!(
            self.segments.get(entry.record.segment).is_none_or(|segment| !segment.is_sealed()),
            "the index judged the content of a sealed segment without this record"
        );
        self.record(entry);
        let content = entry.content_at();
        let kept = old.and_then(IndexEntry::content_at).filter(|_| !is_new);
        let is_kept = content.is_some() && kept == content;
        if let Some(content) = content.filter(|_| !is_kept) {
            if is_new {
                self.content(&content);
            } else {
                let mut contents = lock(&self.index.contents);
                *contents.shared.entry(content.place).or_insert(1) += 1;
            }
        }
        if let Some(old) = old {
            self.freed += u64::from(old.record_bytes);
            if let Some(segment) = self.segments.get(old.record.segment) {
                segment.end_use();
            }
            if let Some(content) = old.content_at().filter(|_| !is_kept) {
                self.drop_content(&content);
            }
        }
    }

    pub(super) fn gone(&mut self, old: &IndexEntry) {
        self.freed += u64::from(old.record_bytes);
        if let Some(segment) = self.segments.get(old.record.segment) {
            segment.end_use();
        }
        if let Some(content) = old.content_at() {
            self.drop_content(&content);
        }
    }

    fn drop_content(&mut self, content: &ContentAt) {
        let mut contents = lock(&self.index.contents);
        if let Some(count) = contents.shared.get_mut(&content.place) {
            *count -= 1;
            if *count <= 1 {
                contents.shared.remove(&content.place);
            }
            return;
        }
        self.freed += CONTENT_HEAD as u64 + u64::from(content.length);
        if !content.is_large {
            drop(contents);
            if let Some(segment) = self.segments.get(content.place.segment) {
                segment.end_use();
            }
            return;
        }
        let parts = contents.large.remove(&content.place);
        drop(contents);
        for part in parts.iter().flat_map(|parts| parts.iter()) {
            if let Some(segment) = self.segments.get(part.segment) {
                segment.end_use();
            }
        }
    }
}

impl<S: LogSegment> Drop for Account<'_, S> {
    fn drop(&mut self) {
        self.index.used_bytes.fetch_add(self.added, Ordering::AcqRel);
        self.index.used_bytes.fetch_sub(self.freed, Ordering::AcqRel);
    }
}

/// Remembers the last two segments: most look-ups are for these two.
pub(super) struct SegmentCache<'a, S> {
    segments: &'a Segments<S>,
    last: [Option<Arc<S>>; 2],
    next: usize,
}

impl<'a, S: LogSegment> SegmentCache<'a, S> {
    pub(super) const fn new(segments: &'a Segments<S>) -> Self {
        Self { segments, last: [None, None], next: 0 }
    }

    pub(super) fn get(&mut self, number: u32) -> Option<&Arc<S>> {
        let is_it =
            |one: &Option<Arc<S>>| one.as_ref().is_some_and(|segment| segment.number() == number);
        let place = match self.last.iter().position(is_it) {
            Some(place) => place,
            None => {
                let place = self.next;
                self.next = 1 - self.next;
                *self.last.get_mut(place)? = Some(self.segments.get(number)?);
                place
            }
        };
        self.last.get(place)?.as_ref()
    }
}

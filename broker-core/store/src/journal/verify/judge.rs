//! The fate of each key: intact, saved from damaged surroundings, returned to its previous state,
//! or given up. Reports and repair use the verdicts.

use super::super::format::FRAME_HEAD;
use super::super::format::{Flaw, LogPosition};
use super::super::segment::{Index, Segments, damaged, missing, name_of};
use super::{Fate, Inspection};
use crate::{Key, StoreError};
use peeklock_store_log::IndexEntry;

/// The action of a repair for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Verdict {
    /// No action.
    Keep,
    /// The entry is written again. It is from the readable index, or from the index of opening.
    Write { entry: IndexEntry, from_readable_index: bool },
    /// The key is deleted.
    Delete,
}

/// A verdict and its consequence.
pub(in super::super) struct JudgedKey {
    pub(in super::super) verdict: Verdict,
    pub(in super::super) fate: Option<Fate>,
    /// The unreadable place, and the reason.
    pub(in super::super) flaw: Option<(LogPosition, StoreError)>,
}

impl Inspection {
    /// Judges a key by its entries in the readable index and in the index of opening.
    pub(in super::super) fn judge(
        &self,
        key: &Key,
        readable: Option<IndexEntry>,
        at_opening: Option<IndexEntry>,
    ) -> JudgedKey {
        let Some(entry) = readable else {
            let verdict = if at_opening.is_some() { Verdict::Delete } else { Verdict::Keep };
            return JudgedKey { verdict, fate: at_opening.map(|_| Fate::Removed), flaw: None };
        };
        let flaw = match prove(&self.readable_index, &self.segments, key, &entry) {
            Ok(())
                if at_opening == Some(entry) && !self.is_in_gap(&self.readable_index, &entry) =>
            {
                return JudgedKey { verdict: Verdict::Keep, fate: None, flaw: None };
            }
            Ok(()) => {
                let verdict = Verdict::Write { entry, from_readable_index: true };
                return JudgedKey { verdict, fate: Some(Fate::Saved), flaw: None };
            }
            Err(flaw) => Some(flaw),
        };
        let earlier = at_opening.filter(|at_opening| *at_opening != entry);
        match earlier.filter(|entry| prove(&self.opening_index, &self.segments, key, entry).is_ok())
        {
            Some(entry) => {
                let verdict = if self.is_in_gap(&self.opening_index, &entry) {
                    Verdict::Write { entry, from_readable_index: false }
                } else {
                    Verdict::Keep
                };
                JudgedKey { verdict, fate: Some(Fate::Earlier), flaw }
            }
            None => {
                let verdict = if at_opening.is_some() { Verdict::Delete } else { Verdict::Keep };
                JudgedKey { verdict, fate: Some(Fate::Lost), flaw }
            }
        }
    }

    /// Whether a part of an entry is in a gap, where repair makes a hole.
    fn is_in_gap(&self, index: &Index, entry: &IndexEntry) -> bool {
        if self.gap_at(entry.record).is_some() {
            return true;
        }
        match entry.content_at() {
            None => false,
            Some(content) if !content.is_large => self.gap_at(content.place).is_some(),
            Some(content) => index.part_places(content.place).is_none_or(|parts| {
                parts.iter().any(|part| {
                    let head = part.offset.saturating_sub(FRAME_HEAD_BYTES);
                    self.gap_at(LogPosition { offset: head, ..*part }).is_some()
                })
            }),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "32")]
const FRAME_HEAD_BYTES: u32 = FRAME_HEAD as u32;

/// Reads and checks the record and the content of a key.
fn prove(
    index: &Index,
    segments: &Segments,
    key: &Key,
    entry: &IndexEntry,
) -> Result<(), (LogPosition, StoreError)> {
    let at = |place: LogPosition| {
        let segment = segments.get(place.segment);
        segment.ok_or_else(|| (place, missing(place.segment)))
    };
    at(entry.record)?.read_value(entry, key.as_bytes()).map_err(|error| (entry.record, error))?;
    let Some(content) = entry.content_at() else { return Ok(()) };
    let length = content.length as usize;
    if !content.is_large {
        at(content.place)?
            .read_content(content.place, length)
            .map_err(|error| (content.place, error))?;
        return Ok(());
    }
    let parts = index.part_places(content.place).unwrap_or_default();
    let mut read = 0;
    for part in parts.iter() {
        read += at(*part)?.read_part(*part).map_err(|error| (*part, error))?.len();
    }
    if read != length {
        let offset = u64::from(content.place.offset);
        let name = name_of(content.place.segment);
        return Err((content.place, damaged(&name, offset, &Flaw::Short.to_string())));
    }
    Ok(())
}

//! The files of a journal: the existing ones, the journal of each, and the manifest. Only the
//! inspection uses it.

use std::collections::BTreeMap;
use std::io;

use super::super::super::disk::Disk;
use super::super::super::format::{Flaw, HEADER_BYTES, SegmentHeader};
use super::super::super::manifest::{self, ManifestState};
use super::super::super::segment::number_of;
use super::super::{FindingKind, Report};
use super::{Found, failed, finding};
use crate::StoreError;

/// Opens all files with the name of a segment.
pub(super) fn find_segments(
    disk: &dyn Disk,
    names: &[String],
) -> Result<BTreeMap<u32, Found>, StoreError> {
    let mut found = BTreeMap::new();
    for name in names {
        let Some(number) = number_of(name) else { continue };
        let file = disk.open(name).map_err(|error| failed(name, &error))?;
        let mut page = vec![0; usize::try_from(HEADER_BYTES).unwrap_or(0)];
        let count = file.read_at(&mut page, 0).map_err(|error| failed(name, &error))?;
        page.truncate(count);
        let [(_, first), (copy_at, copy)] = SegmentHeader::read_both(&page);
        if first == Err(Flaw::Version) || copy == Err(Flaw::Version) {
            let what =
                format!("`{name}` was written by a later version of the program; use that version");
            return Err(StoreError::Failed(what.into()));
        }
        let bad_header = match (first, copy) {
            (Err(_), Ok(_)) => Some(0),
            (Ok(_), Err(_)) => Some(copy_at),
            _ => None,
        };
        found.insert(number, Found { file, header: first.or(copy), bad_header });
    }
    Ok(found)
}

/// The identity of the journal to which most files belong.
pub(super) fn journal_of(found: &BTreeMap<u32, Found>) -> Option<u128> {
    let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
    for header in found.values().filter_map(|one| one.header.ok()) {
        *counts.entry(header.journal).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(journal, _)| journal)
}

/// The reason why a segment is unusable.
pub(super) fn unusable(number: u32, found: Option<&Found>) -> (FindingKind, String) {
    match found.map(|one| one.header) {
        None => (FindingKind::Missing, "the segment is missing".to_owned()),
        Some(Err(flaw)) => {
            (FindingKind::Header, format!("the header and its copy are damaged: {flaw}"))
        }
        Some(Ok(header)) if header.number != number => {
            let what = format!("this is segment {} under another name", header.number);
            (FindingKind::Foreign, what)
        }
        Some(Ok(_)) => (FindingKind::Foreign, "the segment belongs to another journal".to_owned()),
    }
}

pub(super) fn read_manifest(
    disk: &dyn Disk,
    report: &mut Report,
) -> Result<ManifestState, StoreError> {
    let failed = |error: io::Error| failed("the manifest", &error);
    let file = disk.open(manifest::NAME).map_err(failed)?;
    for at in manifest::damaged_slots(&*file).map_err(failed)? {
        let what = "one of its two slots is damaged";
        let bytes = manifest::SLOT_BYTES;
        report.add_finding(finding(manifest::NAME, at, bytes, FindingKind::Manifest, what));
    }
    manifest::read(&*file).map_err(failed)
}

//! Repair: gives up damaged data, and only that.
//!
//! ```text
//!  copy ─► readable records are written after the end ─► side files go ─► gaps become holes ─► open
//!          (a new segment; the log before is unchanged)
//! ```
//!
//! A gap is a range of a segment without valid frames. A hole is a valid frame that replaces a gap:
//! reading skips it, and the damaged bytes are given up.
//!
//! Every step leaves a journal on which repair can run again: until the holes are made, a second
//! run has all findings of the first one, and finds the saved records after the end. The command
//! line calls [`Plan::new`], then [`Plan::copy_to`] and [`Plan::apply`].

mod copy;
mod patch;

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use self::patch::ReplacementSegment;
use super::disk::Disk;
use super::format::{HEADER_BYTES, SegmentHeader, join};
use super::manifest::Manifest;
use super::opening::Opened;
use super::segment::{Index, missing, name_of};
use super::verify::{Extent, FindingKind, Inspection, Link, Progress, Report, Side, Verdict};
use super::{Journal, JournalConfig, side};
use crate::{Batch, BatchId, Fence, Key, Shard, Store as _, StoreError, Submission};
use peeklock_store_log::{Cache, IndexEntry};

/// Size of the batches of saved records, approximately.
const BATCH_BYTES: u64 = 1 << 20;
/// Size of the segment for saved records: small, because the disk may be full.
const SEGMENT_BYTES: u64 = 4 << 20;

/// The damage of a journal, the steps to repair it, and the obstacles to that.
pub struct Plan {
    disk: Arc<dyn Disk>,
    inspection: Inspection,
    drop: BTreeSet<u32>,
    obstacles: Vec<Obstacle>,
}

/// An unusable segment. Repair continues without it only if the user asks for that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// Its number.
    pub segment: u32,
    /// Its file.
    pub file: String,
    /// Whether the log can continue without it. All its records are lost then.
    pub can_be_dropped: bool,
}

impl Plan {
    /// Reads the journal and plans the repair. `drop` names segments to give up whole. Writes
    /// nothing.
    ///
    /// # Errors
    /// As [`verify`](super::verify::verify), and if a segment to drop is readable.
    pub fn new(
        disk: Arc<dyn Disk>,
        drop: &[u32],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, StoreError> {
        let inspection = Inspection::of(&*disk, progress)?;
        let drop: BTreeSet<u32> = drop.iter().copied().collect();
        for number in &drop {
            let link = inspection.chain.iter().find(|link| link.number == *number);
            let detail = match link {
                None => format!("segment {number} is not part of the log"),
                Some(Link { segment: Some(_), .. }) => {
                    format!(
                        "segment {number} can be read and is not dropped; leave it out of \
                         --drop-segment"
                    )
                }
                Some(_) => continue,
            };
            return Err(StoreError::Failed(detail.into()));
        }
        let can_be_dropped = inspection.chain.iter().any(|link| link.segment.is_some());
        let obstacles = inspection
            .chain
            .iter()
            .filter(|link| link.segment.is_none())
            .filter(|link| !can_be_dropped || !drop.contains(&link.number))
            .map(|link| {
                let (segment, file) = (link.number, name_of(link.number));
                Obstacle { segment, file, can_be_dropped }
            })
            .collect();
        Ok(Self { disk, inspection, drop, obstacles })
    }

    /// The findings.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.inspection.report
    }

    /// The value of a record, if it can be read.
    #[must_use]
    pub fn value(&self, key: &Key) -> Option<Vec<u8>> {
        self.inspection.value(key)
    }

    /// Decisions that the user must make first.
    #[must_use]
    pub fn obstacles(&self) -> &[Obstacle] {
        &self.obstacles
    }

    /// Segments that are given up whole.
    #[must_use]
    pub const fn dropped(&self) -> &BTreeSet<u32> {
        &self.drop
    }

    /// Whether there is any repair to do.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let report = &self.inspection.report;
        !report.is_sound()
            || report.findings.iter().any(|finding| {
                matches!(
                    finding.kind,
                    FindingKind::HeaderCopy | FindingKind::SideFile | FindingKind::Manifest
                )
            })
    }

    /// The steps of the repair in order, each as a line of text.
    #[must_use]
    pub fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        let chain = &self.inspection.chain;
        for link in chain.iter().filter(|link| link.bad_header.is_some()) {
            steps.push(format!("`{}`: write the header again", name_of(link.number)));
        }
        if self.writes_log() {
            steps.push("save readable records to a new segment".to_owned());
        }
        for link in chain.iter().filter(|link| link.side != Side::Absent && loses_side(link)) {
            steps.push(format!("`{}` is removed", side::name_of_side(link.number)));
        }
        for link in chain {
            for gap in &link.walked.gaps {
                let name = name_of(link.number);
                let (from, to) = (gap.from, gap.to);
                steps.push(format!("`{name}`: give up bytes {from} to {to}"));
            }
        }
        for number in &self.drop {
            steps.push(format!("replace `{}` by an empty segment", name_of(*number)));
        }
        for stray in &self.inspection.strays {
            steps.push(format!("remove `{stray}`"));
        }
        if !self.inspection.has_manifest {
            steps.push("write the manifest".to_owned());
        }
        steps
    }

    /// Maximum number of bytes of a copy of the directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn copy_bytes(&self) -> Result<u64, StoreError> {
        copy::bytes(&*self.disk)
    }

    /// Copies the whole directory to another one, durably. Must be called before [`Plan::apply`].
    ///
    /// # Errors
    /// If there is not enough room, or the copy cannot be written. The journal is unchanged then.
    pub fn copy_to(
        &self,
        copy: &dyn Disk,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), StoreError> {
        copy::copy(&*self.disk, copy, progress)
    }

    /// Carries out the plan, then opens and closes the journal. After an interruption, a new plan
    /// continues.
    ///
    /// # Errors
    /// If there are obstacles, a write fails, or the journal still does not open.
    pub fn apply(self) -> Result<(), StoreError> {
        if let Some(obstacle) = self.obstacles.first() {
            return Err(missing(obstacle.segment));
        }
        let disk = &*self.disk;
        for link in &self.inspection.chain {
            if let (Some(at), Some(segment)) = (link.bad_header, &link.segment) {
                patch::write_header(disk, &segment.header, at)?;
            }
        }
        if self.writes_log() {
            self.save()?;
        }
        for link in self.inspection.chain.iter().filter(|link| loses_side(link)) {
            side::remove(disk, link.number)
                .and_then(|()| disk.sync())
                .map_err(|error| patch::failed(&side::name_of_side(link.number), &error))?;
        }
        for link in &self.inspection.chain {
            if let Some(segment) = &link.segment {
                patch::make_holes(disk, &segment.header, &link.walked.gaps)?;
            }
        }
        for replacement in self.replacements()? {
            replacement.write(disk)?;
        }
        for stray in &self.inspection.strays {
            disk.remove(stray)
                .and_then(|()| disk.sync())
                .map_err(|error| patch::failed(stray, &error))?;
        }
        Journal::without_threads(Arc::clone(&self.disk), &config(), None)?.close()
    }

    /// Whether the repair writes to the log.
    fn writes_log(&self) -> bool {
        let report = &self.inspection.report;
        !self.drop.is_empty()
            || !report.affected.is_empty()
            || self.inspection.chain.iter().any(|link| !link.walked.gaps.is_empty())
    }

    /// Writes readable records after the end of the log, and deletes unreadable ones.
    fn save(&self) -> Result<(), StoreError> {
        let inspection = &self.inspection;
        let mut verdicts = Vec::new();
        // All verdicts first, because applying them changes the index.
        inspection.each_verdict(&mut |key, judged, _| {
            if judged.verdict != Verdict::Keep {
                verdicts.push((*key, judged.verdict));
            }
            Ok(())
        })?;
        let mut writer = Writer::new(Journal::without_threads(
            Arc::clone(&self.disk),
            &config(),
            Some(self.opened()?),
        )?)?;
        for (key, verdict) in verdicts {
            match verdict {
                Verdict::Keep => {}
                Verdict::Delete => writer.batch.delete(&key),
                Verdict::Write { entry, from_readable_index } => {
                    let index = if from_readable_index {
                        &inspection.readable_index
                    } else {
                        &inspection.opening_index
                    };
                    let value = self.read_value(&key, &entry)?;
                    let write = |to: &mut Vec<u8>| to.extend_from_slice(&value);
                    match self.read_content(index, &entry)? {
                        None => writer.batch.put(&key, write),
                        Some(content) => writer.batch.put_with_content(&key, content, write),
                    }
                }
            }
            if writer.batch.bytes() >= BATCH_BYTES {
                writer.write()?;
            }
        }
        writer.write()?;
        writer.journal.close()
    }

    fn read_value(&self, key: &Key, entry: &IndexEntry) -> Result<Vec<u8>, StoreError> {
        let number = entry.record.segment;
        let segment = self.inspection.segments.get(number);
        segment.ok_or_else(|| missing(number))?.read_value(entry, key.as_bytes())
    }

    fn read_content(&self, index: &Index, entry: &IndexEntry) -> Result<Option<Bytes>, StoreError> {
        let Some(content) = entry.content_at() else { return Ok(None) };
        let segment =
            |number: u32| self.inspection.segments.get(number).ok_or_else(|| missing(number));
        let length = content.length as usize;
        if !content.is_large {
            return segment(content.place.segment)?.read_content(content.place, length).map(Some);
        }
        let places = index.part_places(content.place).unwrap_or_default();
        let parts: Result<Vec<Bytes>, StoreError> =
            places.iter().map(|part| segment(part.segment)?.read_part(*part)).collect();
        Ok(Some(join(parts?, length)))
    }

    /// The journal as opening will find it, to write to it before the repair is complete.
    fn opened(&self) -> Result<Opened, StoreError> {
        let inspection = &self.inspection;
        let oldest = inspection.chain.first().map_or(1, |link| link.number);
        // Leftovers of a crash are in the way of new files.
        let names = self.disk.list();
        let names = names.map_err(|error| patch::failed("the directory", &error))?;
        super::opening::remove_leftovers(&*self.disk, &names, oldest)?;
        let (manifest, _) = Manifest::open(&*self.disk)
            .map_err(|error| patch::failed(super::manifest::NAME, &error))?;
        let number = inspection.chain.last().map_or(0, |link| link.number);
        let header = self.last_header().ok_or_else(|| missing(number))?;
        Ok(Opened {
            segments: Arc::clone(&inspection.segments),
            index: Arc::clone(&inspection.opening_index),
            manifest,
            newest: Some(SegmentHeader { number, ..header }),
            end: inspection.chain.last().map_or(0, end_of),
            next_lsn: self.next_lsn(),
            oldest,
        })
    }

    fn last_header(&self) -> Option<SegmentHeader> {
        let chain = self.inspection.chain.iter().rev();
        chain.filter_map(|link| link.segment.as_ref()).map(|segment| segment.header).next()
    }

    fn next_lsn(&self) -> u64 {
        self.inspection.chain.iter().map(|link| link.walked.next_lsn).max().unwrap_or(0).max(1)
    }

    /// Replacements of the dropped segments, which make the log complete.
    fn replacements(&self) -> Result<Vec<ReplacementSegment>, StoreError> {
        let mut replacements = Vec::new();
        let Some(known) = self.last_header() else { return Ok(replacements) };
        let mut random = super::seeds()?;
        let chain = &self.inspection.chain;
        let (mut previous_end, mut lsn) = (0, None);
        for (place, link) in chain.iter().enumerate() {
            if link.segment.is_some() {
                previous_end = end_of(link);
                lsn = Some(link.walked.next_lsn);
                continue;
            }
            let next = chain.iter().skip(place + 1).find_map(|link| link.segment.as_ref());
            let (end, next_lsn) = match link.extent {
                Extent::Sealed { end, lsn } => (end.max(HEADER_BYTES), lsn),
                Extent::Open | Extent::Newest { .. } => {
                    let next_lsn = next.map_or(0, |segment| segment.header.first_lsn);
                    (HEADER_BYTES, next_lsn.max(lsn.unwrap_or(1)))
                }
            };
            let first_lsn = lsn.unwrap_or(next_lsn);
            let header = SegmentHeader {
                number: link.number,
                seed: random(),
                first_lsn,
                synced: first_lsn.saturating_sub(1),
                oldest: chain.first().map_or(link.number, |link| link.number),
                previous_end,
                ..known
            };
            replacements.push(ReplacementSegment { header, end, next_lsn });
            (previous_end, lsn) = (end, Some(next_lsn.max(first_lsn)));
        }
        Ok(replacements)
    }
}

/// End of a segment or of its replacement.
fn end_of(link: &Link) -> u64 {
    if link.segment.is_some() { link.walked.end } else { HEADER_BYTES }
}

/// Whether the side file of a segment must be removed.
fn loses_side(link: &Link) -> bool {
    link.segment.is_none() || link.side == Side::Bad || !link.walked.gaps.is_empty()
}

fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 0,
        free_bytes_min: 0,
        ..JournalConfig::default()
    }
}

/// Writes batches in sequence.
struct Writer {
    journal: Journal,
    fence: Fence,
    next: BatchId,
    batch: Batch,
}

impl Writer {
    fn new(journal: Journal) -> Result<Self, StoreError> {
        let ended = |_| StoreError::Failed("the journal has ended".into());
        let (fence, next) = journal.begin_acquire(Shard(0))?.try_recv().map_err(ended)??;
        Ok(Self { journal, fence, next, batch: Batch::default() })
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.require_sync();
        let (answer, answered) = channel();
        let id = self.next;
        self.next = BatchId(id.0 + 1);
        let submission = Submission { id, fences: vec![self.fence], batch: Arc::new(batch) };
        let completion = move |result| {
            answer.send(result).ok();
        };
        self.journal.submit(submission, Box::new(completion));
        while self.journal.turn() {}
        let ended = || Err(StoreError::Failed("the journal has ended".into()));
        answered.try_recv().unwrap_or_else(|_| ended())
    }
}

impl Journal {
    /// A journal without threads over `opened`, or over the result of opening.
    fn without_threads(
        disk: Arc<dyn Disk>,
        config: &JournalConfig,
        opened: Option<Opened>,
    ) -> Result<Self, StoreError> {
        let opened = match opened {
            Some(opened) => opened,
            None => super::opening::open(&*disk)?,
        };
        let cache = Arc::new(Cache::new(config.cache_bytes));
        let readers = super::content::Readers::inline(Arc::clone(&cache));
        let randoms = super::randoms()?;
        let (mut journal, committer, keeper) =
            Self::assemble(disk, config, randoms, cache, readers, opened)?;
        let manual = Box::new((committer, keeper));
        journal.driver = super::Driver::Manual(Mutex::new(Some(manual)));
        Ok(journal)
    }
}

#[cfg(test)]
mod tests;

//! Reading a whole journal: its parts, their damage, and two indexes. Verification and repair use
//! it.
//!
//! The `opening_index` has the records that opening finds after every gap became a hole. The
//! `readable_index` also has the records that are readable in gaps or in side files. Without damage
//! they are the same.

mod files;
mod frames;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::super::disk::{Disk, DiskFile};
use super::super::format::{
    CONTENT_HEAD, Flaw, FrameKind, HEADER_BYTES, HEADER_LENGTH, LogPosition, SegmentHeader,
    read_mark,
};
use super::super::manifest::{self, ManifestState};
use super::super::segment::{Index, Segment, Segments, name_of, number_of};
use super::super::{log, side};
use super::walk::{Extent, Gap, SegmentItem, SegmentWalk, walk};
use super::{
    Affected, Finding, FindingKind, LostFrames, Meter, Progress, Report, Stage, TolerantDisk,
};
use crate::{Key, StoreError};
use files::{find_segments, journal_of, read_manifest, unusable};
use frames::{carry_out, prove_frame, readable_records, replay_frames};
use peeklock_store_log::{LogSegment as _, Op, ReplayOp};

/// A file of the log, or the position of a missing one.
pub(in super::super) struct Link {
    pub(in super::super) number: u32,
    /// `None` if it is missing or unusable.
    pub(in super::super) segment: Option<Arc<Segment>>,
    pub(in super::super) extent: Extent,
    pub(in super::super) walked: SegmentWalk,
    /// Position of the damaged copy of the header.
    pub(in super::super) bad_header: Option<u64>,
    pub(in super::super) side: Side,
}

/// State of a side file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Side {
    Absent,
    Good,
    /// It is unusable, or must not be used.
    Bad,
}

/// All findings about a journal.
pub(in super::super) struct Inspection {
    pub(in super::super) report: Report,
    pub(in super::super) manifest_state: ManifestState,
    pub(in super::super) has_manifest: bool,
    /// From the oldest segment in use to the newest one.
    pub(in super::super) chain: Vec<Link>,
    /// Files that are not part of the log and prevent opening.
    pub(in super::super) strays: Vec<String>,
    pub(in super::super) segments: Arc<Segments>,
    pub(in super::super) opening_index: Arc<Index>,
    pub(in super::super) readable_index: Arc<Index>,
}

/// The operations of a side file, each with the offset of its record in the segment.
type SideItems = Vec<(u32, ReplayOp)>;

/// A file with the name of a segment.
struct Found {
    file: Arc<dyn DiskFile>,
    header: Result<SegmentHeader, Flaw>,
    bad_header: Option<u64>,
}

impl Inspection {
    pub(in super::super) fn of(
        disk: &dyn Disk,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, StoreError> {
        let tolerant = TolerantDisk::new(disk);
        let names = tolerant.list().map_err(|error| failed("the directory", &error))?;
        let has_manifest = names.iter().any(|name| name == manifest::NAME);
        let mut report = Report::default();
        let manifest_state = if has_manifest {
            read_manifest(&tolerant, &mut report)?
        } else {
            ManifestState::default()
        };
        let mut found = find_segments(&tolerant, &names)?;
        if found.is_empty() && !has_manifest {
            return Err(StoreError::Failed("there is no journal".into()));
        }
        if !has_manifest {
            let what =
                "it is missing: the loss of the newest segment, or of its end, would go unnoticed";
            report.add_finding(finding(manifest::NAME, 0, 0, FindingKind::Manifest, what));
        }
        let journal = journal_of(&found);
        let is_own = |number: u32, one: &Found| {
            one.header.is_ok_and(|head| head.number == number && Some(head.journal) == journal)
        };
        let newest_own = found.iter().rfind(|(number, one)| is_own(**number, one));
        let newest_own = newest_own.map(|(number, _)| *number);
        let newest = newest_own.unwrap_or(0).max(manifest_state.newest);
        // Without any valid header, every file counts.
        let newest = match newest_own {
            Some(_) => newest,
            None => found.keys().next_back().copied().unwrap_or(0).max(newest),
        };
        let mut strays = Vec::new();
        for number in found.range(newest + 1..).map(|(number, _)| *number).collect::<Vec<_>>() {
            let name = name_of(number);
            let what = "it is not a segment of this journal, although the log continues there";
            report.add_finding(finding(&name, 0, 0, FindingKind::Stray, what));
            strays.push(name);
            found.remove(&number);
        }
        let mut inspection = Self {
            report,
            manifest_state,
            has_manifest,
            chain: Vec::new(),
            strays,
            segments: Arc::default(),
            opening_index: Arc::new(Index::new(Arc::default())),
            readable_index: Arc::new(Index::new(Arc::default())),
        };
        inspection.opening_index = Arc::new(Index::new(Arc::clone(&inspection.segments)));
        inspection.link(found, newest, &is_own)?;
        inspection.read_log(&tolerant, progress)?;
        inspection.look_for_leftovers(&names);
        inspection.judge_all(progress);
        inspection.explain(&tolerant);
        Ok(inspection)
    }

    /// Orders the segments, from the oldest one in use.
    fn link(
        &mut self,
        mut found: BTreeMap<u32, Found>,
        newest: u32,
        is_own: &dyn Fn(u32, &Found) -> bool,
    ) -> Result<(), StoreError> {
        let headers: BTreeMap<u32, SegmentHeader> = found
            .iter()
            .filter(|(number, one)| is_own(**number, one))
            .filter_map(|(number, one)| Some((*number, one.header.ok()?)))
            .collect();
        let extent_of = |number: u32| match headers.get(&(number + 1)) {
            Some(next) => Extent::Sealed { end: next.previous_end, lsn: next.first_lsn },
            None if number == newest => {
                let closed = if self.manifest_state.newest == number {
                    self.manifest_state.closed_end
                } else {
                    0
                };
                Extent::Newest { closed_end: closed }
            }
            None => Extent::Open,
        };
        let mut oldest = found.keys().next().copied().unwrap_or(newest);
        if let Some((number, header)) = headers.last_key_value()
            && let Some(one) = found.get(number)
        {
            oldest = header.oldest;
            let segment = Segment::new(*header, Arc::clone(&one.file), HEADER_BYTES);
            walk(&segment, extent_of(*number), &mut |item| {
                if let SegmentItem::Frame(frame) = item
                    && frame.head.kind == FrameKind::Mark
                {
                    oldest = oldest.max(read_mark(frame.payload)?);
                }
                Ok(())
            })
            .map_err(|error| failed(&name_of(*number), &error))?;
        }
        // No segment has the number 0.
        for number in oldest.max(1)..=newest {
            let one = found.remove(&number);
            let segment = match (&one, headers.get(&number)) {
                (Some(one), Some(header)) => {
                    Some(Arc::new(Segment::new(*header, Arc::clone(&one.file), HEADER_BYTES)))
                }
                _ => None,
            };
            if segment.is_none() {
                let (kind, what) = unusable(number, one.as_ref());
                let mut finding = finding(&name_of(number), 0, 0, kind, &what);
                finding.segment = Some(number);
                self.report.add_finding(finding);
            }
            let bad_header = one.and_then(|one| one.bad_header).filter(|_| segment.is_some());
            if let Some(at) = bad_header {
                let which = if at == 0 { "the header" } else { "the copy of the header" };
                let what = format!("{which} is damaged; the other copy is intact");
                let bytes = HEADER_LENGTH as u64;
                self.report.add_finding(finding(
                    &name_of(number),
                    at,
                    bytes,
                    FindingKind::HeaderCopy,
                    &what,
                ));
            }
            self.chain.push(Link {
                number,
                segment,
                extent: extent_of(number),
                walked: SegmentWalk::default(),
                bad_header,
                side: Side::Absent,
            });
        }
        Ok(())
    }

    /// Reads all frames and side files.
    fn read_log(
        &mut self,
        disk: &dyn Disk,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), StoreError> {
        let total = self.chain.iter().map(Link::bytes).sum();
        let mut meter = Meter::new(Stage::Log, total, progress);
        let mut chain = std::mem::take(&mut self.chain);
        for link in &mut chain {
            let Some(segment) = link.segment.clone() else { continue };
            let failed = |error: io::Error| failed(&segment.name(), &error);
            let (side_file, items) = self.read_side(disk, link, &segment).map_err(failed)?;
            let mut compared = SideComparison::new(items);
            let totals = &mut self.report.totals;
            link.walked = walk(&segment, link.extent, &mut |item| {
                let SegmentItem::Frame(frame) = item else { return Ok(()) };
                let ops = prove_frame(&segment, frame)?;
                totals.frames += 1;
                totals.holes += u64::from(frame.head.kind == FrameKind::Hole);
                totals.records += ops.len() as u64;
                totals.log_bytes += frame.head.span();
                meter.add(frame.head.span());
                for (offset, op) in ops {
                    compared.next(offset, &op);
                    carry_out(&self.opening_index, op);
                }
                Ok(())
            })
            .map_err(failed)?;
            segment.set_end(link.walked.end);
            segment.seal();
            self.segments.insert(Arc::clone(&segment));
            totals.segments += 1;
            self.report_segment(link, &segment);
            self.report_side(link, side_file, &compared);
            drop(compared);
        }
        self.chain = chain;
        meter.end();
        let is_whole = self.chain.iter().all(|link| link.walked.gaps.is_empty());
        if is_whole && self.report.totals.holes == 0 {
            self.prove_sides(disk)?;
            self.readable_index = Arc::clone(&self.opening_index);
            return Ok(());
        }
        // If a part of the log is lost, side files have records that the log lacks.
        self.opening_index = Arc::new(self.replay(disk, false)?);
        let is_one = |link: &Link| link.walked.gaps.is_empty();
        self.readable_index = if self.chain.iter().all(is_one) {
            Arc::clone(&self.opening_index)
        } else {
            Arc::new(self.replay(disk, true)?)
        };
        Ok(())
    }

    /// Checks that side files have all live records. Opening would not find omitted ones.
    fn prove_sides(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let mut live: BTreeMap<u32, u64> = BTreeMap::new();
        self.opening_index
            .each(&mut |_, entry| *live.entry(entry.record.segment).or_default() += 1);
        for link in &mut self.chain {
            let Some(segment) = link.segment.as_ref().filter(|_| link.side == Side::Good) else {
                continue;
            };
            let mut listed = 0;
            side::replay(disk, segment, link.walked.end, &mut |found| {
                if let Op::Put { key, entry, .. } = found.op {
                    listed += u64::from(self.opening_index.get(key.as_bytes()) == Some(entry));
                }
            })
            .map_err(|error| failed(&segment.name(), &error))?
            .ok();
            let count = live.get(&link.number).copied().unwrap_or(0);
            if listed != count {
                link.side = Side::Bad;
                let name = side::name_of_side(link.number);
                let what = format!("it leaves out {} live records", count.saturating_sub(listed));
                self.report.add_finding(finding(&name, 0, 0, FindingKind::SideFileDiffers, &what));
            }
        }
        Ok(())
    }

    /// Reads the side file of a segment, if it has one. `Err` has the reason why it is unusable.
    fn read_side(
        &self,
        disk: &dyn Disk,
        link: &Link,
        segment: &Segment,
    ) -> io::Result<(Result<(), Flaw>, SideItems)> {
        let mut items = Vec::new();
        let end = match link.extent {
            Extent::Sealed { end, .. } => end,
            // The end is unknown, so the side file cannot be compared.
            Extent::Open => return Ok((Err(Flaw::Absent), items)),
            // An opening sealed the segment and ended there.
            Extent::Newest { .. } => return Ok((Err(Flaw::Absent), items)),
        };
        let side_file =
            side::items(disk, segment, end, &mut |offset, op| items.push((offset, op)))?;
        Ok((side_file, items))
    }

    /// Reports the damaged frames of a segment.
    fn report_segment(&mut self, link: &Link, segment: &Segment) {
        let name = segment.name();
        if let Some((from, to)) = link.walked.unfinished {
            let what = "the last write was not finished";
            let kind = FindingKind::UnfinishedWrite;
            self.report.add_finding(finding(&name, from, to - from, kind, what));
        }
        for gap in &link.walked.gaps {
            let (readable_record_count, are_all_readable) =
                readable_records(segment, gap, &mut |_| {});
            let what = format!("{}: {}", lsns(gap), gap.flaw);
            let mut finding =
                finding(&name, gap.from, gap.to - gap.from, FindingKind::Frames, &what);
            finding.segment = Some(link.number);
            finding.frames = Some(LostFrames {
                first_lsn: gap.first_lsn,
                last_lsn: gap.last_lsn,
                readable_record_count,
                are_all_readable,
            });
            self.report.add_finding(finding);
        }
    }

    /// Reports a damaged side file.
    fn report_side(
        &mut self,
        link: &mut Link,
        side_file: Result<(), Flaw>,
        compared: &SideComparison,
    ) {
        let name = side::name_of_side(link.number);
        match side_file {
            Err(Flaw::Absent) => {}
            Err(flaw) => {
                link.side = Side::Bad;
                let what = flaw.to_string();
                self.report.add_finding(finding(&name, 0, 0, FindingKind::SideFile, &what));
            }
            // A damaged segment contradicts its side file only through its readable records.
            Ok(()) if !link.walked.gaps.is_empty() || compared.agrees() => link.side = Side::Good,
            Ok(()) => {
                link.side = Side::Bad;
                let what = "its content differs from its segment";
                self.report.add_finding(finding(&name, 0, 0, FindingKind::SideFileDiffers, what));
            }
        }
    }

    /// Reads the log again like opening; `with_gaps` adds the readable records in its gaps.
    fn replay(&self, disk: &dyn Disk, with_gaps: bool) -> Result<Index, StoreError> {
        let index = Index::new(Arc::clone(&self.segments));
        for link in &self.chain {
            let Some(segment) = &link.segment else { continue };
            let failed = |error: io::Error| failed(&segment.name(), &error);
            // Repair removes the side file of a segment with gaps.
            if link.side == Side::Good && (with_gaps || link.walked.gaps.is_empty()) {
                side::replay(disk, segment, link.walked.end, &mut |op| carry_out(&index, op))
                    .map_err(failed)?
                    .ok();
            } else {
                replay_frames(segment, link.extent, &index, with_gaps).map_err(failed)?;
            }
        }
        Ok(index)
    }

    /// Counts the files that the next opening removes.
    fn look_for_leftovers(&mut self, names: &[String]) {
        let oldest = self.chain.first().map_or(0, |link| link.number);
        let is_left = |name: &&String| {
            log::is_spare(name)
                || name.ends_with(".draft")
                || number_of(name).is_some_and(|number| number < oldest)
                || side::segment_of(name).is_some_and(|number| number < oldest)
        };
        self.report.totals.leftover_files = names.iter().filter(is_left).count() as u64;
    }

    /// Judges every key.
    fn judge_all(&mut self, progress: &mut dyn FnMut(Progress)) {
        // Fails for a missing segment, which is reported already.
        self.opening_index.open_account().ok();
        let mut report = std::mem::take(&mut self.report);
        report.totals.live_bytes = self.opening_index.used_bytes();
        let mut meter = Meter::new(Stage::Records, report.totals.live_bytes, progress);
        self.each_verdict(&mut |key, judged, bytes| {
            meter.add(bytes);
            report.totals.live_keys += u64::from(bytes > 0);
            let Some(fate) = judged.fate else { return Ok(()) };
            let why = judged.flaw.as_ref().map(|(_, error)| error.to_string());
            if let Some((place, error)) = judged.flaw
                && self.gap_at(place).is_none()
                && self.segments.get(place.segment).is_some()
            {
                let offset = u64::from(place.offset);
                let kind = FindingKind::Record;
                let mut finding =
                    finding(&name_of(place.segment), offset, 0, kind, &reason(&error));
                finding.segment = Some(place.segment);
                report.add_finding(finding);
            }
            report.add_affected(Affected { key: *key, fate, reason: why.unwrap_or_default() });
            Ok(())
        })
        .unwrap_or_default();
        meter.end();
        self.report = report;
    }

    /// Passes the verdict on every key to `visit`, with the number of bytes read for it.
    pub(in super::super) fn each_verdict(
        &self,
        visit: &mut dyn FnMut(&Key, super::judge::JudgedKey, u64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let is_one = Arc::ptr_eq(&self.readable_index, &self.opening_index);
        let mut result = Ok(());
        self.readable_index.each(&mut |key, entry| {
            if result.is_err() {
                return;
            }
            let at_opening =
                if is_one { Some(*entry) } else { self.opening_index.get(key.as_bytes()) };
            let judged = self.judge(&key, Some(*entry), at_opening);
            let content = entry.content_length().map_or(0, |length| length as usize + CONTENT_HEAD);
            let bytes = u64::from(entry.record_bytes) + content as u64;
            result = visit(&key, judged, bytes);
        });
        if !is_one {
            self.opening_index.each(&mut |key, entry| {
                if result.is_ok() && self.readable_index.get(key.as_bytes()).is_none() {
                    result = visit(&key, self.judge(&key, None, Some(*entry)), 0);
                }
            });
        }
        result
    }

    /// The gap that contains a place.
    pub(in super::super) fn gap_at(&self, place: LogPosition) -> Option<&Gap> {
        let first = self.chain.first()?.number;
        let link = self.chain.get(place.segment.checked_sub(first)? as usize)?;
        let offset = u64::from(place.offset);
        link.walked.gaps.iter().find(|gap| (gap.from..gap.to).contains(&offset))
    }

    /// Adds read errors of the medium to the findings.
    fn explain(&mut self, disk: &TolerantDisk<'_>) {
        let unreadable = disk.unreadable();
        for finding in &mut self.report.findings {
            let end = finding.offset + finding.bytes.max(1);
            let cause = unreadable.iter().find(|place| {
                place.file == finding.file
                    && place.offset < end
                    && finding.offset < place.offset + place.bytes
            });
            if let Some(cause) = cause {
                let (error, at) = (&cause.error, cause.offset);
                finding.description.push_str(&format!("; byte {at} cannot be read: {error}"));
            }
        }
    }

    /// The value of a key, if it can be read.
    pub(in super::super) fn value(&self, key: &Key) -> Option<Vec<u8>> {
        [&self.readable_index, &self.opening_index].into_iter().find_map(|index| {
            let entry = index.get(key.as_bytes())?;
            self.segments.get(entry.record.segment)?.read_value(&entry, key.as_bytes()).ok()
        })
    }
}

impl Link {
    /// Number of bytes to read of the segment, about.
    fn bytes(&self) -> u64 {
        let length = || self.segment.as_ref().and_then(|segment| segment.file.length().ok());
        let end = match self.extent {
            Extent::Sealed { end, .. } => end,
            Extent::Newest { closed_end } if closed_end > 0 => closed_end,
            Extent::Open | Extent::Newest { .. } => length().unwrap_or(0),
        };
        end.saturating_sub(HEADER_BYTES)
    }
}

/// Compares a side file with its segment during the read of the segment.
struct SideComparison {
    items: std::iter::Peekable<std::vec::IntoIter<(u32, ReplayOp)>>,
    differs: bool,
    removals: u64,
    listed_removals: u64,
}

impl SideComparison {
    fn new(items: SideItems) -> Self {
        Self {
            items: items.into_iter().peekable(),
            differs: false,
            removals: 0,
            listed_removals: 0,
        }
    }

    fn next(&mut self, offset: u32, op: &ReplayOp) {
        self.removals += u64::from(op.is_removal());
        let Some((_, item)) = self.items.next_if(|(at, _)| *at == offset) else { return };
        self.listed_removals += u64::from(item.is_removal());
        self.differs |= item != *op;
    }

    /// Whether every item matches a record. The side file must have all removals, or none if there
    /// is no older segment.
    fn agrees(&self) -> bool {
        let is_used_up = self.items.len() == 0;
        let lists_removals = self.listed_removals == 0 || self.listed_removals == self.removals;
        is_used_up && lists_removals && !self.differs
    }
}

fn lsns(gap: &Gap) -> String {
    match gap.last_lsn {
        Some(last) if last <= gap.first_lsn => format!("frame {}", gap.first_lsn),
        Some(last) => format!("frames {} to {last}", gap.first_lsn),
        None => format!("frames from {} on", gap.first_lsn),
    }
}

fn finding(file: &str, offset: u64, bytes: u64, kind: FindingKind, what: &str) -> Finding {
    let (file, what) = (file.to_owned(), what.to_owned());
    Finding { file, offset, bytes, kind, description: what, segment: None, frames: None }
}

/// The reason in an error, without its position.
fn reason(error: &StoreError) -> String {
    let text = match error {
        StoreError::Damaged(text) | StoreError::Failed(text) => text.to_string(),
        other => other.to_string(),
    };
    text.split_once(": ").map_or(text.clone(), |(_, reason)| reason.to_owned())
}

fn failed(name: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{name} cannot be read: {error}").into())
}

//! The keeper: all maintenance, next to the committer and without delaying it.
//!
//! It keeps a spare segment ready, writes side files of sealed segments, frees dropped spaces in
//! slices, and releases the log from its oldest end: it has the records in use written again at the
//! end of the log, and releases the segment when none is left. Segments are released in order, so
//! that a removal is never lost while an older segment still has the removed record (decision 7).
//!
//! A thread or a test drives it, one step at a time. Only the committer writes to the log.

mod sweep;

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, PoisonError};

use super::disk::Disk;
use super::format::HEADER_BYTES;
use super::log::{Spare, Spares, make_sized_file};
use super::queue::{CommitJob, JobQueue, MoveReply};
use super::room::Room;
use super::segment::{Index, Segment, Segments};
use super::side;
use crate::{Shortage, StoreError};
use peeklock_store_log::{LogSegment as _, LogSizes};
use sweep::Sweep;

/// Number of records of dropped spaces that a step frees.
const REAPED_PER_STEP: usize = 4_096;
/// Maximum number of spares: files that are ready to become segments. Under a steady load, the
/// keeper releases about three segments together, whose files become spares. Just before that, the
/// log must still find a ready spare; together with it, there are four. Without a spare, the log
/// makes a new file, which is slower: the first write to each of its blocks makes a sync take 50 %
/// longer.
pub(super) const SPARES_MAX: usize = 4;
/// Maximum number of spares after the log has not grown for a while.
const SPARES_IN_QUIET: usize = 2;
/// Number of idle checks without growth after which surplus spares are removed.
const IDLE_CHECKS_IN_QUIET: u32 = 10;
/// Number of segments that a disk must hold in addition to its minimum of free space: the active
/// one, the previous one, and the next.
const SEGMENTS_ON_A_SMALL_DISK: u64 = 3;
/// Number of idle checks with enough room after which the end of a shortage is logged.
const CHECKS_WITH_ROOM: u32 = 10;
/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeeperProgress {
    /// There is no work.
    Idle,
    /// Work was done; there may be more.
    Worked,
    /// The committer must answer first.
    Waiting,
}

/// The parts of the journal that the keeper works on.
pub(super) struct KeeperParts {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) index: Arc<Index>,
    pub(super) segments: Arc<Segments>,
    pub(super) room: Arc<Room>,
    pub(super) queue: Arc<JobQueue>,
    pub(super) spares: Arc<Spares>,
    pub(super) segment_bytes: u64,
}

/// The keeper.
pub(super) struct Keeper {
    parts: KeeperParts,
    waiting: Option<(Receiver<MoveReply>, AfterAnswer)>,
    sweep: Option<Sweep>,
    spare_number: u64,
    /// A spare could not be made. The next idle check tries again.
    no_spare: bool,
    /// Whether the failure was logged.
    has_logged_no_spare: bool,
    /// The last sweep found no records to write, although its segment is in use: by parts of a
    /// large content whose batch is still to come. The next idle check tries again.
    waits_for_idle_check: bool,
    /// A segment that cannot be released, because a part cannot be read.
    stuck: Option<u32>,
    /// Number of the segment that was the newest sealed one at the last idle check.
    newest_at_idle_check: u32,
    /// Number of idle checks during which no newer segment was sealed.
    idle_checks: u32,
    /// Whether a warning that new messages are refused was logged, and no end of the shortage yet.
    is_short: bool,
    /// Number of idle checks with room since then.
    checks_with_room: u32,
}

/// The action after an answer of the committer.
enum AfterAnswer {
    /// The sweep continues.
    Sweep,
    /// The segments below this one are released.
    Release(u32),
    /// The side file of this segment gets its name.
    Publish(Arc<Segment>),
}

impl Keeper {
    pub(super) const fn new(parts: KeeperParts) -> Self {
        Self {
            parts,
            waiting: None,
            sweep: None,
            spare_number: 0,
            no_spare: false,
            has_logged_no_spare: false,
            waits_for_idle_check: false,
            stuck: None,
            newest_at_idle_check: 0,
            idle_checks: 0,
            is_short: false,
            checks_with_room: 0,
        }
    }

    /// Runs one step.
    pub(super) fn step(&mut self) -> KeeperProgress {
        if self.parts.queue.ended().is_some() {
            return KeeperProgress::Idle;
        }
        if let Some((answer, _)) = &self.waiting {
            let reply = match answer.try_recv() {
                Ok(reply) => reply,
                Err(TryRecvError::Empty) => return KeeperProgress::Waiting,
                // The channel closes when the journal ends.
                Err(TryRecvError::Disconnected) => return KeeperProgress::Idle,
            };
            if let Some((_, then)) = self.waiting.take() {
                self.handle_answer(reply, then);
            }
            return KeeperProgress::Worked;
        }
        if self.parts.index.reap(REAPED_PER_STEP) {
            return KeeperProgress::Worked;
        }
        // A released segment may become the spare.
        if self.post_release() || self.make_spare() || self.write_side() || self.clean() {
            return if self.waiting.is_some() {
                KeeperProgress::Waiting
            } else {
                KeeperProgress::Worked
            };
        }
        self.report_shortage();
        KeeperProgress::Idle
    }

    /// Checks the disk and the spares. Called while the keeper is idle.
    pub(super) fn check_idle(&mut self) {
        self.no_spare = false;
        self.waits_for_idle_check = false;
        let newest = self.newest_sealed();
        self.idle_checks = if newest == self.newest_at_idle_check {
            self.idle_checks.saturating_add(1)
        } else {
            0
        };
        self.newest_at_idle_check = newest;
        if self.parts.room.is_tight() {
            self.remove_spares(1);
        } else if self.idle_checks >= IDLE_CHECKS_IN_QUIET {
            self.remove_spares(SPARES_IN_QUIET);
        }
        self.note_free();
        if self.is_short {
            self.checks_with_room = self.checks_with_room.saturating_add(1);
        }
        self.report_shortage();
        // Deletions restore capacity without a signal, so the wakers are called here.
        if !self.parts.room.is_tight() {
            self.parts.room.wake();
        }
    }

    fn note_free(&self) {
        match self.parts.disk.free_bytes() {
            Ok(free) => self.parts.room.set_free(free),
            Err(error) => tracing::warn!(%error, "cannot determine the free space"),
        }
    }

    /// Logs that new messages are refused, and that they are accepted again (QUO-05).
    fn report_shortage(&mut self) {
        match self.parts.room.shortage(Shortage::PROBE_BYTES) {
            Some(shortage) => {
                self.checks_with_room = 0;
                if !std::mem::replace(&mut self.is_short, true) {
                    tracing::warn!(
                        "new messages are refused, everything else continues: {shortage}; {}",
                        shortage.remedy()
                    );
                }
            }
            None if self.is_short && self.checks_with_room >= CHECKS_WITH_ROOM => {
                self.is_short = false;
                tracing::info!("the store has space again; new messages are accepted");
            }
            None => {}
        }
    }

    /// Warns of a disk on which the log cannot grow, even after all messages are received or
    /// purged.
    pub(super) fn warn_of_a_small_disk(&self) {
        let (floor, segment) = (self.parts.room.free_bytes_min(), self.parts.segment_bytes);
        let needed = floor.saturating_add(SEGMENTS_ON_A_SMALL_DISK * segment);
        let Ok(free) = self.parts.disk.free_bytes() else { return };
        let taken: u64 = self.file_bytes().sum();
        if free.saturating_add(taken) >= needed {
            return;
        }
        let directory = self.parts.disk.path().unwrap_or_else(|| "journal".into());
        tracing::warn!(
            "the disk of `{directory}` is too small: {free} bytes are free and {taken} are used by \
             the log, but these settings need {needed}: `journal.free_bytes_min` ({floor}) and \
             three times `journal.segment_bytes` ({segment}); use a larger disk, or lower both \
             settings, the first to at least four times the second"
        );
    }

    /// Sizes of all segment files.
    fn file_bytes(&self) -> impl Iterator<Item = u64> {
        self.parts
            .segments
            .all()
            .into_iter()
            .map(|one| one.file.length().unwrap_or_else(|_| one.end()))
    }

    fn handle_answer(&mut self, reply: MoveReply, then: AfterAnswer) {
        match then {
            AfterAnswer::Sweep => {
                if let Some(sweep) = &mut self.sweep {
                    sweep.handle_answer(reply);
                }
            }
            AfterAnswer::Release(oldest) => self.release_below(oldest),
            AfterAnswer::Publish(segment) => {
                if let Err(error) = side::publish(&*self.parts.disk, segment.number()) {
                    tracing::warn!(segment = segment.number(), %error, "could not publish a side \
                        file");
                }
                segment.note_side();
            }
        }
    }

    /// Sends a job to the committer.
    fn post(
        &mut self,
        then: AfterAnswer,
        job: impl FnOnce(std::sync::mpsc::Sender<MoveReply>) -> CommitJob,
    ) {
        let (answer, answered) = channel();
        // An ended journal drops the job, and so the other end of the channel.
        self.parts.queue.push(job(answer)).ok();
        self.waiting = Some((answered, then));
    }

    /// Makes a spare if there is none.
    fn make_spare(&mut self) -> bool {
        if self.spare_count() > 0 || self.no_spare {
            return false;
        }
        self.spare_number += 1;
        let name = format!("spare-k{:09}.log", self.spare_number);
        match make_sized_file(&*self.parts.disk, &name, self.parts.segment_bytes) {
            Ok(spare) => {
                self.has_logged_no_spare = false;
                self.keep(spare);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_logged_no_spare, true) {
                    tracing::warn!(%error, "no space for a spare segment; sends are refused");
                }
                self.no_spare = true;
                self.note_free();
            }
        }
        true
    }

    fn spare_count(&self) -> usize {
        self.parts.spares.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Removes surplus spares at the end.
    pub(super) fn close(&self) {
        self.remove_spares(SPARES_IN_QUIET);
    }

    /// Removes all spares but `kept`.
    fn remove_spares(&self, kept: usize) {
        let mut spares = self.parts.spares.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = spares.len().saturating_sub(kept);
        let surplus: Vec<Spare> = spares.drain(..surplus).collect();
        drop(spares);
        for spare in surplus {
            if let Err(error) = self.parts.disk.remove(&spare.name) {
                // The next opening removes it.
                tracing::warn!(%error, "could not remove a spare segment");
            }
        }
    }

    fn keep(&self, spare: Spare) {
        self.parts.spares.lock().unwrap_or_else(PoisonError::into_inner).push(spare);
        self.note_free();
    }

    /// Prepares the release of the oldest segments, if they have nothing in use: requests a mark
    /// with the new oldest segment. [`Self::release_below`] follows when the mark is durable.
    fn post_release(&mut self) -> bool {
        let mut oldest = None;
        for segment in self.parts.segments.all() {
            if !segment.is_sealed() || segment.uses() > 0 {
                break;
            }
            oldest = Some(segment.number() + 1);
        }
        let Some(oldest) = oldest else { return false };
        // Later frames made them unused; the mark makes those frames durable too.
        self.post(AfterAnswer::Release(oldest), |answer| CommitJob::Mark(Some(oldest), answer));
        true
    }

    fn release_below(&mut self, oldest: u32) {
        self.end_sweep();
        for segment in self.parts.segments.all() {
            if segment.number() >= oldest {
                break;
            }
            self.parts.segments.remove(segment.number());
            let released = side::remove(&*self.parts.disk, segment.number())
                .and_then(|()| self.recycle(segment));
            if let Err(error) = released {
                // The segment is unused; the next opening removes it.
                tracing::warn!(%error, "could not remove a segment");
            }
        }
        self.note_free();
    }

    /// Removes the file of a segment, or makes it a spare if one is wanted: its blocks are written
    /// already, which makes the first sync of each cheaper.
    fn recycle(&mut self, segment: Arc<Segment>) -> std::io::Result<()> {
        let name = segment.name();
        // One spare is enough on a full disk.
        let wanted = if self.parts.room.is_tight() { 1 } else { SPARES_MAX };
        let is_wanted = self.spare_count() < wanted;
        let fits = segment.file.length()? == self.parts.segment_bytes;
        // A reader may still use a content of the segment.
        let Some(Segment { file, .. }) = Arc::into_inner(segment).filter(|_| is_wanted && fits)
        else {
            return self.parts.disk.remove(&name);
        };
        self.spare_number += 1;
        let spare = format!("spare-k{:09}.log", self.spare_number);
        self.parts.disk.rename(&name, &spare)?;
        // Before the header is overwritten: no file may have the old name and a new header.
        self.parts.disk.sync()?;
        self.keep(Spare { name: spare, file, bytes: self.parts.segment_bytes });
        Ok(())
    }

    /// Writes the side file of a sealed segment, and releases its unused space.
    fn write_side(&mut self) -> bool {
        let all = self.parts.segments.all();
        // Most records of the newest segment are removed before the next one is full, so its side
        // file would be of little use.
        let newest = self.newest_sealed();
        let is_young =
            |one: &Segment| one.number() == newest && newest != self.newest_at_idle_check;
        let Some((place, segment)) = all.iter().enumerate().find(|(_, one)| {
            one.is_sealed() && !one.has_side() && one.uses() > 0 && !is_young(one)
        }) else {
            return false;
        };
        let (disk, index) = (&*self.parts.disk, &self.parts.index);
        if let Err(error) = segment.trim(self.parts.segment_bytes / 8) {
            tracing::debug!(%error, "could not trim a sealed segment");
        }
        match side::draft(disk, segment, index, place == 0) {
            Ok(()) => {
                let segment = Arc::clone(segment);
                self.post(AfterAnswer::Publish(segment), |answer| CommitJob::Mark(None, answer));
            }
            Err(error) => {
                // Opening then reads the segment itself.
                tracing::warn!(segment = segment.number(), %error, "could not create a side file");
                segment.note_side();
            }
        }
        true
    }

    fn newest_sealed(&self) -> u32 {
        let all = self.parts.segments.all();
        all.iter().rev().find(|one| one.is_sealed()).map_or(0, |one| one.number())
    }

    /// The sizes that decide about cleaning.
    fn sizes(&self) -> LogSizes {
        let segments = self.parts.segments.all();
        let written = |one: &Segment| one.end().saturating_sub(HEADER_BYTES);
        let sealed = segments.iter().filter(|segment| segment.is_sealed());
        LogSizes {
            segment_bytes: self.parts.segment_bytes,
            segment_count: segments.len() as u64,
            written: segments.iter().map(|one| written(one)).sum(),
            sealed: sealed.map(|one| written(one)).sum(),
            used: self.parts.index.used_bytes(),
            is_tight: self.parts.room.is_tight(),
        }
    }

    /// Writes the records in use of the oldest segment again, a piece at a time.
    fn clean(&mut self) -> bool {
        let oldest = self.parts.segments.oldest().filter(|segment| segment.is_sealed());
        let Some(oldest) = oldest.filter(|segment| self.stuck != Some(segment.number())) else {
            return false;
        };
        let sizes = self.sizes();
        if self.waits_for_idle_check || (self.sweep.is_none() && !sizes.is_due()) {
            return false;
        }
        let move_bytes = sizes.move_bytes();
        let index_is_small = self.parts.index.used_bytes() < oldest.end();
        let sweep =
            self.sweep.get_or_insert_with(|| Sweep::of(Arc::clone(&oldest), index_is_small));
        match sweep.next(&self.parts.index, &self.parts.segments, move_bytes) {
            Ok(sweep::SweepAction::Post(job)) => self.post(AfterAnswer::Sweep, job),
            Ok(sweep::SweepAction::Continue) => {}
            // A later sweep finds the records that were added meanwhile, if one is still due.
            Ok(sweep::SweepAction::End) => {
                self.waits_for_idle_check = !sweep.has_found();
                self.end_sweep();
            }
            Err(error) => self.stop_cleaning(&oldest, &error),
        }
        true
    }

    /// Stops cleaning, because a part of the segment cannot be read. The segment and all later ones
    /// stay: acknowledged data is never released.
    fn stop_cleaning(&mut self, segment: &Segment, error: &StoreError) {
        tracing::error!(%error, "disk space of the log can no longer be reclaimed: `peeklock \
            verify` shows the damage");
        self.stuck = Some(segment.number());
        self.end_sweep();
    }

    /// Ends a sweep at any point, and releases parts that it wrote for nothing.
    fn end_sweep(&mut self) {
        for place in self.sweep.take().into_iter().flat_map(Sweep::abandon) {
            if let Some(segment) = self.parts.segments.get(place.segment) {
                segment.end_use();
            }
        }
    }
}

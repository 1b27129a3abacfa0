//! The keeper: everything that must be done some time, beside the committer and never in its way.
//!
//! It keeps a spare segment ready, writes side files of sealed ones, frees dropped spaces in slices,
//! and gives the log back from its oldest end: what is still needed there is written again at the end
//! of the log, and the segment goes when nothing is. Segments go in their order, so that a removal is
//! never forgotten while an older segment still has what it removed (decision 7).
//!
//! One step at a time, by a thread or a test. Only the committer writes to the log.

mod sweep;

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, PoisonError};

use super::disk::Disk;
use super::format::HEADER_BYTES;
use super::index::Index;
use super::log::{Spare, Spares, make_spare};
use super::queue::{Job, MoveReply, Queue};
use super::room::Room;
use super::segment::{Segment, Segments};
use super::side;
use crate::{Shortage, StoreError};
use sweep::Sweep;

/// Records of dropped spaces that one step frees.
const REAPED_PER_STEP: usize = 4_096;
/// Files that are kept ready to become segments: as many as are given up together under a steady load,
/// and the one that is ready by then, so that no new one is ever made. The first write to each block of
/// a new file makes a sync half as long again.
pub(super) const SPARES_MAX: usize = 4;
/// Files that are kept when the log has not grown for a while.
const SPARES_IN_QUIET: usize = 2;
/// So often must the keeper have looked around meanwhile.
const LOOKS_IN_QUIET: u32 = 10;
/// Segments that a disk must hold next to its floor: the one that is written, the one before it, and the next.
const SEGMENTS_ON_A_SMALL_DISK: u64 = 3;
/// A disk that was full has had room in so many looks before that is logged.
const LOOKS_WITH_ROOM: u32 = 10;
/// So few segments are left alone: two that are written and read, and what a restart leaves.
const SEGMENTS_MIN: u64 = 3;

/// On a full disk one part in so many of the log may be garbage.
const TIGHT_GARBAGE_PART: u64 = 8;
/// On a full disk segments are written again if that frees at least this part of one.
const WORTHWHILE_PART: u64 = 4;
/// So many times what is needed may the segments hold.
const SPARSE_FACTOR: u64 = 4;

/// What a step has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing is to be done.
    Idle,
    /// Something; there may be more.
    Did,
    /// The committer has to answer first.
    Waiting,
}

/// What the keeper works on.
pub(super) struct KeeperParts {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) index: Arc<Index>,
    pub(super) segments: Arc<Segments>,
    pub(super) room: Arc<Room>,
    pub(super) queue: Arc<Queue>,
    pub(super) spares: Arc<Spares>,
    pub(super) segment_bytes: u64,
}

/// The keeper.
pub(super) struct Keeper {
    parts: KeeperParts,
    waiting: Option<(Receiver<MoveReply>, Then)>,
    sweep: Option<Sweep>,
    spare_number: u64,
    /// A spare could not be made; it is tried again when the keeper is idle next time.
    no_spare: bool,
    /// That was said.
    told_no_spare: bool,
    /// A sweep found nothing to write, and yet the segment is needed: by a content whose batch is to
    /// come. It is tried again when the keeper is idle next time.
    is_resting: bool,
    /// What cannot be given up: something of it cannot be read.
    stuck: Option<u32>,
    /// The newest segment that was sealed when the keeper was idle last.
    sealed_in_quiet: u32,
    /// How often it has looked around since.
    looks: u32,
    /// Whether the log has said that new messages are refused.
    is_short: bool,
    /// Looks since then that found room.
    looks_with_room: u32,
}

/// What follows when the committer has answered.
enum Then {
    /// The sweep goes on.
    Sweep,
    /// The segments below this one go.
    Retire(u32),
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
            told_no_spare: false,
            is_resting: false,
            stuck: None,
            sealed_in_quiet: 0,
            looks: 0,
            is_short: false,
            looks_with_room: 0,
        }
    }

    /// Does one thing.
    pub(super) fn step(&mut self) -> Step {
        if self.parts.queue.ended().is_some() {
            return Step::Idle;
        }
        if let Some((answer, _)) = &self.waiting {
            let reply = match answer.try_recv() {
                Ok(reply) => reply,
                Err(TryRecvError::Empty) => return Step::Waiting,
                // The journal has ended.
                Err(TryRecvError::Disconnected) => return Step::Idle,
            };
            if let Some((_, then)) = self.waiting.take() {
                self.go_on(reply, then);
            }
            return Step::Did;
        }
        if self.parts.index.reap(REAPED_PER_STEP) {
            return Step::Did;
        }
        // What is given up may become the spare.
        if self.retire() || self.make_spare() || self.write_side() || self.clean() {
            return if self.waiting.is_some() { Step::Waiting } else { Step::Did };
        }
        self.report_shortage();
        Step::Idle
    }

    /// Looks at the disk again, as often as the keeper has nothing to do.
    pub(super) fn look_around(&mut self) {
        self.no_spare = false;
        self.is_resting = false;
        let newest = self.newest_sealed();
        self.looks = if newest == self.sealed_in_quiet { self.looks.saturating_add(1) } else { 0 };
        self.sealed_in_quiet = newest;
        if self.parts.room.is_tight() {
            self.give_back_spares(1);
        } else if self.looks >= LOOKS_IN_QUIET {
            self.give_back_spares(SPARES_IN_QUIET);
        }
        self.note_free();
        if self.is_short {
            self.looks_with_room = self.looks_with_room.saturating_add(1);
        }
        self.report_shortage();
        // Nobody is called for good when capacity comes back by deletions alone.
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
                self.looks_with_room = 0;
                if !std::mem::replace(&mut self.is_short, true) {
                    tracing::warn!(
                        "new messages are refused, everything else continues: {shortage}; {}",
                        shortage.remedy()
                    );
                }
            }
            None if self.is_short && self.looks_with_room >= LOOKS_WITH_ROOM => {
                self.is_short = false;
                tracing::info!("the store has space again; new messages are accepted");
            }
            None => {}
        }
    }

    /// Warns of a disk on which the log cannot grow, whatever is received and purged.
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

    /// Sizes of the files of all segments.
    fn file_bytes(&self) -> impl Iterator<Item = u64> {
        self.parts
            .segments
            .all()
            .into_iter()
            .map(|one| one.file.length().unwrap_or_else(|_| one.end()))
    }

    fn go_on(&mut self, reply: MoveReply, then: Then) {
        match then {
            Then::Sweep => {
                if let Some(sweep) = &mut self.sweep {
                    sweep.answered(reply);
                }
            }
            Then::Retire(oldest) => self.give_up_below(oldest),
            Then::Publish(segment) => {
                if let Err(error) = side::publish(&*self.parts.disk, segment.number()) {
                    tracing::warn!(segment = segment.number(), %error, "could not publish a side \
                        file");
                }
                segment.note_side();
            }
        }
    }

    /// Hands a job to the committer.
    fn post(&mut self, then: Then, job: impl FnOnce(std::sync::mpsc::Sender<MoveReply>) -> Job) {
        let (answer, answered) = channel();
        // An ended journal drops the job, and with it the other end of the channel.
        self.parts.queue.push(job(answer)).ok();
        self.waiting = Some((answered, then));
    }

    /// Keeps a file ready that becomes the next segment.
    fn make_spare(&mut self) -> bool {
        if self.spare_count() > 0 || self.no_spare {
            return false;
        }
        self.spare_number += 1;
        let name = format!("spare-k{:09}.log", self.spare_number);
        match make_spare(&*self.parts.disk, &name, self.parts.segment_bytes) {
            Ok(spare) => {
                self.told_no_spare = false;
                self.keep(spare);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.told_no_spare, true) {
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

    /// Ends in order: no more files are left behind than in quiet times.
    pub(super) fn close(&self) {
        self.give_back_spares(SPARES_IN_QUIET);
    }

    /// Removes spares but for so many.
    fn give_back_spares(&self, kept: usize) {
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

    /// Gives up the oldest segments as long as nothing of them is needed.
    fn retire(&mut self) -> bool {
        let mut oldest = None;
        for segment in self.parts.segments.all() {
            if !segment.is_sealed() || segment.needed() > 0 {
                break;
            }
            oldest = Some(segment.number() + 1);
        }
        let Some(oldest) = oldest else { return false };
        // That they are not needed rests on what was written since; the mark makes that durable too.
        self.post(Then::Retire(oldest), |answer| Job::Mark(Some(oldest), answer));
        true
    }

    fn give_up_below(&mut self, oldest: u32) {
        self.end_sweep();
        for segment in self.parts.segments.all() {
            if segment.number() >= oldest {
                break;
            }
            self.parts.segments.remove(segment.number());
            let given_up = side::remove(&*self.parts.disk, segment.number())
                .and_then(|()| self.recycle(segment));
            if let Err(error) = given_up {
                // It is not needed; the next opening removes what is left of it.
                tracing::warn!(%error, "could not remove a segment");
            }
        }
        self.note_free();
    }

    /// Removes the file of a segment, or makes it the spare if that is wanted: its blocks are written
    /// already, which makes the first sync of each cheaper.
    fn recycle(&mut self, segment: Arc<Segment>) -> std::io::Result<()> {
        let name = segment.name();
        // On a full disk one is enough.
        let wanted = if self.parts.room.is_tight() { 1 } else { SPARES_MAX };
        let is_wanted = self.spare_count() < wanted;
        let fits = segment.file.length()? == self.parts.segment_bytes;
        // Somebody may still read a content of it.
        let Some(Segment { file, .. }) = Arc::into_inner(segment).filter(|_| is_wanted && fits)
        else {
            return self.parts.disk.remove(&name);
        };
        self.spare_number += 1;
        let spare = format!("spare-k{:09}.log", self.spare_number);
        self.parts.disk.rename(&name, &spare)?;
        // Before its head is written over: no file may have the old name and a new head.
        self.parts.disk.sync()?;
        self.keep(Spare { name: spare, file, bytes: self.parts.segment_bytes });
        Ok(())
    }

    /// Writes the side file of a sealed segment, and frees what the segment took and did not use.
    fn write_side(&mut self) -> bool {
        let all = self.parts.segments.all();
        // The newest mostly dies before the next is full: its side file would be written for nothing.
        let newest = self.newest_sealed();
        let is_young = |one: &Segment| one.number() == newest && newest != self.sealed_in_quiet;
        let Some((place, segment)) = all.iter().enumerate().find(|(_, one)| {
            one.is_sealed() && !one.has_side() && one.needed() > 0 && !is_young(one)
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
                self.post(Then::Publish(segment), |answer| Job::Mark(None, answer));
            }
            Err(error) => {
                // Opening reads the segment itself then.
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

    /// Whether the log holds more garbage than it may. Garbage is what was written and is needed no
    /// more; that a segment has a head and ends where the next frame did not fit is not: writing again
    /// would not free it, and would never end.
    fn is_due(&self) -> bool {
        let segment_bytes = self.parts.segment_bytes;
        let (count, written) = (self.parts.segments.count() as u64, self.written());
        let needed = self.parts.index.needed_bytes();
        let garbage = written.saturating_sub(needed);
        if self.parts.room.is_tight() {
            // Frames have heads: what was moved once must not be moved again for those.
            let garbage_max = (2 * segment_bytes).max(written / TIGHT_GARBAGE_PART);
            return (count > 2 && garbage > garbage_max) || self.is_worthwhile();
        }
        // Restarts leave segments with little in them: files that are mostly not there count too.
        let is_sparse = count * segment_bytes > needed.saturating_mul(SPARSE_FACTOR);
        count > SEGMENTS_MIN && (garbage > written / 2 || is_sparse)
    }

    /// Whether writing all sealed segments again, however few there are, makes the log smaller by a good part of a
    /// segment. A small disk, on which garbage of two segments never comes together, gets its room back by that.
    fn is_worthwhile(&self) -> bool {
        let segments = self.parts.segments.all();
        let sealed = segments.iter().filter(|segment| segment.is_sealed());
        let written: u64 = sealed.map(|one| one.end().saturating_sub(HEADER_BYTES)).sum();
        let needed = self.parts.index.needed_bytes();
        // Frames have heads, so that more is written again than is needed.
        let moved = needed + needed / (TIGHT_GARBAGE_PART - 1);
        written > moved + self.parts.segment_bytes / WORTHWHILE_PART
    }

    /// How much is written again at a time: the more, the longer the log is beyond what it may be. At
    /// most as much as a group of batches, so that cleaning keeps up with any load.
    fn move_bytes(&self) -> usize {
        let (written, needed) = (self.written(), self.parts.index.needed_bytes());
        let beyond = written.saturating_sub(needed.saturating_mul(2)) * 8 / needed.max(1);
        match beyond {
            0 | 1 => 256 << 10,
            2 | 3 => 1 << 20,
            _ => 4 << 20,
        }
    }

    /// Bytes in all segments but for their heads.
    fn written(&self) -> u64 {
        let segments = self.parts.segments.all();
        segments.iter().map(|segment| segment.end().saturating_sub(HEADER_BYTES)).sum()
    }

    /// Writes again what is still needed of the oldest segment, a piece at a time.
    fn clean(&mut self) -> bool {
        let oldest = self.parts.segments.oldest().filter(|segment| segment.is_sealed());
        let Some(oldest) = oldest.filter(|segment| self.stuck != Some(segment.number())) else {
            return false;
        };
        if self.is_resting || (self.sweep.is_none() && !self.is_due()) {
            return false;
        }
        let move_bytes = self.move_bytes();
        let index_is_small = self.parts.index.needed_bytes() < oldest.end();
        let sweep =
            self.sweep.get_or_insert_with(|| Sweep::of(Arc::clone(&oldest), index_is_small));
        match sweep.next(&self.parts.index, &self.parts.segments, move_bytes) {
            Ok(sweep::Next::Post(job)) => self.post(Then::Sweep, job),
            Ok(sweep::Next::Looked) => {}
            // What came meanwhile is found by another sweep, if that is still due.
            Ok(sweep::Next::End) => {
                self.is_resting = !sweep.has_found();
                self.end_sweep();
            }
            Err(error) => self.give_in(&oldest, &error),
        }
        true
    }

    /// Something of the segment cannot be read. It stays, and with it all behind it: nothing that
    /// was acknowledged is given up.
    fn give_in(&mut self, segment: &Segment, error: &StoreError) {
        tracing::error!(%error, "disk space of the log can no longer be reclaimed: `peeklock \
            verify` shows the damage");
        self.stuck = Some(segment.number());
        self.end_sweep();
    }

    /// Ends a sweep, wherever it is. Parts that it has written for nothing are not held any more.
    fn end_sweep(&mut self) {
        for place in self.sweep.take().into_iter().flat_map(Sweep::abandon) {
            if let Some(segment) = self.parts.segments.get(place.segment) {
                segment.release();
            }
        }
    }
}

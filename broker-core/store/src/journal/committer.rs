//! The committer: writes all submitted batches as one group, syncs once, applies the group to the
//! index and completes its batches (DESIGN D12).
//!
//! It owns the end of the log. Its thread drives it, a submitter that leads (see [`lead`]), or a
//! test.
//!
//! ```text
//!  moved records first │ parts of large contents │ batches in the order of their shards
//!  ───────────────────────────── one write, one sync ─────────────────────────────────►
//!  index, reservations, completions
//! ```
//!
//! While another thread writes and syncs a large group, the committer encodes the next one (see
//! [`group_write`]). For a small group, the switch to another thread and back costs too much.
//!
//! Moved records come first in a group because the index is exact at that point: the committer
//! checks whether a record is still current while no other operation of the group can touch its
//! key, and while no group is being written.
//!
//! [`group_write`]: super::group_write
//! [`lead`]: super::lead

mod encode;
mod large;
mod moved;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::format::LogPosition;
use super::group_write::GroupWriter;
use super::log::Log;
use super::queue::{Amendment, CommitJob, JobQueue, Move, MoveReply};
use super::room::Room;
use super::segment::{Index, Segment, Segments, missing};
use crate::{
    Batch, BatchId, Completion, ContentOp, Expectation, Fence, Record, Shard, StoreError,
    Submission,
};
use large::{LargeWrite, PART_BYTES_PER_GROUP, is_large};
use peeklock_store_log::{LogSegment as _, PendingOps};

/// Bytes at which a group is written, even if more jobs are waiting.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Number of records from which another thread writes the group, while the next one is encoded.
const BACKGROUND_RECORDS_MIN: usize = 16;

/// Encodes groups and completes their batches.
pub(super) struct Committer {
    log: Log,
    queue: Arc<JobQueue>,
    index: Arc<Index>,
    segments: Arc<Segments>,
    room: Arc<Room>,
    shards: Vec<ShardState>,
    /// Large contents that are written before their batches, in turn.
    large: VecDeque<LargeWrite>,
    group: Group,
    /// The group that is being written, or is written and not concluded yet.
    writing: Group,
    /// The group that is written after `writing`.
    waiting: Group,
    /// Number of groups in `writing` and `waiting`.
    pending_writes: usize,
    /// Number of records from which the group is written in the background.
    background_records_min: usize,
    /// Jobs that are not processed yet. They are here so that a failure in the middle can answer
    /// all of them.
    jobs: VecDeque<CommitJob>,
    has_answered: bool,
    has_sealed: bool,
}

#[derive(Default)]
struct ShardState {
    epoch: u64,
    /// The highest id in a group.
    last: u64,
    /// Submissions after one whose large contents are being written.
    waiting: VecDeque<(Submission, Completion)>,
    is_writing_large: bool,
}

/// Operations that are written together.
#[derive(Default)]
struct Group {
    ops: PendingOps,
    done: VecDeque<Done>,
    moves: Vec<(Sender<MoveReply>, MoveReply)>,
    /// Parts that the operations use. Their segments are held until the group is concluded.
    used_parts: Vec<LogPosition>,
    /// Segments that became full, to seal with the group.
    rolled: Vec<Arc<Segment>>,
    /// Bytes of large contents that were written before their batches.
    part_bytes: usize,
    must_sync: bool,
}

struct Done {
    completion: Completion,
    result: Result<(), StoreError>,
    reserved: u64,
}

impl Committer {
    pub(super) fn new(
        log: Log,
        queue: Arc<JobQueue>,
        index: Arc<Index>,
        segments: Arc<Segments>,
        room: Arc<Room>,
        shard_count: u16,
    ) -> Self {
        Self {
            log,
            queue,
            index,
            segments,
            room,
            shards: (0..shard_count).map(|_| ShardState::default()).collect(),
            large: VecDeque::new(),
            group: Group::default(),
            writing: Group::default(),
            waiting: Group::default(),
            pending_writes: 0,
            background_records_min: BACKGROUND_RECORDS_MIN,
            jobs: VecDeque::new(),
            has_answered: false,
            has_sealed: true,
        }
    }

    /// Makes a thread write large groups.
    pub(super) fn set_writer(&mut self, writer: GroupWriter) {
        self.log.set_writer(writer);
    }

    /// Sets the number of records from which groups are written in the background.
    #[cfg(feature = "testing")]
    pub(super) const fn set_background_records_min(&mut self, records: usize) {
        self.background_records_min = records;
    }

    /// Whether the committer has work even without a new job: parts of large contents, if the group
    /// that takes them has room for more.
    pub(super) fn is_busy(&self) -> bool {
        // A group that waits for the writer takes further parts: it is taken back for them.
        let group = if self.pending_writes > 1 { &self.waiting } else { &self.group };
        !self.large.is_empty() && group.part_bytes < PART_BYTES_PER_GROUP
    }

    /// Whether it has nothing to do, so that a submitter may drive it.
    pub(super) fn is_idle(&self) -> bool {
        self.pending_writes == 0 && self.large.is_empty() && self.jobs.is_empty()
    }

    /// Whether the active segment has room for a small batch. If not, the batch begins a segment,
    /// which takes several syncs.
    pub(super) fn has_room(&self) -> bool {
        self.log.has_room()
    }

    /// Whether large contents are being written.
    pub(super) fn is_writing_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// Continues with large contents after the queue was closed.
    pub(super) fn finish_large(&mut self) {
        if let Err(error) = self.commit() {
            self.poison(&error);
        }
        self.turn(VecDeque::new());
    }

    /// Whether a group is being written in the background.
    pub(super) const fn has_pending_writes(&self) -> bool {
        self.pending_writes > 0
    }

    /// Whether written data is not synced yet.
    pub(super) const fn is_unsynced(&self) -> bool {
        self.pending_writes == 0 && self.log.is_unsynced()
    }

    /// Whether written data has no mark after it yet.
    pub(super) const fn is_unmarked(&self) -> bool {
        self.log.is_unmarked()
    }

    /// Takes these jobs, and writes. A failure ends the journal: all waiting and later submissions
    /// fail, and nothing is retried.
    pub(super) fn turn(&mut self, jobs: VecDeque<CommitJob>) {
        self.jobs.extend(jobs);
        if let Some(error) = self.queue.ended() {
            // Nothing is written after a failure.
            self.poison(&error);
            return;
        }
        if let Err(error) = self.try_turn() {
            self.poison(&error);
        }
    }

    /// Whether the keeper has news since the last call: an answer, or a sealed segment.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_answered) | std::mem::take(&mut self.has_sealed)
    }

    /// Writes everything and closes the log.
    pub(super) fn close(&mut self) {
        if self.queue.ended().is_none()
            && let Err(error) = self.commit().and_then(|()| self.log.close())
        {
            self.poison(&error);
        }
    }

    /// Writes a mark, unless the journal has failed: a mark after a failure would vouch for lost
    /// data.
    pub(super) fn mark(&mut self) {
        if self.queue.ended().is_none()
            && let Err(error) = self.commit().and_then(|()| self.log.mark(None))
        {
            self.poison(&error);
        }
    }

    fn try_turn(&mut self) -> Result<(), StoreError> {
        self.conclude_finished()?;
        self.take_back();
        let (moves, others) =
            std::mem::take(&mut self.jobs).into_iter().partition::<VecDeque<CommitJob>, _>(|job| {
                matches!(job, CommitJob::Move(..) | CommitJob::MovePart(..))
            });
        self.jobs = others;
        if !moves.is_empty() {
            self.commit()?;
        }
        for job in moves {
            match job {
                CommitJob::Move(moved, answer) => self.take_move(moved, answer)?,
                CommitJob::MovePart(bytes, answer) => {
                    let place = self.write_part(&bytes)?;
                    self.group.must_sync = true;
                    self.group.moves.push((answer, MoveReply::Part(place)));
                }
                CommitJob::Submit(..)
                | CommitJob::Acquire(..)
                | CommitJob::Amend(..)
                | CommitJob::Mark(..) => {}
            }
        }
        self.write_parts()?;
        while let Some(job) = self.jobs.pop_front() {
            match job {
                CommitJob::Submit(submission, completion) => self.submit(submission, completion)?,
                CommitJob::Acquire(shard, answer) => {
                    let acquired = self.commit().and_then(|()| {
                        let acquired = self.acquire(shard);
                        self.commit().map(|()| acquired)
                    });
                    let ended = acquired.as_ref().err().cloned();
                    answer.send(acquired.and_then(|acquired| acquired)).ok();
                    if let Some(error) = ended {
                        return Err(error);
                    }
                }
                CommitJob::Amend(amendment) => {
                    let Amendment { expected, batch, answer } = *amendment;
                    let amended = self.commit().and_then(|()| {
                        let is_expected = self.are_stored(&expected);
                        if matches!(is_expected, Ok(true)) {
                            self.write_amendment(batch)?;
                        }
                        Ok(is_expected)
                    });
                    let ended = amended.as_ref().err().cloned();
                    answer.send(amended.and_then(|amended| amended)).ok();
                    if let Some(error) = ended {
                        return Err(error);
                    }
                }
                CommitJob::Mark(oldest, answer) => {
                    self.commit()?;
                    self.log.mark(oldest)?;
                    answer.send(MoveReply::Marked).ok();
                    self.has_answered = true;
                }
                CommitJob::Move(..) | CommitJob::MovePart(..) => {}
            }
            if self.log.buffered() > GROUP_BYTES_MAX {
                self.wait_for_writes()?;
                self.start_group()?;
            }
        }
        self.start_group()
    }

    /// Starts to write the group. A large group waits while another one is being written, and can
    /// grow until then. A small group stays here.
    fn start_group(&mut self) -> Result<(), StoreError> {
        if !self.group.must_sync || self.group.ops.all().len() < self.background_records_min {
            if self.log.is_manual() {
                return self.commit();
            }
            self.conclude_finished()?;
            return if self.pending_writes > 0 { Ok(()) } else { self.commit() };
        }
        if self.pending_writes > 1 {
            // The second write could not be taken back, so it has started. It starts only after the
            // first has finished, so the first can be concluded.
            self.conclude_finished()?;
            if self.pending_writes > 1 {
                self.wait_for_writes()?;
            }
        }
        self.close_group();
        self.pending_writes += 1;
        if !self.log.start_write()? {
            // The group has no frames, and everything before it is durable.
            self.conclude_finished()?;
            self.conclude();
            return Ok(());
        }
        self.conclude_finished()
    }

    /// Takes the waiting group back, to add more to it.
    fn take_back(&mut self) {
        if self.pending_writes > 1 && self.log.take_back() {
            std::mem::swap(&mut self.group, &mut self.waiting);
            self.pending_writes -= 1;
        }
    }

    /// Concludes finished groups.
    fn conclude_finished(&mut self) -> Result<(), StoreError> {
        while self.pending_writes > 0 && self.log.take_finished()? {
            self.conclude();
        }
        Ok(())
    }

    /// Makes the group durable, and completes its batches.
    fn commit(&mut self) -> Result<(), StoreError> {
        self.wait_for_writes()?;
        self.close_group();
        if self.writing.must_sync {
            self.log.sync()?;
        } else {
            self.log.flush()?;
        }
        self.conclude();
        Ok(())
    }

    /// Waits until no group is being written.
    fn wait_for_writes(&mut self) -> Result<(), StoreError> {
        if self.pending_writes > 0 {
            self.log.wait_for_writes()?;
            self.conclude_finished()?;
        }
        Ok(())
    }

    /// Schedules the group as the next write, and begins an empty group. If another group is
    /// being written, it waits, and [`Self::take_back`] may still add operations to it.
    fn close_group(&mut self) {
        let place = if self.pending_writes > 0 { &mut self.waiting } else { &mut self.writing };
        std::mem::swap(&mut self.group, place);
        self.log.take_rolled(&mut place.rolled);
    }

    /// Applies the written group to the index, and completes its batches.
    fn conclude(&mut self) {
        let group = &mut self.writing;
        group.must_sync = false;
        group.part_bytes = 0;
        self.index.apply(group.ops.all());
        group.ops.clear();
        for segment in group.rolled.drain(..) {
            segment.seal();
            self.has_sealed = true;
        }
        for place in group.used_parts.drain(..) {
            if let Some(segment) = self.segments.get(place.segment) {
                segment.end_use();
            }
        }
        for (answer, reply) in group.moves.drain(..) {
            answer.send(reply).ok();
            self.has_answered = true;
        }
        // Once only, even if a completion panics.
        let reserved = group.done.iter_mut().map(|done| std::mem::take(&mut done.reserved));
        self.room.give_back(reserved.sum());
        // One by one, so that a panic in a completion leaves the others to be called.
        while let Some(Done { completion, result, .. }) = group.done.pop_front() {
            completion(result);
        }
        if self.pending_writes > 0 {
            self.pending_writes -= 1;
            std::mem::swap(&mut self.writing, &mut self.waiting);
        }
    }

    /// Ends the journal: a write or a sync failed, so the content of the disk is unknown.
    pub(super) fn poison(&mut self, error: &StoreError) {
        if self.queue.ended().is_none() {
            tracing::error!(%error, "the journal stops: a failed write is not retried");
        }
        self.log.discard();
        let late = self.queue.poison(error);
        let mut ended: Vec<(u64, Completion)> = Vec::new();
        for group in [&mut self.writing, &mut self.waiting, &mut self.group] {
            ended.extend(group.done.drain(..).map(|done| (done.reserved, done.completion)));
        }
        for write in self.large.drain(..) {
            ended.push((write.submission.batch.reserved(), write.completion));
        }
        for shard in &mut self.shards {
            for (submission, completion) in shard.waiting.drain(..) {
                ended.push((submission.batch.reserved(), completion));
            }
        }
        for job in std::mem::take(&mut self.jobs).into_iter().chain(late) {
            match job {
                CommitJob::Submit(submission, completion) => {
                    ended.push((submission.batch.reserved(), completion));
                }
                CommitJob::Acquire(_, answer) => {
                    answer.send(Err(error.clone())).ok();
                }
                CommitJob::Amend(amendment) => {
                    amendment.answer.send(Err(error.clone())).ok();
                }
                // The keeper notices the end because its answer channel is dropped.
                CommitJob::Mark(..) | CommitJob::Move(..) | CommitJob::MovePart(..) => {}
            }
        }
        (self.writing, self.waiting) = (Group::default(), Group::default());
        self.group = Group::default();
        self.pending_writes = 0;
        for (reserved, completion) in ended {
            self.room.give_back(reserved);
            completion(Err(error.clone()));
        }
    }

    fn finish(
        &mut self,
        submission: &Submission,
        completion: Completion,
        result: Result<(), StoreError>,
    ) {
        let reserved = submission.batch.reserved();
        self.group.done.push_back(Done { completion, result, reserved });
    }

    /// Adds a submission to the group, or its refusal, so that completions keep their order.
    fn submit(&mut self, submission: Submission, completion: Completion) -> Result<(), StoreError> {
        let order = submission.fences.first().map(|fence| fence.shard);
        let Some((shard, state)) = order.and_then(|shard| Some((shard, self.state(shard)?))) else {
            let error = StoreError::Failed("a batch needs the fence of its shard".into());
            self.finish(&submission, completion, Err(error));
            return Ok(());
        };
        if state.is_writing_large {
            state.waiting.push_back((submission, completion));
            return Ok(());
        }
        let fenced = submission.fences.iter().find_map(|fence| {
            let Some(state) = self.shards.get(usize::from(fence.shard.0)) else {
                return Some(StoreError::Failed("no such shard".into()));
            };
            let (held, current) = (fence.epoch, state.epoch);
            (held != current).then_some(StoreError::Fenced { held, current })
        });
        if let Some(error) = fenced {
            self.finish(&submission, completion, Err(error));
            return Ok(());
        }
        let Some(state) = self.state(shard) else { return Ok(()) };
        let id = submission.id.0;
        if id <= state.last {
            // A repeated id: its reservation was returned the first time.
            self.group.done.push_back(Done { completion, result: Ok(()), reserved: 0 });
            return Ok(());
        }
        if id != state.last + 1 {
            let error = StoreError::Failed("batch out of order".into());
            self.finish(&submission, completion, Err(error));
            return Ok(());
        }
        state.last = id;
        let contents: VecDeque<bytes::Bytes> = submission
            .batch
            .records()
            .filter_map(|record| match record {
                Record::Put { content: ContentOp::New(bytes), .. } if is_large(bytes) => {
                    Some(bytes.clone())
                }
                _ => None,
            })
            .collect();
        if contents.is_empty() {
            return self.write_batch(submission, completion, Vec::new());
        }
        state.is_writing_large = true;
        let (written, parts) = (0, vec![Vec::new()]);
        self.large.push_back(LargeWrite {
            shard,
            submission,
            completion,
            contents,
            written,
            parts,
        });
        Ok(())
    }

    fn state(&mut self, shard: Shard) -> Option<&mut ShardState> {
        self.shards.get_mut(usize::from(shard.0))
    }

    /// Raises the epoch of a shard. Submissions that wait for a large content are fenced too.
    fn acquire(&mut self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        let Some(state) = self.shards.get_mut(usize::from(shard.0)) else {
            return Err(StoreError::Failed(format!("no shard {}", shard.0).into()));
        };
        let held = state.epoch;
        state.epoch += 1;
        let current = state.epoch;
        let mut fenced: Vec<(Submission, Completion)> = state.waiting.drain(..).collect();
        if std::mem::take(&mut state.is_writing_large) {
            // The batch was not written, so its id is free again.
            state.last -= 1;
        }
        let fence = Fence { shard, epoch: current };
        let next = BatchId(state.last + 1);
        if let Some(at) = self.large.iter().position(|write| write.shard == shard)
            && let Some(write) = self.large.remove(at)
        {
            for place in write.parts.into_iter().flatten() {
                self.group.used_parts.push(place);
            }
            fenced.insert(0, (write.submission, write.completion));
        }
        for (submission, completion) in fenced {
            self.finish(&submission, completion, Err(StoreError::Fenced { held, current }));
        }
        Ok((fence, next))
    }

    /// Whether keys have the expected values. Everything before was committed.
    fn are_stored(&self, expected: &[Expectation]) -> Result<bool, StoreError> {
        for (key, value) in expected {
            let stored = match self.index.get(key.as_bytes()) {
                Some(entry) => {
                    let segment = self.segments.get(entry.record.segment);
                    let segment = segment.ok_or_else(|| missing(entry.record.segment))?;
                    Some(segment.read_value(&entry, key.as_bytes())?)
                }
                None => None,
            };
            if stored.as_deref() != value.as_deref() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a batch durable that belongs to no shard.
    fn write_amendment(&mut self, batch: Batch) -> Result<(), StoreError> {
        let submission = Submission { id: BatchId(0), fences: Vec::new(), batch: Arc::new(batch) };
        self.write_batch(submission, Box::new(|_| {}), Vec::new())?;
        self.group.must_sync = true;
        self.commit()
    }

    fn take_move(&mut self, moved: Move, answer: Sender<MoveReply>) -> Result<(), StoreError> {
        moved::write(self, moved)?;
        self.group.must_sync = true;
        self.group.moves.push((answer, MoveReply::Moved));
        Ok(())
    }
}

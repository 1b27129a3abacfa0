//! The writer of a shard: collects waiting batches into an append, stores it with one statement, and
//! completes its batches. One append of a shard is in flight at a time, and the next one collects
//! meanwhile.
//!
//! - `storing`: attempts of an append, until its outcome is known
//! - `leaves`: the leaf of the next append
//! - `moving`: large contents, and records that are written again

mod leaves;
mod moving;
mod storing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peeklock_record::{ContentOp, Record};
use peeklock_store::{BatchId, Fence, StoreError, Submission};
use peeklock_store_log::{CachedPiece, LogPosition, LogSegment as _};
use tokio::sync::mpsc;

use crate::append::{Append, flaw_of, is_large};
use crate::cleaner;
use crate::inner::{Inner, Place};
use crate::leaf::Leaf;
use crate::session::Session;
use crate::shard::{Job, Pending, Removed, ShardLog, closed};

/// Bytes at which an append is stored, even if more batches are waiting.
const APPEND_BYTES_MAX: usize = 1 << 20;
/// Pauses between attempts.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// Number of records of dropped spaces that are freed at a time.
const REAPED_AT_A_TIME: usize = 4_096;

/// The writer.
pub struct Writer {
    inner: Arc<Inner>,
    shard: Arc<ShardLog>,
    session: Arc<Session>,
    /// Ends before `jobs`, so that batches are completed in order also then.
    group: Group,
    jobs: mpsc::Receiver<Job>,
    active: Option<Arc<Leaf>>,
    /// The number of the newest leaf.
    newest: u32,
    /// The highest id of a batch.
    last: u64,
    /// Reason why no batch is stored until the shard is acquired again.
    halt: Option<StoreError>,
}

/// Batches that are stored together.
#[derive(Default)]
struct Group {
    done: Vec<Done>,
    append: Option<Append>,
    /// Fences of other shards.
    fences: Vec<Fence>,
    /// Places of parts that the operations use.
    used_parts: Vec<LogPosition>,
    /// Removals by other shards, with which this append begins: shards and ids of their batches.
    taken_over: Vec<(u16, u64)>,
}

struct Done {
    pending: Pending,
    result: Result<(), StoreError>,
}

impl Writer {
    pub fn new(
        inner: Arc<Inner>,
        shard: Arc<ShardLog>,
        session: Arc<Session>,
        jobs: mpsc::Receiver<Job>,
        last: u64,
    ) -> Self {
        let active = shard.leaves.all().pop();
        let newest = active.as_ref().map_or(0, |leaf| leaf.number());
        let group = Group::default();
        Self { inner, shard, session, group, jobs, active, newest, last, halt: None }
    }

    /// Carries out jobs until the store is closed.
    pub async fn run(mut self) {
        while let Some(job) = self.jobs.recv().await {
            self.carry_out(job).await;
            let append = self.group.append.as_ref();
            let is_full = append.is_some_and(|append| append.bytes() > APPEND_BYTES_MAX);
            if is_full || self.jobs.is_empty() {
                self.flush().await;
            }
        }
    }

    async fn carry_out(&mut self, job: Job) {
        match job {
            Job::Submit(submission, pending) => self.submit(submission, pending).await,
            Job::Acquire(answer) => {
                self.flush().await;
                if let Some(acquired) = self.acquire(|| answer.is_closed()).await {
                    answer.send(acquired).ok();
                }
            }
            Job::Move(moved, answer) => {
                self.flush().await;
                self.write_moved(moved).await;
                self.flush().await;
                answer.send(()).ok();
            }
            Job::Mark => {
                if let Ok(append) = self.append().await {
                    append.require_row();
                }
            }
            Job::Flush(answer) => {
                self.flush().await;
                answer.send(()).ok();
            }
        }
    }

    fn finish(&mut self, pending: Pending, result: Result<(), StoreError>) {
        self.group.done.push(Done { pending, result });
    }

    /// Adds a submission to the group, or its refusal, so that completions keep their order.
    async fn submit(&mut self, submission: Submission, mut pending: Pending) {
        let Submission { id, fences, batch } = submission;
        if let Some(error) = self.refusal(&fences) {
            self.finish(pending, Err(error));
            return;
        }
        if id.0 <= self.last {
            // A repeated id: its reservation was returned the first time.
            pending.keep_reservation();
            self.finish(pending, Ok(()));
            return;
        }
        let error =
            if id.0 != self.last + 1 { Some("batch out of order") } else { flaw_of(&batch) };
        if let Some(error) = error {
            self.finish(pending, Err(StoreError::Failed(error.into())));
            return;
        }
        let is_over_shards = fences.len() > 1;
        if is_over_shards {
            self.flush().await;
        }
        let mut parts = Vec::new();
        for record in batch.records() {
            if let Record::Put { content: ContentOp::New(content), .. } = record
                && is_large(content)
            {
                parts.push(self.write_parts(content).await);
            }
        }
        // Only now: each part may have led to a flush, which ends the uses of its group.
        self.group.used_parts.extend(parts.iter().flatten());
        // The append of earlier batches or of the parts may have failed meanwhile.
        let append = self.append().await.map(drop);
        if let Err(error) = append {
            self.finish(pending, Err(error));
            return;
        }
        self.last = id.0;
        let own = self.shard.number;
        self.group.fences.extend(fences.iter().filter(|fence| fence.shard.0 != own));
        let shard = Arc::clone(&self.shard);
        if let Some(append) = &mut self.group.append {
            append.set_batch(id.0);
            append.add_batch((own, id.0), &batch, parts, &shard.index);
        }
        self.finish(pending, Ok(()));
        if is_over_shards {
            self.flush().await;
        }
    }

    /// The reason why these fences store nothing.
    fn refusal(&self, fences: &[Fence]) -> Option<StoreError> {
        if fences.first().is_none_or(|fence| fence.shard.0 != self.shard.number) {
            return Some(StoreError::Failed("a batch needs the fence of its shard".into()));
        }
        self.check().err().or_else(|| self.check_fences(fences).err())
    }

    /// Whether batches are stored.
    fn check(&self) -> Result<(), StoreError> {
        self.shard.check()?;
        self.halt.clone().map_or(Ok(()), Err)
    }

    /// Whether fences are the last ones of their shards.
    fn check_fences(&self, fences: &[Fence]) -> Result<(), StoreError> {
        fences.iter().try_for_each(|fence| {
            let Some(shard) = self.inner.shards.get(usize::from(fence.shard.0)) else {
                return Err(StoreError::Failed("no such shard".into()));
            };
            let (held, current) = (fence.epoch, shard.fence());
            if held == current { Ok(()) } else { Err(StoreError::Fenced { held, current }) }
        })
    }

    /// Stores the group, applies it, and completes its batches.
    async fn flush(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        if let Some(mut append) = group.append.take() {
            let stored = match append.finish() {
                true => self.store(&mut append, &group.fences, &group.taken_over).await,
                false => Ok(()),
            };
            match stored {
                Ok(()) => self.apply(append),
                Err(error) => {
                    if self.inner.is_closing() {
                        self.inner.gave_up.store(true, Ordering::Release);
                    }
                    self.halt = Some(error.clone());
                    let stored = group.done.iter_mut().filter(|done| done.result.is_ok());
                    stored.for_each(|done| done.result = Err(error.clone()));
                }
            }
        }
        self.shard.end_uses(group.used_parts);
        for Done { pending, result } in group.done {
            pending.end(result);
        }
        while self.shard.index.reap(REAPED_AT_A_TIME) {
            tokio::task::yield_now().await;
        }
        cleaner::start_if_due(&self.inner, &self.shard);
    }

    /// Applies a stored append to the index and the cache.
    fn apply(&self, append: Append) {
        let inner = &self.inner;
        append.leaf.set_end(u64::from(append.end()));
        if let Some(tail) = append.tail() {
            self.shard.set_tail(Some(tail));
        }
        for (place, body) in append.bodies {
            let memory_bytes = body.len();
            let piece = CachedPiece { bytes: body, memory_bytes, is_written: true };
            inner.cache.insert(append.leaf.cache_place(place.offset), piece);
        }
        inner.note_spaces(self.shard.number, append.ops.all());
        append.large.into_iter().for_each(|parts| self.shard.index.add_large(parts));
        self.shard.apply(append.ops.all());
        for (other, by_id, keys) in append.removed {
            let Some(other) = inner.shards.get(usize::from(other)) else { continue };
            if other.remove(Removed { by_shard: self.shard.number, by_id, keys }) {
                // A full queue has jobs that lead to an append.
                other.jobs.try_send(Job::Mark).ok();
            }
        }
    }

    /// Waits before another attempt. Fails if the store is closing: then no attempt follows.
    async fn pause(
        &mut self,
        pauses: &mut Pauses,
        problem: &str,
        error: &str,
    ) -> Result<(), StoreError> {
        if pauses.count == 1 {
            let shard = self.shard.number;
            tracing::warn!(error, shard, "{problem}; trying again until it succeeds");
        }
        if pauses.count > 0 && !pauses.is_for_room {
            self.inner.note_trouble(Place::Shard(self.shard.number), Some(error));
        }
        let pause = PAUSES.get(pauses.count).or(PAUSES.last()).copied().unwrap_or_default();
        pauses.count += 1;
        let is_closing = self.inner.connector.stopped();
        tokio::time::timeout(pause, is_closing).await.map_or(Ok(()), |()| Err(closed()))
    }
}

/// Growing pauses, with one line in the log.
#[derive(Default)]
struct Pauses {
    count: usize,
    /// Whether the database has too little room: it can be used otherwise.
    is_for_room: bool,
}

/// The first id after the ones that were given away.
const fn next_id(last: u64) -> BatchId {
    BatchId(last + 1)
}

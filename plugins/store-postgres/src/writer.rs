//! The writer of a shard: collects waiting batches into an append, stores it with one statement, and
//! completes its batches. One append of a shard is in flight at a time, and the next one collects
//! meanwhile.
//!
//! An append is repeated until its outcome is known. After a lost connection it is unknown; then
//! the same rows are inserted again. If they exist already, that counts only after a later commit of
//! this writer: a server that has just started shows commits that its standbys may not have (CLU-08).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use peeklock_record::{ContentOp, Key, Record, SPACE_BYTES};
use peeklock_store::{BatchId, Completion, Fence, Shard, StoreError, Submission};
use peeklock_store_log::{CachedPiece, ContentAt, LogPosition, LogSegment as _, Op, PART_BYTES};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::append::{Append, NewContent, flaw_of, is_large};
use crate::leaf::{Leaf, SLOTS_PER_SHARD, table_of};
use crate::row::Stamp;
use crate::schema;
use crate::session::{ConnectError, Connection, Session, is_passing, text_of};
use crate::shard::{Job, MovedContent, Removed, ShardLog};
use crate::{Inner, cleaner};

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
    jobs: mpsc::UnboundedReceiver<Job>,
    active: Option<Arc<Leaf>>,
    /// The number of the newest leaf.
    newest: u32,
    /// The highest id of a batch.
    last: u64,
    /// The epoch in force after this one was lost.
    lost: Option<StoreError>,
    group: Group,
}

/// Batches that are stored together.
#[derive(Default)]
struct Group {
    append: Option<Append>,
    done: Vec<Done>,
    fences: Vec<Fence>,
    /// Places of parts that the operations use.
    used_parts: Vec<LogPosition>,
    /// Removals by other shards, which this append takes over into the log.
    taken_over: Vec<(u16, u64)>,
}

struct Done {
    completion: Completion,
    result: Result<(), StoreError>,
    reserved: u64,
}

impl Writer {
    pub fn new(
        inner: Arc<Inner>,
        shard: Arc<ShardLog>,
        session: Arc<Session>,
        jobs: mpsc::UnboundedReceiver<Job>,
        last: u64,
    ) -> Self {
        let active = shard.leaves.all().pop();
        let newest = active.as_ref().map_or(0, |leaf| leaf.number());
        let group = Group::default();
        Self { inner, shard, session, jobs, active, newest, last, lost: None, group }
    }

    /// Carries out jobs until the store is closed.
    pub async fn run(mut self) {
        let mut jobs = VecDeque::new();
        while let Some(job) = self.jobs.recv().await {
            jobs.push_back(job);
            loop {
                while let Ok(job) = self.jobs.try_recv() {
                    jobs.push_back(job);
                }
                let Some(job) = jobs.pop_front() else { break };
                self.carry_out(job).await;
                let is_full = self
                    .group
                    .append
                    .as_ref()
                    .is_some_and(|append| append.bytes() > APPEND_BYTES_MAX);
                if is_full || jobs.is_empty() {
                    self.flush().await;
                }
            }
        }
    }

    async fn carry_out(&mut self, job: Job) {
        match job {
            Job::Submit(submission, completion) => self.submit(submission, completion).await,
            Job::Acquire(answer) => {
                self.flush().await;
                answer.send(self.acquire().await).ok();
            }
            Job::Move(moved, answer) => {
                self.flush().await;
                self.write_moved(moved).await;
                self.flush().await;
                answer.send(()).ok();
            }
            Job::Flush(answer) => {
                self.flush().await;
                answer.send(()).ok();
            }
        }
    }

    fn finish(&mut self, completion: Completion, result: Result<(), StoreError>, reserved: u64) {
        self.group.done.push(Done { completion, result, reserved });
    }

    /// Adds a submission to the group, or its refusal, so that completions keep their order.
    async fn submit(&mut self, submission: Submission, completion: Completion) {
        let Submission { id, fences, batch } = submission;
        let reserved = batch.reserved();
        if let Some(error) = self.refusal(&fences) {
            self.finish(completion, Err(error), reserved);
            return;
        }
        if id.0 <= self.last {
            // A repeated id: its reservation was returned the first time.
            self.finish(completion, Ok(()), 0);
            return;
        }
        let error =
            if id.0 != self.last + 1 { Some("batch out of order") } else { flaw_of(&batch) };
        if let Some(error) = error {
            self.finish(completion, Err(StoreError::Failed(error.into())), reserved);
            return;
        }
        self.last = id.0;
        if fences.len() > 1 {
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
        self.group.used_parts.extend(parts.iter().flatten());
        for fence in fences.iter().filter(|fence| fence.shard.0 != self.shard.number) {
            self.group.fences.push(*fence);
        }
        let append = self.append().await;
        append.set_batch(id.0);
        let shard = Arc::clone(&self.shard);
        if let Some(append) = &mut self.group.append {
            append.add_batch((shard.number, id.0), &batch, parts, &shard.index);
        }
        self.finish(completion, Ok(()), reserved);
        if fences.len() > 1 {
            self.flush().await;
        }
    }

    /// The reason why these fences store nothing.
    fn refusal(&self, fences: &[Fence]) -> Option<StoreError> {
        if fences.first().is_none_or(|fence| fence.shard.0 != self.shard.number) {
            return Some(StoreError::Failed("a batch needs the fence of its shard".into()));
        }
        if let Some(error) = &self.lost {
            return Some(error.clone());
        }
        fences.iter().find_map(|fence| {
            let Some(shard) = self.inner.shards.get(usize::from(fence.shard.0)) else {
                return Some(StoreError::Failed("no such shard".into()));
            };
            let (held, current) = (fence.epoch, shard.epoch());
            (held != current).then_some(StoreError::Fenced { held, current })
        })
    }

    /// The append in the making, in a leaf with room.
    async fn append(&mut self) -> &mut Append {
        if self.group.append.is_none() {
            let leaf = match &self.active {
                Some(leaf) if leaf.end() < self.inner.leaf_bytes => Arc::clone(leaf),
                _ => self.next_leaf().await,
            };
            let stamp = Stamp { epoch: self.shard.epoch(), batch: self.last };
            let mut append = Append::new(leaf, stamp);
            for Removed { by_shard, by_id, keys } in self.shard.take_removed() {
                keys.into_iter().for_each(|key| append.delete(key));
                self.group.taken_over.push((by_shard, by_id));
            }
            self.group.append = Some(append);
        }
        self.group.append.as_mut().unwrap_or_else(|| unreachable!("it was just made"))
    }

    /// Begins a leaf, in an empty table or a new one.
    async fn next_leaf(&mut self) -> Arc<Leaf> {
        if let Some(full) = &self.active {
            full.seal();
        }
        let slot = match self.shard.take_free() {
            Some(slot) => slot,
            None => self.make_table().await,
        };
        self.newest += 1;
        let leaf = Arc::new(Leaf::new(self.newest, slot));
        self.shard.leaves.insert(Arc::clone(&leaf));
        self.active = Some(Arc::clone(&leaf));
        leaf
    }

    async fn make_table(&mut self) -> i32 {
        let place = self.shard.table_count.fetch_add(1, Ordering::AcqRel);
        let place = i32::try_from(place).unwrap_or(i32::MAX) % SLOTS_PER_SHARD;
        let slot = i32::from(self.shard.number) * SLOTS_PER_SHARD + place;
        let sql = schema::create_leaf(slot);
        let mut pauses = Pauses::default();
        loop {
            let made = match self.session.get().await {
                Ok(connection) => {
                    connection.client.batch_execute(&sql).await.map_err(|error| text_of(&error))
                }
                Err(error) => Err(error.to_string()),
            };
            match made {
                Ok(()) => return slot,
                Err(error) => {
                    pauses.wait(&format!("cannot make `{}`", table_of(slot)), &error).await
                }
            }
        }
    }

    /// Stores a large content before its batch. Its leaves are held until the batch is applied.
    async fn write_parts(&mut self, content: &Bytes) -> Vec<LogPosition> {
        let mut places = Vec::new();
        let mut at = 0;
        while at < content.len() {
            let end = (at + PART_BYTES).min(content.len());
            let append = self.append().await;
            places.push(append.add_part(content.slice(at..end)));
            append.leaf.add_use();
            let is_full = append.bytes() > APPEND_BYTES_MAX;
            at = end;
            if is_full {
                self.flush().await;
            }
        }
        places
    }

    /// Writes records again that are still current.
    async fn write_moved(&mut self, moved: Vec<MovedContent>) {
        let index = Arc::clone(&self.shard.index);
        for mut item in moved {
            item.users.retain(|user| index.get(user.key.as_bytes()) == Some(user.expected));
            if item.users.is_empty() {
                continue;
            }
            let mut places = Vec::new();
            if let Some(content) = item.content.as_ref().filter(|content| is_large(content)) {
                places = self.write_parts(content).await;
                self.group.used_parts.extend(places.iter());
            }
            let append = self.append().await;
            let mut known: Option<ContentAt> = None;
            for user in item.users {
                match (&item.content, known) {
                    (Some(content), None) => {
                        let content = if places.is_empty() {
                            NewContent::Here(content)
                        } else {
                            index.add_large(Arc::from(places.as_slice()));
                            let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
                            NewContent::Parts { places: places.clone(), length }
                        };
                        known = Some(append.put_new(user.key, &user.value, content));
                    }
                    _ => {
                        let content = known.or_else(|| user.expected.content_at());
                        append.put_known(user.key, &user.value, content, &index);
                    }
                }
            }
        }
    }

    /// Stores the group, applies it, and completes its batches.
    async fn flush(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        if let Some(mut append) = group.append.take() {
            append.end_row();
            if !append.is_empty() {
                match self.store(&append, (&group.fences, &group.taken_over)).await {
                    Ok(()) => self.apply(append),
                    Err(error) => {
                        self.lost = Some(error.clone());
                        let stored = group.done.iter_mut().filter(|done| done.result.is_ok());
                        stored.for_each(|done| done.result = Err(error.clone()));
                    }
                }
            }
        }
        self.shard.end_uses(group.used_parts);
        let reserved = group.done.iter().map(|done| done.reserved).sum();
        self.inner.room.give_back(reserved);
        for Done { completion, result, .. } in group.done {
            completion(result);
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
        for (place, body) in append.bodies {
            let memory_bytes = body.len();
            inner.cache.insert(place, CachedPiece { bytes: body, memory_bytes, is_written: true });
        }
        inner.note_spaces(self.shard.number, append.ops.all());
        self.shard.index.apply(append.ops.all());
        for (other, by_id, keys) in append.removed {
            let Some(other) = inner.shards.get(usize::from(other)) else { continue };
            let gone: Vec<Op> = keys.iter().map(|key| Op::Delete { key: *key }).collect();
            other.index.apply(&gone);
            other.add_removed(Removed { by_shard: self.shard.number, by_id, keys });
        }
    }

    /// Stores an append. Repeats it until the outcome is known.
    async fn store(
        &mut self,
        append: &Append,
        (fences, taken_over): (&[Fence], &[(u16, u64)]),
    ) -> Result<(), StoreError> {
        let statement = {
            let own = Fence { shard: Shard(self.shard.number), epoch: self.shard.epoch() };
            Statement::new(own, append, fences, taken_over)
        };
        let mut is_unknown = false;
        let mut pauses = Pauses::default();
        loop {
            let connection = match self.session.get().await {
                Ok(connection) => connection,
                Err(error) => {
                    pauses.wait("the database is away", &error.to_string()).await;
                    continue;
                }
            };
            match statement.run(&connection).await {
                Ok(Appended::Stored) => {
                    self.inner.room.set_disk_full(false);
                    return Ok(());
                }
                Ok(Appended::Fenced) => return Err(self.fenced(&connection, is_unknown).await),
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                    match self.confirm(&connection, append).await {
                        Ok(true) => return Ok(()),
                        Ok(false) => {
                            let error = StoreError::Damaged(
                                format!(
                                    "table `{}` has rows of another writer",
                                    append.leaf.table()
                                )
                                .into(),
                            );
                            self.inner.fail(&error);
                            return Err(error);
                        }
                        Err(error) => pauses.wait("an append is unconfirmed", &error).await,
                    }
                }
                Err(error) => {
                    is_unknown |= error.code().is_none();
                    let is_full = error.code() == Some(&SqlState::DISK_FULL);
                    self.inner.room.set_disk_full(is_full);
                    if !is_full {
                        pauses.wait("an append is repeated", &text_of(&error)).await;
                    } else {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        }
    }

    /// Whether the rows of an append exist, confirmed by a later commit.
    async fn confirm(&mut self, connection: &Connection, append: &Append) -> Result<bool, String> {
        const COMMIT: &str = "UPDATE shards SET since = since WHERE shard = $1";
        let failed = |error: tokio_postgres::Error| text_of(&error);
        let shard = i32::from(self.shard.number);
        connection.client.execute(COMMIT, &[&shard]).await.map_err(failed)?;
        let same = format!(
            "SELECT count(*) FROM {} l JOIN unnest($1::bigint[], $2::bytea[]) AS r(id, head) \
             ON l.id = r.id AND l.head = r.head",
            append.leaf.table()
        );
        let ids: Vec<i64> = append.rows.iter().map(|row| row.id).collect();
        let heads: Vec<&[u8]> = append.rows.iter().map(|row| &row.head[..]).collect();
        let row = connection.client.query_one(&same, &[&ids, &heads]).await.map_err(failed)?;
        Ok(usize::try_from(row.get::<_, i64>(0)) == Ok(append.rows.len()))
    }

    /// The error of an append under an epoch that has ended.
    async fn fenced(&mut self, connection: &Connection, is_unknown: bool) -> StoreError {
        const EPOCH: &str = "SELECT epoch FROM shards WHERE shard = $1";
        if is_unknown {
            // An earlier attempt may have been stored before the new owner came.
            return StoreError::Unavailable("the shard has another owner".into());
        }
        let shard = i32::from(self.shard.number);
        let row = connection.client.query_opt(EPOCH, &[&shard]).await.ok().flatten();
        let current = row.and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok());
        StoreError::Fenced { held: self.shard.epoch(), current: current.unwrap_or(u64::MAX) }
    }

    /// Raises the epoch of the shard.
    async fn acquire(&mut self) -> Result<(Fence, BatchId), StoreError> {
        const RAISE: &str = "UPDATE shards SET epoch = epoch + 1, since = now() \
            WHERE shard = $1 AND owner = $2 RETURNING epoch";
        let shard = i32::from(self.shard.number);
        let mut pauses = Pauses::default();
        loop {
            let raised = match self.session.get().await {
                Ok(connection) => {
                    let owner = self.inner.owner;
                    let raised = connection.client.query_opt(RAISE, &[&shard, &owner]).await;
                    raised.map_err(|error| (is_lasting(&error), text_of(&error)))
                }
                Err(ConnectError::Refused(text)) => Err((true, text)),
                Err(ConnectError::Away(text)) => Err((false, text)),
            };
            let held = self.shard.epoch();
            match raised {
                Ok(Some(row)) => {
                    let epoch = u64::try_from(row.get::<_, i64>(0)).unwrap_or(u64::MAX);
                    self.shard.epoch.store(epoch, Ordering::Release);
                    self.lost = None;
                    let fence = Fence { shard: Shard(self.shard.number), epoch };
                    return Ok((fence, BatchId(self.last + 1)));
                }
                Ok(None) => return Err(StoreError::Fenced { held, current: held + 1 }),
                Err((true, text)) => return Err(StoreError::Failed(text.into())),
                Err((false, text)) => pauses.wait("a shard cannot be acquired", &text).await,
            }
        }
    }
}

fn is_lasting(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| !is_passing(code))
}

/// Growing pauses, with one line in the log.
#[derive(Default)]
struct Pauses {
    count: usize,
}

impl Pauses {
    async fn wait(&mut self, problem: &str, error: &str) {
        if self.count == 1 {
            tracing::warn!(error, "{problem}; trying again until it succeeds");
        }
        let pause = PAUSES.get(self.count).or(PAUSES.last()).copied().unwrap_or_default();
        self.count += 1;
        tokio::time::sleep(pause).await;
    }
}

/// The outcome of an append.
enum Appended {
    Stored,
    Fenced,
}

/// The statement of an append, with its parameters.
struct Statement<'a> {
    sql: String,
    has_more: bool,
    shards: Vec<i32>,
    epochs: Vec<i64>,
    ids: Vec<i64>,
    heads: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    removed_shards: Vec<i32>,
    removed_ids: Vec<i64>,
    removed_places: Vec<i32>,
    removed_keys: Vec<&'a [u8]>,
    taken_shards: Vec<i32>,
    taken_ids: Vec<i64>,
    put_keys: Vec<&'a [u8]>,
    put_values: Vec<&'a [u8]>,
    gone_keys: Vec<&'a [u8]>,
    gone_from: Vec<&'a [u8]>,
    gone_to: Vec<Option<Vec<u8>>>,
}

impl<'a> Statement<'a> {
    fn new(own: Fence, append: &'a Append, others: &[Fence], taken_over: &[(u16, u64)]) -> Self {
        let fences = || std::iter::once(&own).chain(others);
        let has_more =
            !append.shared.is_empty() || !append.removed.is_empty() || !taken_over.is_empty();
        let table = append.leaf.table();
        let places =
            append.removed.iter().zip(1..).flat_map(|((_, _, keys), place)| {
                keys.iter().map(move |key| (place, key.as_bytes()))
            });
        let (removed_places, removed_keys) = places.unzip();
        let put = append
            .shared
            .keys
            .iter()
            .filter_map(|(key, value)| Some((&key[..], value.as_deref()?)));
        let (put_keys, put_values) = put.unzip();
        let gone = append.shared.keys.iter().filter(|(_, value)| value.is_none());
        let prefixes = &append.shared.prefixes;
        Self {
            sql: if has_more { schema::append_more(&table) } else { schema::append(&table) },
            has_more,
            shards: fences().map(|fence| i32::from(fence.shard.0)).collect(),
            epochs: fences().map(|fence| integer(fence.epoch)).collect(),
            ids: append.rows.iter().map(|row| row.id).collect(),
            heads: append.rows.iter().map(|row| &row.head[..]).collect(),
            bodies: append.rows.iter().map(|row| &row.body[..]).collect(),
            removed_shards: append.removed.iter().map(|(shard, ..)| i32::from(*shard)).collect(),
            removed_ids: append.removed.iter().map(|(_, id, _)| integer(*id)).collect(),
            removed_places,
            removed_keys,
            taken_shards: taken_over.iter().map(|(shard, _)| i32::from(*shard)).collect(),
            taken_ids: taken_over.iter().map(|(_, id)| integer(*id)).collect(),
            put_keys,
            put_values,
            gone_keys: gone.map(|(key, _)| &key[..]).collect(),
            gone_from: prefixes.iter().map(|prefix| &prefix[..]).collect(),
            gone_to: prefixes.iter().map(|prefix| end_of_prefix(prefix)).collect(),
        }
    }

    async fn run(&self, connection: &Connection) -> Result<Appended, tokio_postgres::Error> {
        let statement = connection.prepared(&self.sql).await?;
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&self.shards, &self.epochs, &self.ids, &self.heads, &self.bodies];
        if self.has_more {
            parameters.extend::<[&(dyn ToSql + Sync); 11]>([
                &self.removed_shards,
                &self.removed_ids,
                &self.removed_places,
                &self.removed_keys,
                &self.taken_shards,
                &self.taken_ids,
                &self.put_keys,
                &self.put_values,
                &self.gone_keys,
                &self.gone_from,
                &self.gone_to,
            ]);
        }
        let row = connection.client.query_one(&statement, &parameters).await?;
        Ok(if row.get::<_, bool>(0) { Appended::Stored } else { Appended::Fenced })
    }
}

/// A number as the database has it.
pub fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The least key after all keys with a prefix; `None` if there is none.
pub fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Whether an operation removes a whole space.
pub fn is_whole_space(prefix: &Key) -> bool {
    prefix.as_bytes().len() == SPACE_BYTES
}

/// The answer of a job, or the end of the store.
pub async fn answer_of<T>(answer: oneshot::Receiver<T>) -> Result<T, StoreError> {
    answer.await.map_err(|_| StoreError::Failed("the store is closed".into()))
}

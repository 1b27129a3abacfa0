//! A store in PostgreSQL: the log of each shard in the rows of small tables, and its index in the
//! memory of the broker. `docs/explanation/scale-out.md` has the design; one broker at a time uses a
//! database.
//!
//! ```text
//!  submit ──► jobs ──► writer of the shard ──► one statement ──► completion
//!                        │ index, cache            (fence, rows)
//!  pin, scan ◄───────────┘        ▲
//!                                 └── cleaner: records written again, tables emptied
//! ```
//!
//! Modules in reading order: `config`, `session` (connections and their checks), `schema` (tables
//! and statements), `row`, `leaf`, `append` (from batches to rows), `shard`, `writer`, `reader`,
//! `scan`, `cleaner`, `room`, `opening`.

mod append;
mod cleaner;
mod config;
mod leaf;
mod opening;
mod reader;
mod room;
mod row;
mod scan;
mod schema;
mod session;
mod shard;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use peeklock_record::{Batch, Key, Record, space_of};
use peeklock_store::{
    BatchId, Completion, ContentRef, Expectation, Fence, Records, Reserved, Shard, Shortage, Store,
    StoreError, Submission, Waker, Watcher,
};
use peeklock_store_log::{Cache, LogSegment as _, Op, copy_small_parts};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use append::is_shared;
pub use config::PostgresConfig;
use reader::PinnedContent;
use room::Room;
use scan::Scan;
use session::{ANSWER_TIMEOUT, ConnectError, Connection, Session, store_error};
use shard::{Job, ShardLog};
use writer::{answer_of, end_of_prefix, is_whole_space};

/// Sessions for appends, over which the shards are spread.
const APPEND_SESSIONS: usize = 4;
/// Sessions for reading.
const READ_SESSIONS: usize = 2;
/// Pause before a database that is away is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Time for waiting batches at a stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

impl PostgresConfig {
    /// Maximum bytes that have a reservation and are not stored yet. They are in memory.
    pub const UNSTORED_BYTES_MAX: u64 = room::UNSTORED_BYTES_MAX;
}

/// The parts that all tasks share.
struct Inner {
    runtime: tokio::runtime::Handle,
    /// The number under which this process owns shards.
    owner: i64,
    leaf_bytes: u64,
    shards: Vec<Arc<ShardLog>>,
    /// The shard of each space that has records.
    spaces: RwLock<HashMap<u64, u16>>,
    cache: Cache,
    room: Room,
    /// The session with the lock of the database, for everything that is neither append nor read.
    keeper: Session,
    readers: Vec<Session>,
    next_reader: AtomicUsize,
    is_closing: AtomicBool,
    end: Mutex<End>,
}

/// The permanent failure of a store, and its watchers.
#[derive(Default)]
struct End {
    error: Option<StoreError>,
    watchers: Vec<Watcher>,
}

impl Inner {
    /// A connection for a question. Waits for a database that is away: the time limit of the
    /// question ends it, so that callers do not ask again at once.
    async fn connection(&self, session: &Session) -> Result<Arc<Connection>, StoreError> {
        loop {
            match session.get().await {
                Ok(connection) => return Ok(connection),
                Err(ConnectError::Away(_)) => tokio::time::sleep(AGAIN_AFTER).await,
                Err(refused) => return Err(refused.into_store_error()),
            }
        }
    }

    async fn reader(&self) -> Result<Arc<Connection>, StoreError> {
        let place = self.next_reader.fetch_add(1, Ordering::Relaxed) % READ_SESSIONS;
        self.connection(self.readers.get(place).unwrap_or(&self.keeper)).await
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// The shard that has the records of a space.
    fn shard_of(&self, space: u64) -> Option<&Arc<ShardLog>> {
        let number = *self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(&space)?;
        self.shards.get(usize::from(number))
    }

    /// Notes the spaces of new records, and forgets dropped ones.
    fn note_spaces(&self, shard: u16, ops: &[Op]) {
        let mut last = None;
        for op in ops {
            let (space, is_there) = match op {
                Op::Put { key, .. } => (space_of(key.as_bytes()), true),
                Op::DeletePrefix { prefix } if is_whole_space(prefix) => {
                    (space_of(prefix.as_bytes()), false)
                }
                Op::Delete { .. } | Op::DeletePrefix { .. } => continue,
            };
            if last.replace((space, is_there)) == Some((space, is_there)) {
                continue;
            }
            let known =
                self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(&space).copied();
            if is_there == (known == Some(shard)) {
                continue;
            }
            let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
            match is_there {
                true => spaces.insert(space, shard),
                false => spaces.remove(&space),
            };
        }
    }

    /// Runs a question on the threads of the store, within its time limit.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            let asked = tokio::time::timeout(ANSWER_TIMEOUT, question).await;
            let late = |_| StoreError::Unavailable("the database does not answer in time".into());
            answer.send(asked.map_err(late).flatten()).ok();
        });
        answer_of(answered).await?
    }

    /// Ends the store permanently.
    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "the store in PostgreSQL stops");
        let mut end = self.end();
        let error = end.error.get_or_insert_with(|| error.clone()).clone();
        let watchers = std::mem::take(&mut end.watchers);
        drop(end);
        for watcher in watchers {
            watcher(&error);
        }
    }

    fn ended(&self) -> Result<(), StoreError> {
        self.end().error.clone().map_or(Ok(()), Err)
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an amendment.
    async fn amend(
        &self,
        expected: &[(Vec<u8>, Option<Vec<u8>>)],
        batch: &Batch,
    ) -> Result<bool, StoreError> {
        const AMEND: &str = "SELECT amend($1, $2, $3, $4, $5, $6, $7)";
        let mut changes: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        let mut prefixes: Vec<&[u8]> = Vec::new();
        for record in batch.records() {
            match record {
                Record::Put { key, value, .. } => drop(changes.insert(key, Some(value))),
                Record::Delete { key } | Record::DeleteIn { key, .. } => {
                    changes.insert(key, None);
                }
                Record::DeletePrefix { prefix } => {
                    changes.retain(|key, _| !key.starts_with(prefix));
                    prefixes.push(prefix);
                }
            }
        }
        let (keys, values): (Vec<&[u8]>, Vec<Option<&[u8]>>) =
            expected.iter().map(|(key, value)| (&key[..], value.as_deref())).unzip();
        let (put, put_values): (Vec<&[u8]>, Vec<&[u8]>) =
            changes.iter().filter_map(|(key, value)| Some((*key, (*value)?))).unzip();
        let gone: Vec<&[u8]> =
            changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key).collect();
        let ends: Vec<Option<Vec<u8>>> = prefixes.iter().map(|one| end_of_prefix(one)).collect();
        let connection = self.connection(&self.keeper).await?;
        let statement = connection.prepared(AMEND).await.map_err(|error| store_error(&error))?;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&keys, &values, &put, &put_values, &gone, &prefixes, &ends];
        let row = connection.client.query_one(&statement, &parameters).await;
        Ok(row.map_err(|error| store_error(&error))?.get(0))
    }

    /// Which of these keys in shared spaces have records.
    async fn shared_keys(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, StoreError> {
        let failed = |error: tokio_postgres::Error| store_error(&error);
        let connection = self.reader().await?;
        let rows =
            connection.client.query("SELECT key FROM shared WHERE key = ANY ($1)", &[&keys]).await;
        Ok(rows.map_err(failed)?.iter().map(|row| row.get(0)).collect())
    }
}

/// A store in PostgreSQL.
pub struct PostgresStore {
    inner: Arc<Inner>,
    /// Ends last.
    runtime: Mutex<Option<Runtime>>,
}

impl PostgresStore {
    /// Opens the store in a database, and creates its tables in an empty one. Waits for the
    /// database for a few seconds.
    ///
    /// # Errors
    /// If the database cannot be reached or used, or another broker uses it, with the remedy;
    /// [`StoreError::Damaged`] names the table and the place of damaged data.
    pub fn open(config: &PostgresConfig) -> Result<Arc<Self>, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| StoreError::Failed(format!("cannot start threads: {error}").into()))?;
        let (answer, answered) = std::sync::mpsc::channel();
        let (config, handle) = (config.clone(), runtime.handle().clone());
        runtime.spawn(async move {
            answer.send(opening::open(&config, handle).await).ok();
        });
        let opened = answered.recv();
        let inner = opened.map_err(|_| StoreError::Failed("opening has failed".into()))?;
        match inner {
            Ok(inner) => Ok(Arc::new(Self { inner, runtime: Mutex::new(Some(runtime)) })),
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    fn job_of(&self, shard: Shard) -> Result<&Arc<ShardLog>, StoreError> {
        self.inner.ended()?;
        if self.inner.is_closing() {
            return Err(StoreError::Failed("the store is closed".into()));
        }
        let found = self.inner.shards.get(usize::from(shard.0));
        found.ok_or_else(|| StoreError::Failed(format!("no shard {}", shard.0).into()))
    }

    fn pinned(&self, keys: &[Key]) -> Vec<Option<PinnedContent>> {
        let mut pinned = Vec::with_capacity(keys.len());
        let is_of_one = |a: &Key, b: &Key| space_of(a.as_bytes()) == space_of(b.as_bytes());
        for keys in keys.chunk_by(is_of_one) {
            let space = keys.first().map(|key| space_of(key.as_bytes()));
            match space.and_then(|space| self.inner.shard_of(space)) {
                Some(shard) => shard.index.pin(keys, &mut pinned),
                None => pinned.extend(keys.iter().map(|_| None)),
            }
        }
        pinned.into_iter().map(|one| one.map(PinnedContent::of)).collect()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn shard_count(&self) -> u16 {
        u16::try_from(self.inner.shards.len()).unwrap_or(u16::MAX)
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        let (answer, answered) = oneshot::channel();
        let closed = || StoreError::Failed("the store is closed".into());
        self.job_of(shard)?.jobs.send(Job::Acquire(answer)).map_err(|_| closed())?;
        self.inner.ask(async move { answer_of(answered).await? }).await
    }

    fn reserve(&self, _: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.inner.room.reserve(bytes, waker)
    }

    fn unreserve(&self, _: Shard, bytes: u64) {
        self.inner.room.give_back(bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        let reserved = submission.batch.reserved();
        let shard = submission.fences.first().map_or(Shard(0), |fence| fence.shard);
        let refused = match self.job_of(shard) {
            Ok(log) => match log.jobs.send(Job::Submit(submission, completion)) {
                Err(error) => match error.0 {
                    Job::Submit(_, completion) => {
                        Some((completion, StoreError::Failed("the store is closed".into())))
                    }
                    Job::Acquire(_) | Job::Move(..) | Job::Flush(_) => None,
                },
                Ok(()) => None,
            },
            Err(error) => Some((completion, error)),
        };
        if let Some((completion, error)) = refused {
            self.inner.room.give_back(reserved);
            completion(Err(error));
        }
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.inner.ended()?;
        if batch.has_contents() {
            return Err(StoreError::Failed("an amendment has no contents".into()));
        }
        let expected: Vec<(Vec<u8>, Option<Vec<u8>>)> = expected
            .iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_ref().map(|one| one.to_vec())))
            .collect();
        let inner = Arc::clone(&self.inner);
        self.inner.ask(async move { inner.amend(&expected, &batch).await }).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let pinned = self.pinned(keys);
        let mut lookup = self.inner.cache.lookup();
        let mut found: Vec<_> = pinned
            .iter()
            .map(|content| content.as_ref().and_then(|one| one.lookup(&mut lookup)))
            .collect();
        drop(lookup);
        copy_small_parts(&mut found);
        contents.extend(pinned.into_iter().zip(found).map(|(content, found)| {
            let content = content?;
            // Damaged cached bytes are read again.
            Some(match found.map(|found| content.checked(&found)) {
                Some(Ok(bytes)) => ContentRef::Loaded(bytes),
                Some(Err(_)) | None => reader::stored(content, &self.inner),
            })
        }));
    }

    fn pin_unloaded(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let pinned = self.pinned(keys).into_iter();
        contents.extend(pinned.map(|content| Some(reader::stored(content?, &self.inner))));
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        Box::new(Scan::new(Arc::clone(&self.inner), *prefix))
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.inner.ended()?;
        let shared: Vec<Vec<u8>> = keys
            .iter()
            .filter(|key| is_shared(key.as_bytes()))
            .map(|key| key.as_bytes().to_vec())
            .collect();
        let mut found = Vec::new();
        if !shared.is_empty() {
            let inner = Arc::clone(&self.inner);
            found = self.inner.ask(async move { inner.shared_keys(shared).await }).await?;
        }
        // This process owns all shards, so its indexes have every change.
        let is_there = |key: &Key| {
            if is_shared(key.as_bytes()) {
                return found.iter().any(|found| found == key.as_bytes());
            }
            let shard = self.inner.shard_of(space_of(key.as_bytes()));
            shard.is_some_and(|shard| shard.index.get(key.as_bytes()).is_some())
        };
        Ok(keys.iter().map(is_there).collect())
    }

    fn shares_contents(&self) -> bool {
        false
    }

    fn stored_bytes(&self) -> Option<u64> {
        let leaves = self.inner.shards.iter().flat_map(|shard| shard.leaves.all());
        Some(leaves.map(|leaf| leaf.end()).sum())
    }

    fn shortage(&self, bytes: u64) -> Option<Shortage> {
        self.inner.room.shortage(bytes)
    }

    fn watch(&self, watcher: Watcher) {
        let mut end = self.inner.end();
        match end.error.clone() {
            Some(error) => {
                drop(end);
                watcher(&error);
            }
            None => end.watchers.push(watcher),
        }
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.is_closing.store(true, Ordering::Release);
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtime) = runtime else { return self.inner.ended() };
        let (answer, answered) = std::sync::mpsc::channel();
        let inner = Arc::clone(&self.inner);
        runtime.spawn(async move {
            let flushing = async {
                for shard in &inner.shards {
                    let (done, is_done) = oneshot::channel();
                    if shard.jobs.send(Job::Flush(done)).is_ok() {
                        is_done.await.ok();
                    }
                }
            };
            let flushed = tokio::time::timeout(CLOSE_TIMEOUT, flushing).await;
            for session in inner.readers.iter().chain([&inner.keeper]) {
                session.close().await;
            }
            answer.send(flushed.is_ok()).ok();
        });
        let is_flushed = answered.recv().unwrap_or(false);
        runtime.shutdown_timeout(Duration::from_secs(1));
        self.inner.ended()?;
        if is_flushed {
            return Ok(());
        }
        Err(StoreError::Unavailable("the database is away; waiting batches are not stored".into()))
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.is_closing.store(true, Ordering::Release);
        let runtime = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            // A thread that must not block may drop the store.
            runtime.shutdown_background();
        }
    }
}

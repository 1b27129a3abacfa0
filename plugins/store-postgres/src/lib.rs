//! A store in PostgreSQL: the log of each shard in the rows of small tables, and its index in the
//! memory of the broker that owns the shard. One broker owns all shards, and others stand by;
//! `docs/explanation/scale-out.md` has the design.
//!
//! ```text
//!  submit ──► jobs ──► writer of the shard ──► one statement ──► completion
//!                        │ index, cache            (fence, rows)
//!  pin, scan ◄───────────┘        ▲
//!                                 └── cleaner: records written again, tables emptied
//! ```
//!
//! # Tables
//!
//! | Table | Rows |
//! |---|---|
//! | `cluster` | one: format and number of shards |
//! | `brokers` | for each broker its last renewal, the end of its lease, and its horizon |
//! | `shards` | for each shard its owner and epoch; every change of owner raises the epoch |
//! | `log_<n>` | a leaf: a part of the log of a shard; rows are inserted and never changed |
//! | `shared` | the records of the whole store |
//! | `removed` | keys that batches of other shards have removed, until the log of their shard states it |
//!
//! A row of a leaf has a position as its id, a head with records, and a body with contents. It begins
//! where the row before ends, so a missing row is noticed.
//!
//! # An append
//!
//! The writer of a shard collects waiting batches, and stores them with one statement. The statement
//! does everything or nothing, under two conditions, whose results it returns:
//!
//! 1. **The epoch is in force.** It locks the row in `shards` until its commit. So a change of owner
//!    waits for appends that have begun, and fences all later ones.
//! 2. **The last row of the log exists**, with the same checksum. So no append is acknowledged behind
//!    rows that the database has lost, for example by the promotion of a standby without them.
//!
//! An attempt has one of five outcomes:
//!
//! | Outcome | Meaning | Action |
//! |---|---|---|
//! | `Stored` | the commit is confirmed | apply to the index, complete the batches |
//! | `KnownFailed` | the server refused the statement, for example on a full disk | repeat it |
//! | `Unknown` | lost connection, stopped server, cancelled wait for a standby | settle, see below |
//! | `Fenced` | a condition on an epoch failed | close the shard if another broker owns it |
//! | `Lost` | the last row is missing, or tables were changed by others | close the shard |
//!
//! A closed shard takes no batch and answers no question, and watchers are called. Other shards go
//! on.
//!
//! # Unknown outcomes
//!
//! An attempt of unknown outcome may be stored, or may still run in a session of the server that the
//! client has lost. The writer therefore raises the epoch of its own shard. The update waits for an
//! attempt that has begun, and fences one that has not. After the update is confirmed, the rows of
//! the attempt exist and are as durable as the update, or they never will exist. The writer then
//! reads which of both is true. Fences that the broker holds stay valid: the epoch in the database
//! and the epoch of the last acquisition are two numbers.
//!
//! # Leaves and their recycling
//!
//! A leaf begins when the last one is full. Space returns from the oldest leaf: the cleaner has its
//! records in use written again at the end of the log (decision 7), and then empties its table for
//! another leaf. The function `recycle` does the latter. It first locks the table, so that all
//! inserts have ended; then it checks that the epoch is in force, that the table has no row of a
//! newer leaf, and that the last row of the log exists in a newer leaf; then it truncates. A table
//! that another program has locked, such as a dump, is emptied later, and the log uses other tables.
//! Leaves of a large log are larger, so that a shard never needs more than 4,096 tables.
//!
//! # Removals from another shard
//!
//! A batch may remove keys of another shard. Its statement adds a row to `removed`, and the index of
//! the other shard loses the keys at once. The next append of that shard begins with the removals,
//! and deletes the row. An append of that shard that was made earlier may contain such a key again,
//! written by the cleaner. Therefore the removals that it does not contain are applied once more
//! after it, under the same lock.
//!
//! # Modules in reading order
//!
//! `config`, `fault` and `remedy` (meaning of errors), `session` and `checks` (connections), `schema`
//! (tables and statements), `row`, `leaf`, `append` (from batches to rows), `statement`, `shard`,
//! `inner` (parts that all tasks share), `writer`, `reader`, `scan`, `cleaner`, `room`, `registry`,
//! `load`, `opening`.

mod append;
mod checks;
mod cleaner;
mod config;
mod fault;
mod inner;
mod leaf;
mod load;
mod opening;
mod reader;
mod registry;
mod remedy;
mod room;
mod row;
mod scan;
mod schema;
mod session;
mod shard;
mod statement;
mod writer;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use peeklock_record::{Batch, Key, space_of};
use peeklock_store::{
    BatchId, Completion, ContentRef, Expectation, Fence, Records, Registry, Reserved, Shard,
    Shortage, Store, StoreError, Submission, Waker, Watcher,
};
use peeklock_store_log::LogSegment as _;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use append::is_shared;
pub use config::PostgresConfig;
use inner::Inner;
pub use peeklock_tls::{CertificateDer, certificates};
use reader::PinnedContent;
use scan::Scan;
use shard::{Job, Pending, ShardLog};

/// Time for waiting batches at a stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for tasks to end after that.
const END_TIMEOUT: Duration = Duration::from_secs(1);

impl PostgresConfig {
    /// Maximum bytes that have a reservation and are not stored yet. They are in memory.
    pub const UNSTORED_BYTES_MAX: u64 = peeklock_store_log::UNSTORED_BYTES_MAX;
}

/// A store in PostgreSQL.
pub struct PostgresStore {
    inner: Arc<Inner>,
    /// End last.
    runtimes: Mutex<Option<Runtimes>>,
}

/// Threads of a store.
struct Runtimes {
    work: Runtime,
    /// Renews leases: neither appends nor loading delay them.
    leases: Runtime,
}

impl Runtimes {
    fn start() -> Result<Self, StoreError> {
        let failed = |error: std::io::Error| {
            StoreError::Failed(format!("cannot start threads: {error}").into())
        };
        let start = |name: &str, count| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(count)
                .thread_name(name)
                .enable_all()
                .build()
                .map_err(failed)
        };
        Ok(Self { work: start("postgres", 2)?, leases: start("postgres-lease", 1)? })
    }

    /// Ends the threads, and waits for them for at most `time`.
    fn end_within(self, time: Duration) {
        self.work.shutdown_timeout(time);
        self.leases.shutdown_background();
    }

    /// Ends the threads without waiting.
    fn end(self) {
        self.work.shutdown_background();
        self.leases.shutdown_background();
    }
}

impl PostgresStore {
    /// Opens the store in a database, and creates its tables in an empty one. Waits for the
    /// database for a few seconds. The store takes no shard by itself: a broker does, through
    /// [`Store::registry`]. The shards are loaded when the first one is acquired. A damaged shard
    /// does not prevent it: only that shard is closed.
    ///
    /// # Errors
    /// If the database cannot be reached or used, with the remedy.
    pub fn open(config: &PostgresConfig) -> Result<Arc<Self>, StoreError> {
        Self::start(config, false)
    }

    /// Opens the store for a program that is its only user, without a standby. Waits for the end of
    /// the last user's lease, takes all shards, and loads them.
    ///
    /// # Errors
    /// As [`Self::open`], and if a broker uses the database.
    pub fn open_alone(config: &PostgresConfig) -> Result<Arc<Self>, StoreError> {
        Self::start(config, true)
    }

    fn start(config: &PostgresConfig, is_alone: bool) -> Result<Arc<Self>, StoreError> {
        config.check()?;
        let runtimes = Runtimes::start()?;
        let (answer, answered) = std::sync::mpsc::channel();
        let handles = [runtimes.work.handle().clone(), runtimes.leases.handle().clone()];
        let config = config.clone();
        runtimes.work.spawn(async move {
            let opening = async {
                let inner = opening::join(&config, handles).await?;
                if is_alone {
                    opening::claim(&inner).await?;
                    opening::load_once(&inner).await?;
                }
                Ok(inner)
            };
            answer.send(opening.await).ok();
        });
        let opened = answered.recv();
        let inner: Result<Arc<Inner>, StoreError> =
            opened.map_err(|_| StoreError::Failed("opening has failed".into())).flatten();
        match inner {
            Ok(inner) => Ok(Arc::new(Self { inner, runtimes: Mutex::new(Some(runtimes)) })),
            Err(error) => {
                runtimes.end();
                Err(error)
            }
        }
    }

    /// Loads the shards, if they are not loaded yet. A large backlog takes its time, so there is no
    /// limit.
    async fn load(&self) -> Result<(), StoreError> {
        if let Some(loaded) = self.inner.loaded.get() {
            return loaded.clone();
        }
        let (inner, (answer, answered)) = (Arc::clone(&self.inner), oneshot::channel());
        self.inner.runtime.spawn(async move {
            answer.send(opening::load_once(&inner).await).ok();
        });
        answered.await.map_err(|_| closed())?
    }

    /// The shard, if it takes jobs.
    fn shard(&self, shard: Shard) -> Result<&Arc<ShardLog>, StoreError> {
        if self.inner.is_closing() {
            return Err(closed());
        }
        let found = self.inner.shards.get(usize::from(shard.0));
        let found =
            found.ok_or_else(|| StoreError::Failed(format!("no shard {}", shard.0).into()))?;
        found.check()?;
        Ok(found)
    }

    fn pinned(&self, keys: &[Key]) -> Vec<Option<PinnedContent>> {
        let mut contents = Vec::with_capacity(keys.len());
        let is_of_one = |a: &Key, b: &Key| space_of(a.as_bytes()) == space_of(b.as_bytes());
        for keys in keys.chunk_by(is_of_one) {
            let space = keys.first().map(|key| space_of(key.as_bytes()));
            let mut pinned = Vec::with_capacity(keys.len());
            let shard = space.and_then(|space| self.inner.known_shard_of(space));
            let Some(shard) = shard else {
                contents.extend(keys.iter().map(|_| None));
                continue;
            };
            shard.index.pin(keys, &mut pinned);
            let pinned = pinned.into_iter();
            contents.extend(pinned.map(|one| one.map(|one| PinnedContent::of(shard, one))));
        }
        contents
    }
}

fn closed() -> StoreError {
    StoreError::Failed("the store is closed".into())
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
        self.load().await?;
        let (answer, answered) = oneshot::channel();
        let jobs = self.shard(shard)?.jobs.clone();
        let acquiring = async move {
            jobs.send(Job::Acquire(answer)).await.map_err(|_| closed())?;
            answered.await.map_err(|_| closed())?
        };
        self.inner.ask(acquiring).await
    }

    fn reserve(&self, _: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.inner.room.reserve(bytes, waker)
    }

    fn unreserve(&self, _: Shard, bytes: u64) {
        self.inner.room.give_back(bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        let pending = Pending::new(completion, submission.batch.reserved(), &self.inner.room);
        let shard = submission.fences.first().map_or(Shard(0), |fence| fence.shard);
        let log = match self.shard(shard) {
            Ok(log) => log,
            Err(error) => return pending.end(Err(error)),
        };
        let sent = log.jobs.try_send(Job::Submit(submission, pending));
        if let Err(TrySendError::Full(Job::Submit(_, pending))) = sent {
            let text = "too many batches wait for the database";
            pending.end(Err(StoreError::Unavailable(text.into())));
        }
        // A batch that a closed queue does not take was completed when it was dropped.
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
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
        let found = self.inner.cache.find(&pinned, PinnedContent::lookup);
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
                return Ok(found.iter().any(|found| found == key.as_bytes()));
            }
            let shard = self.inner.shard_of(space_of(key.as_bytes()))?;
            Ok(shard.is_some_and(|shard| shard.has(key)))
        };
        keys.iter().map(is_there).collect()
    }

    fn shares_contents(&self) -> bool {
        false
    }

    fn registry(&self) -> Option<Arc<dyn Registry>> {
        let is_alone = self.inner.is_alone.load(Ordering::Acquire);
        (!is_alone).then(|| Arc::clone(&self.inner.leases) as Arc<dyn Registry>)
    }

    fn stored_bytes(&self) -> Option<u64> {
        let leaves = self.inner.shards.iter().flat_map(|shard| shard.leaves.all());
        Some(leaves.map(|leaf| leaf.end()).sum())
    }

    fn shortage(&self, bytes: u64) -> Option<Shortage> {
        self.inner.shortage(bytes)
    }

    fn watch(&self, watcher: Watcher) {
        self.inner.watch(watcher);
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.is_closing.store(true, Ordering::Release);
        self.inner.connector.stop();
        let runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtimes) = runtimes else { return self.inner.failure().map_or(Ok(()), Err) };
        let (answer, answered) = std::sync::mpsc::channel();
        let inner = Arc::clone(&self.inner);
        runtimes.work.spawn(async move {
            let flushes = inner.shards.iter().map(|shard| async move {
                let (done, is_done) = oneshot::channel();
                if shard.jobs.send(Job::Flush(done)).await.is_ok() {
                    is_done.await.ok();
                }
            });
            let flushed = match inner.loaded.get() {
                Some(Ok(())) => tokio::select! {
                    biased;
                    flushed = tokio::time::timeout(CLOSE_TIMEOUT, join_all(flushes)) => {
                        flushed.is_ok()
                    }
                    // No other broker takes the shards before the last batch.
                    () = opening::renew_lease(&inner) => false,
                },
                Some(Err(_)) | None => true,
            };
            // Last of all: from now on another broker takes the shards.
            tokio::time::timeout(END_TIMEOUT, inner.leases.leave()).await.ok();
            for session in inner.readers.iter().chain([&inner.keeper]) {
                session.close().await;
            }
            answer.send(flushed).ok();
        });
        let is_flushed = answered.recv().unwrap_or(false);
        // Batches that still wait are completed when their writers are dropped.
        runtimes.end_within(END_TIMEOUT);
        if let Some(error) = self.inner.failure() {
            return Err(error);
        }
        if is_flushed && !self.inner.gave_up.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(StoreError::Unavailable("the database is away; waiting batches are not stored".into()))
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.is_closing.store(true, Ordering::Release);
        self.inner.connector.stop();
        let runtimes = self.runtimes.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A thread that must not block may drop the store.
        if let Some(runtimes) = runtimes {
            runtimes.end();
        }
    }
}

//! The journal: a log of segments on disk, and an index in memory (DESIGN D12). It is the durable
//! store of a broker.
//!
//! ```text
//!  submit ──► queue ──► committer ──► log (segments) ──► completion
//!                          │ index, cache                    ▲
//!  reserve ◄── room ◄──────┤                                 │ records written again
//!  pin, scan ◄── index ◄───┴───────── keeper ────────────────┘ spare, side files, oldest segment
//! ```
//!
//! A broker needs append, read by position, and release of old data; the journal does no more. Read
//! the modules in this order: the bytes (`format`), the files (`disk`, `segment`, `manifest`,
//! `log`), the positions (`index`), then the three actors: `committer` writes, `keeper` reclaims
//! space, `opening` reads everything after a start.
//!
//! A failed write or sync is never retried. It ends the journal, and the next opening finds out the
//! content of the disk.

mod buffers;
mod committer;
mod content;
pub mod disk;
mod format;
mod group_write;
mod keeper;
mod lead;
mod log;
mod manifest;
mod opening;
mod queue;
mod reads;
pub mod repair;
mod replay;
mod room;
mod scan;
mod segment;
mod side;
mod threads;
pub mod verify;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::oneshot;

use self::committer::Committer;
use self::content::{PinnedContent, Readers};
use self::disk::{Disk, FailStopDisk, OsDisk};
use self::keeper::{Keeper, KeeperParts};
use self::log::{Log, LogParts};
use self::opening::Opened;
use self::queue::{Acquired, Amendment, CommitJob, JobQueue};
use self::room::Room;
use self::scan::Scan;
use self::segment::{Index, Segments};
use self::threads::Threads;
use crate::content_ref::ContentRef;
use crate::{
    Batch, BatchId, Completion, Expectation, Fence, Key, Records, Reserved, Shard, Shortage, Store,
    StoreError, Submission, Waker, Watcher,
};
use peeklock_store_log::{Cache, LogSegment as _};

/// Settings of a journal. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Size of a segment file; a larger batch gets a larger segment. At least 16 KiB and at most 1
    /// GiB.
    pub segment_bytes: u64,
    /// Memory for cached contents. Others are read from disk on demand.
    pub cache_bytes: u64,
    /// Maximum bytes of records and contents. Sends over it are refused.
    pub capacity_bytes: u64,
    /// Free disk space under which sends are refused (QUO-05). Settlements still use it, so it
    /// should be at least four segments.
    pub free_bytes_min: u64,
    /// Number of shards of a new journal. An existing one keeps its number.
    pub shard_count: u16,
}

const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

impl JournalConfig {
    /// Maximum bytes that have a reservation and are not stored yet; a single larger send is always
    /// allowed. They are in memory.
    pub const UNSTORED_BYTES_MAX: u64 = peeklock_store_log::UNSTORED_BYTES_MAX;
    /// Maximum number of open files in addition to segments: the directory, its lock, the manifest
    /// and its replacement, the reserved descriptors, the spare files with one in the making, and a
    /// side file in each direction.
    pub const FILES_BESIDE_SEGMENTS: usize =
        4 + disk::RESERVED_DESCRIPTORS + keeper::SPARES_MAX + 1 + 2;
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            cache_bytes: 64 << 20,
            capacity_bytes: u64::MAX,
            free_bytes_min: 4 * SEGMENT_BYTES_DEFAULT,
            shard_count: 16,
        }
    }
}

/// A store in a directory. Acknowledged batches are durable.
pub struct Journal {
    index: Arc<Index>,
    segments: Arc<Segments>,
    cache: Arc<Cache>,
    room: Arc<Room>,
    queue: Arc<JobQueue>,
    readers: Arc<Readers>,
    shard_count: u16,
    driver: Driver,
}

/// The driver of committer and keeper.
enum Driver {
    Threads(Threads),
    /// A test calls them.
    Manual(Mutex<Option<Box<(Committer, Keeper)>>>),
}

impl Journal {
    /// Opens the journal in a directory, or creates one, and starts its threads.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the file and the byte where acknowledged data cannot be read;
    /// nothing is changed then. [`StoreError::Failed`] if the directory cannot be read or written,
    /// or another process uses it.
    pub fn open(path: &Path, config: JournalConfig) -> Result<Arc<Self>, StoreError> {
        let disk = OsDisk::open(path).map_err(|error| {
            let (path, error) = (path.display().to_string(), error.to_string());
            // The error of a lock names the path already.
            let is_named = error.contains(&path);
            let text = if is_named { error } else { format!("data directory `{path}`: {error}") };
            StoreError::Failed(text.into())
        })?;
        Self::open_on(Arc::new(disk), config)
    }

    /// Opens the journal on a disk, and starts its threads.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_on(disk: Arc<dyn Disk>, config: JournalConfig) -> Result<Arc<Self>, StoreError> {
        let randoms = randoms()?;
        let opened = opening::open(&*disk)?;
        let cache = Arc::new(Cache::new(config.cache_bytes));
        let readers = Readers::start(Arc::clone(&cache))
            .map_err(|error| StoreError::Failed(format!("cannot start threads: {error}").into()))?;
        let (mut journal, committer, keeper) =
            Self::assemble(disk, &config, randoms, cache, readers, opened)?;
        let threads = Threads::start(Arc::clone(&journal.queue), committer, keeper)
            .map_err(|error| StoreError::Failed(format!("cannot start threads: {error}").into()))?;
        journal.driver = Driver::Threads(threads);
        Ok(Arc::new(journal))
    }

    /// Opens the journal on a disk, without threads: only [`Self::run_committer`],
    /// [`Self::run_keeper`] and [`Self::mark`] act. A new journal gets `identity`, and its segments
    /// get their seeds from `seeds`.
    ///
    /// # Errors
    /// As [`Journal::open`].
    #[cfg(feature = "testing")]
    pub fn manual(
        disk: Arc<dyn Disk>,
        config: JournalConfig,
        identity: u128,
        seeds: Box<dyn FnMut() -> u32 + Send>,
    ) -> Result<Arc<Self>, StoreError> {
        let opened = opening::open(&*disk)?;
        let cache = Arc::new(Cache::new(config.cache_bytes));
        let readers = Readers::inline(Arc::clone(&cache));
        let (mut journal, committer, keeper) =
            Self::assemble(disk, &config, (identity, seeds), cache, readers, opened)?;
        journal.driver = Driver::Manual(Mutex::new(Some(Box::new((committer, keeper)))));
        Ok(Arc::new(journal))
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        config: &JournalConfig,
        (identity, random): Randoms,
        cache: Arc<Cache>,
        readers: Readers,
        opened: Opened,
    ) -> Result<(Self, Committer, Keeper), StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(FailStopDisk::new(disk));
        let Opened { segments, index, manifest, newest, end, next_lsn, oldest } = opened;
        let segment_bytes = config.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let spares = Arc::default();
        let parts = LogParts {
            disk: Arc::clone(&disk),
            segments: Arc::clone(&segments),
            cache: Arc::clone(&cache),
            spares: Arc::clone(&spares),
            manifest,
            random,
            segment_bytes,
            journal: newest.map_or(identity, |header| header.journal),
            shard_count: newest.map_or(config.shard_count.max(1), |header| header.shard_count),
        };
        let shard_count = parts.shard_count;
        let number = newest.map_or(1, |header| header.number + 1);
        let log = Log::begin(parts, number, next_lsn, oldest, end)?;
        let room = Arc::new(Room::new(
            Arc::clone(&index),
            disk.path(),
            config.capacity_bytes,
            config.free_bytes_min,
        ));
        let queue = Arc::new(JobQueue::default());
        let committer = Committer::new(
            log,
            Arc::clone(&queue),
            Arc::clone(&index),
            Arc::clone(&segments),
            Arc::clone(&room),
            shard_count,
        );
        let mut keeper = Keeper::new(KeeperParts {
            disk,
            index: Arc::clone(&index),
            segments: Arc::clone(&segments),
            room: Arc::clone(&room),
            queue: Arc::clone(&queue),
            spares,
            segment_bytes,
        });
        keeper.check_idle();
        keeper.warn_of_a_small_disk();
        let journal = Self {
            index,
            segments,
            cache,
            room,
            queue,
            readers: Arc::new(readers),
            shard_count,
            driver: Driver::Manual(Mutex::new(None)),
        };
        Ok((journal, committer, keeper))
    }

    /// Writes all submitted batches as one group, syncs, and completes them. Returns whether there
    /// was any work. Only without threads.
    #[cfg(feature = "testing")]
    pub fn run_committer(&self) -> bool {
        self.turn()
    }

    /// Writes groups of at least `records` records in the background: they finish one turn later.
    /// Only without threads.
    #[cfg(feature = "testing")]
    pub fn set_background_records_min(&self, records: usize) {
        if let Driver::Manual(manual) = &self.driver
            && let Some(manual) = &mut *lock(manual)
        {
            manual.0.set_background_records_min(records);
        }
    }

    fn turn(&self) -> bool {
        let Driver::Manual(manual) = &self.driver else { return false };
        let Some(manual) = &mut *lock(manual) else { return false };
        let committer = &mut manual.0;
        match self.queue.wait(Some(std::time::Duration::ZERO)) {
            queue::CommitterWakeup::Jobs => committer.turn(self.queue.take()),
            queue::CommitterWakeup::Quiet | queue::CommitterWakeup::Closed
                if !committer.is_writing_large() && !committer.has_pending_writes() =>
            {
                return false;
            }
            queue::CommitterWakeup::Quiet | queue::CommitterWakeup::Closed => {
                committer.turn([].into())
            }
        }
        true
    }

    /// Runs a step of the keeper. Returns whether it made progress without waiting for the
    /// committer. Only without threads.
    #[cfg(feature = "testing")]
    pub fn run_keeper(&self) -> bool {
        let Driver::Manual(manual) = &self.driver else { return false };
        let Some(manual) = &mut *lock(manual) else { return false };
        match manual.1.step() {
            keeper::KeeperProgress::Worked => true,
            keeper::KeeperProgress::Waiting => false,
            keeper::KeeperProgress::Idle => {
                manual.1.check_idle();
                false
            }
        }
    }

    /// Acts like a second without submissions: writes a mark. Only without threads.
    #[cfg(feature = "testing")]
    pub fn mark(&self) {
        if let Driver::Manual(manual) = &self.driver
            && let Some(manual) = &mut *lock(manual)
        {
            manual.0.mark();
        }
    }

    /// Asks the committer to raise the epoch of a shard. Without threads, it has done so.
    fn begin_acquire(&self, shard: Shard) -> Result<oneshot::Receiver<Acquired>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.push(CommitJob::Acquire(shard, answer)).map_err(|(_, error)| error)?;
        self.run_if_manual();
        Ok(answered)
    }

    /// Without threads, carries out all jobs.
    fn run_if_manual(&self) {
        while matches!(self.driver, Driver::Manual(_)) && self.turn() {}
    }

    /// The reason why jobs are no longer done.
    fn end(&self) -> StoreError {
        self.queue.ended().unwrap_or_else(|| StoreError::Failed("the store is closed".into()))
    }

    fn ended(&self) -> Result<(), StoreError> {
        self.queue.ended().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Store for Journal {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn shard_count(&self) -> u16 {
        self.shard_count
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.begin_acquire(shard)?.await.unwrap_or_else(|_| Err(self.end()))
    }

    fn stored_bytes(&self) -> Option<u64> {
        Some(self.segments.all().iter().map(|segment| segment.end()).sum())
    }

    fn reserve(&self, _: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.room.reserve(bytes, waker)
    }

    fn shortage(&self, bytes: u64) -> Option<Shortage> {
        self.room.shortage(bytes)
    }

    fn unreserve(&self, _: Shard, bytes: u64) {
        self.room.give_back(bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        if let Err((CommitJob::Submit(submission, completion), error)) =
            self.queue.push(CommitJob::Submit(submission, completion))
        {
            self.room.give_back(submission.batch.reserved());
            completion(Err(error));
        }
    }

    fn commit_here(&self, submit: &mut dyn FnMut()) -> bool {
        match &self.driver {
            Driver::Threads(threads) => threads.commit_here(&self.queue, submit),
            Driver::Manual(manual) => match &mut *lock(manual) {
                Some(manual) => lead::commit_here(&self.queue, &mut manual.0, submit),
                None => {
                    submit();
                    false
                }
            },
        }
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        if batch.has_contents() {
            return Err(StoreError::Failed("an amendment has no contents".into()));
        }
        let (answer, answered) = oneshot::channel();
        let amendment = Amendment { expected: expected.to_vec(), batch, answer };
        self.queue.push(CommitJob::Amend(Box::new(amendment))).map_err(|(_, error)| error)?;
        self.run_if_manual();
        answered.await.unwrap_or_else(|_| Err(self.end()))
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let mut pinned = Vec::with_capacity(keys.len());
        self.index.pin(keys, &mut pinned);
        let pinned: Vec<_> =
            pinned.into_iter().map(|pinned| pinned.map(PinnedContent::of)).collect();
        let found = self.cache.find(&pinned, PinnedContent::lookup);
        contents.extend(pinned.into_iter().zip(found).map(|(content, found)| {
            let content = content?;
            // Damaged cached bytes are read again from disk. The reader gets an error only if those
            // are damaged too.
            Some(match found.map(|found| content.checked(&found)) {
                Some(Ok(bytes)) => ContentRef::Loaded(bytes),
                Some(Err(_)) | None => content::stored(content, &self.readers),
            })
        }));
    }

    fn pin_unloaded(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let mut pinned = Vec::with_capacity(keys.len());
        self.index.pin(keys, &mut pinned);
        contents.extend(pinned.into_iter().map(|pinned| {
            let content = PinnedContent::of(pinned?);
            Some(content::stored(content, &self.readers))
        }));
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        Box::new(Scan::new(&self.index, &self.segments, &self.queue, *prefix))
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        // The content of a failed journal is unknown.
        self.ended()?;
        Ok(keys.iter().map(|key| self.index.get(key.as_bytes()).is_some()).collect())
    }

    fn watch(&self, watcher: Watcher) {
        self.queue.watch(watcher);
    }

    fn close(&self) -> Result<(), StoreError> {
        self.queue.close();
        match &self.driver {
            Driver::Threads(threads) => threads.join(),
            Driver::Manual(manual) => {
                while self.turn() {}
                if let Some(mut manual) = lock(manual).take() {
                    manual.0.close();
                }
            }
        }
        self.readers.stop();
        self.ended()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Driver::Threads(threads) = &self.driver {
            self.queue.close();
            threads.join();
            self.readers.stop();
        }
    }
}

/// The identity of a new journal, and the source of its seeds.
type Randoms = (u128, Box<dyn FnMut() -> u32 + Send>);

fn randoms() -> Result<Randoms, StoreError> {
    let mut seeds = seeds()?;
    let identity = (u128::from(seeds()) << 96)
        | (u128::from(seeds()) << 64)
        | (u128::from(seeds()) << 32)
        | u128::from(seeds());
    Ok((identity, Box::new(seeds)))
}

/// A source of unpredictable numbers.
fn seeds() -> Result<impl FnMut() -> u32 + Send, StoreError> {
    let random = |error: getrandom::Error| {
        StoreError::Failed(format!("cannot get random bytes from the system: {error}").into())
    };
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(random)?;
    let mut count = 0u64;
    Ok(move || {
        use std::hash::Hasher as _;
        count += 1;
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(&seed);
        hasher.write_u64(count);
        u32::try_from(hasher.finish() >> 32).unwrap_or(0)
    })
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

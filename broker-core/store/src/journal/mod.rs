//! The journal: a log of segments on disk, an index of it in memory (DESIGN D12).
//!
//! ```text
//!  submit ──► queue ──► committer ──► log (segments) ──► completion
//!                          │ index, cache                    ▲
//!  reserve ◄── room ◄──────┤                                 │ records written again
//!  pin, scan ◄── index ◄───┴───────── keeper ────────────────┘ spare, side files, oldest segment
//! ```
//!
//! A broker needs "append, read by position, forget", and this is no more. Read in the order of the
//! modules: how bytes look, the files, where everything is, then the three that act: `committer`
//! writes, `keeper` cleans up behind, `opening` reads it all again.
//!
//! Absent on purpose: a second attempt. A write or sync that fails ends the journal; what the disk
//! holds then is found out by opening it again.

mod buffers;
mod cache;
mod committer;
mod content;
pub mod disk;
mod flight;
mod format;
mod index;
mod keeper;
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
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::cache::Cache;
use self::committer::Committer;
use self::content::{PinnedContent, Readers};
use self::disk::{Disk, OnceFailed, OsDisk};
use self::index::Index;
use self::keeper::{Keeper, KeeperParts};
use self::log::{Log, LogParts};
use self::opening::Opened;
use self::queue::{Job, Queue};
use self::room::Room;
use self::segment::Segments;
use self::threads::Threads;
use crate::content_ref::ContentRef;
use crate::{
    BatchId, Completion, Fence, Key, Reserved, Shard, Shortage, Store, StoreError, Submission,
    Visit, Waker, Watcher,
};

/// How a journal is kept. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Size of a segment file; one that must hold a larger batch is made larger. At least 16 KiB and
    /// at most 1 GiB.
    pub segment_bytes: u64,
    /// Memory for contents; the others are read from disk when they are wanted.
    pub cache_bytes: u64,
    /// What records and contents may take; sends are refused beyond it.
    pub capacity_bytes: u64,
    /// Free space of the disk under which sends are refused (QUO-05). Settlements live on it, so it
    /// should be no less than four segments.
    pub free_bytes_min: u64,
    /// How many shards a new journal gets. An existing one keeps its number.
    pub shard_count: u16,
}

const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

impl JournalConfig {
    /// Bytes of what was granted room and is not stored yet, at most, but always one send: they are in memory.
    pub const UNSTORED_BYTES_MAX: u64 = room::BUSY_BYTES;
    /// Files that are open beside segments, at most: the directory, its lock, the manifest and what replaces it, the
    /// descriptors that are kept, files that become segments with the one that is made, a side file for each way.
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

/// A store in a directory, durable at acknowledgement.
pub struct Journal {
    index: Arc<Index>,
    segments: Arc<Segments>,
    cache: Arc<Cache>,
    room: Arc<Room>,
    queue: Arc<Queue>,
    readers: Arc<Readers>,
    shard_count: u16,
    driver: Driver,
}

/// Who makes the committer and the keeper go.
enum Driver {
    Threads(Threads),
    /// A test does.
    Hand(Mutex<Option<Box<(Committer, Keeper)>>>),
}

impl Journal {
    /// Opens the journal in a directory, or makes a new one, and starts its threads.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the file and the byte where acknowledged data cannot be read;
    /// nothing is changed then. [`StoreError::Failed`] when the directory cannot be read or written,
    /// or another process has it.
    pub fn open(path: &Path, config: JournalConfig) -> Result<Arc<Self>, StoreError> {
        let disk = OsDisk::open(path).map_err(|error| {
            let (path, error) = (path.display().to_string(), error.to_string());
            // Where another process has it, that names it.
            let is_named = error.contains(&path);
            let text = if is_named { error } else { format!("data directory `{path}`: {error}") };
            StoreError::Failed(text.into())
        })?;
        Self::open_on(Arc::new(disk), config)
    }

    /// Opens the journal on a disk, and starts its threads.
    ///
    /// # Errors
    /// See [`Journal::open`].
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

    /// Opens the journal on a disk, without threads: nothing happens but by [`Self::turn_committer`],
    /// [`Self::turn_keeper`] and [`Self::mark`].
    ///
    /// # Errors
    /// See [`Journal::open`].
    #[cfg(feature = "testing")]
    pub fn manual(
        disk: Arc<dyn Disk>,
        config: JournalConfig,
        seed: u64,
    ) -> Result<Arc<Self>, StoreError> {
        let opened = opening::open(&*disk)?;
        let mut random = crate::testing::Random::new(seed);
        let identity = u128::from(random.bits());
        let seeds = Box::new(move || u32::try_from(random.below(1 << 32)).unwrap_or(0));
        let cache = Arc::new(Cache::new(config.cache_bytes));
        let readers = Readers::inline(Arc::clone(&cache));
        let (mut journal, committer, keeper) =
            Self::assemble(disk, &config, (identity, seeds), cache, readers, opened)?;
        journal.driver = Driver::Hand(Mutex::new(Some(Box::new((committer, keeper)))));
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
        let disk: Arc<dyn Disk> = Arc::new(OnceFailed::new(disk));
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
        let queue = Arc::new(Queue::default());
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
        keeper.look_around();
        keeper.warn_of_a_small_disk();
        let journal = Self {
            index,
            segments,
            cache,
            room,
            queue,
            readers: Arc::new(readers),
            shard_count,
            driver: Driver::Hand(Mutex::new(None)),
        };
        Ok((journal, committer, keeper))
    }

    /// Takes everything that was submitted: writes it as one group, syncs, completes. Returns whether
    /// there was something. Without threads only.
    #[cfg(feature = "testing")]
    pub fn turn_committer(&self) -> bool {
        self.turn()
    }

    /// Lets groups of so many records be written while the next one is put together: one turn later.
    /// Without threads only.
    #[cfg(feature = "testing")]
    pub fn fly_from(&self, records: usize) {
        if let Driver::Hand(hand) = &self.driver
            && let Some(hand) = &mut *lock(hand)
        {
            hand.0.fly_from(records);
        }
    }

    fn turn(&self) -> bool {
        let Driver::Hand(hand) = &self.driver else { return false };
        let Some(hand) = &mut *lock(hand) else { return false };
        let committer = &mut hand.0;
        match self.queue.take(Some(std::time::Duration::ZERO)) {
            queue::Arrival::Jobs(jobs) => committer.turn(jobs),
            queue::Arrival::Quiet | queue::Arrival::Closed
                if !committer.is_writing_large() && !committer.is_flying() =>
            {
                return false;
            }
            queue::Arrival::Quiet | queue::Arrival::Closed => committer.turn([].into()),
        }
        true
    }

    /// Does one thing that the keeper has to do. Returns whether there was one that needs nobody else.
    /// Without threads only.
    #[cfg(feature = "testing")]
    pub fn turn_keeper(&self) -> bool {
        let Driver::Hand(hand) = &self.driver else { return false };
        let Some(hand) = &mut *lock(hand) else { return false };
        match hand.1.step() {
            keeper::Step::Did => true,
            keeper::Step::Waiting => false,
            keeper::Step::Idle => {
                hand.1.look_around();
                false
            }
        }
    }

    /// Does what a second of quiet does. Without threads only.
    #[cfg(feature = "testing")]
    pub fn mark(&self) {
        if let Driver::Hand(hand) = &self.driver
            && let Some(hand) = &mut *lock(hand)
        {
            hand.0.mark();
        }
    }

    fn ended(&self) -> Result<(), StoreError> {
        self.queue.ended().map_or(Ok(()), Err)
    }
}

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

    fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        let (answer, answered) = channel();
        self.queue.push(Job::Acquire(shard, answer)).map_err(|(_, error)| error)?;
        while matches!(self.driver, Driver::Hand(_)) && self.turn() {}
        let ended = || StoreError::Failed("the store is closed".into());
        answered.recv().unwrap_or_else(|_| Err(self.queue.ended().unwrap_or_else(ended)))
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
        if let Err((Job::Submit(submission, completion), error)) =
            self.queue.push(Job::Submit(submission, completion))
        {
            self.room.give_back(submission.batch.reserved());
            completion(Err(error));
        }
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let mut pinned = Vec::with_capacity(keys.len());
        self.index.pin(keys, &mut pinned);
        let pinned: Vec<_> =
            pinned.into_iter().map(|pinned| pinned.map(PinnedContent::of)).collect();
        let mut look = self.cache.look();
        let mut found: Vec<_> = pinned
            .iter()
            .map(|content| content.as_ref().and_then(|one| one.look(&mut look)))
            .collect();
        drop(look);
        cache::let_go(&mut found);
        contents.extend(pinned.into_iter().zip(found).map(|(content, found)| {
            let content = content?;
            // What is damaged in memory is read again, and the reader is told if that is too.
            Some(match found.map(|found| content.taken(&found)) {
                Some(Ok(bytes)) => ContentRef::Loaded(bytes),
                Some(Err(_)) | None => content::stored(content, &self.readers),
            })
        }));
    }

    fn pin_apart(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let mut pinned = Vec::with_capacity(keys.len());
        self.index.pin(keys, &mut pinned);
        contents.extend(pinned.into_iter().map(|pinned| {
            let content = PinnedContent::of(pinned?);
            Some(content::stored(content, &self.readers))
        }));
    }

    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        // What a journal that has ended holds is not known.
        self.ended()?;
        scan::scan(&self.index, &self.segments, prefix, visit)
    }

    fn watch(&self, watcher: Watcher) {
        self.queue.watch(watcher);
    }

    fn close(&self) -> Result<(), StoreError> {
        self.queue.close();
        match &self.driver {
            Driver::Threads(threads) => threads.join(),
            Driver::Hand(hand) => {
                while self.turn() {}
                if let Some(mut hand) = lock(hand).take() {
                    hand.0.close();
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

/// The name of a new journal, and seeds.
type Randoms = (u128, Box<dyn FnMut() -> u32 + Send>);

fn randoms() -> Result<Randoms, StoreError> {
    let mut seeds = seeds()?;
    let identity = (u128::from(seeds()) << 96)
        | (u128::from(seeds()) << 64)
        | (u128::from(seeds()) << 32)
        | u128::from(seeds());
    Ok((identity, Box::new(seeds)))
}

/// Numbers nobody can guess.
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

/// Locks a mutex whose data no panic can leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

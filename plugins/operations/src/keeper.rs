//! The keeper that the broker asks: passes requests to the thread of the jobs.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::contract::{JobKeeper, JobRunner};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, JobId};
use peeklock_core::inspect::{JobControl, JobDraft, JobExportPart, JobFacts, JobFailurePage};
use peeklock_core::store::journal::disk::{Disk, OsDisk};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use crate::engine::{self, Request};
use crate::shelf::Shelf;
use crate::table::{Bounds, Table};

/// Maximum number of requests that wait for the thread.
const REQUEST_COUNT_MAX: usize = 64;
/// Maximum bytes of the files of ended jobs.
const ENDED_BYTES_MAX: u64 = 64 << 20;
/// The same for jobs that are kept in memory.
const ENDED_MEMORY_MAX: u64 = 4 << 20;

/// Keeps jobs in a directory, or in memory.
pub struct Operations {
    table: Arc<Table>,
    requests: mpsc::Sender<Request>,
    /// Taken by the thread.
    received: Mutex<Option<mpsc::Receiver<Request>>>,
}

impl Operations {
    /// Maximum number of open files: the directory, its lock, the reserve of the disk, files with
    /// the messages that four jobs put back, and a file that is read or written.
    pub const FILES: usize = 14;
    /// Maximum memory: selections of all jobs that have not ended, facts of all jobs, a file that
    /// is read, and messages that are kept or put back.
    pub const BYTES_MAX: u64 = 112 << 20;
    /// Maximum memory of messages of jobs that can be undone, for a broker without a data
    /// directory.
    pub const UNDO_MEMORY_MAX: u64 = 64 << 20;
    /// Maximum bytes of the files of such messages.
    pub const UNDO_BYTES_MAX: u64 = 256 << 20;
    /// Maximum memory of the files of exports, for a broker without a data directory.
    pub const EXPORT_MEMORY_MAX: u64 = 64 << 20;
    /// Maximum bytes of the files of exports.
    pub const EXPORT_BYTES_MAX: u64 = 1 << 30;

    /// Opens the jobs in a directory, which is created if it is missing.
    ///
    /// # Errors
    /// The directory or a file cannot be read, or another process uses it.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Self::on(Arc::new(OsDisk::open(directory)?))
    }

    /// Opens the jobs on a disk.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn on(disk: Arc<dyn Disk>) -> io::Result<Self> {
        Self::on_with_exports(disk, Self::EXPORT_BYTES_MAX)
    }

    /// The same with another maximum of the files of exports, for tests of the bound.
    #[doc(hidden)]
    pub fn on_with_exports(disk: Arc<dyn Disk>, output_bytes: u64) -> io::Result<Self> {
        let (ended_bytes, undo_bytes) = (ENDED_BYTES_MAX, Self::UNDO_BYTES_MAX);
        let bounds = Bounds { ended_bytes, undo_bytes, output_bytes };
        Ok(Self::new(Table::open(Shelf::Disk(disk), bounds)?))
    }

    /// Keeps jobs in memory, for a broker without a data directory.
    #[must_use]
    pub fn in_memory() -> Self {
        let bounds = Bounds {
            ended_bytes: ENDED_MEMORY_MAX,
            undo_bytes: Self::UNDO_MEMORY_MAX,
            output_bytes: Self::EXPORT_MEMORY_MAX,
        };
        Self::new(Table::new(Shelf::Memory(Arc::default()), bounds))
    }

    fn new(table: Table) -> Self {
        let (requests, received) = mpsc::channel(REQUEST_COUNT_MAX);
        Self { table: Arc::new(table), requests, received: Mutex::new(Some(received)) }
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Rejection>>) -> Request,
    ) -> Result<T, Rejection> {
        let (answer, answered) = oneshot::channel();
        let ended = || Rejection::cancelled("the broker is stopping");
        self.requests.send(request(answer)).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

impl JobRunner for Operations {
    fn begin(&self, broker: Broker) -> io::Result<()> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(received) = received else {
            return Err(io::Error::other("the jobs belong to another broker; give each its own"));
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let table = Arc::clone(&self.table);
        let work = move || {
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, engine::run(broker, Arc::clone(&table), received));
            drop(tasks);
            table.end();
        };
        std::thread::Builder::new().name("jobs".to_owned()).spawn(work).map(drop)
    }
}

#[async_trait]
impl JobKeeper for Operations {
    async fn end(&self) {
        let (done, ended) = oneshot::channel();
        if self.requests.send(Request::End(done)).await.is_ok() {
            ended.await.ok();
        }
    }

    fn path(&self, job: JobId) -> Option<Arc<str>> {
        self.table.path(job)
    }

    fn entity(&self, job: JobId) -> Option<EntityId> {
        self.table.entity(job)
    }

    fn list(&self) -> Vec<(JobId, Arc<str>)> {
        self.table.list()
    }

    fn describe(&self, job: JobId) -> Option<JobFacts> {
        self.table.facts(job)
    }

    async fn create(&self, path: &str, draft: JobDraft) -> Result<JobFacts, Rejection> {
        self.ask(|answer| Request::Create(path.to_owned(), Box::new(draft), answer)).await
    }

    async fn control(&self, job: JobId, control: JobControl) -> Result<JobFacts, Rejection> {
        self.ask(|answer| Request::Control(job, control, answer)).await
    }

    async fn failures(
        &self,
        job: JobId,
        skip: u32,
        count_max: u32,
    ) -> Result<JobFailurePage, Rejection> {
        self.ask(|answer| Request::Failures(job, skip, count_max, answer)).await
    }

    async fn export(&self, job: JobId, from: u64, length: u64) -> Result<JobExportPart, Rejection> {
        self.ask(|answer| Request::Export(job, from, length, answer)).await
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").finish_non_exhaustive()
    }
}

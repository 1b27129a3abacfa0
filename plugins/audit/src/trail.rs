//! The auditor over files: a thread that writes, and a thread that reads.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use peeklock_core::contract::{AuditEntry, AuditError, AuditPage, AuditQuery, Auditor, Recorded};
use peeklock_core::store::journal::disk::{Disk, OsDisk};
use tokio::sync::oneshot;

use crate::log::{AuditConfig, FileFacts, GROUP_MAX, Log, OpenError};
use crate::page::read_page;

/// Maximum number of entries that wait for the writer, and of requests that wait for the reader.
const QUEUE_MAX: usize = 1_024;

type Files = Arc<Mutex<Vec<FileFacts>>>;

struct WaitingEntry {
    entry: AuditEntry,
    done: oneshot::Sender<Result<(), AuditError>>,
}

struct WaitingRead {
    query: AuditQuery,
    done: oneshot::Sender<io::Result<AuditPage>>,
}

/// Trail in a directory. Dropping it writes the waiting entries first.
pub struct AuditTrail {
    writes: Option<SyncSender<WaitingEntry>>,
    reads: Option<SyncSender<WaitingRead>>,
    threads: Vec<JoinHandle<()>>,
    records_reads: bool,
}

impl AuditTrail {
    /// Maximum number of open files: the directory, its lock, the reserve of the disk, and a file
    /// that is written and one that is read.
    pub const FILES: usize = 12;
    /// Maximum memory of entries that wait to be written.
    pub const WAITING_BYTES_MAX: usize = QUEUE_MAX * (130 << 10);

    /// Opens the trail in a directory, which is created if it is missing. Mends the end of a trail
    /// that a crash has torn.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(directory: &Path, config: AuditConfig) -> Result<Self, OpenError> {
        Self::on(Arc::new(OsDisk::open(directory)?), config)
    }

    /// Opens the trail on a disk.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn on(disk: Arc<dyn Disk>, config: AuditConfig) -> Result<Self, OpenError> {
        let records_reads = config.records_reads;
        let log = Log::open(Arc::clone(&disk), config)?;
        let files: Files = Arc::new(Mutex::new(log.files().to_vec()));
        let (writes, written) = sync_channel(QUEUE_MAX);
        let (reads, read) = sync_channel(QUEUE_MAX);
        let shared = Arc::clone(&files);
        let threads = vec![
            thread("audit-writer", move || write_all(log, &written, &shared))?,
            thread("audit-reader", move || read_all(&*disk, &read, &files))?,
        ];
        Ok(Self { writes: Some(writes), reads: Some(reads), threads, records_reads })
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Writes entries in groups, until the trail is dropped.
fn write_all(mut log: Log, written: &Receiver<WaitingEntry>, files: &Files) {
    while let Ok(first) = written.recv() {
        let mut group = vec![first];
        group.extend(written.try_iter().take(GROUP_MAX - 1));
        let (entries, waiting): (Vec<_>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.entry, waiting.done)).unzip();
        let outcome = log.append(&entries);
        *files.lock().unwrap_or_else(PoisonError::into_inner) = log.files().to_vec();
        for done in waiting {
            // A caller that has left does not wait.
            done.send(outcome.clone()).ok();
        }
    }
}

fn read_all(disk: &dyn Disk, read: &Receiver<WaitingRead>, files: &Files) {
    while let Ok(WaitingRead { query, done }) = read.recv() {
        let now = files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        done.send(read_page(disk, &now, &query)).ok();
    }
}

#[async_trait]
impl Auditor for AuditTrail {
    fn record(&self, entry: AuditEntry) -> Recorded {
        let (done, written) = oneshot::channel();
        let sent = match &self.writes {
            Some(writes) => writes.try_send(WaitingEntry { entry, done }).map_err(refused),
            None => Err(ended()),
        };
        Box::pin(async move {
            sent?;
            written.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    async fn read(&self, query: AuditQuery) -> Result<AuditPage, AuditError> {
        let (done, page) = oneshot::channel();
        let reads = self.reads.as_ref().ok_or_else(ended)?;
        reads.try_send(WaitingRead { query, done }).map_err(refused)?;
        let page = page.await.map_err(|_| ended())?;
        page.map_err(|error| AuditError::Failed(error.to_string().into()))
    }

    fn records_reads(&self) -> bool {
        self.records_reads
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused<T>(error: TrySendError<T>) -> AuditError {
    match error {
        TrySendError::Full(_) => AuditError::Busy,
        TrySendError::Disconnected(_) => ended(),
    }
}

fn ended() -> AuditError {
    AuditError::Failed("its thread has ended".into())
}

impl Drop for AuditTrail {
    fn drop(&mut self) {
        (self.writes, self.reads) = (None, None);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the audit trail has panicked");
            }
        }
    }
}

impl fmt::Debug for AuditTrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditTrail").finish_non_exhaustive()
    }
}

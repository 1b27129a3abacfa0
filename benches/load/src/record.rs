//! A disk that forwards and records operations, so that they can be repeated without a broker.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use peeklock::store::journal::disk::{Disk, DiskFile};

/// A recorded operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A file of this size was created and allocated.
    Create { file: u64, bytes: u64 },
    /// `bytes` bytes were written at `offset`.
    Write { file: u64, offset: u64, bytes: u64 },
    /// A file was synced.
    Sync { file: u64 },
}

/// The recording disk.
pub struct Recorder {
    disk: Arc<dyn Disk>,
    steps: Arc<Mutex<Vec<Step>>>,
    next_file: AtomicU64,
}

impl Recorder {
    /// Records the operations on `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, steps: Arc::default(), next_file: AtomicU64::new(0) }
    }

    /// The operations since the last call, in order.
    pub fn take(&self) -> Vec<Step> {
        std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        Arc::new(RecordedFile { file, number, steps: Arc::clone(&self.steps) })
    }
}

impl Disk for Recorder {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name).map(|file| self.wrap(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(name).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

struct RecordedFile {
    file: Arc<dyn DiskFile>,
    number: u64,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl RecordedFile {
    fn note(&self, step: Step) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        // Adjacent pieces count as one write, because a loop without other work would write them at
        // once.
        if let (Some(Step::Write { file, offset, bytes }), Step::Write { bytes: more, .. }) =
            (steps.last_mut(), step)
            && step == (Step::Write { file: *file, offset: *offset + *bytes, bytes: more })
        {
            *bytes += more;
            return;
        }
        steps.push(step);
    }
}

impl DiskFile for RecordedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.note(Step::Write { file: self.number, offset, bytes: bytes.len() as u64 });
        self.file.write_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.note(Step::Create { file: self.number, bytes });
        self.file.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.note(Step::Sync { file: self.number });
        self.file.sync()
    }
}

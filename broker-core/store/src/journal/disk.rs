//! The file system operations of the journal, and their real implementation.
//!
//! The traits exist so that a test can replace the disk: lose unsynced bytes, tear or reorder them,
//! fail any call. No module above this one uses `std::fs`.

mod directory;
mod lock;
mod reserve;
#[cfg(test)]
mod test_folder;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use self::directory::OsDisk;
pub(super) use self::reserve::RESERVED_DESCRIPTORS;

/// A flat directory of files. Names are durable after [`Disk::sync`], bytes after
/// [`DiskFile::sync`].
pub trait Disk: Send + Sync {
    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes an empty file; fails if the name exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, and replaces an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. A process with the file open can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the current names durable.
    fn sync(&self) -> io::Result<()>;

    /// Number of bytes that can still be allocated.
    fn free_bytes(&self) -> io::Result<u64>;

    /// The path of the directory, for logs and errors, if it has one.
    fn path(&self) -> Option<Arc<str>> {
        None
    }
}

/// A file that is read and written by position.
pub trait DiskFile: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads up to a whole buffer; fewer bytes only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Allocates space up to `bytes` bytes, with zeros where there was no data, so that writes
    /// there cannot fail for lack of space.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Truncates the file to `bytes` bytes.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes the bytes of the file and its length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A disk on which every directory sync fails after the first failed one: the names lost in that
/// failure would not be written by a later sync.
pub(super) struct FailStopDisk {
    disk: Arc<dyn Disk>,
    has_failed: AtomicBool,
}

impl FailStopDisk {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, has_failed: AtomicBool::new(false) }
    }
}

impl Disk for FailStopDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        if self.has_failed.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier sync of the directory has failed"));
        }
        self.disk.sync().inspect_err(|_| self.has_failed.store(true, Ordering::SeqCst))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn path(&self) -> Option<Arc<str>> {
        self.disk.path()
    }
}

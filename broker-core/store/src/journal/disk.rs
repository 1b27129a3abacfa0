//! What the journal asks of a file system, and the real one.
//!
//! The seam is here so that a test can stand for the disk: lose what was not synced, tear it, reorder
//! it, fail any call. Nothing above this module touches `std::fs`.

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

/// A flat directory of files. Names are durable after [`Disk::sync`], bytes after [`DiskFile::sync`].
pub trait Disk: Send + Sync {
    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes an empty file; fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, replacing a file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Whoever has the file open can go on reading it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names durable as they are now.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that can still be allocated.
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

    /// Takes space for so many bytes, zeros where nothing was, so that writing there cannot run out
    /// of it.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Cuts the file to so many bytes.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes the bytes of the file and its length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A disk whose names are never said to be durable once making them durable has failed: what was lost
/// then is on no list of things still to be written.
pub(super) struct OnceFailed {
    disk: Arc<dyn Disk>,
    has_failed: AtomicBool,
}

impl OnceFailed {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, has_failed: AtomicBool::new(false) }
    }
}

impl Disk for OnceFailed {
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

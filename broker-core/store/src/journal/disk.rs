//! What the journal asks of a file system, and the real one.
//!
//! The seam is here so that a test can stand for the disk: lose what was not synced, tear it, reorder
//! it, fail any call. Nothing above this file touches `std::fs`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The file that tells a second process that the directory is in use.
const LOCK_NAME: &str = "lock";
/// Zeros are written in pieces of this size where space cannot be allocated otherwise.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

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
}

/// A directory of the operating system, locked to this process.
pub struct OsDisk {
    path: PathBuf,
    directory: File,
    is_read_only: bool,
    /// Held for as long as the directory is in use; `None` where nobody can write anyway.
    _lock: Option<File>,
}

impl OsDisk {
    /// Opens a directory, which is made if there is none, and locks it.
    ///
    /// # Errors
    /// When it cannot be made or another process has it; the text says which process.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            std::fs::create_dir_all(path)?;
            // The new name is durable too, or a restart would find an empty place.
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let lock_path = path.join(LOCK_NAME);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&lock_path)?;
        let lock = Some(take_lock(lock, path)?);
        Ok(Self {
            directory: File::open(path)?,
            path: path.to_owned(),
            is_read_only: false,
            _lock: lock,
        })
    }

    /// Opens a directory that exists to look at it, and locks it: no file can be written through it.
    ///
    /// # Errors
    /// When it is not there or another process has it; the text says which process.
    pub fn look_at(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        let lock = match OpenOptions::new().read(true).write(true).open(path.join(LOCK_NAME)) {
            Ok(lock) => Some(take_lock(lock, path)?),
            // A copy, or a file system that nobody can write to.
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem => None,
                _ => return Err(error),
            },
        };
        Ok(Self { directory, path: path.to_owned(), is_read_only: true, _lock: lock })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Locks a directory by its lock file, and writes there who has it.
fn take_lock(mut lock: File, path: &Path) -> io::Result<File> {
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            lock.read_to_string(&mut holder).ok();
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("`{}` is in use by {holder}", path.display()),
            ));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    writeln!(lock, "{}", std::process::id())?;
    Ok(lock)
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && name != LOCK_NAME
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(!self.is_read_only).open(self.at(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(self.at(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.at(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let found = statvfs(&self.path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

struct OsFile(File);

impl DiskFile for OsFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // Not every file system can; then the space is taken by writing to it.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let mut offset = self.length()?;
                while offset < bytes {
                    let count = (bytes - offset).min(ZEROS.len() as u64);
                    let piece = ZEROS.get(..usize::try_from(count).unwrap_or(0));
                    self.0.write_all_at(piece.unwrap_or(&ZEROS), offset)?;
                    offset += count;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

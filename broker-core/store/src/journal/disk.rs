//! What the journal asks of a file system, and the real one.
//!
//! The seam is here so that a test can stand for the disk: lose what was not synced, tear it, reorder
//! it, fail any call. Nothing above this file touches `std::fs`.

use std::fs::{DirBuilder, File, Metadata, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, Dir, FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// The file that tells a second process that the directory is in use.
const LOCK_NAME: &str = "lock";
/// Who has the directory stands in so many bytes of it.
const PID_BYTES: u64 = 21;
/// Descriptors that are kept for files of the store. A roll opens one, the keeper a spare and a side file.
pub(super) const RESERVED_DESCRIPTORS: usize = 8;
/// How long the store waits for a descriptor, when even those are gone, and how long between two looks.
const DESCRIPTOR_WAIT: Duration = Duration::from_mins(1);
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);
/// Zeros are written in pieces of this size where space cannot be allocated otherwise.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// The directories that this process has. The number in a lock file does not tell: in containers each has the same.
static HELD: Mutex<Vec<DirectoryId>> = Mutex::new(Vec::new());

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

/// A directory of the operating system, locked to this process. Its files are reached by the directory that
/// was opened, whatever becomes of its path, and none of them through a link.
pub struct OsDisk {
    /// First of all, to be dropped before the locks are.
    _held: Held,
    directory: File,
    is_read_only: bool,
    reserve: Reserve,
    /// The lock is held for as long as the directory is in use. So is that on a file in it, by which
    /// earlier versions tell; `None` where nobody can write anyway.
    _lock: Option<File>,
}

impl OsDisk {
    /// Opens a directory, which is made if there is none, for nobody but its owner, and locks it.
    ///
    /// # Errors
    /// When it cannot be made or a process has it, which may be this one; the text says which.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            // The new name is durable too, or a restart would find an empty place.
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let directory = File::open(path)?;
        lock_directory(&directory, path)?;
        let flags = OFlags::CREATE | OFlags::RDWR;
        let lock = take_lock(open_at(&directory, LOCK_NAME, flags)?, &directory, path)?;
        let held = Held::note(&directory)?;
        warn_of_readers(&directory, path);
        let reserve = Reserve::of(&directory, RESERVED_DESCRIPTORS)?;
        Ok(Self { _held: held, directory, is_read_only: false, reserve, _lock: Some(lock) })
    }

    /// Opens a directory that exists to look at it, and locks it: no file can be written through it.
    ///
    /// # Errors
    /// When it is not there or a process has it, which may be this one; the text says which.
    pub fn look_at(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        lock_directory(&directory, path)?;
        let lock = match open_at(&directory, LOCK_NAME, OFlags::RDWR) {
            Ok(lock) => Some(take_lock(lock, &directory, path)?),
            // A copy, or a file system that nobody can write to.
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem => None,
                _ => return Err(error),
            },
        };
        let held = Held::note(&directory)?;
        let reserve = Reserve::of(&directory, 0)?;
        Ok(Self { _held: held, directory, is_read_only: true, reserve, _lock: lock })
    }

    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.reserve.open(&self.directory, || open_at(&self.directory, name, flags))?;
        Ok(Arc::new(OsFile(file)))
    }
}

/// Opens a file of a directory, never through a link; one that is made is for its owner alone.
fn open_at(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(directory, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(is_a_link(name)),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("`{name}` is not a file; remove it")));
    }
    Ok(file)
}

fn is_a_link(name: &str) -> io::Error {
    io::Error::other(format!(
        "`{name}` is a link, and what it leads to may belong to somebody else; remove it"
    ))
}

/// Says that others than the owner can read what is stored, in a directory from before files were made for
/// their owner alone.
fn warn_of_readers(directory: &File, path: &Path) {
    let others = |metadata: &Metadata| metadata.permissions().mode() & 0o077 != 0;
    if directory.metadata().is_ok_and(|metadata| others(&metadata)) {
        tracing::warn!(
            directory = %path.display(),
            "others than its owner may look into the data directory; files made from now on are \
             for the owner alone, `chmod -R go= DIRECTORY` does it for those that are there"
        );
    }
}

/// Locks a directory itself: whoever removes a file in it removes no lock.
fn lock_directory(directory: &File, path: &Path) -> io::Result<()> {
    match directory.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let lock = open_at(directory, LOCK_NAME, OFlags::RDONLY).ok();
            Err(in_use(lock, directory, path))
        }
        // A file system that locks only what is open for writing; there it is the file that tells.
        Err(TryLockError::Error(error))
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP)
            ) =>
        {
            Ok(())
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn in_use(lock: Option<File>, directory: &File, path: &Path) -> io::Error {
    let mut holder = String::new();
    if let Some(lock) = lock {
        lock.take(PID_BYTES).read_to_string(&mut holder).ok();
    }
    let holder = match holder.trim() {
        _ if is_held(directory) => "this process: stop the broker that has it".to_owned(),
        "" => "another process".to_owned(),
        pid => format!("process {pid}"),
    };
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("`{}` is in use by {holder}", path.display()),
    )
}

/// Locks the lock file too, and writes there who has the directory: over what is there, which is cut for
/// nobody.
fn take_lock(lock: File, directory: &File, path: &Path) -> io::Result<File> {
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(Some(lock), directory, path)),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // What else has this name would be written over.
    if lock.metadata()?.nlink() > 1 {
        return Err(is_a_link(LOCK_NAME));
    }
    let pid = format!("{:<20}\n", std::process::id());
    lock.write_all_at(pid.as_bytes(), 0)?;
    Ok(lock)
}

/// A directory among all of a machine: its device, and its number there.
type DirectoryId = (u64, u64);

fn id_of(directory: &File) -> io::Result<DirectoryId> {
    let metadata = directory.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn held() -> MutexGuard<'static, Vec<DirectoryId>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_held(directory: &File) -> bool {
    id_of(directory).is_ok_and(|id| held().contains(&id))
}

/// As long as this is there, it is known that this process has a directory.
struct Held(DirectoryId);

impl Held {
    fn note(directory: &File) -> io::Result<Self> {
        let id = id_of(directory)?;
        held().push(id);
        Ok(Self(id))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        held().retain(|id| *id != self.0);
    }
}

/// Descriptors that are kept open so that a file can be opened when the process has no other left: clients
/// may take all others.
struct Reserve {
    kept: Mutex<Vec<File>>,
    count: usize,
}

impl Reserve {
    fn of(directory: &File, count: usize) -> io::Result<Self> {
        let kept = (0..count).map(|_| directory.try_clone()).collect::<io::Result<_>>()?;
        Ok(Self { kept: Mutex::new(kept), count })
    }

    /// Opens a file. Without a descriptor it takes one of those kept; if somebody else is faster each time,
    /// it waits until there are some: a segment that cannot be opened would end the store.
    fn open(
        &self,
        directory: &File,
        mut attempt: impl FnMut() -> io::Result<File>,
    ) -> io::Result<File> {
        let started = Instant::now();
        loop {
            let error = match attempt() {
                Ok(file) => {
                    self.fill(directory);
                    return Ok(file);
                }
                Err(error) => error,
            };
            let is_short =
                matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE));
            // Who only looks at a directory has nothing to lose.
            if !is_short || self.count == 0 {
                return Err(error);
            }
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if kept.is_none() {
                if started.elapsed() > DESCRIPTOR_WAIT {
                    return Err(error);
                }
                tracing::error!(
                    "no file can be opened: clients have all descriptors; raise the limit of open \
                     files (ulimit -n, LimitNOFILE), or lower limits.connection_count_max"
                );
                std::thread::sleep(DESCRIPTOR_PAUSE);
            }
        }
    }

    /// Keeps as many as before, as soon as there are others.
    fn fill(&self, directory: &File) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() < self.count {
            let Ok(another) = directory.try_clone() else { return };
            kept.push(another);
        }
    }
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | ".." | LOCK_NAME)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(name, if self.is_read_only { OFlags::RDONLY } else { OFlags::RDWR })
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let found = fstatvfs(&self.directory)?;
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir();
            let path = path.join(format!("peeklock-disk-{name}-{}", std::process::id()));
            std::fs::remove_dir_all(&path).ok();
            Self(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// What is stored is for the owner of the process alone.
    #[test]
    fn others_can_read_neither_the_directory_nor_a_file() {
        let place = Place::new("modes");
        let disk = OsDisk::open(&place.at("inner")).unwrap();
        disk.create("segment").unwrap();
        assert_eq!(mode(&place.at("inner")), 0o700);
        assert_eq!(mode(&place.at("inner/segment")), 0o600);
        assert_eq!(mode(&place.at("inner/lock")), 0o600);
    }

    /// What stands behind a link belongs to somebody else: it is neither cut nor written nor read.
    #[test]
    fn no_link_is_followed() {
        let place = Place::new("links");
        std::fs::create_dir_all(&place.0).unwrap();
        let theirs = place.at("theirs");
        std::fs::write(&theirs, "precious").unwrap();
        let data = place.at("data");
        std::fs::create_dir(&data).unwrap();
        symlink(&theirs, data.join("lock")).unwrap();
        let refused = OsDisk::open(&data).err().unwrap().to_string();
        assert!(refused.contains("`lock` is a link"), "{refused}");
        std::fs::remove_file(data.join("lock")).unwrap();
        std::fs::hard_link(&theirs, data.join("lock")).unwrap();
        assert!(OsDisk::open(&data).is_err());
        std::fs::remove_file(data.join("lock")).unwrap();
        let disk = OsDisk::open(&data).unwrap();
        symlink(&theirs, data.join("manifest")).unwrap();
        assert!(disk.open("manifest").is_err());
        assert!(disk.create("manifest").is_err());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "precious");
    }

    /// A directory has one process, also when its lock file is removed or it gets another name; and
    /// who has it is told.
    #[test]
    fn removing_the_lock_file_frees_no_directory() {
        let place = Place::new("lock");
        let disk = OsDisk::open(&place.0).unwrap();
        let refused = OsDisk::open(&place.0).err().unwrap().to_string();
        assert!(refused.ends_with("is in use by this process: stop the broker that has it"));
        std::fs::remove_file(place.at("lock")).unwrap();
        for refused in [OsDisk::open(&place.0).err(), OsDisk::look_at(&place.0).err()] {
            assert_eq!(refused.unwrap().kind(), io::ErrorKind::ResourceBusy);
        }
        drop(disk);
        drop(OsDisk::open(&place.0).unwrap());
        assert!(OsDisk::look_at(&place.0).is_ok());
    }

    /// Another process is told by its number, also if that is the number of this one, as in containers.
    #[test]
    fn who_has_a_directory_is_told() {
        let place = Place::new("holder");
        drop(OsDisk::open(&place.0).unwrap());
        let theirs = File::open(&place.0).unwrap();
        theirs.lock().unwrap();
        let refused = OsDisk::open(&place.0).err().unwrap().to_string();
        let process = format!("is in use by process {}", std::process::id());
        assert!(refused.ends_with(&process), "{refused}");
        std::fs::write(place.at("lock"), "").unwrap();
        let refused = OsDisk::look_at(&place.0).err().unwrap().to_string();
        assert!(refused.ends_with("is in use by another process"), "{refused}");
    }

    /// Who cannot open a directory is told which.
    #[test]
    fn a_directory_that_cannot_be_opened_is_named() {
        use crate::journal::{Journal, JournalConfig};
        let place = Place::new("named");
        std::fs::create_dir_all(&place.0).unwrap();
        std::fs::write(place.at("file"), "").unwrap();
        let data = place.at("file/data");
        let refused = Journal::open(&data, JournalConfig::default()).err().unwrap().to_string();
        let named = format!("data directory `{}`: ", data.display());
        assert!(refused.contains(&named), "{refused}");
        let _disk = OsDisk::open(&place.0).unwrap();
        let refused = Journal::open(&place.0, JournalConfig::default()).err().unwrap().to_string();
        assert_eq!(refused.matches(place.0.to_str().unwrap()).count(), 1, "{refused}");
    }

    /// A directory that is moved away while it is in use is still the one that is written to.
    #[test]
    fn files_are_reached_by_the_directory_that_was_opened() {
        let place = Place::new("moved");
        let disk = OsDisk::open(&place.at("before")).unwrap();
        std::fs::rename(place.at("before"), place.at("after")).unwrap();
        disk.create("a").unwrap().write_at(b"kept", 0).unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!(std::fs::read(place.at("after/b")).unwrap(), b"kept");
        assert_eq!(disk.list().unwrap(), ["b"]);
        disk.remove("b").unwrap();
        assert!(disk.list().unwrap().is_empty());
    }

    /// Without a descriptor left, one that was kept is used, and others are kept when there are some.
    #[test]
    fn a_file_is_opened_with_a_descriptor_that_was_kept() {
        let place = Place::new("reserve");
        std::fs::create_dir_all(&place.0).unwrap();
        let directory = File::open(&place.0).unwrap();
        let reserve = Reserve::of(&directory, 3).unwrap();
        let kept = || reserve.kept.lock().unwrap().len();
        let attempts = Cell::new(0);
        let opened = reserve.open(&directory, || {
            attempts.set(attempts.get() + 1);
            // Twice somebody else takes what was let go.
            match attempts.get() {
                1..=3 => Err(Errno::MFILE.into()),
                _ => {
                    assert_eq!(kept(), 0);
                    directory.try_clone()
                }
            }
        });
        assert!(opened.is_ok());
        assert_eq!((attempts.get(), kept()), (4, 3));
        let other = reserve.open(&directory, || Err(Errno::NOSPC.into()));
        assert_eq!(Errno::from_io_error(&other.unwrap_err()), Some(Errno::NOSPC));
        assert_eq!(kept(), 3);
    }
}

//! Locks of data directories: a directory is used by one process, and by one store in it. Opening a
//! disk takes the lock.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::directory::{is_a_hard_link, open_at};

/// The file whose lock shows earlier versions that the directory is in use.
pub(super) const LOCK_NAME: &str = "lock";
/// Number of bytes at the start of the lock file that name the process.
const PID_BYTES: u64 = 21;
/// The directories that this process uses. The process number in a lock file is not enough: in
/// containers, every process may have the same one.
static USED_DIRECTORIES: Mutex<Vec<DirectoryId>> = Mutex::new(Vec::new());

/// Exclusive use of a directory while this value exists. The lock on the directory itself is held
/// by its open descriptor.
pub(super) struct DirectoryLock {
    /// The first field, to be dropped before the lock.
    _used: UsedDirectory,
    /// The lock on a file in the directory, for earlier versions; `None` for a read-only use
    /// without a lock file that can be opened.
    _file: Option<File>,
}

impl DirectoryLock {
    /// Locks a directory, and the lock file in it, which is created if necessary.
    pub(super) fn take(directory: &File, path: &Path) -> io::Result<Self> {
        lock_directory(directory, path)?;
        let file = open_at(directory, LOCK_NAME, OFlags::CREATE | OFlags::RDWR)?;
        let file = take_lock(file, directory, path)?;
        Ok(Self { _used: UsedDirectory::note(directory)?, _file: Some(file) })
    }

    /// Locks a directory for reading, without creating a file.
    pub(super) fn take_read_only(directory: &File, path: &Path) -> io::Result<Self> {
        lock_directory(directory, path)?;
        let file = match open_at(directory, LOCK_NAME, OFlags::RDWR) {
            Ok(file) => Some(take_lock(file, directory, path)?),
            // A copy, or a read-only file system.
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem => None,
                _ => return Err(error),
            },
        };
        Ok(Self { _used: UsedDirectory::note(directory)?, _file: file })
    }
}

/// Locks the directory itself, so that removing a file removes no lock.
fn lock_directory(directory: &File, path: &Path) -> io::Result<()> {
    match directory.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let lock = open_at(directory, LOCK_NAME, OFlags::RDONLY).ok();
            Err(in_use(lock, directory, path))
        }
        // A file system that locks only files open for writing. There the lock file decides.
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
        _ if is_used(directory) => "this process: stop the broker that uses it".to_owned(),
        "" => "another process".to_owned(),
        pid => format!("process {pid}"),
    };
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("`{}` is in use by {holder}", path.display()),
    )
}

/// Locks the lock file, and writes the process number over its start without truncating it.
fn take_lock(lock: File, directory: &File, path: &Path) -> io::Result<File> {
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(Some(lock), directory, path)),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // A write would also change the file's other name.
    if lock.metadata()?.nlink() > 1 {
        return Err(is_a_hard_link(LOCK_NAME));
    }
    let pid = format!("{:<20}\n", std::process::id());
    lock.write_all_at(pid.as_bytes(), 0)?;
    Ok(lock)
}

/// Identity of a directory on this machine: its device, and its number there.
type DirectoryId = (u64, u64);

fn id_of(directory: &File) -> io::Result<DirectoryId> {
    let metadata = directory.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn used_directories() -> MutexGuard<'static, Vec<DirectoryId>> {
    USED_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_used(directory: &File) -> bool {
    id_of(directory).is_ok_and(|id| used_directories().contains(&id))
}

/// Marks a directory as used by this process while this value exists.
struct UsedDirectory(DirectoryId);

impl UsedDirectory {
    fn note(directory: &File) -> io::Result<Self> {
        let id = id_of(directory)?;
        used_directories().push(id);
        Ok(Self(id))
    }
}

impl Drop for UsedDirectory {
    fn drop(&mut self) {
        used_directories().retain(|id| *id != self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::OsDisk;
    use super::super::test_folder::TestFolder;
    use super::*;

    /// A directory has one process, even if its lock file is removed or renamed. The error names
    /// the process.
    #[test]
    fn removing_the_lock_file_frees_no_directory() {
        let place = TestFolder::new("lock");
        let disk = OsDisk::open(&place.0).unwrap();
        let refused = OsDisk::open(&place.0).err().unwrap().to_string();
        assert!(refused.ends_with("is in use by this process: stop the broker that uses it"));
        std::fs::remove_file(place.at("lock")).unwrap();
        for refused in [OsDisk::open(&place.0).err(), OsDisk::open_read_only(&place.0).err()] {
            assert_eq!(refused.unwrap().kind(), io::ErrorKind::ResourceBusy);
        }
        drop(disk);
        drop(OsDisk::open(&place.0).unwrap());
        assert!(OsDisk::open_read_only(&place.0).is_ok());
    }

    /// The error names another process by its number, even if this process has the same one, as in
    /// containers.
    #[test]
    fn opening_error_names_the_process_that_uses_the_directory() {
        let place = TestFolder::new("holder");
        drop(OsDisk::open(&place.0).unwrap());
        let theirs = File::open(&place.0).unwrap();
        theirs.lock().unwrap();
        let refused = OsDisk::open(&place.0).err().unwrap().to_string();
        let process = format!("is in use by process {}", std::process::id());
        assert!(refused.ends_with(&process), "{refused}");
        std::fs::write(place.at("lock"), "").unwrap();
        let refused = OsDisk::open_read_only(&place.0).err().unwrap().to_string();
        assert!(refused.ends_with("is in use by another process"), "{refused}");
    }
}

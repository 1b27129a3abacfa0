//! Who has a directory: one process, and one store in it.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::directory::{is_a_hard_link, open_at};

/// The file that tells a second process that the directory is in use.
pub(super) const LOCK_NAME: &str = "lock";
/// Who has the directory stands in so many bytes of it.
const PID_BYTES: u64 = 21;
/// The directories that this process has. The number in a lock file does not tell: in containers each has the same.
static HELD: Mutex<Vec<DirectoryId>> = Mutex::new(Vec::new());

/// As long as this is there, nobody else has the directory, whose own lock is held by whoever has it open.
pub(super) struct Lock {
    /// First of all, to be dropped before the lock is.
    _held: Held,
    /// The lock on a file in it, by which earlier versions tell; `None` where nobody can write anyway.
    _file: Option<File>,
}

impl Lock {
    /// Locks a directory, and a file in it, which is made if there is none.
    pub(super) fn take(directory: &File, path: &Path) -> io::Result<Self> {
        lock_directory(directory, path)?;
        let file = open_at(directory, LOCK_NAME, OFlags::CREATE | OFlags::RDWR)?;
        let file = take_lock(file, directory, path)?;
        Ok(Self { _held: Held::note(directory)?, _file: Some(file) })
    }

    /// The same for who only looks, and makes no file.
    pub(super) fn take_to_look(directory: &File, path: &Path) -> io::Result<Self> {
        lock_directory(directory, path)?;
        let file = match open_at(directory, LOCK_NAME, OFlags::RDWR) {
            Ok(file) => Some(take_lock(file, directory, path)?),
            // A copy, or a file system that nobody can write to.
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem => None,
                _ => return Err(error),
            },
        };
        Ok(Self { _held: Held::note(directory)?, _file: file })
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
        _ if is_held(directory) => "this process: stop the broker that uses it".to_owned(),
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
        return Err(is_a_hard_link(LOCK_NAME));
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

#[cfg(test)]
mod tests {
    use super::super::OsDisk;
    use super::super::test_folder::TestFolder;
    use super::*;

    /// A directory has one process, also when its lock file is removed or it gets another name; and
    /// who has it is told.
    #[test]
    fn removing_the_lock_file_frees_no_directory() {
        let place = TestFolder::new("lock");
        let disk = OsDisk::open(&place.0).unwrap();
        let refused = OsDisk::open(&place.0).err().unwrap().to_string();
        assert!(refused.ends_with("is in use by this process: stop the broker that uses it"));
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
        let place = TestFolder::new("holder");
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
}

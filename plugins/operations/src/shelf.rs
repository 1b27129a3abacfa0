//! Files of jobs, or their place in memory for a broker without a data directory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::store::journal::disk::Disk;

/// Maximum bytes of a file that is read.
pub(crate) const FILE_BYTES_MAX: usize = 16 << 20;

type Files = Mutex<BTreeMap<String, Vec<u8>>>;

/// Named files. A change is durable when its call returns.
pub(crate) enum Shelf {
    Disk(Arc<dyn Disk>),
    Memory(Files),
}

/// Error of a change.
pub(crate) enum ShelfError {
    /// The file is as before.
    Unchanged(io::Error),
    /// The state of the file is unknown: a sync has failed, or a torn write stays.
    Unknown(io::Error),
}

impl ShelfError {
    pub(crate) const fn error(&self) -> &io::Error {
        match self {
            Self::Unchanged(error) | Self::Unknown(error) => error,
        }
    }
}

impl Shelf {
    /// Names of all files.
    pub(crate) fn list(&self) -> io::Result<Vec<String>> {
        match self {
            Self::Disk(disk) => disk.list(),
            Self::Memory(files) => Ok(lock(files).keys().cloned().collect()),
        }
    }

    /// Reads a whole file.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(disk) => {
                let file = disk.open(name)?;
                let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
                if length > FILE_BYTES_MAX {
                    return Err(io::Error::other(format!(
                        "it has {length} bytes; the file of a job has at most {FILE_BYTES_MAX}"
                    )));
                }
                let mut bytes = vec![0; length];
                let count = file.read_at(&mut bytes, 0)?;
                bytes.truncate(count);
                Ok(bytes)
            }
            Self::Memory(files) => {
                let missing = || io::Error::from(io::ErrorKind::NotFound);
                lock(files).get(name).cloned().ok_or_else(missing)
            }
        }
    }

    /// Makes a file. After an error there is none, or a torn one.
    pub(crate) fn create(&self, name: &str, bytes: &[u8]) -> Result<(), ShelfError> {
        match self {
            Self::Disk(disk) => {
                let file = disk.create(name).map_err(ShelfError::Unchanged)?;
                if let Err(error) = file.write_at(bytes, 0) {
                    let removed = disk.remove(name);
                    return Err(match removed {
                        Ok(()) => ShelfError::Unchanged(error),
                        Err(_) => ShelfError::Unknown(error),
                    });
                }
                file.sync().and_then(|()| disk.sync()).map_err(ShelfError::Unknown)
            }
            Self::Memory(files) => {
                lock(files).insert(name.to_owned(), bytes.to_vec());
                Ok(())
            }
        }
    }

    /// Adds bytes at the end of a file, which is at `end`.
    pub(crate) fn append(&self, name: &str, end: u64, bytes: &[u8]) -> Result<(), ShelfError> {
        match self {
            Self::Disk(disk) => {
                let file = disk.open(name).map_err(ShelfError::Unchanged)?;
                if let Err(error) = file.write_at(bytes, end) {
                    return Err(match file.truncate(end) {
                        Ok(()) => ShelfError::Unchanged(error),
                        Err(again) => ShelfError::Unknown(again),
                    });
                }
                file.sync().map_err(ShelfError::Unknown)
            }
            Self::Memory(files) => {
                lock(files).entry(name.to_owned()).or_default().extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Cuts the rest of a torn write off, and makes the lines before it durable.
    pub(crate) fn mend(&self, name: &str, end: u64) -> io::Result<()> {
        match self {
            Self::Disk(disk) => {
                let file = disk.open(name)?;
                file.truncate(end)?;
                file.sync()
            }
            Self::Memory(_) => Ok(()),
        }
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Disk(disk) => match disk.remove(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => disk.sync(),
            },
            Self::Memory(files) => {
                lock(files).remove(name);
                Ok(())
            }
        }
    }
}

fn lock(files: &Files) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

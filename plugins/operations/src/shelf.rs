//! Files of jobs, or their place in memory for a broker without a data directory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::store::journal::disk::{Disk, DiskFile};

/// Maximum bytes of a file that is read.
pub(crate) const FILE_BYTES_MAX: usize = 16 << 20;

/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of each part of a file in memory, so that no file is copied when it grows.
const PART_BYTES: usize = 4 << 10;

type Files = Mutex<BTreeMap<String, MemoryFile>>;

/// Named files. A change is durable when its call returns.
pub(crate) enum Shelf {
    Disk(Arc<dyn Disk>),
    Memory(Arc<Files>),
}

/// A file that is open for reading.
pub(crate) enum OpenFile {
    Disk(Arc<dyn DiskFile>),
    Memory(Arc<Files>, String),
}

/// A file at whose end bytes are gathered and written.
pub(crate) struct GrowingFile {
    name: String,
    exists: bool,
    /// Bytes that are written.
    end: u64,
    gathered: Vec<u8>,
}

/// The parts of a file, all with [`PART_BYTES`] except the last one.
#[derive(Default)]
pub(crate) struct MemoryFile(Vec<Vec<u8>>);

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

    pub(crate) fn into_error(self) -> io::Error {
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
                lock(files).get(name).map(|file| file.0.concat()).ok_or_else(missing)
            }
        }
    }

    /// Returns the length of a file; none if it does not exist.
    pub(crate) fn length(&self, name: &str) -> io::Result<Option<u64>> {
        match self {
            Self::Disk(disk) => match disk.open(name).and_then(|file| file.length()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                length => length.map(Some),
            },
            Self::Memory(files) => Ok(lock(files).get(name).map(MemoryFile::length)),
        }
    }

    /// Opens a file to read its parts.
    pub(crate) fn open(&self, name: &str) -> io::Result<OpenFile> {
        Ok(match self {
            Self::Disk(disk) => OpenFile::Disk(disk.open(name)?),
            Self::Memory(files) => OpenFile::Memory(Arc::clone(files), name.to_owned()),
        })
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
                let mut file = MemoryFile::default();
                file.extend(bytes);
                lock(files).insert(name.to_owned(), file);
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
                lock(files).entry(name.to_owned()).or_default().extend(bytes);
                Ok(())
            }
        }
    }

    /// Cuts a file off at `end`, the end of its whole entries, and makes these durable.
    pub(crate) fn mend(&self, name: &str, end: u64) -> Result<(), ShelfError> {
        match self {
            Self::Disk(disk) => {
                let file = disk.open(name).map_err(ShelfError::Unchanged)?;
                file.truncate(end).map_err(ShelfError::Unchanged)?;
                file.sync().map_err(ShelfError::Unknown)
            }
            Self::Memory(files) => {
                if let Some(file) = lock(files).get_mut(name) {
                    file.truncate(end);
                }
                Ok(())
            }
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

impl GrowingFile {
    /// Continues a file at `end`.
    pub(crate) const fn new(name: String, exists: bool, end: u64) -> Self {
        Self { name, exists, end, gathered: Vec::new() }
    }

    /// Bytes that are written, and that are gathered.
    pub(crate) fn bytes(&self) -> u64 {
        self.end + self.gathered.len() as u64
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
    }

    /// Whether enough bytes are gathered for a write.
    pub(crate) const fn is_full(&self) -> bool {
        self.gathered.len() >= WRITE_BYTES
    }

    /// Writes the gathered bytes, durably.
    pub(crate) fn write(&mut self, shelf: &Shelf) -> Result<(), ShelfError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        match self.exists {
            true => shelf.append(&self.name, self.end, &self.gathered)?,
            false => shelf.create(&self.name, &self.gathered)?,
        }
        self.exists = true;
        self.end = self.bytes();
        self.gathered = Vec::new();
        Ok(())
    }

    /// Removes the bytes after `end`, if there are some.
    pub(crate) fn rewind(&mut self, shelf: &Shelf, end: u64) -> Result<(), ShelfError> {
        if let Some(gathered) = end.checked_sub(self.end) {
            self.gathered.truncate(usize::try_from(gathered).unwrap_or(usize::MAX));
            return Ok(());
        }
        self.gathered.clear();
        shelf.mend(&self.name, end)?;
        self.end = end;
        Ok(())
    }
}

impl OpenFile {
    /// Its length in bytes.
    pub(crate) fn length(&self) -> io::Result<u64> {
        match self {
            Self::Disk(file) => file.length(),
            Self::Memory(files, name) => {
                let missing = || io::Error::from(io::ErrorKind::NotFound);
                lock(files).get(name).map(MemoryFile::length).ok_or_else(missing)
            }
        }
    }

    /// Reads up to `count` bytes from a place on; fewer only at the end of the file.
    pub(crate) fn read_at(&self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(file) => {
                let mut bytes = vec![0; count];
                let count = file.read_at(&mut bytes, at)?;
                bytes.truncate(count);
                Ok(bytes)
            }
            Self::Memory(files, name) => {
                Ok(lock(files).get(name).map(|file| file.read_at(at, count)).unwrap_or_default())
            }
        }
    }
}

impl MemoryFile {
    fn length(&self) -> u64 {
        let full = self.0.len().saturating_sub(1) * PART_BYTES;
        (full + self.0.last().map_or(0, Vec::len)) as u64
    }

    fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let is_full = |part: &Vec<u8>| part.len() >= PART_BYTES;
            if self.0.last().is_none_or(is_full) {
                self.0.push(Vec::with_capacity(PART_BYTES));
            }
            let Some(last) = self.0.last_mut() else { return };
            let room = PART_BYTES.saturating_sub(last.len());
            let (now, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            last.extend_from_slice(now);
            bytes = rest;
        }
    }

    fn truncate(&mut self, end: u64) {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        self.0.truncate(end.div_ceil(PART_BYTES));
        if let Some(last) = self.0.get_mut(end / PART_BYTES) {
            last.truncate(end % PART_BYTES);
        }
    }

    fn read_at(&self, at: u64, count: usize) -> Vec<u8> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let parts = self.0.get(at / PART_BYTES..).unwrap_or_default();
        let bytes = parts.iter().flatten().skip(at % PART_BYTES);
        bytes.take(count).copied().collect()
    }
}

fn lock(files: &Files) -> MutexGuard<'_, BTreeMap<String, MemoryFile>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

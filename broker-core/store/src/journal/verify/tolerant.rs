//! A read-only disk that continues after read errors: it returns zeros for unreadable bytes, so
//! that checksums over them fail, and records the places. Verification and the copy of a repair
//! read through it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::disk::{Disk, DiskFile};

/// Size of a read after a larger one failed.
const SECTOR_BYTES: usize = 4 << 10;
/// Maximum number of recorded places.
const PLACES_MAX: usize = 10_000;

/// An unreadable range.
#[derive(Clone, Debug)]
pub(in super::super) struct Unreadable {
    pub(in super::super) file: String,
    pub(in super::super) offset: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) error: String,
}

type Places = Arc<Mutex<Vec<Unreadable>>>;

/// The disk.
pub(in super::super) struct TolerantDisk<'a> {
    disk: &'a dyn Disk,
    places: Places,
}

impl<'a> TolerantDisk<'a> {
    pub(in super::super) fn new(disk: &'a dyn Disk) -> Self {
        Self { disk, places: Places::default() }
    }

    /// The unreadable places that reads have met.
    pub(in super::super) fn unreadable(&self) -> Vec<Unreadable> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the disk is read-only here")
}

impl Disk for TolerantDisk<'_> {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.disk.list()?;
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name)?;
        let places = Arc::clone(&self.places);
        Ok(Arc::new(TolerantFile { name: name.to_owned(), file, places }))
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        Err(refused())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

struct TolerantFile {
    name: String,
    file: Arc<dyn DiskFile>,
    places: Places,
}

impl TolerantFile {
    fn note(&self, offset: u64, bytes: u64, error: &io::Error) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // The same place may be read several times.
        let known = |one: &Unreadable| one.file == self.name && one.offset == offset;
        if places.len() < PLACES_MAX && !places.iter().any(known) {
            let (file, error) = (self.name.clone(), error.to_string());
            places.push(Unreadable { file, offset, bytes, error });
        }
    }

    /// Reads sector by sector, with zeros for unreadable ones.
    fn read_around(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.file.length()?;
        let count = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = count.min(buffer.len());
        let mut at = 0;
        while at < count {
            let position = offset + at as u64;
            let aligned = usize::try_from(position % SECTOR_BYTES as u64).unwrap_or(0);
            let end = (at + SECTOR_BYTES - aligned).min(count);
            let Some(piece) = buffer.get_mut(at..end) else { break };
            if let Err(error) = self.file.read_at(piece, position) {
                piece.fill(0);
                self.note(position, (end - at) as u64, &error);
            }
            at = end;
        }
        Ok(count)
    }
}

impl DiskFile for TolerantFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.file.read_at(buffer, offset) {
            Ok(count) => Ok(count),
            Err(_) => self.read_around(buffer, offset),
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }
}

//! A disk in memory whose writes can fail.

use super::*;

/// Files in memory. Writes fail after a given number.
#[derive(Default)]
pub(super) struct MemoryDisk {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
    pub(super) writes: Arc<Writes>,
}

pub(super) struct Writes {
    pub(super) left: AtomicU64,
}

impl Default for Writes {
    fn default() -> Self {
        Self { left: AtomicU64::new(u64::MAX) }
    }
}

impl Writes {
    fn take(&self) -> io::Result<()> {
        let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            if left == u64::MAX { Some(left) } else { left.checked_sub(1) }
        });
        taken.map(|_| ()).map_err(|_| io::Error::other("power is off"))
    }
}

pub(super) struct MemoryFile {
    pub(super) bytes: Mutex<Vec<u8>>,
    /// The range that the medium cannot read.
    pub(super) bad: Mutex<Option<std::ops::Range<u64>>>,
    writes: Arc<Writes>,
}

pub(super) type Files = BTreeMap<String, Vec<u8>>;

impl MemoryDisk {
    pub(super) fn of(files: &Files) -> Arc<Self> {
        let disk = Self::default();
        for (name, bytes) in files {
            disk.make(name, bytes.clone());
        }
        Arc::new(disk)
    }

    fn make(&self, name: &str, bytes: Vec<u8>) -> Arc<MemoryFile> {
        let writes = Arc::clone(&self.writes);
        let file = Arc::new(MemoryFile { bytes: Mutex::new(bytes), bad: Mutex::default(), writes });
        self.files.lock().unwrap().insert(name.to_owned(), Arc::clone(&file));
        file
    }

    pub(super) fn files(&self) -> Files {
        let files = self.files.lock().unwrap();
        files
            .iter()
            .map(|(name, file)| (name.clone(), file.bytes.lock().unwrap().clone()))
            .collect()
    }

    pub(super) fn file(&self, name: &str) -> io::Result<Arc<MemoryFile>> {
        let files = self.files.lock().unwrap();
        files.get(name).map(Arc::clone).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().unwrap().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name)?)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.writes.take()?;
        assert!(!self.list()?.iter().any(|one| one == name), "{name} is there");
        Ok(self.make(name, Vec::new()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.writes.take()?;
        let file = self.file(from)?;
        let mut files = self.files.lock().unwrap();
        files.remove(from);
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.writes.take()?;
        self.file(name)?;
        self.files.lock().unwrap().remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.writes.take()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 30)
    }
}

impl DiskFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset + buffer.len() as u64;
        let bad = self.bad.lock().unwrap().clone();
        if bad.is_some_and(|bad| bad.start < end && offset < bad.end) {
            return Err(io::Error::other("medium error"));
        }
        let bytes = self.bytes.lock().unwrap();
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, written: &[u8], offset: u64) -> io::Result<()> {
        self.writes.take()?;
        let mut bytes = self.bytes.lock().unwrap();
        let from = usize::try_from(offset).unwrap();
        let length = bytes.len().max(from + written.len());
        bytes.resize(length, 0);
        bytes[from..from + written.len()].copy_from_slice(written);
        Ok(())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        self.writes.take()
    }

    fn truncate(&self, count: u64) -> io::Result<()> {
        self.writes.take()?;
        self.bytes.lock().unwrap().resize(usize::try_from(count).unwrap(), 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.writes.take()
    }
}

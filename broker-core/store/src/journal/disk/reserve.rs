//! File descriptors reserved for the store. [`OsDisk`](super::OsDisk) opens files with them.
//! Clients that use up all descriptors therefore cannot stop the store.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Number of reserved descriptors. A roll opens one, the keeper a spare and a side file.
pub(in super::super) const RESERVED_DESCRIPTORS: usize = 8;
/// Maximum wait for a descriptor if even the reserved ones are used, and the pause between two
/// attempts.
const DESCRIPTOR_WAIT: Duration = Duration::from_mins(1);
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// Open descriptors that can be closed to open a file when the process has no other left. Clients
/// may use all others.
pub(super) struct DescriptorReserve {
    kept: Mutex<Vec<File>>,
    count: usize,
}

impl DescriptorReserve {
    pub(super) fn of(directory: &File, count: usize) -> io::Result<Self> {
        let kept = (0..count).map(|_| directory.try_clone()).collect::<io::Result<_>>()?;
        Ok(Self { kept: Mutex::new(kept), count })
    }

    /// Opens a file. Without a free descriptor it releases a reserved one. If another thread takes
    /// that one each time, it waits for one: a segment that cannot be opened would end the store.
    /// Blocks up to a minute.
    pub(super) fn open(
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
            // A read-only directory has no reserved descriptors, and a failure there is harmless.
            if !is_short || self.count == 0 {
                return Err(error);
            }
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if kept.is_none() {
                if started.elapsed() > DESCRIPTOR_WAIT {
                    return Err(error);
                }
                tracing::error!(
                    "no file can be opened: all file descriptors are in use; raise the limit of \
                     open files (ulimit -n, LimitNOFILE), or lower limits.connection_count_max"
                );
                std::thread::sleep(DESCRIPTOR_PAUSE);
            }
        }
    }

    /// Reserves descriptors again if there are free ones.
    fn fill(&self, directory: &File) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() < self.count {
            let Ok(another) = directory.try_clone() else { return };
            kept.push(another);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::test_folder::TestFolder;
    use super::*;

    /// Without a free descriptor, a reserved one is used, and the reserve is filled again later.
    #[test]
    fn open_uses_a_reserved_descriptor_without_a_free_one() {
        let place = TestFolder::new("reserve");
        std::fs::create_dir_all(&place.0).unwrap();
        let directory = File::open(&place.0).unwrap();
        let reserve = DescriptorReserve::of(&directory, 3).unwrap();
        let kept = || reserve.kept.lock().unwrap().len();
        let attempts = Cell::new(0);
        let opened = reserve.open(&directory, || {
            attempts.set(attempts.get() + 1);
            // Another thread takes the released descriptor twice.
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

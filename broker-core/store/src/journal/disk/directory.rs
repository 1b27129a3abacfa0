//! A directory of the operating system. [`Journal::open`](super::super::Journal::open) and the
//! tools for repair use it. A lock in the directory keeps other processes out.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, fallocate, fstatvfs, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;

use super::lock::{DirectoryLock, LOCK_NAME};
use super::reserve::{DescriptorReserve, RESERVED_DESCRIPTORS};
use super::{Disk, DiskFile};

/// Zeros for file systems that cannot allocate space, in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A directory of the operating system, locked to this process. It reaches its files through the
/// open directory, even if its path changes, and follows no link.
pub struct OsDisk {
    /// The first field, to be dropped before `directory`, whose lock ends with the last descriptor.
    _lock: DirectoryLock,
    directory: File,
    path: Arc<str>,
    is_read_only: bool,
    reserve: DescriptorReserve,
}

impl OsDisk {
    /// Opens a directory and locks it. A missing directory is created, readable for its owner only.
    ///
    /// # Errors
    /// If it cannot be created, or a process uses it, possibly this one. The error names the
    /// process.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            // The new name must be durable, or a restart would find no directory.
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let directory = File::open(path)?;
        let lock = DirectoryLock::take(&directory, path)?;
        warn_of_others(&directory, path);
        let reserve = DescriptorReserve::of(&directory, RESERVED_DESCRIPTORS)?;
        let path = path.display().to_string().into();
        Ok(Self { _lock: lock, directory, path, is_read_only: false, reserve })
    }

    /// Opens an existing directory read-only, and locks it: no file can be written through it.
    ///
    /// # Errors
    /// If it does not exist, or a process uses it, possibly this one. The error names the process.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        let lock = DirectoryLock::take_read_only(&directory, path)?;
        let reserve = DescriptorReserve::of(&directory, 0)?;
        let path = path.display().to_string().into();
        Ok(Self { _lock: lock, directory, path, is_read_only: true, reserve })
    }

    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.reserve.open(&self.directory, || open_at(&self.directory, name, flags))?;
        // A write would also change the file's other name.
        if flags.contains(OFlags::RDWR) && file.metadata()?.nlink() > 1 {
            return Err(is_a_hard_link(name));
        }
        Ok(Arc::new(OsFile(file)))
    }
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            // The directory of the audit trail, for example.
            let is_directory = entry.file_type() == FileType::Directory;
            if let Ok(name) = entry.file_name().to_str()
                && !is_directory
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

    fn path(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.path))
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
            // Some file systems cannot allocate; then zeros are written.
            Err(Errno::OPNOTSUPP) => {
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

/// Opens a file of a directory, never through a link. New files are readable for their owner only.
pub(super) fn open_at(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
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
        "`{name}` is a link, and its target may belong to another user; remove it"
    ))
}

pub(super) fn is_a_hard_link(name: &str) -> io::Error {
    io::Error::other(format!(
        "`{name}` has a second name (a hard link), so writes would change that file too; replace \
         it by a copy"
    ))
}

/// Warns if another user owns the directory, or if other users can read it, as in directories of
/// early versions.
fn warn_of_others(directory: &File, path: &Path) {
    let Ok(metadata) = directory.metadata() else { return };
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own {
        tracing::warn!(
            directory = %path.display(), owner, own,
            "another user owns the data directory and can replace every file in it; give it to the \
             user of the broker with `chown`"
        );
    }
    let others = |metadata: &Metadata| metadata.permissions().mode() & 0o077 != 0;
    if others(&metadata) {
        tracing::warn!(
            directory = %path.display(),
            "users other than its owner can read the data directory; new files are readable for \
             the owner only; restrict existing files with `chmod -R go= DIRECTORY`"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::test_folder::TestFolder;
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Stored files are accessible only for the user of the process.
    #[test]
    fn others_can_read_neither_the_directory_nor_a_file() {
        let place = TestFolder::new("modes");
        let disk = OsDisk::open(&place.at("inner")).unwrap();
        disk.create("segment").unwrap();
        assert_eq!(mode(&place.at("inner")), 0o700);
        assert_eq!(mode(&place.at("inner/segment")), 0o600);
        assert_eq!(mode(&place.at("inner/lock")), 0o600);
    }

    /// The target of a link belongs to another user: it is neither truncated nor written nor read.
    #[test]
    fn no_link_is_followed() {
        let place = TestFolder::new("links");
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
        std::fs::hard_link(&theirs, data.join("segment")).unwrap();
        let refused = disk.open("segment").err().unwrap().to_string();
        assert!(refused.contains("`segment` has a second name"), "{refused}");
        drop(disk);
        // A read-only disk opens the file, because it writes to none.
        assert!(OsDisk::open_read_only(&data).unwrap().open("segment").is_ok());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "precious");
    }

    /// The error names the directory that cannot be opened.
    #[test]
    fn opening_error_names_the_directory() {
        use crate::journal::{Journal, JournalConfig};
        let place = TestFolder::new("named");
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

    /// A directory that is moved during use is still written to.
    #[test]
    fn files_stay_reachable_after_the_directory_was_moved() {
        let place = TestFolder::new("moved");
        let disk = OsDisk::open(&place.at("before")).unwrap();
        std::fs::rename(place.at("before"), place.at("after")).unwrap();
        disk.create("a").unwrap().write_at(b"kept", 0).unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!(std::fs::read(place.at("after/b")).unwrap(), b"kept");
        assert_eq!(disk.list().unwrap(), ["b"]);
        disk.remove("b").unwrap();
        assert!(disk.list().unwrap().is_empty());
    }
}

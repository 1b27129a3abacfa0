//! A broker on this machine, by the files in its data directory. `connect.rs` finds the broker and
//! its first key with it.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Failure, exit};
use crate::config::TlsSection;
use crate::server::{ONE_PORT, PUBLIC_URL_FILE, ROOT_KEY_FILE};

/// List of file locks on this machine, on Linux.
const LOCKS: &str = "/proc/locks";
/// Default data directory of a broker.
const DATA_DIR: &str = "./data";
/// Maximum size of a file with a connection string.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// Connection string of the root policy of a broker on this machine, and the path of its file
/// (SEC-25).
pub fn first_key(data_dir: Option<&Path>) -> Result<(String, String), Failure> {
    let path = data_dir.unwrap_or(Path::new(DATA_DIR)).join(ROOT_KEY_FILE);
    let shown = path.display().to_string();
    let mut text = String::new();
    let reading =
        fs::File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    reading.map_err(|error| {
        let next = match data_dir {
            None => "run this in the folder where `peeklock serve` runs, or add --data-dir DIR",
            Some(_) => {
                "give --data-dir the directory of a broker that has started, and run this as its user"
            }
        };
        Failure::ended(exit::NOT_FOUND, format!("`{shown}`: {error}; {next}"))
    })?;
    Ok((text.lines().next().unwrap_or_default().trim().to_owned(), shown))
}

/// Files that a broker on this machine has written for its clients.
pub struct LocalBroker {
    /// Connection string of the root policy.
    pub string: String,
    /// URL for clients elsewhere, if the configuration has one (`http.public_url`).
    pub public_url: Option<String>,
    /// Whether all protocols are served at that URL.
    pub is_one_port: bool,
    /// File of the connection string.
    pub source: String,
    /// Whether a broker runs there; none if the system does not report it.
    pub is_in_use: Option<bool>,
}

impl LocalBroker {
    /// Reads the files, by default from `./data`.
    ///
    /// # Errors
    /// If the file of the first key cannot be read.
    pub fn read(data_dir: Option<&Path>) -> Result<Self, Failure> {
        let (string, source) = first_key(data_dir)?;
        let data_dir = data_dir.unwrap_or(Path::new(DATA_DIR));
        // Without the setting there is no file.
        let public = fs::read_to_string(data_dir.join(PUBLIC_URL_FILE)).unwrap_or_default();
        let mut words = public.split_whitespace().map(str::to_owned);
        let public_url = words.next();
        let is_one_port = words.next().is_some_and(|word| word == ONE_PORT);
        Ok(Self { string, public_url, is_one_port, source, is_in_use: is_in_use(data_dir) })
    }

    /// Files of the broker that runs in `./data`, if there is one and this user may read them.
    pub fn running() -> Option<Self> {
        let may_run = is_in_use(Path::new(DATA_DIR)) == Some(true);
        may_run.then(|| Self::read(None).ok()).flatten()
    }
}

/// Certificate of the development authority of a broker's data directory, if it has one.
pub fn authority(data_dir: Option<&Path>) -> Option<PathBuf> {
    let data_dir = data_dir.unwrap_or(Path::new(DATA_DIR));
    let file = TlsSection::authority(data_dir).authority_file();
    file.exists().then_some(file)
}

/// Whether a broker holds the lock of a data directory; none if the system does not report locks.
/// The check takes no lock, which would make a broker that starts at that moment fail.
fn is_in_use(data_dir: &Path) -> Option<bool> {
    let inode = fs::metadata(data_dir).ok()?.ino();
    let locks = fs::read_to_string(LOCKS).ok()?;
    Some(locks.lines().any(|line| is_lock_of(line, inode)))
}

/// Whether a line of the lock list describes a lock on this file, such as `1: FLOCK ADVISORY WRITE
/// 4711 08:01:131090 0 EOF`. The device is not compared, since some file systems report another one
/// there.
fn is_lock_of(line: &str, inode: u64) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(kind) = words.iter().position(|word| *word == "FLOCK") else { return false };
    let of_file = words.get(kind + 4).and_then(|file| file.rsplit(':').next());
    of_file.and_then(|number| number.parse().ok()) == Some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-25: a running broker is detected by the lock on its data directory.
    #[test]
    fn a_lock_is_known_by_its_file() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF";
        assert!(is_lock_of(line, 131_090) && !is_lock_of(line, 131_091));
        for other in ["", "1: FLOCK", "2: POSIX  ADVISORY  WRITE 4711 08:01:131090 0 EOF"] {
            assert!(!is_lock_of(other, 131_090), "{other}");
        }
    }
}

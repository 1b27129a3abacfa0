//! Files of series: the rows of 1 min and 15 min (CON-32).
//!
//! Entities are divided among [`FILE_COUNT`] files, which are written in turn, so that a kill loses
//! at most 5 min. A file is replaced as a whole: a header, the rows of each entity after its id and
//! their length, and the SHA-256 digest of all before it. A file that cannot be read, or that is of
//! another version, is put aside as `NAME.damaged` in place of an older one, and the broker goes on
//! without its rows.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::row::{GAUGE_COUNT, read_number, write_number};
use crate::flows::FLOW_COUNT;

/// Number of files.
pub(super) const FILE_COUNT: u64 = 16;
/// Seconds between the writes of two files: all are written within 4 min.
pub(super) const WRITE_EVERY: u64 = 15;
/// Version of the format, and the numbers of counts and gauges, which give the bits of a row their
/// meaning.
const HEADER: [u8; 10] = {
    let [a, b, c, d, e, f, g, h] = *b"series 1";
    [a, b, c, d, e, f, g, h, FLOW_COUNT.to_le_bytes()[0], GAUGE_COUNT.to_le_bytes()[0]]
};
const DIGEST_BYTES: usize = 32;
/// Maximum size of a file that is read: larger ones were not written by a broker.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Stored rows by the number of the entity.
pub(super) type StoredRows = HashMap<u64, Box<[u8]>>;

/// A file with its new content.
pub(super) struct FileToWrite {
    directory: PathBuf,
    number: u64,
    content: Vec<u8>,
}

impl FileToWrite {
    /// Begins a file.
    pub(super) fn new(directory: &Path, number: u64) -> Self {
        Self { directory: directory.to_owned(), number, content: HEADER.to_vec() }
    }

    /// Adds the rows of an entity.
    pub(super) fn add(&mut self, id: u64, rows: &[u8]) {
        write_number(id, &mut self.content);
        write_number(rows.len() as u64, &mut self.content);
        self.content.extend_from_slice(rows);
    }

    /// Replaces the file, unless the final files are written already.
    pub(super) fn carry_out(self, is_final: &Mutex<bool>) {
        let is_final = is_final.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_final {
            self.write();
        }
    }

    /// Replaces the file. A failure is logged; the file is written again in its next turn.
    pub(super) fn write(mut self) {
        let digest = Sha256::digest(&self.content);
        self.content.extend_from_slice(&digest);
        let path = path_of(&self.directory, self.number);
        let write = || {
            // Like the other files of the data directory, only for their owner.
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let new = path.with_extension("new");
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&new)?.write_all(&self.content)?;
            fs::rename(&new, &path)
        };
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "series cannot be written");
        }
    }
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:02}.series"))
}

/// Reads all files.
pub(super) fn read(directory: &Path) -> StoredRows {
    let mut all = StoredRows::new();
    for number in 0..FILE_COUNT {
        let path = path_of(directory, number);
        match read_file(&path) {
            Ok(Ok(rows)) => all.extend(rows),
            Ok(Err(why)) => put_aside(&path, why),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => put_aside(&path, &error.to_string()),
        }
    }
    all
}

fn put_aside(path: &Path, why: &str) {
    let aside = path.with_extension("series.damaged");
    let moved = fs::rename(path, &aside).is_ok();
    tracing::warn!(path = %path.display(), why, moved, "series cannot be read and are lost");
}

/// Reads a file, or says why its rows are of no use.
fn read_file(path: &Path) -> io::Result<Result<StoredRows, &'static str>> {
    const DAMAGED: &str = "the file is damaged";
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Ok(Err(DAMAGED));
    }
    let file = fs::read(path)?;
    let Some(content) = checked(&file) else { return Ok(Err(DAMAGED)) };
    Ok(match content.strip_prefix(&HEADER) {
        Some(rows) => parse(rows).ok_or(DAMAGED),
        None => Err("the file is of another version"),
    })
}

/// Returns the content before the digest; none if it does not match.
fn checked(file: &[u8]) -> Option<&[u8]> {
    let (content, digest) = file.split_at_checked(file.len().checked_sub(DIGEST_BYTES)?)?;
    (Sha256::digest(content).as_slice() == digest).then_some(content)
}

fn parse(mut rest: &[u8]) -> Option<StoredRows> {
    let mut rows = StoredRows::new();
    while !rest.is_empty() {
        let id = read_number(&mut rest)?;
        let length = usize::try_from(read_number(&mut rest)?).ok()?;
        let (row, after) = rest.split_at_checked(length)?;
        rest = after;
        rows.insert(id, row.into());
    }
    Some(rows)
}

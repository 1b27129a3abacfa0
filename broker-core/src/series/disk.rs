//! Files of series: the rows of 1 min and 15 min (CON-32).
//!
//! Entities are divided among [`FILE_COUNT`] files, which are written in turn, so that a kill loses
//! at most 5 min. A file is replaced as a whole: a header, the rows of each entity after its id and
//! their length, and the SHA-256 digest of all before it. The broker goes on without the rows of a
//! file that cannot be read or is of another version.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::row::{GAUGE_COUNT, read_number, write_number};
use crate::flows::FLOW_COUNT;
use crate::kept_file::{self, Durability};

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
        // Only a crash of the machine can lose it, and then with minutes of series.
        if let Err(error) = kept_file::replace(&path, &self.content, Durability::Written) {
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
        all.extend(
            kept_file::read(&path, FILE_BYTES_MAX, "series", parse_file).unwrap_or_default(),
        );
    }
    all
}

/// Reads a file, or says why its rows are of no use.
fn parse_file(file: &[u8]) -> Result<StoredRows, &'static str> {
    const DAMAGED: &str = "the file is damaged";
    let content = checked(file).ok_or(DAMAGED)?;
    let rows = content.strip_prefix(&HEADER).ok_or("the file is of another version")?;
    parse(rows).ok_or(DAMAGED)
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

//! Files of the trail: append, bounds, and repair after a crash. One thread uses a log.
//!
//! A file is named after its first line: `<number>-<milliseconds since 1970>.jsonl`. Its lines end
//! before the next file begins. A failed write is taken back, and the next entry is tried again. A
//! failed sync stops the trail until the broker is started again, since the state of the file is
//! unknown; it is never repeated.

use std::io;
use std::sync::Arc;

use peeklock_core::contract::{AuditEntry, AuditError};
use peeklock_core::store::journal::disk::{Disk, DiskFile};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::line::{Line, Place};

/// End of the name of a file.
pub const EXTENSION: &str = ".jsonl";
/// Time after which a new file begins, so that old entries are removed day by day.
const FILE_TIME: TimeSpan = TimeSpan::from_days(1);
/// Maximum bytes of a line of the trail itself.
const TRAIL_LINE_BYTES: u64 = 512;

/// Bounds of a trail.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditConfig {
    /// Maximum bytes of all files.
    pub bytes_max: u64,
    /// Size from which on a new file begins; at most half of `bytes_max`.
    pub file_bytes: u64,
    /// Age from which on entries are removed, at the next entry.
    pub age_max: TimeSpan,
    /// `console.audit_reads`: whether reading a body is recorded.
    pub records_reads: bool,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            bytes_max: 256 << 20,
            file_bytes: 8 << 20,
            age_max: TimeSpan::from_days(90),
            records_reads: false,
        }
    }
}

impl AuditConfig {
    /// Returns the bounds with a decision about reading of bodies (`console.audit_reads`).
    #[must_use]
    pub const fn with_reads(mut self, records_reads: bool) -> Self {
        self.records_reads = records_reads;
        self
    }

    /// Returns the bounds with other sizes.
    #[must_use]
    pub const fn with_sizes(mut self, bytes_max: u64, file_bytes: u64) -> Self {
        (self.bytes_max, self.file_bytes) = (bytes_max, file_bytes);
        self
    }
}

/// Error of a trail that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be read or written.
    #[error("the audit trail cannot be opened: {0}")]
    Disk(#[from] io::Error),
    /// The last file does not end with a line of the trail.
    #[error(
        "line {line} of the audit trail file `{file}` is not an entry; `peeklock audit verify` \
         shows the damage; move the directory away to begin a new trail"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Number of the line in it.
        line: usize,
    },
}

/// A file of the trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFacts {
    pub name: String,
    pub first: u64,
    pub began_at: Timestamp,
    /// Bytes of durable lines.
    pub bytes: u64,
}

/// The files, and the end of the chain.
pub struct Log {
    disk: Arc<dyn Disk>,
    config: AuditConfig,
    /// Oldest first.
    files: Vec<FileFacts>,
    /// The last file; none before the first entry.
    current: Option<Arc<dyn DiskFile>>,
    place: Place,
    /// Bytes of a torn line that were removed, until an entry records it.
    mended: u64,
    failure: Option<Arc<str>>,
}

/// Returns the file with a name; none for other files.
pub fn facts_of(name: &str) -> Option<FileFacts> {
    let (first, at) = name.strip_suffix(EXTENSION)?.split_once('-')?;
    let (first, at) = (first.parse().ok()?, at.parse().ok()?);
    let began_at = Timestamp::from_unix_ms(at);
    Some(FileFacts { name: name.to_owned(), first, began_at, bytes: 0 })
}

/// Lists the files of a trail, oldest first, with their sizes.
pub fn files_of(disk: &dyn Disk) -> io::Result<Vec<FileFacts>> {
    let mut files: Vec<_> = disk.list()?.iter().filter_map(|name| facts_of(name)).collect();
    files.sort_unstable_by_key(|file| file.first);
    for file in &mut files {
        file.bytes = disk.open(&file.name)?.length()?;
    }
    Ok(files)
}

/// Reads a whole file, up to `bytes`.
pub fn read(file: &dyn DiskFile, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let count = file.read_at(&mut content, 0)?;
    content.truncate(count);
    Ok(content)
}

impl Log {
    /// Opens a trail, and removes a line that was not written to its end.
    pub fn open(disk: Arc<dyn Disk>, config: AuditConfig) -> Result<Self, OpenError> {
        let files = files_of(&*disk)?;
        let (current, place, mended, failure) = (None, Place::FIRST, 0, None);
        let mut log = Self { disk, config, files, current, place, mended, failure };
        while let Some(last) = log.files.last().cloned() {
            let file = log.disk.open(&last.name)?;
            let content = read(&*file, last.bytes)?;
            let end = written_end(&content);
            let torn = (content.len() - end) as u64;
            if torn > 0 {
                tracing::warn!(file = last.name, bytes = torn, "a torn line is removed");
                file.truncate(end as u64)?;
                file.sync()?;
                log.mended += torn;
            }
            let lines = content.get(..end).unwrap_or_default();
            let Some(place) = end_of(lines, &last.name)? else {
                // Made for an entry that was not written.
                log.disk.remove(&last.name)?;
                log.disk.sync()?;
                log.files.pop();
                continue;
            };
            log.place = place;
            if let Some(last) = log.files.last_mut() {
                last.bytes = end as u64;
            }
            log.current = Some(file);
            break;
        }
        Ok(log)
    }

    /// The files with their durable bytes.
    pub fn files(&self) -> &[FileFacts] {
        &self.files
    }

    /// Appends entries with one write and one sync.
    pub fn append(&mut self, entries: &[AuditEntry]) -> Result<(), AuditError> {
        if let Some(failure) = &self.failure {
            return Err(AuditError::Failed(Arc::clone(failure)));
        }
        let Some(now) = entries.iter().map(|entry| entry.at).max() else { return Ok(()) };
        let failed = |error: &io::Error| AuditError::Failed(error.to_string().into());
        // The size is known only with the numbers of the lines, which follow from the trimming.
        let estimate: u64 = self.texts(entries, self.place)?.bytes.len() as u64 + TRAIL_LINE_BYTES;
        if self.needs_file(now, estimate) {
            self.begin_file(now)?;
        }
        let removed = self.files_to_remove(now, estimate + TRAIL_LINE_BYTES);
        let mut own = Vec::new();
        let mut place = self.place;
        let begins = self.files.get(removed).map(|file| file.first).filter(|_| removed > 0);
        let lines = [
            (self.mended > 0).then(|| Line::mended(place, now, self.mended)),
            begins.map(|begins| Line::trimmed(place, now, begins)),
        ];
        for mut line in lines.into_iter().flatten() {
            line.number = place.number;
            line.previous = crate::line::hexadecimal(&place.previous);
            let text = line.text().map_err(|error| failed(&io::Error::other(error)))?;
            place = place.after(&text);
            own.extend_from_slice(text.as_bytes());
            own.push(b'\n');
        }
        let texts = self.texts(entries, place)?;
        own.extend_from_slice(&texts.bytes);
        self.write(&own)?;
        self.place = texts.place;
        self.mended = 0;
        self.remove_files(removed);
        Ok(())
    }

    fn texts(&self, entries: &[AuditEntry], mut place: Place) -> Result<Texts, AuditError> {
        let mut bytes = Vec::new();
        for entry in entries {
            let text = Line::of_entry(place, entry).text();
            let text = text.map_err(|error| AuditError::Failed(error.to_string().into()))?;
            place = place.after(&text);
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b'\n');
        }
        Ok(Texts { bytes, place })
    }

    fn needs_file(&self, now: Timestamp, bytes: u64) -> bool {
        match (&self.current, self.files.last()) {
            (Some(_), Some(last)) => {
                last.bytes > 0
                    && (last.bytes + bytes > self.config.file_bytes
                        || now.since(last.began_at) >= FILE_TIME)
            }
            _ => true,
        }
    }

    fn begin_file(&mut self, now: Timestamp) -> Result<(), AuditError> {
        let first = self.place.number;
        let name = format!("{first:020}-{:013}{EXTENSION}", now.unix_ms());
        let file = match self.disk.create(&name) {
            Ok(file) => file,
            Err(error) => {
                tracing::error!(%error, name, "a file of the audit trail cannot be made");
                return Err(AuditError::Failed(error.to_string().into()));
            }
        };
        self.disk.sync().map_err(|error| self.stop(&error))?;
        self.files.push(FileFacts { name, first, began_at: now, bytes: 0 });
        self.current = Some(file);
        Ok(())
    }

    /// Number of the oldest files that are too old, or whose bytes are needed.
    fn files_to_remove(&self, now: Timestamp, bytes: u64) -> usize {
        let mut total: u64 = self.files.iter().map(|file| file.bytes).sum::<u64>() + bytes;
        let mut count = 0;
        // The entries of a file are older than the first one of the next file.
        for [file, next] in self.files.array_windows() {
            let is_old = now.since(next.began_at) >= self.config.age_max;
            if !is_old && total <= self.config.bytes_max {
                break;
            }
            total -= file.bytes;
            count += 1;
        }
        count
    }

    /// Writes lines to the current file, and waits until they are durable.
    fn write(&mut self, bytes: &[u8]) -> Result<(), AuditError> {
        let (Some(file), Some(last)) = (&self.current, self.files.last_mut()) else {
            return Err(AuditError::Failed("there is no file".into()));
        };
        if let Err(error) = file.write_at(bytes, last.bytes) {
            if let Err(again) = file.truncate(last.bytes) {
                return Err(self.stop(&again));
            }
            tracing::error!(%error, "an entry of the audit trail cannot be written");
            return Err(AuditError::Failed(error.to_string().into()));
        }
        if let Err(error) = file.sync() {
            return Err(self.stop(&error));
        }
        last.bytes += bytes.len() as u64;
        Ok(())
    }

    fn remove_files(&mut self, count: usize) {
        for _ in 0..count {
            let Some(file) = self.files.first() else { return };
            if let Err(error) = self.disk.remove(&file.name) {
                tracing::error!(%error, file = file.name, "an old file of the audit trail stays");
                return;
            }
            self.files.remove(0);
            // One after the other, so that a crash leaves no gap.
            if let Err(error) = self.disk.sync() {
                self.stop(&error);
                return;
            }
        }
    }

    /// Stops the trail: from now on, every entry is refused.
    fn stop(&mut self, error: &io::Error) -> AuditError {
        let failure: Arc<str> = format!("{error}; start the broker again").into();
        tracing::error!(%error, "the audit trail has stopped, and actions of operators are refused");
        self.failure = Some(Arc::clone(&failure));
        AuditError::Failed(failure)
    }
}

struct Texts {
    bytes: Vec<u8>,
    /// Place after the last line.
    place: Place,
}

/// Returns the end of the lines that were written whole. A kill leaves the last line without its
/// end; a power cut may leave zeros in lines that were not durable.
fn written_end(content: &[u8]) -> usize {
    let zero = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
    let written = content.get(..zero).unwrap_or_default();
    written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// Returns the place after the last of complete lines; none without a line.
fn end_of(lines: &[u8], file: &str) -> Result<Option<Place>, OpenError> {
    let count = lines.iter().filter(|byte| **byte == b'\n').count();
    let Some(lines) = lines.strip_suffix(b"\n") else { return Ok(None) };
    let last = lines.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let damaged = || OpenError::Damaged { file: file.to_owned(), line: count };
    let text = std::str::from_utf8(last).map_err(|_| damaged())?;
    let line: Line = serde_json::from_str(text).map_err(|_| damaged())?;
    let place = Place { number: line.number, previous: crate::line::NO_HASH };
    Ok(Some(place.after(text)))
}

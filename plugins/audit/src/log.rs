//! Files of the trail: append, bounds, and repair after a crash. One thread uses a log.
//!
//! A file is named after its first line: `<number>-<milliseconds since 1970>.jsonl`. Its lines end
//! before the next file begins. A failed write is taken back, and the next entry is tried again. A
//! failed sync stops the trail until the broker is started again, since the state of the file is
//! unknown; it is never repeated. The next start writes the last file again, because lines that were
//! written before a failed sync may be in the cache of the system only.

use std::io;
use std::sync::Arc;

use peeklock_core::contract::{AuditEntry, AuditError};
use peeklock_core::store::journal::disk::{Disk, DiskFile};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::line::{LINE_BYTES_MAX, Line, Place};

/// End of the name of a file.
pub const EXTENSION: &str = ".jsonl";
/// Time after which a new file begins, so that old entries are removed day by day.
const FILE_TIME: TimeSpan = TimeSpan::from_days(1);
/// Maximum bytes of a line of the trail itself.
const TRAIL_LINE_BYTES: u64 = 512;
/// Maximum number of entries in one write.
pub const GROUP_MAX: usize = 64;
/// Maximum bytes of a write. A crash tears at most the last write.
const GROUP_BYTES_MAX: u64 = GROUP_MAX as u64 * (LINE_BYTES_MAX as u64 + 1) + 2 * TRAIL_LINE_BYTES;

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
    /// The end of the trail has a damage that a crash does not explain.
    #[error(
        "line {line} of the audit trail file `{file}` is not an entry, and a crash does not leave \
         such a line; `peeklock audit verify` shows the damage; move the directory away to begin a \
         new trail, and keep it"
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
    /// Number with which the trail begins by its last line about that; 0 without one since the
    /// start.
    begins: u64,
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
    /// Opens a trail. Removes the rest of a write that a crash has torn, and records it.
    pub fn open(disk: Arc<dyn Disk>, config: AuditConfig) -> Result<Self, OpenError> {
        let files = files_of(&*disk)?;
        let (current, place, begins, failure) = (None, Place::FIRST, 0, None);
        let mut log = Self { disk, config, files, current, place, begins, failure };
        let mut torn = 0;
        while let Some(mut last) = log.files.pop() {
            let file = log.disk.open(&last.name)?;
            let mut content = read(&*file, last.bytes)?;
            let end = written_end(&content);
            let (lines, tail) = content.split_at(end);
            let found = end_of(lines, &last.name)?;
            let next = found.as_ref().map_or(last.first, |(_, place)| place.number);
            let is_lost = found.is_none() && log.files.is_empty() && last.first > 1;
            if is_lost || !is_torn(tail, next) {
                let line = 1 + lines.iter().filter(|byte| **byte == b'\n').count();
                return Err(OpenError::Damaged { file: last.name, line });
            }
            torn += tail.len() as u64;
            if !tail.is_empty() {
                tracing::warn!(file = last.name, bytes = tail.len(), "a torn line is removed");
            }
            let Some((line, mut place)) = found else {
                // Made for an entry that was not written.
                log.disk.remove(&last.name)?;
                log.disk.sync()?;
                continue;
            };
            content.truncate(end);
            if torn > 0 {
                let at = line.instant().unwrap_or(last.began_at);
                let text = Line::mended(place, at, torn).text().map_err(io::Error::other)?;
                place = place.after(&text);
                content.extend_from_slice(text.as_bytes());
                content.push(b'\n');
            }
            file.truncate(end as u64)?;
            // Also the lines whose sync may have failed before the start. The byte behind them makes
            // the system write the length of the file again.
            last.bytes = content.len() as u64;
            content.push(0);
            file.write_at(&content, 0)?;
            file.truncate(last.bytes)?;
            file.sync()?;
            log.files.push(last);
            (log.place, log.current) = (place, Some(file));
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
        // The size is known only with the numbers of the lines, which follow from the trimming.
        let group = self.place.number;
        let estimate = self.texts(entries, self.place, group)?.bytes.len() as u64;
        let estimate = estimate + 2 * TRAIL_LINE_BYTES;
        self.remove_files_before(self.begins);
        let bound = self.config.bytes_max.saturating_add(self.config.file_bytes);
        if self.bytes() + estimate > bound && self.has_files_before(self.begins) {
            let text = "its oldest file cannot be removed, so it is full; the log has the reason";
            return Err(AuditError::Failed(text.into()));
        }
        if self.needs_file(now, estimate) {
            self.begin_file(now)?;
        }
        let removed = self.files_to_remove(now, estimate);
        let begins = self.files.get(removed).map_or(0, |file| file.first);
        let is_trimmed = removed > 0 && begins > self.begins;
        let (mut own, mut place) = (Vec::new(), self.place);
        if is_trimmed {
            let text = Line::trimmed(place, now, begins).text();
            let text = text.map_err(|error| AuditError::Failed(error.to_string().into()))?;
            place = place.after(&text);
            own.extend_from_slice(text.as_bytes());
            own.push(b'\n');
        }
        let texts = self.texts(entries, place, group)?;
        own.extend_from_slice(&texts.bytes);
        self.write(&own)?;
        self.place = texts.place;
        if is_trimmed {
            self.begins = begins;
            self.remove_files_before(begins);
        }
        Ok(())
    }

    /// Bytes of all files.
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Makes lines of entries. `group` is the number of the first line of the write.
    fn texts(
        &self,
        entries: &[AuditEntry],
        mut place: Place,
        group: u64,
    ) -> Result<Texts, AuditError> {
        let mut bytes = Vec::new();
        for entry in entries {
            let mut line = Line::of_entry(place, entry);
            line.group = (line.number != group).then_some(group);
            let text = line.text();
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

    /// Number of the oldest files whose bytes are needed, or one that is too old. A clock may be
    /// wrong when the machine starts, and would then make all entries old. So ages are measured at
    /// the begin of a file, and only when entries came a day after it.
    fn files_to_remove(&self, now: Timestamp, bytes: u64) -> usize {
        let begins = self.files.iter().map(|file| file.began_at);
        let confirmed = begins.filter(|at| now.since(*at) >= FILE_TIME).max();
        let mut total = self.bytes() + bytes;
        let mut count = 0;
        // The entries of a file are older than the first one of the next file.
        for [file, next] in self.files.array_windows() {
            let age = confirmed.map_or(TimeSpan::ZERO, |at| at.since(next.began_at));
            let is_old = count == 0 && age >= self.config.age_max;
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

    fn has_files_before(&self, begins: u64) -> bool {
        self.files.get(1).is_some_and(|next| next.first <= begins)
    }

    /// Removes the files with older entries only. The next entry tries again after a failure.
    fn remove_files_before(&mut self, begins: u64) {
        while self.has_files_before(begins)
            && let Some(file) = self.files.first()
        {
            if let Err(error) = self.disk.remove(&file.name)
                && error.kind() != io::ErrorKind::NotFound
            {
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

/// Whether bytes after the written lines may be the rest of the last write: no line in them is of a
/// later write. `next` is the number of the first line that is not whole. A line of a later write
/// shows that this line was durable, so that something else has damaged it.
fn is_torn(tail: &[u8], next: u64) -> bool {
    let mut lines = tail.split(|byte| *byte == b'\n');
    let is_of_last_write = |bytes: &[u8]| {
        let line = serde_json::from_slice::<Line>(bytes);
        line.map_or(true, |line| line.group.unwrap_or(line.number) <= next)
    };
    tail.len() as u64 <= GROUP_BYTES_MAX && lines.all(is_of_last_write)
}

/// Returns the last of complete lines, and the place after it; none without a line.
fn end_of(lines: &[u8], file: &str) -> Result<Option<(Line, Place)>, OpenError> {
    let count = lines.iter().filter(|byte| **byte == b'\n').count();
    let Some(lines) = lines.strip_suffix(b"\n") else { return Ok(None) };
    let last = lines.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let line: Line = serde_json::from_slice(last)
        .map_err(|_| OpenError::Damaged { file: file.to_owned(), line: count })?;
    let place = Place { number: line.number, previous: crate::line::NO_HASH }.after(last);
    Ok(Some((line, place)))
}

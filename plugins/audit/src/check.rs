//! Verification of a trail without its broker: of a directory, or of an exported file.
//!
//! Each line has the hash of the line before it, so a change of a line contradicts the next one. The
//! last line has no such witness: compare the reported last hash with one that you have noted
//! elsewhere.

use std::fmt;
use std::io;

use peeklock_core::store::journal::disk::Disk;

use crate::line::{HASH_CHARS, Hash, Line, NO_HASH, Place, Stage, TRIMMED, hexadecimal};
use crate::log::{files_of, read};

/// Result of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of lines.
    pub lines: u64,
    /// Number of the first entry; none without an entry.
    pub first: Option<u64>,
    /// Number of the last entry.
    pub last: Option<u64>,
    /// Hash of the last line, in hexadecimal. An export that ends with it is complete.
    pub last_hash: Option<String>,
    /// Bytes at the end that a crash has left; the next start of the broker removes them.
    pub torn_bytes: u64,
    /// The faults, in the order of the lines, at most [`Report::FAULTS_MAX`].
    pub faults: Vec<Fault>,
}

/// A line that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// File of the line; empty for an export.
    pub file: String,
    /// Number of the line in the file.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, reason } = self;
        match &**file {
            "" => write!(f, "line {line}: {reason}"),
            file => write!(f, "{file}, line {line}: {reason}"),
        }
    }
}

/// An entry whose hash was noted elsewhere: `NUMBER:HASH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotedEntry {
    number: u64,
    hash: String,
}

impl std::str::FromStr for NotedEntry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once(':').and_then(|(number, hash)| {
            let is_hash =
                hash.len() == HASH_CHARS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = number.parse().ok()?;
            is_hash.then(|| Self { number, hash: hash.to_ascii_lowercase() })
        });
        parsed.ok_or("expected the number of an entry, a colon, and its hash of 64 digits")
    }
}

impl Report {
    /// Maximum number of faults in a report.
    pub const FAULTS_MAX: usize = 100;

    /// Whether every line is as it was written.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Verifies the trail in a directory, and that a noted entry is in it unchanged.
///
/// # Errors
/// If a file cannot be read.
pub fn verify(disk: &dyn Disk, noted: Option<&NotedEntry>) -> io::Result<Report> {
    let mut check = Check { noted: noted.cloned(), ..Check::default() };
    let files = files_of(disk)?;
    for (at, facts) in files.iter().enumerate() {
        let content = read(&*disk.open(&facts.name)?, facts.bytes)?;
        let is_last = at + 1 == files.len();
        check.file(&facts.name, &content, is_last);
        if let Some(first) = check.file_first.take().filter(|first| *first != facts.first) {
            let reason = format!("the file begins with entry {first}, not {}", facts.first);
            check.fault(&facts.name, 1, reason);
        }
    }
    Ok(check.end())
}

/// Verifies an exported trail, and that a noted entry is in it unchanged.
#[must_use]
pub fn verify_lines(content: &[u8], noted: Option<&NotedEntry>) -> Report {
    let mut check = Check { is_export: true, noted: noted.cloned(), ..Check::default() };
    check.file("", content, false);
    check.end()
}

#[derive(Default)]
struct Check {
    report: Report,
    is_export: bool,
    /// Place after the last line; none before the first one.
    place: Option<Place>,
    /// Number of the first line of the current file.
    file_first: Option<u64>,
    /// File and line of the first entry, and the hash that it names.
    start: Option<(String, Hash)>,
    /// File and line of the last entry.
    before: (String, usize),
    /// Number with which the trail begins, by its last line about that.
    begins: Option<u64>,
    /// The noted entry, until it is found.
    noted: Option<NotedEntry>,
}

impl Check {
    fn fault(&mut self, file: &str, line: usize, reason: String) {
        if self.report.faults.len() < Report::FAULTS_MAX {
            self.report.faults.push(Fault { file: file.to_owned(), line, reason });
        }
    }

    fn file(&mut self, file: &str, content: &[u8], is_last: bool) {
        let (lines, rest) = match content.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => content.split_at(at + 1),
            None => (&[][..], content),
        };
        let mut number = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            number += 1;
            self.line(file, number, line.strip_suffix(b"\n").unwrap_or(line));
        }
        if rest.is_empty() {
            return;
        }
        if is_last {
            self.report.torn_bytes = rest.len() as u64;
        } else {
            self.fault(file, number + 1, "the line has no end".to_owned());
        }
    }

    fn line(&mut self, file: &str, number: usize, bytes: &[u8]) {
        self.report.lines += 1;
        let text = std::str::from_utf8(bytes).ok();
        let line = text.and_then(|text| serde_json::from_str::<Line>(text).ok());
        let (Some(text), Some(line)) = (text, line) else {
            self.fault(file, number, "it is not an entry".to_owned());
            // The next line still names the hash of this one.
            if let Some(place) = &mut self.place {
                *place = place.after(bytes);
            }
            return;
        };
        match self.place {
            None => self.start = Some((file.to_owned(), hash_of(&line.previous))),
            Some(place) if line.number != place.number => {
                let (found, expected) = (line.number, place.number);
                let reason = match found > expected {
                    true => format!("entries {expected} to {} before it are missing", found - 1),
                    false => format!("the entry has the number {found}; {expected} is expected"),
                };
                self.fault(file, number, reason);
            }
            Some(place) if line.previous != hexadecimal(&place.previous) => {
                let (file, number) = self.before.clone();
                let next = line.number;
                let reason = format!("it was changed: entry {next} has the hash of another text");
                self.fault(&file, number, reason);
            }
            Some(_) => {}
        }
        if line.stage == Stage::Trail && line.operation == TRIMMED {
            self.begins = line.begins.or(self.begins);
        }
        self.file_first = self.file_first.or((number == 1).then_some(line.number));
        self.report.first = self.report.first.or(Some(line.number));
        self.report.last = Some(line.number);
        self.before = (file.to_owned(), number);
        let place = Place { number: line.number, previous: NO_HASH }.after(text);
        self.place = Some(place);
        if let Some(noted) = self.noted.take_if(|noted| noted.number == line.number)
            && noted.hash != hexadecimal(&place.previous)
        {
            self.fault(file, number, "the entry does not have the noted hash".to_owned());
        }
    }

    fn end(mut self) -> Report {
        self.report.last_hash = self.place.map(|place| hexadecimal(&place.previous));
        let Some(first) = self.report.first else {
            let reason = "there is no entry; the trail is in the folder `audit` of the data \
                          directory, DATA/audit";
            self.fault("", 1, reason.to_owned());
            return self.report;
        };
        if let Some(noted) = self.noted.take() {
            let (file, line) = self.before.clone();
            self.fault(&file, line, format!("the noted entry {} is missing", noted.number));
        }
        let begins = self.begins.unwrap_or(1);
        if first > begins && !self.is_export {
            let reason = format!("entries {begins} to {} are missing", first - 1);
            let (file, _) = self.start.clone().unwrap_or_default();
            self.report.faults.insert(0, Fault { file, line: 1, reason });
        } else if let Some((file, NO_HASH)) = self.start.clone()
            && first > 1
        {
            let reason = "the first entry does not have the hash of an earlier one".to_owned();
            self.fault(&file, 1, reason);
        } else if let Some((file, hash)) = self.start.clone()
            && first == 1
            && hash != NO_HASH
        {
            let reason = "entry 1 has the hash of an earlier one".to_owned();
            self.fault(&file, 1, reason);
        }
        self.report
    }
}

/// Reads a hash; another text is a hash that no line has.
fn hash_of(text: &str) -> Hash {
    let mut hash = [0xff; 32];
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok();
        *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(0xff);
    }
    hash
}

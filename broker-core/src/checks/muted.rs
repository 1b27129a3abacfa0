//! Muted findings, and the file that keeps them over a restart (CON-39).
//!
//! The file `muted` has a line for each: kind, instant, path and reason, and at the end the SHA-256
//! digest of all lines before. It is replaced as a whole and synced before a request is answered.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::report::{CheckKind, MUTE_COUNT_MAX, MUTE_REASON_CHARS_MAX, Mute};
use crate::condition::Condition;
use crate::error::Rejection;
use crate::path::PathKey;
use crate::time::Timestamp;

/// Name of the file.
const FILE: &str = "muted";
/// Maximum size of a file that is read: larger ones were not written by a broker.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Kind and path of a muted finding.
type MuteKey = (PathKey, CheckKind);

/// The muted findings of a broker.
pub(super) struct Mutes {
    current: Mutex<BTreeMap<MuteKey, Mute>>,
    /// Held while the file is written.
    writing: Mutex<()>,
    directory: Option<PathBuf>,
}

impl Mutes {
    /// Reads the file of a directory, if there is one.
    pub(super) fn open(directory: Option<PathBuf>) -> Arc<Self> {
        let current = directory.as_deref().map(read).unwrap_or_default();
        let current = Mutex::new(current);
        Arc::new(Self { current, writing: Mutex::new(()), directory })
    }

    fn current(&self) -> MutexGuard<'_, BTreeMap<MuteKey, Mute>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason for which a finding is muted.
    pub(super) fn get(&self, path: &str, kind: CheckKind) -> Option<Mute> {
        self.current().get(&(PathKey::fold(path), kind)).cloned()
    }

    /// Forgets the findings about entities that no longer exist.
    pub(super) fn retain(&self, exists: impl Fn(&PathKey) -> bool) {
        self.current().retain(|(path, _), _| path.as_str().is_empty() || exists(path));
    }

    /// Mutes a finding, or with `None` ends this. The change is durable when this returns.
    pub(super) async fn set(
        self: &Arc<Self>,
        path: &str,
        kind: CheckKind,
        mute: Option<Mute>,
    ) -> Result<(), Rejection> {
        let key = (PathKey::fold(path), kind);
        let before = {
            let mut current = self.current();
            if mute.is_some() && !current.contains_key(&key) && current.len() >= MUTE_COUNT_MAX {
                let detail = format!(
                    "{MUTE_COUNT_MAX} findings are muted, which is the maximum; unmute some"
                );
                return Err(Rejection::new(Condition::QuotaExceeded, detail));
            }
            match mute {
                Some(mute) => current.insert(key.clone(), mute),
                None => current.remove(&key),
            }
        };
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let (done, written) = oneshot::channel();
        let mutes = Arc::clone(self);
        // A caller may have no runtime that lets it wait for the disk.
        let thread = std::thread::Builder::new().name("peeklock-checks".to_owned());
        let thread = thread.spawn(move || done.send(mutes.write(&directory)).ok());
        let result = match thread {
            Ok(_) => written.await.unwrap_or_else(|_| Err(io::Error::other("the thread ended"))),
            Err(error) => Err(error),
        };
        result.map_err(|error| {
            let mut current = self.current();
            match before {
                Some(before) => current.insert(key, before),
                None => current.remove(&key),
            };
            let detail =
                format!("muted findings cannot be written: {error}; repair the disk, then retry");
            Rejection::server_busy(detail)
        })
    }

    /// Replaces the file with the current state.
    fn write(&self, directory: &Path) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let content = text_of(&self.current());
        // Like the other files of the data directory, only for their owner.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let (path, new) = (directory.join(FILE), directory.join("muted.new"));
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        fs::File::open(directory)?.sync_all()
    }
}

/// Refuses a reason that is empty, too long or more than a line.
pub(super) fn check_reason(reason: &str) -> Result<(), Rejection> {
    let chars = reason.chars().count();
    if chars == 0 || chars > MUTE_REASON_CHARS_MAX {
        return Err(Rejection::out_of_range(format!(
            "the reason has {chars} characters; it must have 1 to {MUTE_REASON_CHARS_MAX}"
        )));
    }
    if reason.chars().any(char::is_control) {
        return Err(Rejection::argument("the reason must be one line without control characters"));
    }
    Ok(())
}

fn text_of(mutes: &BTreeMap<MuteKey, Mute>) -> String {
    let mut text = String::new();
    for ((path, kind), Mute { reason, at }) in mutes {
        let (kind, path, at) = (kind.name(), path.as_str(), at.ticks());
        writeln!(text, "{kind}\t{at}\t{path}\t{reason}").ok();
    }
    let digest = digest_of(&text);
    text.push_str(&digest);
    text
}

fn digest_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the file of a directory. A damaged one is put aside.
fn read(directory: &Path) -> BTreeMap<MuteKey, Mute> {
    let path = directory.join(FILE);
    let read = || {
        if fs::metadata(&path)?.len() > FILE_BYTES_MAX {
            return Ok(None);
        }
        // Not UTF-8 is damaged.
        Ok(String::from_utf8(fs::read(&path)?).ok().and_then(|text| parse(&text)))
    };
    let why = match read() {
        Ok(Some(mutes)) => return mutes,
        Ok(None) => "the file is damaged".to_owned(),
        Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => error.to_string(),
    };
    let moved = fs::rename(&path, directory.join("muted.damaged")).is_ok();
    tracing::warn!(path = %path.display(), why, moved, "muted findings are lost");
    BTreeMap::new()
}

fn parse(text: &str) -> Option<BTreeMap<MuteKey, Mute>> {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    let (lines, digest) = text.split_at_checked(end)?;
    if digest_of(lines) != digest {
        return None;
    }
    let mut mutes = BTreeMap::new();
    for line in lines.lines() {
        let mut parts = line.splitn(4, '\t');
        let (name, at) = (parts.next()?, parts.next()?.parse().ok()?);
        let (path, reason) = (PathKey::fold(parts.next()?), parts.next()?.into());
        // A kind of another version means nothing here.
        if let Some(kind) = CheckKind::ALL.iter().find(|kind| kind.name() == name) {
            mutes.insert((path, *kind), Mute { reason, at: Timestamp::from_ticks(at) });
        }
    }
    Some(mutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-39: muted findings survive as text; a changed byte is noticed.
    #[test]
    fn the_file_is_read_as_it_was_written() {
        let mute = |reason: &str, at| Mute { reason: reason.into(), at: Timestamp::from_ticks(at) };
        let mutes = BTreeMap::from([
            ((PathKey::fold(""), CheckKind::DiskNearlyFull), mute("new disk\u{a0}on Friday", 7)),
            ((PathKey::fold("a/b"), CheckKind::NearlyFull), mute("known", i64::MAX)),
        ]);
        let text = text_of(&mutes);
        assert_eq!(parse(&text), Some(mutes));
        assert_eq!(parse(&text_of(&BTreeMap::new())), Some(BTreeMap::new()));
        for damaged in [text.replace("known", "knows"), text.replace('7', "8"), String::new()] {
            assert_eq!(parse(&damaged), None, "{damaged}");
        }
        let later = text_of(&BTreeMap::new());
        let line = "ofALaterVersion\t1\tq\twhy\n";
        assert_eq!(later.len(), 64);
        assert_eq!(parse(&format!("{line}{}", digest_of(line))), Some(BTreeMap::new()));
    }

    /// CON-39: a reason is one line of 1 to 256 characters.
    #[test]
    fn reasons_are_bounded() {
        assert!(check_reason("until Friday").is_ok());
        assert!(check_reason(&"é".repeat(MUTE_REASON_CHARS_MAX)).is_ok());
        for refused in ["", "a\tb", "a\nb", &"a".repeat(MUTE_REASON_CHARS_MAX + 1)] {
            assert!(check_reason(refused).is_err(), "{refused}");
        }
    }
}

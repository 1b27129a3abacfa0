//! Muted findings, and the file that keeps them over a restart (CON-39).
//!
//! The file `muted` has a line for each: kind, instant, id of the entity or 0, path and reason, and
//! at the end the SHA-256 digest of all lines before. It is replaced as a whole and synced before a
//! request is answered.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::report::{CheckKind, MUTE_COUNT_MAX, MUTE_REASON_CHARS_MAX, Mute};
use crate::condition::Condition;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::kept_file::{self, Durability};
use crate::path::PathKey;
use crate::time::Timestamp;

/// Name of the file.
const FILE: &str = "muted";
/// Maximum size of a file that is read: larger ones were not written by a broker.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Path and kind of a muted finding.
type MuteKey = (PathKey, CheckKind);
type KeptMutes = BTreeMap<MuteKey, KeptMute>;

/// A mute with the entity that it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeptMute {
    /// `None` for the broker. A path that is created again has another entity.
    pub(super) entity: Option<EntityId>,
    pub(super) mute: Mute,
}

/// The muted findings of a broker.
pub(super) struct Mutes {
    current: Mutex<KeptMutes>,
    /// Held by a change until its state is durable and current.
    changing: Arc<tokio::sync::Mutex<()>>,
    directory: Option<PathBuf>,
}

impl Mutes {
    /// Reads the file of a directory, if there is one.
    pub(super) fn open(directory: Option<PathBuf>) -> Arc<Self> {
        let current = directory.as_deref().map(read).unwrap_or_default();
        Arc::new(Self { current: Mutex::new(current), changing: Arc::default(), directory })
    }

    fn current(&self) -> MutexGuard<'_, KeptMutes> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason for which a finding is muted.
    pub(super) fn get(&self, path: &PathKey, kind: CheckKind) -> Option<Mute> {
        self.current().get(&(path.clone(), kind)).map(|kept| kept.mute.clone())
    }

    /// Forgets the findings about entities that no longer exist.
    pub(super) async fn retain(self: &Arc<Self>, exists: impl Fn(&PathKey, EntityId) -> bool) {
        let changing = Arc::clone(&self.changing).lock_owned().await;
        let next = {
            let mut current = self.current();
            let count = current.len();
            current.retain(|(path, _), kept| kept.entity.is_none_or(|id| exists(path, id)));
            if current.len() == count {
                return;
            }
            current.clone()
        };
        if let Err(error) = self.replace(next, changing).await {
            // The ids of the entities keep these lines from meaning anything.
            tracing::warn!(%error, "muted findings of deleted entities stay in their file");
        }
    }

    /// Mutes a finding, or with `None` ends this. The change is durable when this returns.
    pub(super) async fn set(
        self: &Arc<Self>,
        path: &str,
        kind: CheckKind,
        mute: Option<KeptMute>,
    ) -> Result<(), Rejection> {
        let changing = Arc::clone(&self.changing).lock_owned().await;
        let key = (PathKey::fold(path), kind);
        let mut next = self.current().clone();
        if mute.is_some() && !next.contains_key(&key) && next.len() >= MUTE_COUNT_MAX {
            let detail =
                format!("{MUTE_COUNT_MAX} findings are muted, which is the maximum; unmute some");
            return Err(Rejection::new(Condition::QuotaExceeded, detail));
        }
        match mute {
            Some(mute) => next.insert(key, mute),
            None => next.remove(&key),
        };
        self.replace(next, changing).await.map_err(|error| {
            let detail =
                format!("muted findings cannot be written: {error}; repair the disk, then retry");
            Rejection::server_busy(detail)
        })
    }

    /// Writes the next state, and then makes it the current one, also without the caller.
    async fn replace(
        self: &Arc<Self>,
        next: KeptMutes,
        changing: OwnedMutexGuard<()>,
    ) -> io::Result<()> {
        let Some(directory) = self.directory.clone() else {
            *self.current() = next;
            return Ok(());
        };
        let (done, written) = oneshot::channel();
        let mutes = Arc::clone(self);
        // A caller may have no runtime that lets it wait for the disk.
        std::thread::Builder::new().name("peeklock-checks".to_owned()).spawn(move || {
            let content = text_of(&next);
            let path = directory.join(FILE);
            let result = kept_file::replace(&path, content.as_bytes(), Durability::Synced);
            if result.is_ok() {
                *mutes.current() = next;
            }
            drop(changing);
            done.send(result).ok();
        })?;
        written.await.unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
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

fn text_of(mutes: &KeptMutes) -> String {
    let mut text = String::new();
    for ((path, kind), KeptMute { entity, mute: Mute { reason, at } }) in mutes {
        let (kind, path, at) = (kind.name(), path.as_str(), at.ticks());
        let id = entity.map_or(0, |id| id.0);
        writeln!(text, "{kind}\t{at}\t{id}\t{path}\t{reason}").ok();
    }
    let digest = digest_of(&text);
    text.push_str(&digest);
    text
}

fn digest_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the file of a directory.
fn read(directory: &Path) -> KeptMutes {
    let parse = |content: &[u8]| {
        // Not UTF-8 is damaged.
        let text = std::str::from_utf8(content).ok();
        text.and_then(parse).ok_or("the file is damaged")
    };
    let path = directory.join(FILE);
    kept_file::read(&path, FILE_BYTES_MAX, "muted findings", parse).unwrap_or_default()
}

fn parse(text: &str) -> Option<KeptMutes> {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    let (lines, digest) = text.split_at_checked(end)?;
    if digest_of(lines) != digest {
        return None;
    }
    let mut mutes = BTreeMap::new();
    for line in lines.lines() {
        let mut parts = line.splitn(5, '\t');
        let (name, at) = (parts.next()?, parts.next()?.parse().ok()?);
        let id = EntityId(parts.next()?.parse().ok()?);
        let (path, reason) = (PathKey::fold(parts.next()?), parts.next()?.into());
        // A kind of another version means nothing here.
        if let Some(kind) = CheckKind::ALL.iter().find(|kind| kind.name() == name) {
            let entity = (!path.as_str().is_empty()).then_some(id);
            let mute = Mute { reason, at: Timestamp::from_ticks(at) };
            mutes.insert((path, *kind), KeptMute { entity, mute });
        }
    }
    Some(mutes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// CON-39: muted findings survive as text; a changed byte is noticed.
    #[test]
    fn the_file_is_read_as_it_was_written() {
        let mute = |entity, reason: &str, at| {
            let mute = Mute { reason: reason.into(), at: Timestamp::from_ticks(at) };
            KeptMute { entity, mute }
        };
        let (disk, full) = (CheckKind::DiskNearlyFull, CheckKind::NearlyFull);
        let mutes = BTreeMap::from([
            ((PathKey::fold(""), disk), mute(None, "new disk\u{a0}on Friday", 7)),
            ((PathKey::fold("a/b"), full), mute(Some(EntityId(4)), "known", i64::MAX)),
        ]);
        let text = text_of(&mutes);
        assert_eq!(parse(&text), Some(mutes));
        assert_eq!(parse(&text_of(&BTreeMap::new())), Some(BTreeMap::new()));
        for damaged in [text.replace("known", "knows"), text.replace('7', "8"), String::new()] {
            assert_eq!(parse(&damaged), None, "{damaged}");
        }
        let later = text_of(&BTreeMap::new());
        let line = "ofALaterVersion\t1\t2\tq\twhy\n";
        assert_eq!(later.len(), 64);
        assert_eq!(parse(&format!("{line}{}", digest_of(line))), Some(BTreeMap::new()));
    }

    /// CON-39: a mute ends with its entity, also for a new entity of the same path and over a
    /// restart.
    #[tokio::test]
    async fn a_mute_ends_with_its_entity() {
        let folder = format!("peeklock-mutes-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::remove_dir_all(&folder).ok();
        let open = || Mutes::open(Some(folder.clone()));
        let kept = |entity| {
            let mute = Mute { reason: "known".into(), at: Timestamp::from_ticks(1) };
            Some(KeptMute { entity, mute })
        };
        let (kind, mutes) = (CheckKind::NearlyFull, open());
        mutes.set("q", kind, kept(Some(EntityId(1)))).await.unwrap();
        mutes.set("", CheckKind::ClockStep, kept(None)).await.unwrap();
        mutes.retain(|path, id| path.as_str() == "q" && id == EntityId(1)).await;
        assert!(
            mutes.get(&PathKey::fold("Q"), kind).is_some()
                && open().get(&PathKey::fold("q"), kind).is_some()
        );
        mutes.retain(|_, id| id == EntityId(2)).await;
        for mutes in [mutes, open()] {
            assert!(mutes.get(&PathKey::fold("q"), kind).is_none());
            assert!(mutes.get(&PathKey::fold(""), CheckKind::ClockStep).is_some());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// CON-39: a change that cannot be written is none.
    #[tokio::test]
    async fn a_failed_change_leaves_the_state() {
        let file = std::env::temp_dir().join(format!("peeklock-no-folder-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        let mutes = Mutes::open(Some(file.join("checks")));
        let mute = Mute { reason: "x".into(), at: Timestamp::from_ticks(1) };
        let kept = Some(KeptMute { entity: None, mute });
        assert!(mutes.set("", CheckKind::ClockStep, kept).await.is_err());
        assert_eq!(mutes.get(&PathKey::fold(""), CheckKind::ClockStep), None);
        fs::remove_file(file).unwrap();
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

//! What was found, for people and programs.

use std::collections::BTreeMap;

use crate::Key;

/// So many findings, and so many keys, are listed; the others are counted.
pub(in super::super) const LISTED_MAX: usize = 10_000;

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The files of the log are read from beginning to end.
    Log,
    /// Every live record is looked up, with its content.
    Records,
    /// A copy is made.
    Copy,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes done.
    pub done: u64,
    /// Bytes altogether.
    pub total: u64,
}

/// What a finding means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing acknowledged is touched; opening the journal takes care of it.
    Harmless,
    /// Something that was acknowledged cannot be read, or the journal does not open.
    Damage,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FindingKind {
    /// What was being written when the process ended. It was never acknowledged.
    UnfinishedWrite,
    /// One of the two copies of a segment's header.
    HeaderCopy,
    /// A side file that cannot be used.
    SideFile,
    /// A side file that is whole and says something else than its segment.
    SideFileDiffers,
    /// The manifest, or one of its two slots.
    Manifest,
    /// A stretch of the log in which no frame can be used.
    Frames,
    /// A live record or content outside of such a stretch.
    Record,
    /// A segment whose header is lost in both copies.
    Header,
    /// A segment that is not there.
    Missing,
    /// A file that is not what its name says, or of another journal.
    Foreign,
    /// Such a file, behind the end of the log.
    Stray,
}

impl FindingKind {
    /// A name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnfinishedWrite => "unfinished-write",
            Self::HeaderCopy => "header-copy",
            Self::SideFile => "side-file",
            Self::SideFileDiffers => "side-file-differs",
            Self::Manifest => "manifest",
            Self::Frames => "frames",
            Self::Record => "record",
            Self::Header => "header",
            Self::Missing => "missing-segment",
            Self::Foreign => "foreign-segment",
            Self::Stray => "stray-file",
        }
    }

    /// What it means for the messages.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::UnfinishedWrite | Self::HeaderCopy | Self::SideFile | Self::Manifest => {
                Severity::Harmless
            }
            Self::SideFileDiffers
            | Self::Frames
            | Self::Record
            | Self::Header
            | Self::Missing
            | Self::Foreign
            | Self::Stray => Severity::Damage,
        }
    }

    /// What becomes of it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UnfinishedWrite => {
                "dropped when the journal is opened; it was never acknowledged"
            }
            Self::HeaderCopy => "the other copy is used; repair writes this copy again",
            Self::SideFile => "written again from its segment when the journal is opened",
            Self::SideFileDiffers => "repair removes it; its segment is read instead",
            Self::Manifest => "written again when the journal is opened",
            Self::Frames => "repair saves its readable records one by one and gives up the rest",
            Self::Record => "repair deletes the message, or returns to its state before",
            Self::Header | Self::Missing | Self::Foreign => {
                "cannot be repaired; repair can continue without the segment (--drop-segment)"
            }
            Self::Stray => "repair removes it",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What.
    pub kind: FindingKind,
    /// The same in words, with the reason.
    pub what: String,
    /// The segment it is about.
    pub segment: Option<u32>,
    /// The frames that cannot be used, if it is about frames.
    pub frames: Option<LostFrames>,
}

impl Finding {
    /// What it means for the messages.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

/// Frames that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostFrames {
    /// The lsn of the first.
    pub first_lsn: u64,
    /// The lsn of the last, if that is known.
    pub last_lsn: Option<u64>,
    /// How many of their records can be told one by one.
    pub told_records: u64,
    /// Whether those are all.
    pub are_all_told: bool,
}

/// What becomes of a record that damage touches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fate {
    /// It, or its content, cannot be read, and nothing older is there.
    Lost,
    /// It cannot be read; what stood under its key before can, and counts again.
    Earlier,
    /// It can be read, though what surrounds it is damaged.
    Saved,
    /// It was removed, and what tells that is damaged; it is removed again.
    Removed,
}

/// A record that damage touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affected {
    /// Its key; what keys mean is known to `change::codec`.
    pub key: Key,
    /// What becomes of it.
    pub fate: Fate,
    /// Why it cannot be read, with file and byte; empty for those that can.
    pub why: String,
}

/// How much there is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Segments of the log.
    pub segments: u64,
    /// Frames that verified.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Keys that have a value.
    pub live_keys: u64,
    /// Bytes of their records and contents.
    pub live_bytes: u64,
    /// Frames that stand for what an earlier repair gave up.
    pub holes: u64,
    /// Files that the next opening removes.
    pub leftover_files: u64,
}

impl Totals {
    /// Bytes of the log that nothing needs any more.
    #[must_use]
    pub const fn garbage_bytes(&self) -> u64 {
        self.log_bytes.saturating_sub(self.live_bytes)
    }
}

/// Everything that was found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// What is not as it should be, in the order of the log. At most 10,000 are listed.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_omitted: u64,
    /// Records that damage touches. At most 10,000 are listed.
    pub affected: Vec<Affected>,
    /// Affected records beyond those.
    pub affected_omitted: u64,
    /// How much there is.
    pub totals: Totals,
    is_damaged: bool,
    fates: BTreeMap<Fate, u64>,
}

impl Report {
    /// Whether nothing acknowledged is damaged.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        !self.is_damaged
    }

    /// How many records have a fate, listed or not.
    #[must_use]
    pub fn count(&self, fate: Fate) -> u64 {
        self.fates.get(&fate).copied().unwrap_or(0)
    }

    pub(in super::super) fn find(&mut self, finding: Finding) {
        self.is_damaged |= finding.severity() == Severity::Damage;
        if self.findings.len() < LISTED_MAX {
            self.findings.push(finding);
        } else {
            self.findings_omitted += 1;
        }
    }

    pub(in super::super) fn affect(&mut self, affected: Affected) {
        self.is_damaged = true;
        *self.fates.entry(affected.fate).or_default() += 1;
        if self.affected.len() < LISTED_MAX {
            self.affected.push(affected);
        } else {
            self.affected_omitted += 1;
        }
    }
}

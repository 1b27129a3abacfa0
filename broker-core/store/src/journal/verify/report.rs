//! The report of a verification, for people and programs. The command line prints it.

use std::collections::BTreeMap;

use crate::Key;

/// Maximum number of listed findings, and of listed keys. Further ones are only counted.
pub(in super::super) const LISTED_MAX: usize = 10_000;

/// The current activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Reading the files of the log from beginning to end.
    Log,
    /// Reading every live record, with its content.
    Records,
    /// Making a copy.
    Copy,
}

/// Progress of an activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The activity.
    pub stage: Stage,
    /// Bytes done.
    pub done: u64,
    /// Total bytes.
    pub total: u64,
}

/// The consequence of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// No acknowledged data is affected; opening the journal repairs it.
    Harmless,
    /// Acknowledged data cannot be read, or the journal does not open.
    Damage,
}

/// The kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FindingKind {
    /// The write in progress when the process ended. It was never acknowledged.
    UnfinishedWrite,
    /// One of the two copies of a segment's header.
    HeaderCopy,
    /// An unusable side file.
    SideFile,
    /// An intact side file that contradicts its segment.
    SideFileDiffers,
    /// The manifest, or one of its two slots.
    Manifest,
    /// A range of the log without a usable frame.
    Frames,
    /// A live record or content outside such a range.
    Record,
    /// A segment of which both copies of the header are lost.
    Header,
    /// A missing segment.
    Missing,
    /// A file whose name does not match its header, or of another journal.
    Foreign,
    /// Such a file, after the end of the log.
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

    /// The consequence for messages.
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

    /// The action of opening or repair, as text.
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

/// A deviation in a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the file.
    pub file: String,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The kind.
    pub kind: FindingKind,
    /// The kind as text, with the reason.
    pub description: String,
    /// The affected segment.
    pub segment: Option<u32>,
    /// The unusable frames, if any.
    pub frames: Option<LostFrames>,
}

impl Finding {
    /// The consequence for messages.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

/// A range of unusable frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostFrames {
    /// The lsn of the first frame.
    pub first_lsn: u64,
    /// The lsn of the last frame, if known.
    pub last_lsn: Option<u64>,
    /// Number of records in them that are still readable.
    pub readable_record_count: u64,
    /// Whether all records in them are readable.
    pub are_all_readable: bool,
}

/// The fate of a record that damage affects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fate {
    /// The record or its content cannot be read, and there is no earlier one.
    Lost,
    /// The record cannot be read. The previous record of its key counts again.
    Earlier,
    /// The record can be read, in damaged surroundings.
    Saved,
    /// The record was removed, and the removal is in a damaged place. Repair removes it again.
    Removed,
}

/// A record that damage affects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affected {
    /// Its key; `change::codec` has the meaning of keys.
    pub key: Key,
    /// The action of opening or repair, as text.
    pub fate: Fate,
    /// The reason why it cannot be read, with file and byte. Empty if it is readable.
    pub reason: String,
}

/// Sizes and counts of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Segments of the log.
    pub segments: u64,
    /// Valid frames.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Keys that have a value.
    pub live_keys: u64,
    /// Bytes of their records and contents.
    pub live_bytes: u64,
    /// Frames that replace data which an earlier repair gave up.
    pub holes: u64,
    /// Files that the next opening removes.
    pub leftover_files: u64,
}

impl Totals {
    /// Bytes of the log that are no longer in use.
    #[must_use]
    pub const fn garbage_bytes(&self) -> u64 {
        self.log_bytes.saturating_sub(self.live_bytes)
    }
}

/// The findings of a verification.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Deviations in the order of the log. At most 10,000 are listed.
    pub findings: Vec<Finding>,
    /// Number of further findings.
    pub findings_omitted: u64,
    /// Records that damage affects. At most 10,000 are listed.
    pub affected: Vec<Affected>,
    /// Number of further affected records.
    pub affected_omitted: u64,
    /// Sizes and counts.
    pub totals: Totals,
    is_damaged: bool,
    fates: BTreeMap<Fate, u64>,
}

impl Report {
    /// Whether no acknowledged data is damaged.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        !self.is_damaged
    }

    /// Number of records with a fate, listed or not.
    #[must_use]
    pub fn count(&self, fate: Fate) -> u64 {
        self.fates.get(&fate).copied().unwrap_or(0)
    }

    pub(in super::super) fn add_finding(&mut self, finding: Finding) {
        self.is_damaged |= finding.severity() == Severity::Damage;
        if self.findings.len() < LISTED_MAX {
            self.findings.push(finding);
        } else {
            self.findings_omitted += 1;
        }
    }

    pub(in super::super) fn add_affected(&mut self, affected: Affected) {
        self.is_damaged = true;
        *self.fates.entry(affected.fate).or_default() += 1;
        if self.affected.len() < LISTED_MAX {
            self.affected.push(affected);
        } else {
            self.affected_omitted += 1;
        }
    }
}

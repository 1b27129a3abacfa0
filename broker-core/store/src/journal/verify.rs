//! Scrubbing: everything the journal holds is read and proven, and nothing is written.
//!
//! What is damaged is told with its consequence, as far as that can be known: which frames, which
//! records in them, and what becomes of each. `repair` acts on the same findings.

mod inspect;
mod judge;
mod report;
mod tolerant;
mod walk;

pub use self::report::{
    Affected, Fate, Finding, FindingKind, LostFrames, Progress, Report, Severity, Stage, Totals,
};

pub(super) use self::inspect::{Inspection, Link, Side};
pub(super) use self::judge::Verdict;
pub(super) use self::tolerant::Tolerant;
pub(super) use self::walk::{Extent, FRAME_BYTES_MIN, Gap};

use super::disk::Disk;
use crate::{Key, StoreError};

/// A journal that was read whole.
pub struct Verified {
    inspection: Inspection,
}

impl Verified {
    /// What was found.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.inspection.report
    }

    /// The value of a record, if it can be read.
    #[must_use]
    pub fn value(&self, key: &Key) -> Option<Vec<u8>> {
        self.inspection.value(key)
    }
}

/// Reads and proves everything: manifest, headers, the chain of segments, all frames and records, side
/// files, and then the record and the content of every key. Takes memory for the keys alone.
///
/// # Errors
/// When the directory cannot be read, holds no journal, or one of a later version. Damage is no
/// error: the report tells it.
pub fn verify(disk: &dyn Disk, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
    Ok(Verified { inspection: Inspection::of(disk, progress)? })
}

/// Tells how far something is, once for each MiB.
pub(super) struct Meter<'a> {
    progress: &'a mut dyn FnMut(Progress),
    now: Progress,
    told: u64,
}

const METER_STEP: u64 = 1 << 20;

impl<'a> Meter<'a> {
    pub(super) fn new(stage: Stage, total: u64, progress: &'a mut dyn FnMut(Progress)) -> Self {
        let now = Progress { stage, done: 0, total };
        progress(now);
        Self { progress, now, told: 0 }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.now.done += bytes;
        if self.now.done - self.told >= METER_STEP {
            self.told = self.now.done;
            (self.progress)(self.now);
        }
    }

    pub(super) fn end(self) {
        (self.progress)(Progress { done: self.now.total, ..self.now });
    }
}

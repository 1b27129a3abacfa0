//! Verification: reads and checks the whole journal, and writes nothing. The command line calls
//! [`verify`].
//!
//! Each damage is reported with its consequences, as far as they can be determined: the frames, the
//! records in them, and the fate of each record. `repair` acts on the same findings.

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
pub(super) use self::tolerant::TolerantDisk;
pub(super) use self::walk::{Extent, FRAME_BYTES_MIN, Gap};

use super::disk::Disk;
use crate::{Key, StoreError};

/// A journal that was read completely.
pub struct Verified {
    inspection: Inspection,
}

impl Verified {
    /// The findings.
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

/// Reads and checks everything: manifest, headers, the chain of segments, all frames and records,
/// side files, and then the record and the content of every key. Takes memory only for the keys.
/// Blocks until all is read.
///
/// # Errors
/// If the directory cannot be read, or has no journal, or one of a later version. Damage is not an
/// error; the report has it.
pub fn verify(disk: &dyn Disk, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
    Ok(Verified { inspection: Inspection::of(disk, progress)? })
}

/// Reports progress, once for each MiB.
pub(super) struct Meter<'a> {
    progress: &'a mut dyn FnMut(Progress),
    now: Progress,
    reported: u64,
}

const METER_STEP: u64 = 1 << 20;

impl<'a> Meter<'a> {
    pub(super) fn new(stage: Stage, total: u64, progress: &'a mut dyn FnMut(Progress)) -> Self {
        let now = Progress { stage, done: 0, total };
        progress(now);
        Self { progress, now, reported: 0 }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.now.done += bytes;
        if self.now.done - self.reported >= METER_STEP {
            self.reported = self.now.done;
            (self.progress)(self.now);
        }
    }

    pub(super) fn end(self) {
        (self.progress)(Progress { done: self.now.total, ..self.now });
    }
}

//! The section `[journal]`.

use std::ops::RangeInclusive;

use peeklock::store::JournalConfig;
use serde::Deserialize;

use super::text::Scalar;

/// Sizes that a file of the log may have.
const SEGMENT_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 30;

/// The journal, which is the store unless the server is ephemeral.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct JournalSection {
    /// Memory for contents.
    pub cache_bytes: Scalar<u64>,
    /// What messages may take on disk; zero for what the disk has.
    pub capacity_bytes: Scalar<u64>,
    /// Free space of the disk under which sends are refused (QUO-05).
    pub free_bytes_min: Scalar<u64>,
    /// Size of one file of the log.
    pub segment_bytes: Scalar<u64>,
}

impl JournalSection {
    /// The same in the words of the store.
    pub fn config(&self) -> JournalConfig {
        JournalConfig {
            cache_bytes: self.cache_bytes.0,
            capacity_bytes: if self.capacity_bytes.0 == 0 {
                u64::MAX
            } else {
                self.capacity_bytes.0
            },
            free_bytes_min: self.free_bytes_min.0,
            segment_bytes: self.segment_bytes.0,
            ..JournalConfig::default()
        }
    }

    /// What no single value shows.
    pub(super) fn judge(&self) -> Result<(), (&'static str, String)> {
        let (segment, floor) = (self.segment_bytes.0, self.free_bytes_min.0);
        if !SEGMENT_BYTES.contains(&segment) {
            let (least, most) = (SEGMENT_BYTES.start(), SEGMENT_BYTES.end());
            let detail =
                format!("{segment} is out of range; write a number from {least} to {most} bytes");
            return Err(("journal.segment_bytes", detail));
        }
        // Settlements live on the floor when the disk is full.
        if floor < 4 * segment {
            let detail =
                format!("{floor} is less than four segments; write at least {} bytes", 4 * segment);
            return Err(("journal.free_bytes_min", detail));
        }
        Ok(())
    }
}

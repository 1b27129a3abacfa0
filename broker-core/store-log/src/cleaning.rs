//! When the oldest records of a log are written again, and how many at a time (decision 7).

/// Divisor for the part of the log that may be garbage on a full medium.
pub const TIGHT_GARBAGE_PART: u64 = 8;
/// Divisor for the part of a segment that cleaning must free on a full medium.
const WORTHWHILE_PART: u64 = 4;
/// Maximum factor between the total size of the segments and the bytes in use.
const SPARSE_FACTOR: u64 = 4;
/// Number of segments up to which the log is not cleaned: two in use, and another that a restart
/// leaves.
const SEGMENTS_MIN: u64 = 3;

/// The sizes that decide about cleaning.
#[derive(Clone, Copy, Debug)]
pub struct LogSizes {
    /// Usual size of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segment_count: u64,
    /// Bytes of records and contents in all segments. Headers and unused ends do not count: writing
    /// records again would not free them, and cleaning would never end.
    pub written: u64,
    /// The part of `written` in segments to which nothing more is appended.
    pub sealed: u64,
    /// The part of `written` that is in use.
    pub used: u64,
    /// Whether space is so short that reclaiming garbage is worth more work than usual.
    pub is_tight: bool,
}

impl LogSizes {
    /// Whether the log has too much garbage. Garbage is written records that are no longer in use.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        let Self { segment_bytes, segment_count, written, used, .. } = *self;
        let garbage = written.saturating_sub(used);
        if self.is_tight {
            // `garbage` includes the heads of frames, which cleaning does not free. This limit lies
            // above their share, so that they do not cause a second move of the same records.
            let (two_segments, part) = (2 * segment_bytes, written / TIGHT_GARBAGE_PART);
            let garbage_max = if two_segments > part { two_segments } else { part };
            return (segment_count > 2 && garbage > garbage_max) || self.is_worthwhile();
        }
        // Restarts leave nearly empty segments, so the size of the segments counts too.
        let is_sparse = segment_count * segment_bytes > used.saturating_mul(SPARSE_FACTOR);
        segment_count > SEGMENTS_MIN && (garbage > written / 2 || is_sparse)
    }

    /// Whether writing all sealed segments again, however few, shrinks the log by a good part of a
    /// segment. A small disk, which never collects garbage of two segments, regains room in this
    /// way.
    const fn is_worthwhile(&self) -> bool {
        // Moving the records also writes new heads of frames. Heads take less than an eighth
        // (`TIGHT_GARBAGE_PART`) of all written bytes, so less than a seventh of the bytes of the
        // records.
        let moved = self.used + self.used / (TIGHT_GARBAGE_PART - 1);
        self.sealed > moved + self.segment_bytes / WORTHWHILE_PART
    }

    /// Number of bytes to write again at a time: more if the log exceeds its limit further. At most
    /// the size of a group, so that cleaning keeps up with any load.
    #[must_use]
    pub const fn move_bytes(&self) -> usize {
        let Self { written, used, .. } = *self;
        let divisor = if used == 0 { 1 } else { used };
        let excess = written.saturating_sub(used.saturating_mul(2)) * 8 / divisor;
        match excess {
            0 | 1 => 256 << 10,
            2 | 3 => 1 << 20,
            _ => 4 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(segment_count: u64, written: u64, used: u64) -> LogSizes {
        let sealed = written.saturating_sub(MIB);
        LogSizes { segment_bytes: MIB, segment_count, written, sealed, used, is_tight: false }
    }

    #[test]
    fn log_is_cleaned_when_more_than_half_is_garbage() {
        assert!(!sizes(10, 10 * MIB, 5 * MIB).is_due());
        assert!(sizes(10, 10 * MIB, 5 * MIB - 1).is_due());
        assert!(!sizes(3, 3 * MIB, 0).is_due(), "few segments are left alone");
        assert!(sizes(41, 12 * MIB, 10 * MIB).is_due(), "segments are nearly empty");
    }

    #[test]
    fn full_medium_is_cleaned_for_less_garbage() {
        let tight = |sizes: LogSizes| LogSizes { is_tight: true, ..sizes };
        assert!(!sizes(20, 20 * MIB, 17 * MIB).is_due());
        assert!(tight(sizes(20, 20 * MIB, 17 * MIB)).is_due());
        assert!(!tight(sizes(20, 20 * MIB, 19 * MIB)).is_due());
        assert!(tight(sizes(2, 2 * MIB, MIB / 2)).is_due(), "a sealed segment is mostly garbage");
        assert!(!tight(sizes(2, 2 * MIB, MIB)).is_due());
    }

    #[test]
    fn more_is_moved_at_a_time_when_there_is_more_garbage() {
        assert_eq!(sizes(9, 8 * MIB, 4 * MIB).move_bytes(), 256 << 10);
        assert_eq!(sizes(9, 9 * MIB, 4 * MIB).move_bytes(), 1 << 20);
        assert_eq!(sizes(9, 10 * MIB, 4 * MIB).move_bytes(), 4 << 20);
        assert_eq!(sizes(9, MIB, 0).move_bytes(), 4 << 20);
    }
}

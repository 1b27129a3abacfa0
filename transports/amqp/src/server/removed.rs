//! Messages that were removed as they were received, until their client has them: what the mode allows to be lost on the
//! way is counted (RCV-02).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many messages of a connection were removed and are written to nobody.
#[derive(Default)]
pub(super) struct Lost(Arc<AtomicU64>);

/// Messages that are stored nowhere any more. They go along with what they are written in, and are lost where that is
/// dropped, for whatever reason, before the system has the last byte of it.
pub(super) struct Removed {
    count: u64,
    lost: Arc<AtomicU64>,
}

/// Those of which everything is in the output, or behind it and not flushed: fewer than there are frames in there.
#[derive(Default)]
pub(super) struct Leaving(VecDeque<(u64, Removed)>);

impl Lost {
    /// So many messages were removed; none if none was.
    pub(super) fn unless_written(&self, count: u64) -> Option<Removed> {
        (count > 0).then(|| Removed { count, lost: Arc::clone(&self.0) })
    }

    /// How many are lost by now.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Removed {
    /// They are their client's.
    fn written(mut self) {
        self.count = 0;
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        self.lost.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl Leaving {
    /// What these are written in ends where so many bytes of the connection do.
    pub(super) fn put(&mut self, removed: Option<Removed>, end: u64) {
        self.0.extend(removed.map(|removed| (end, removed)));
    }

    /// Whether there are some within so many bytes.
    pub(super) fn has_within(&self, bytes: u64) -> bool {
        self.0.front().is_some_and(|(end, _)| *end <= bytes)
    }

    /// The system has so many bytes.
    pub(super) fn flushed(&mut self, bytes: u64) {
        while let Some((_, removed)) = self.0.pop_front_if(|(end, _)| *end <= bytes) {
            removed.written();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RCV-02: what is removed is lost unless its last byte was flushed, wherever it is dropped.
    #[test]
    fn what_is_dropped_before_it_is_flushed_is_lost() {
        let lost = Lost::default();
        assert!(lost.unless_written(0).is_none());
        let mut leaving = Leaving::default();
        for (count, end) in [(1, 10), (2, 20), (4, 30)] {
            leaving.put(lost.unless_written(count), end);
        }
        leaving.put(None, 40);
        assert!(!leaving.has_within(9) && leaving.has_within(10));
        leaving.flushed(29);
        assert!(!leaving.has_within(29));
        drop(lost.unless_written(8));
        assert_eq!(lost.count(), 8);
        drop(leaving);
        assert_eq!(lost.count(), 12);
    }
}

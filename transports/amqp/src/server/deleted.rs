//! Messages that were deleted on receipt and have not reached the client yet. The mode allows their
//! loss, which is counted (RCV-02).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of deleted messages of a connection that were never written.
#[derive(Default)]
pub(super) struct LossCounter(Arc<AtomicU64>);

/// Messages that are no longer stored. They travel with the delivery or reply that contains them,
/// and count as lost if it is dropped before the operating system has its last byte.
pub(super) struct DeletedMessages {
    count: u64,
    lost: Arc<AtomicU64>,
}

/// Deleted messages whose bytes are all in the output buffer, or were written and are not flushed
/// yet. Each has the position of its last byte in the output of the connection.
#[derive(Default)]
pub(super) struct UnflushedDeletions(VecDeque<(u64, DeletedMessages)>);

impl LossCounter {
    /// Returns a guard for `count` deleted messages; `None` for 0.
    pub(super) fn guard(&self, count: u64) -> Option<DeletedMessages> {
        (count > 0).then(|| DeletedMessages { count, lost: Arc::clone(&self.0) })
    }

    /// Number of messages lost until now.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl DeletedMessages {
    /// Records that the operating system has all bytes of the messages.
    fn written(mut self) {
        self.count = 0;
    }
}

impl Drop for DeletedMessages {
    fn drop(&mut self) {
        self.lost.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl UnflushedDeletions {
    /// Adds messages whose last byte is at position `end` of the connection's output.
    pub(super) fn put(&mut self, deleted: Option<DeletedMessages>, end: u64) {
        self.0.extend(deleted.map(|deleted| (end, deleted)));
    }

    /// Returns whether some messages end within the first `bytes` bytes.
    pub(super) fn has_within(&self, bytes: u64) -> bool {
        self.0.front().is_some_and(|(end, _)| *end <= bytes)
    }

    /// Records that the operating system has the first `bytes` bytes.
    pub(super) fn flushed(&mut self, bytes: u64) {
        while let Some((_, deleted)) = self.0.pop_front_if(|(end, _)| *end <= bytes) {
            deleted.written();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RCV-02: deleted messages are lost unless their last byte was flushed, wherever they are
    /// dropped.
    #[test]
    fn removed_messages_are_lost_unless_flushed() {
        let lost = LossCounter::default();
        assert!(lost.guard(0).is_none());
        let mut leaving = UnflushedDeletions::default();
        for (count, end) in [(1, 10), (2, 20), (4, 30)] {
            leaving.put(lost.guard(count), end);
        }
        leaving.put(None, 40);
        assert!(!leaving.has_within(9) && leaving.has_within(10));
        leaving.flushed(29);
        assert!(!leaving.has_within(29));
        drop(lost.guard(8));
        assert_eq!(lost.count(), 8);
        drop(leaving);
        assert_eq!(lost.count(), 12);
    }
}

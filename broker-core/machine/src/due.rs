//! An index of instants at which messages are due: buckets of 100 ms, each a heap, so that neither a bucket
//! with millions of messages nor a list that goes into the one that is being emptied is sorted at once
//! (DESIGN D7). Cancelling is lazy: an entry is checked against its message when it comes up, and the index
//! is rebuilt when most of its entries are dead.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::ids::SequenceNumber;
use crate::time::Timestamp;

const BUCKET_TICKS: i64 = 1_000_000;
/// Below this many entries the dead ones are not worth a rebuild.
const REBUILD_FLOOR: usize = 1_024;

/// The earliest on top; what is added in the order of time stays where it is put.
type Bucket = BinaryHeap<Reverse<(Timestamp, SequenceNumber)>>;

/// Instants with the messages that are due at them.
#[derive(Clone, Debug, Default)]
pub struct DueIndex {
    buckets: BTreeMap<i64, Bucket>,
    count: usize,
}

impl DueIndex {
    /// Adds an entry. An instant of "never" is not kept.
    pub fn insert(&mut self, at: Timestamp, sequence: SequenceNumber) {
        if at.is_never() {
            return;
        }
        let bucket = self.buckets.entry(at.ticks() / BUCKET_TICKS).or_default();
        bucket.push(Reverse((at, sequence)));
        self.count += 1;
    }

    /// The earliest instant; it may belong to an entry that died meanwhile.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let (_, bucket) = self.buckets.first_key_value()?;
        bucket.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns the earliest entry that is due at `now`, by instant, then by number.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, SequenceNumber)> {
        let mut first = self.buckets.first_entry()?;
        let bucket = first.get_mut();
        if bucket.peek().is_none_or(|Reverse((at, _))| *at > now) {
            return None;
        }
        let Reverse(entry) = bucket.pop()?;
        self.count -= 1;
        if bucket.is_empty() {
            first.remove();
        }
        Some(entry)
    }

    /// Whether so many entries are dead that a rebuild is due, given how many are alive.
    #[must_use]
    pub const fn is_stale(&self, alive: usize) -> bool {
        self.count > REBUILD_FLOOR && self.count / 2 > alive
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SCH-07: entries come up by instant, then by number, however they were added.
    #[test]
    fn entries_come_up_in_order() {
        let mut index = DueIndex::default();
        let at = |ms: i64| Timestamp::from_unix_ms(1_000 + ms);
        for (ms, number) in [(500, 3), (20, 9), (500, 1), (20, 2), (950, 4), (90, 5)] {
            index.insert(at(ms), SequenceNumber(number));
        }
        index.insert(Timestamp::NEVER, SequenceNumber(99));
        assert_eq!(index.next_deadline(), Some(at(20)));
        assert_eq!(index.pop_due(at(19)), None);
        let mut order = Vec::new();
        while let Some((_, sequence)) = index.pop_due(at(500)) {
            order.push(sequence.0);
        }
        assert_eq!(order, [2, 9, 5, 1, 3]);
        assert_eq!(index.next_deadline(), Some(at(950)));
        index.insert(at(940), SequenceNumber(8));
        assert_eq!(index.next_deadline(), Some(at(940)));
        assert_eq!(index.pop_due(at(2_000)), Some((at(940), SequenceNumber(8))));
    }

    /// Messages that are added to a bucket while it is emptied cost no more for what is in it.
    #[test]
    fn a_full_bucket_is_not_sorted_anew_for_each_that_is_added() {
        let mut index = DueIndex::default();
        let at = Timestamp::from_unix_ms(1_000);
        const COUNT: u64 = 300_000;
        for number in 0..COUNT {
            index.insert(at, SequenceNumber(2 * number * 7_919 % (2 * COUNT)));
        }
        let mut last = None;
        for number in 0..COUNT {
            let (_, sequence) = index.pop_due(at).expect("one is due");
            assert!(last <= Some(sequence));
            last = Some(sequence);
            index.insert(at, SequenceNumber(2 * COUNT + number * 7_919 % COUNT));
        }
    }
}

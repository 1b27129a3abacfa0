//! Index of the instants at which messages are due: an ordered set. An entry is removed together
//! with its message, so the index holds no dead entries and is never rebuilt (DESIGN D7).

use std::collections::BTreeSet;
use std::ops::RangeBounds;

use crate::ids::SequenceNumber;
use crate::time::Timestamp;

/// Instants, each with the number of the message that is due.
#[derive(Clone, Debug, Default)]
pub struct DueIndex(BTreeSet<(Timestamp, SequenceNumber)>);

impl DueIndex {
    /// Adds an entry, if it is missing. [`Timestamp::NEVER`] is not stored.
    pub fn insert(&mut self, at: Timestamp, sequence: SequenceNumber) {
        if !at.is_never() {
            self.0.insert((at, sequence));
        }
    }

    /// Removes an entry, if it exists.
    pub fn remove(&mut self, at: Timestamp, sequence: SequenceNumber) {
        if !self.0.is_empty() {
            self.0.remove(&(at, sequence));
        }
    }

    /// Whether the entry exists.
    #[must_use]
    pub fn contains(&self, at: Timestamp, sequence: SequenceNumber) -> bool {
        self.0.contains(&(at, sequence))
    }

    /// The earliest entry, by instant, then by number.
    #[must_use]
    pub fn first(&self) -> Option<(Timestamp, SequenceNumber)> {
        self.0.first().copied()
    }

    /// The earliest instant.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.first().map(|(at, _)| at)
    }

    /// Removes and returns the earliest entry that is due at `now`, by instant, then by number.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, SequenceNumber)> {
        self.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first()
    }

    /// Iterates over the entries in `range`, by instant, then by number.
    pub fn range(
        &self,
        range: impl RangeBounds<(Timestamp, SequenceNumber)>,
    ) -> impl DoubleEndedIterator<Item = (Timestamp, SequenceNumber)> {
        self.0.range(range).copied()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SCH-07: entries come up by instant, then by number, in any order of insertion.
    #[test]
    fn due_index_returns_entries_in_order() {
        let mut index = DueIndex::default();
        let at = |ms: i64| Timestamp::from_unix_ms(1_000 + ms);
        for (ms, number) in [(500, 3), (20, 9), (500, 1), (20, 2), (950, 4), (90, 5), (90, 6)] {
            index.insert(at(ms), SequenceNumber(number));
        }
        index.insert(Timestamp::NEVER, SequenceNumber(99));
        index.remove(at(90), SequenceNumber(6));
        assert_eq!(index.next_deadline(), Some(at(20)));
        assert_eq!(index.pop_due(at(19)), None);
        let from = (at(90), SequenceNumber(5));
        let numbers = |(_, sequence): (Timestamp, SequenceNumber)| sequence.0;
        assert!(index.range(from..).map(numbers).eq([5, 1, 3, 4]));
        assert!(index.range(..from).rev().map(numbers).eq([9, 2]));
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

    /// Adding messages that are due at the same instant costs the same at any size of the index.
    #[test]
    fn due_index_adds_entries_of_one_instant_at_constant_cost() {
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

//! Ordered set of sequence numbers, stored as runs: a backlog without gaps is one run of any
//! length.

use std::collections::BTreeMap;

use crate::ids::SequenceNumber;

/// Ascending numbers as inclusive runs. The first run is stored separately, because most removals
/// are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceSet {
    first: Option<(u64, u64)>,
    /// Start and end of every run after the first.
    rest: BTreeMap<u64, u64>,
    count: u64,
}

impl SequenceSet {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lowest number.
    #[must_use]
    pub fn first(&self) -> Option<SequenceNumber> {
        self.first.map(|(start, _)| SequenceNumber(start))
    }

    /// The lowest number that is at least `from`.
    #[must_use]
    pub fn first_from(&self, from: SequenceNumber) -> Option<SequenceNumber> {
        let from = from.0;
        let (start, end) = self.first?;
        if from <= end {
            return Some(SequenceNumber(start.max(from)));
        }
        if let Some((_, end)) = self.rest.range(..=from).next_back()
            && from <= *end
        {
            return Some(SequenceNumber(from));
        }
        self.rest.range(from..).next().map(|(start, _)| SequenceNumber(*start))
    }

    /// The highest number that is at most `to`.
    #[must_use]
    pub fn last_to(&self, to: SequenceNumber) -> Option<SequenceNumber> {
        let to = to.0;
        if let Some((_, end)) = self.rest.range(..=to).next_back() {
            return Some(SequenceNumber((*end).min(to)));
        }
        let (start, end) = self.first?;
        (start <= to).then_some(SequenceNumber(end.min(to)))
    }

    /// Whether the number is in the set.
    #[must_use]
    pub fn contains(&self, sequence: SequenceNumber) -> bool {
        self.first_from(sequence) == Some(sequence)
    }

    /// Removes and returns the lowest number.
    pub fn pop_first(&mut self) -> Option<SequenceNumber> {
        let (start, end) = self.first?;
        self.count -= 1;
        self.first = if start < end { Some((start + 1, end)) } else { self.rest.pop_first() };
        Some(SequenceNumber(start))
    }

    /// Adds a number; returns whether it was new.
    pub fn insert(&mut self, sequence: SequenceNumber) -> bool {
        let number = sequence.0;
        let Some((start, end)) = self.first else {
            self.first = Some((number, number));
            self.count = 1;
            return true;
        };
        if number >= start && number <= end {
            return false;
        }
        if number < start {
            if number + 1 == start {
                self.first = Some((number, end));
            } else {
                self.rest.insert(start, end);
                self.first = Some((number, number));
            }
        } else if number == end + 1 {
            let joined = self.rest.remove(&(number + 1)).unwrap_or(number);
            self.first = Some((start, joined));
        } else {
            let before = self.rest.range_mut(..=number).next_back();
            match before {
                Some((_, end)) if number <= *end => return false,
                Some((start, end)) if number == *end + 1 => {
                    *end = number;
                    let start = *start;
                    if let Some(joined) = self.rest.remove(&(number + 1)) {
                        self.rest.insert(start, joined);
                    }
                }
                Some(_) | None => {
                    let end = self.rest.remove(&(number + 1)).unwrap_or(number);
                    self.rest.insert(number, end);
                }
            }
        }
        self.count += 1;
        true
    }

    /// Removes a number; returns whether it was present.
    pub fn remove(&mut self, sequence: SequenceNumber) -> bool {
        let number = sequence.0;
        let Some((start, end)) = self.first else { return false };
        if number < start {
            return false;
        }
        if number == start {
            self.pop_first();
            return true;
        }
        if number <= end {
            self.first = Some((start, number - 1));
            if number < end {
                self.rest.insert(number + 1, end);
            }
            self.count -= 1;
            return true;
        }
        let Some((start, end)) = self.rest.range(..=number).next_back() else { return false };
        let (start, end) = (*start, *end);
        if number > end {
            return false;
        }
        if number == start {
            self.rest.remove(&start);
        } else {
            self.rest.insert(start, number - 1);
        }
        if number < end {
            self.rest.insert(number + 1, end);
        }
        self.count -= 1;
        true
    }

    /// Iterates over the numbers from `from` on, in ascending order.
    pub fn iter_from(&self, from: SequenceNumber) -> impl Iterator<Item = SequenceNumber> {
        let mut next = self.first_from(from);
        std::iter::from_fn(move || {
            let current = next?;
            next = self.first_from(current.next());
            Some(current)
        })
    }

    /// Iterates over the numbers from `from` down, in descending order.
    pub fn iter_back_from(&self, from: SequenceNumber) -> impl Iterator<Item = SequenceNumber> {
        let mut next = self.last_to(from);
        std::iter::from_fn(move || {
            let current = next?;
            next = current.0.checked_sub(1).and_then(|to| self.last_to(SequenceNumber(to)));
            Some(current)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Compares the set with a plain ordered set over a long random sequence of operations.
    #[test]
    fn sequence_set_agrees_with_a_plain_set() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut set = SequenceSet::default();
        let mut plain = BTreeSet::new();
        for round in 0..60_000u64 {
            let number = SequenceNumber(random(if round % 2_000 < 1_000 { 24 } else { 200 }));
            match random(5) {
                0 | 1 => assert_eq!(set.insert(number), plain.insert(number)),
                2 => assert_eq!(set.remove(number), plain.remove(&number)),
                3 if random(4) == 0 => assert_eq!(set.pop_first(), plain.pop_first()),
                _ => {
                    assert_eq!(set.contains(number), plain.contains(&number));
                    assert_eq!(set.first_from(number), plain.range(number..).next().copied());
                    assert_eq!(set.last_to(number), plain.range(..=number).next_back().copied());
                }
            }
            assert_eq!(set.len(), plain.len() as u64);
            assert_eq!(set.first(), plain.first().copied());
            if round % 97 == 0 {
                assert!(set.iter_from(number).eq(plain.range(number..).copied()));
                assert!(set.iter_back_from(number).eq(plain.range(..=number).rev().copied()));
            }
        }
    }
}

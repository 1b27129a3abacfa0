//! The entries of one space.

use std::collections::BTreeMap;

use super::Entry;
use crate::store::tail::Tail;
use crate::store::{Key, SPACE_BYTES};

/// Bytes behind the space of a key that ends in a number: its table and the number.
const NUMBERED_BYTES: usize = 9;
/// Numbers of one node.
const NODE: u64 = 64;

/// A map from keys to entries.
#[derive(Default)]
pub(super) struct Space {
    /// Keys of one byte and a number, by that byte and the number's node.
    numbered: BTreeMap<(u8, u64), Node>,
    others: BTreeMap<Tail, Entry>,
}

/// The entries of 64 successive numbers: a bit for each that is there, and those, in order.
#[derive(Default)]
struct Node {
    present: u64,
    entries: Vec<Entry>,
}

impl Node {
    fn rank(&self, bit: u64) -> usize {
        (self.present & (bit - 1)).count_ones() as usize
    }

    fn get(&self, bit: u64) -> Option<Entry> {
        (self.present & bit != 0).then(|| self.entries.get(self.rank(bit)).copied())?
    }

    fn insert(&mut self, bit: u64, entry: Entry) -> Option<Entry> {
        let rank = self.rank(bit);
        if self.present & bit != 0 {
            return self.entries.get_mut(rank).map(|old| std::mem::replace(old, entry));
        }
        self.present |= bit;
        self.entries.insert(rank, entry);
        None
    }

    fn remove(&mut self, bit: u64) -> Option<Entry> {
        if self.present & bit == 0 {
            return None;
        }
        let rank = self.rank(bit);
        self.present &= !bit;
        Some(self.entries.remove(rank))
    }

    /// The numbers of a node and their entries, ascending.
    fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        let mut left = self.present;
        self.entries.iter().map(move |entry| {
            let number = u64::from(left.trailing_zeros());
            left &= left.wrapping_sub(1);
            (number, entry)
        })
    }
}

/// The byte and the number of a key that ends in one.
fn numbered(key: &[u8]) -> Option<(u8, u64)> {
    let tail: &[u8; NUMBERED_BYTES] = key.get(SPACE_BYTES..)?.try_into().ok()?;
    let (table, number) = tail.split_first()?;
    Some((*table, u64::from_be_bytes(number.try_into().ok()?)))
}

const fn bit_of(number: u64) -> u64 {
    1 << (number % NODE)
}

impl Space {
    pub(super) fn get(&self, key: &[u8]) -> Option<Entry> {
        match numbered(key) {
            Some((table, number)) => {
                self.numbered.get(&(table, number / NODE))?.get(bit_of(number))
            }
            None => self.others.get(&Tail::of(key)?).copied(),
        }
    }

    /// Sets the entry of a key and returns the one it had.
    pub(super) fn insert(&mut self, key: &[u8], entry: Entry) -> Option<Entry> {
        match numbered(key) {
            Some((table, number)) => {
                let node = self.numbered.entry((table, number / NODE)).or_default();
                node.insert(bit_of(number), entry)
            }
            None => self.others.insert(Tail::of(key)?, entry),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let Some((table, number)) = numbered(key) else {
            return self.others.remove(&Tail::of(key)?);
        };
        let at = (table, number / NODE);
        let node = self.numbered.get_mut(&at)?;
        let old = node.remove(bit_of(number));
        if node.present == 0 {
            self.numbered.remove(&at);
        }
        old
    }

    /// Takes any entry away; `gone` is told the length of its key. Returns whether there was one.
    pub(super) fn pop(&mut self, gone: &mut dyn FnMut(usize, Entry)) -> bool {
        if let Some((tail, entry)) = self.others.pop_first() {
            gone(tail.key(0).as_bytes().len(), entry);
            return true;
        }
        let Some(mut first) = self.numbered.first_entry() else { return false };
        let popped = first.get_mut().entries.pop();
        if first.get().entries.is_empty() {
            first.remove();
        }
        if let Some(entry) = popped {
            gone(SPACE_BYTES + NUMBERED_BYTES, entry);
        }
        true
    }

    /// Removes every key with a prefix; `gone` is told the length of each and its entry.
    pub(super) fn remove_prefix(&mut self, prefix: &[u8], gone: &mut dyn FnMut(usize, Entry)) {
        let mut keys = Vec::new();
        self.visit(0, prefix, None, &mut |key, _| {
            keys.push(key);
            true
        });
        for key in keys {
            if let Some(old) = self.remove(key.as_bytes()) {
                gone(key.as_bytes().len(), old);
            }
        }
    }

    /// Shows the entries under a prefix, ascending by key, those behind `after`, until told to end.
    pub(super) fn visit(
        &self,
        space: u64,
        prefix: &[u8],
        after: Option<&Key>,
        show: &mut dyn FnMut(Key, &Entry) -> bool,
    ) {
        let lower = after.map_or(prefix, Key::as_bytes);
        let (Some(first), tail) = (Tail::of(lower), lower.get(SPACE_BYTES..).unwrap_or_default())
        else {
            return;
        };
        let prefix_tail = prefix.get(SPACE_BYTES..).unwrap_or_default();
        let excluded = after.map(|_| first);
        // The least numbered key that is not below: the tail, cut or filled up with zeros.
        let mut least = [0; NUMBERED_BYTES];
        for (to, from) in least.iter_mut().zip(tail) {
            *to = *from;
        }
        let (table, number) = least.split_first().map_or((0, 0), |(table, number)| {
            (*table, number.first_chunk().map_or(0, |raw| u64::from_be_bytes(*raw)))
        });
        let mut numbered = self
            .numbered
            .range((table, number / NODE)..)
            .flat_map(|((table, node), entries)| {
                entries.iter().map(move |(low, entry)| {
                    let key = Key::of_space(space)
                        .then(&[*table])
                        .then(&(node * NODE + low).to_be_bytes());
                    (key, entry)
                })
            })
            .filter_map(|(key, entry)| Some((Tail::of(key.as_bytes())?, key, entry)))
            .skip_while(|(tail, _, _)| *tail < first)
            .peekable();
        let mut others = self
            .others
            .range(first..)
            .map(|(tail, entry)| (*tail, tail.key(space), entry))
            .peekable();
        loop {
            let take_numbered = match (numbered.peek(), others.peek()) {
                (Some((a, _, _)), Some((b, _, _))) => a < b,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return,
            };
            let next = if take_numbered { numbered.next() } else { others.next() };
            let Some((tail, key, entry)) = next else { return };
            if excluded == Some(tail) {
                continue;
            }
            if !tail.starts_with(prefix_tail) || !show(key, entry) {
                return;
            }
        }
    }
}

//! The entries of a space: numbered keys in nodes of 64, and others in tables. Only the index uses
//! it.

use std::collections::BTreeMap;

use peeklock_record::{Key, SPACE_BYTES, Tail};

use crate::IndexEntry;

/// Number of bytes after the space in a numbered key: its table and the number.
const NUMBERED_BYTES: usize = 9;
/// Number of numbers per node.
const NODE: u64 = 64;

/// A map from keys to entries.
#[derive(Default)]
pub(super) struct Space {
    /// Numbered keys (a byte and a number), by the byte and the number's node.
    numbered: BTreeMap<(u8, u64), Node>,
    /// Other keys, by their table, so that many keys of a table can be removed at once.
    others: BTreeMap<u8, Table>,
}

type Table = BTreeMap<Tail, IndexEntry>;

/// Maximum number of keys that are removed one by one. A larger range is removed whole.
const REMOVED_SINGLY_MAX: usize = 64;

/// The entries of 64 consecutive numbers: a bit for each present number, and the entries in order.
#[derive(Default)]
struct Node {
    present: u64,
    entries: Vec<IndexEntry>,
}

impl Node {
    fn rank(&self, bit: u64) -> usize {
        (self.present & (bit - 1)).count_ones() as usize
    }

    fn get(&self, bit: u64) -> Option<IndexEntry> {
        (self.present & bit != 0).then(|| self.entries.get(self.rank(bit)).copied())?
    }

    fn insert(&mut self, bit: u64, entry: IndexEntry) -> Option<IndexEntry> {
        let rank = self.rank(bit);
        if self.present & bit != 0 {
            return self.entries.get_mut(rank).map(|old| std::mem::replace(old, entry));
        }
        self.present |= bit;
        self.entries.insert(rank, entry);
        None
    }

    fn remove(&mut self, bit: u64) -> Option<IndexEntry> {
        if self.present & bit == 0 {
            return None;
        }
        let rank = self.rank(bit);
        self.present &= !bit;
        let removed = self.entries.remove(rank);
        // A few remaining entries must not keep the memory of many removed ones.
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        Some(removed)
    }

    /// The present numbers and their entries, ascending.
    fn iter(&self) -> impl Iterator<Item = (u64, &IndexEntry)> {
        let mut left = self.present;
        self.entries.iter().map(move |entry| {
            let number = u64::from(left.trailing_zeros());
            left &= left.wrapping_sub(1);
            (number, entry)
        })
    }
}

/// The table and the number of a numbered key.
fn numbered(key: &[u8]) -> Option<(u8, u64)> {
    let tail: &[u8; NUMBERED_BYTES] = key.get(SPACE_BYTES..)?.try_into().ok()?;
    let (table, number) = tail.split_first()?;
    Some((*table, u64::from_be_bytes(number.try_into().ok()?)))
}

/// The table of a key: the first byte after its space.
fn table_of(key: &[u8]) -> u8 {
    key.get(SPACE_BYTES).copied().unwrap_or(0)
}

/// The least tail after all tails with this prefix; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Tail> {
    let mut end = prefix.to_vec();
    while end.len() > SPACE_BYTES {
        let last = end.pop()?;
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Tail::of(&end);
        }
    }
    None
}

const fn bit_of(number: u64) -> u64 {
    1 << (number % NODE)
}

impl Space {
    pub(super) fn get(&self, key: &[u8]) -> Option<IndexEntry> {
        match numbered(key) {
            Some((table, number)) => {
                self.numbered.get(&(table, number / NODE))?.get(bit_of(number))
            }
            None => self.others.get(&table_of(key))?.get(&Tail::of(key)?).copied(),
        }
    }

    /// Sets the entry of a key and returns the old one.
    pub(super) fn insert(&mut self, key: &[u8], entry: IndexEntry) -> Option<IndexEntry> {
        match numbered(key) {
            Some((table, number)) => {
                let node = self.numbered.entry((table, number / NODE)).or_default();
                node.insert(bit_of(number), entry)
            }
            None => self.others.entry(table_of(key)).or_default().insert(Tail::of(key)?, entry),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<IndexEntry> {
        let Some((table, number)) = numbered(key) else {
            let table = self.others.get_mut(&table_of(key))?;
            let old = table.remove(&Tail::of(key)?);
            if table.is_empty() {
                self.others.remove(&table_of(key));
            }
            return old;
        };
        let at = (table, number / NODE);
        let node = self.numbered.get_mut(&at)?;
        let old = node.remove(bit_of(number));
        if node.present == 0 {
            self.numbered.remove(&at);
        }
        old
    }

    /// Removes any entry and passes it to `gone`. Returns whether there was one.
    pub(super) fn pop(&mut self, gone: &mut dyn FnMut(IndexEntry)) -> bool {
        while let Some(mut table) = self.others.first_entry() {
            if let Some((_, entry)) = table.get_mut().pop_first() {
                gone(entry);
                return true;
            }
            table.remove();
        }
        let Some(mut first) = self.numbered.first_entry() else { return false };
        let popped = first.get_mut().entries.pop();
        if first.get().entries.is_empty() {
            first.remove();
        }
        if let Some(entry) = popped {
            gone(entry);
        }
        true
    }

    /// Removes every key with a prefix, and passes its entries to `gone`. A large number of entries
    /// of a table is returned instead, to be removed in slices.
    pub(super) fn remove_prefix(
        &mut self,
        prefix: &[u8],
        gone: &mut dyn FnMut(IndexEntry),
    ) -> Option<Self> {
        loop {
            let mut keys = Vec::new();
            self.visit(0, prefix, None, &mut |key, _| {
                keys.push(key);
                keys.len() <= REMOVED_SINGLY_MAX
            });
            let has_more = keys.len() > REMOVED_SINGLY_MAX;
            if has_more && let Some(dropped) = self.take_out(prefix) {
                // Numbered keys with the prefix may remain.
                let more = self.remove_prefix(prefix, gone);
                debug_assert!(more.is_none(), "a table is taken out once");
                return Some(dropped);
            }
            for key in keys {
                if let Some(old) = self.remove(key.as_bytes()) {
                    gone(old);
                }
            }
            if !has_more {
                return None;
            }
        }
    }

    /// Takes the unnumbered keys with this prefix out of their table, if there are any. The prefix
    /// must include the table.
    fn take_out(&mut self, prefix: &[u8]) -> Option<Self> {
        let (first, tail) = (Tail::of(prefix)?, prefix.get(SPACE_BYTES..)?);
        let table = self.others.get_mut(tail.first()?)?;
        let mut taken = table.split_off(&first);
        if let Some(after_prefix_tail) = after_prefix(prefix) {
            table.append(&mut taken.split_off(&after_prefix_tail));
        }
        if taken.is_empty() {
            return None;
        }
        let others = BTreeMap::from([(*tail.first()?, taken)]);
        Some(Self { numbered: BTreeMap::new(), others })
    }

    /// Passes the entries with a prefix after the key `after`, ascending by key, to `show`, until
    /// it returns false.
    pub(super) fn visit(
        &self,
        space: u64,
        prefix: &[u8],
        after: Option<&Key>,
        show: &mut dyn FnMut(Key, &IndexEntry) -> bool,
    ) {
        let lower = after.map_or(prefix, Key::as_bytes);
        let (Some(first), tail) = (Tail::of(lower), lower.get(SPACE_BYTES..).unwrap_or_default())
        else {
            return;
        };
        let prefix_tail = prefix.get(SPACE_BYTES..).unwrap_or_default();
        let excluded = after.map(|_| first);
        // The least numbered key that is not below `lower`: its tail, cut or padded with zeros.
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
            .range(tail.first().copied().unwrap_or(0)..)
            .flat_map(|(_, table)| table.range(first..))
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

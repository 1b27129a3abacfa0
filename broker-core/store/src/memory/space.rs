//! The records of a space in the memory store. A group of records with the same start of the key is
//! removed in one step, for any number of records.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::SPACE_BYTES;
use peeklock_record::Tail;

/// Number of bytes after the space that all keys of a group share: a byte and a number.
const HEAD_BYTES: usize = 9;
/// Minimum number of bytes after the head for a key to be in a group. A group can have very many
/// such keys, and batches remove them together by their head.
const GROUPED_BYTES: usize = 16;

/// Bytes of a record in addition to its value and content: its entry in the tree, its key, and the
/// overhead of two allocations.
const RECORD_BYTES: u64 = 128;

/// The value and content of a key.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) value: Box<[u8]>,
    pub(super) content: Option<Bytes>,
}

impl Entry {
    fn bytes(&self) -> u64 {
        let held = self.value.len() + self.content.as_ref().map_or(0, Bytes::len);
        held as u64 + RECORD_BYTES
    }
}

/// Bytes added and bytes freed.
#[derive(Clone, Copy, Default)]
pub(super) struct Changed {
    pub(super) added: u64,
    pub(super) freed: u64,
}

/// A map from keys to entries, with their total bytes.
#[derive(Clone, Default)]
pub(super) struct Space {
    bytes: u64,
    single: Table,
    /// Groups by the head of their keys.
    groups: BTreeMap<Tail, Table>,
}

#[derive(Clone, Default)]
struct Table {
    bytes: u64,
    entries: BTreeMap<Tail, Entry>,
}

/// The head of a key's group; `None` if the key is in no group.
fn head_of(key: &[u8]) -> Option<Tail> {
    let is_grouped = key.len() >= SPACE_BYTES + HEAD_BYTES + GROUPED_BYTES;
    Tail::of(key.get(..SPACE_BYTES + HEAD_BYTES).filter(|_| is_grouped)?)
}

/// The part of a prefix within the head.
fn cut(prefix: &[u8]) -> &[u8] {
    prefix.get(..SPACE_BYTES + HEAD_BYTES).unwrap_or(prefix)
}

impl Space {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let table = match head_of(key) {
            Some(head) => self.groups.get(&head)?,
            None => &self.single,
        };
        table.entries.get(&Tail::of(key)?)
    }

    /// Sets the entry of a key. Keeps the old content if `keeps_content`.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry, keeps_content: bool) -> Changed {
        let Some(tail) = Tail::of(key) else { return Changed::default() };
        let table = match head_of(key) {
            Some(head) => self.groups.entry(head).or_default(),
            None => &mut self.single,
        };
        let changed = table.put(tail, entry, keeps_content);
        self.bytes = self.bytes + changed.added - changed.freed;
        changed
    }

    /// Removes a key and returns the freed bytes.
    pub(super) fn remove(&mut self, key: &[u8]) -> u64 {
        let Some(tail) = Tail::of(key) else { return 0 };
        let freed = match head_of(key) {
            Some(head) => self.in_group(head, |group| group.remove(&tail)),
            None => self.single.remove(&tail),
        };
        self.bytes -= freed;
        freed
    }

    /// Removes every key with a prefix longer than a space, and returns the freed bytes. Whole
    /// groups are returned, to be freed in slices.
    pub(super) fn remove_prefix(&mut self, prefix: &[u8]) -> (u64, Option<Self>) {
        let Some(first) = Tail::of(prefix) else { return (0, None) };
        let tail = prefix.get(SPACE_BYTES..).unwrap_or_default();
        let mut freed = self.single.remove_prefix(first, tail);
        let mut taken = Self::default();
        if tail.len() > HEAD_BYTES {
            let head = Tail::of(cut(prefix));
            freed += head
                .map_or(0, |head| self.in_group(head, |group| group.remove_prefix(first, tail)));
        } else {
            while let Some((head, _)) = self.groups.range(first..).next()
                && head.starts_with(tail)
            {
                let head = *head;
                let Some(group) = self.groups.remove(&head) else { break };
                freed += group.bytes;
                taken.groups.insert(head, group);
            }
        }
        self.bytes -= freed;
        (freed, (!taken.groups.is_empty()).then_some(taken))
    }

    /// Removes any entry. Returns whether there was one.
    pub(super) fn pop(&mut self) -> bool {
        while let Some(mut group) = self.groups.first_entry() {
            if group.get_mut().entries.pop_first().is_some() {
                return true;
            }
            group.remove();
        }
        self.single.entries.pop_first().is_some()
    }

    /// Passes the entries with a prefix to `show`, ascending by key and only those behind `after`,
    /// while it returns true.
    pub(super) fn visit(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        show: &mut dyn FnMut(&Tail, &Entry) -> bool,
    ) {
        let lower = after.unwrap_or(prefix);
        let (Some(first), Some(head)) = (Tail::of(lower), Tail::of(cut(lower))) else { return };
        let tail = prefix.get(SPACE_BYTES..).unwrap_or_default();
        let from = match after {
            Some(_) => Bound::Excluded(first),
            None => Bound::Included(first),
        };
        let range = (from, Bound::Unbounded);
        let mut single = self.single.entries.range(range).peekable();
        let grouped = self.groups.range(head..);
        let mut grouped = grouped.flat_map(|(_, group)| group.entries.range(range)).peekable();
        loop {
            let is_single = match (single.peek(), grouped.peek()) {
                (Some((single, _)), Some((grouped, _))) => single < grouped,
                (single, _) => single.is_some(),
            };
            let next = if is_single { single.next() } else { grouped.next() };
            let Some((key, entry)) = next.filter(|(key, _)| key.starts_with(tail)) else { return };
            if !show(key, entry) {
                return;
            }
        }
    }

    /// Number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let grouped: usize = self.groups.values().map(|group| group.entries.len()).sum();
        self.single.entries.len() + grouped
    }

    /// Removes entries of a group, and the group with its last entry. Returns the freed bytes.
    fn in_group(&mut self, head: Tail, remove: impl FnOnce(&mut Table) -> u64) -> u64 {
        let Some(group) = self.groups.get_mut(&head) else { return 0 };
        let freed = remove(group);
        if group.entries.is_empty() {
            self.groups.remove(&head);
        }
        freed
    }
}

impl Table {
    fn put(&mut self, key: Tail, mut entry: Entry, keeps_content: bool) -> Changed {
        let mut kept = None;
        if keeps_content && let Some(old) = self.entries.get_mut(&key) {
            kept = Some(old.bytes());
            entry.content = old.content.take();
        }
        let added = entry.bytes();
        let replaced = self.entries.insert(key, entry);
        let freed = kept.unwrap_or_else(|| replaced.map_or(0, |old| old.bytes()));
        self.bytes = self.bytes + added - freed;
        Changed { added, freed }
    }

    fn remove(&mut self, key: &Tail) -> u64 {
        let freed = self.entries.remove(key).map_or(0, |old| old.bytes());
        self.bytes -= freed;
        freed
    }

    /// Removes the keys with this prefix one by one; `first` is the least possible key.
    fn remove_prefix(&mut self, first: Tail, tail: &[u8]) -> u64 {
        let mut freed = 0;
        while let Some((key, _)) = self.entries.range(first..).next()
            && key.starts_with(tail)
        {
            let key = *key;
            freed += self.remove(&key);
        }
        freed
    }
}

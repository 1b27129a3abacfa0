//! Changes that are not applied to the index yet, and the contents that they set. The writer of a log
//! collects them for a group.

use std::collections::{BTreeSet, HashMap};

use peeklock_record::Key;

use crate::{ContentAt, Op};

/// Capacity for operations that is kept from group to group.
const OPS_KEPT: usize = 16 << 10;

/// Operations that are applied together.
#[derive(Debug, Default)]
pub struct PendingOps {
    ops: Vec<Op>,
    /// The contents that the operations set; built at the first look-up.
    contents: Option<PendingContents>,
    /// The key that got new content last, and the content, unless a later operation changed it.
    recent: Option<(Key, Option<ContentAt>)>,
}

impl PendingOps {
    /// The operations in order.
    #[must_use]
    pub fn all(&self) -> &[Op] {
        &self.ops
    }

    /// Adds an operation.
    pub fn push(&mut self, op: Op) {
        if let Some(contents) = &mut self.contents {
            contents.note(&op);
        }
        if self.recent.as_ref().is_some_and(|(key, _)| op.concerns(key)) {
            self.recent = None;
        }
        if let Op::Put { key, entry, content_is_new: true } = &op {
            self.recent = Some((*key, entry.content_at()));
        }
        self.ops.push(op);
    }

    /// The content of a key after the operations; the outer `None` means that none touches the key.
    pub fn content_of(&mut self, key: &Key) -> Option<Option<ContentAt>> {
        if self.ops.is_empty() {
            return None;
        }
        if let Some((_, content)) = self.recent.filter(|(recent, _)| recent == key) {
            return Some(content);
        }
        self.contents.get_or_insert_with(|| PendingContents::of(&self.ops)).content(key)
    }

    /// Adds `by` to the offset of each record from operation `from` on. A store that writes contents
    /// before their records knows the places of the records last.
    pub fn move_records(&mut self, from: usize, by: u32) {
        for op in self.ops.iter_mut().skip(from) {
            if let Op::Put { entry, .. } = op {
                entry.record.offset = entry.record.offset.saturating_add(by);
            }
        }
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        (self.contents, self.recent) = (None, None);
        self.ops.clear();
        // Memory of a burst is not kept.
        self.ops.shrink_to(OPS_KEPT);
    }
}

/// The contents that operations set, before they are applied to the index.
#[derive(Debug, Default)]
struct PendingContents {
    /// Number of recorded operations.
    count: u32,
    /// The last content of a key, and the number of the operation that set it.
    contents: HashMap<Key, (u32, Option<ContentAt>)>,
    /// The number of the last operation that removed all keys with a prefix.
    prefixes: HashMap<Key, u32>,
    /// Lengths of prefixes; there are two or three different ones.
    lengths: BTreeSet<usize>,
}

impl PendingContents {
    fn of(ops: &[Op]) -> Self {
        let mut pending = Self::default();
        for op in ops {
            pending.note(op);
        }
        pending
    }

    fn note(&mut self, op: &Op) {
        self.count += 1;
        match op {
            Op::Put { key, entry, .. } => {
                self.contents.insert(*key, (self.count, entry.content_at()));
            }
            Op::Delete { key } => {
                self.contents.insert(*key, (self.count, None));
            }
            Op::DeletePrefix { prefix } => {
                self.lengths.insert(prefix.as_bytes().len());
                self.prefixes.insert(*prefix, self.count);
            }
        }
    }

    /// The content of a key; the outer `None` means that no operation touches the key.
    fn content(&self, key: &Key) -> Option<Option<ContentAt>> {
        let removed = self
            .lengths
            .iter()
            .filter(|length| **length <= key.as_bytes().len())
            .filter_map(|length| self.prefixes.get(&key.cut(*length)))
            .max();
        match (self.contents.get(key), removed) {
            (Some((given, content)), removed) if removed.is_none_or(|removed| removed < given) => {
                Some(*content)
            }
            (_, Some(_)) => Some(None),
            (Some(_) | None, None) => None,
        }
    }
}

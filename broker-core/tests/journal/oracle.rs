//! The expected records: a map that batches change one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::store::{Batch, Key, Store, StoreError};
use peeklock_store_testing::visit_records;

/// All spaces that the tests use.
pub const SPACES: [u64; 6] = [0, 1, 2, 3, 250, u64::MAX];

/// One record of a batch, as requested.
#[derive(Clone)]
pub enum Op {
    Put { key: Key, value: Vec<u8> },
    PutNew { key: Key, value: Vec<u8>, content: Bytes },
    PutKeep { key: Key, value: Vec<u8> },
    PutOf { key: Key, source: Key, value: Vec<u8> },
    Delete { key: Key },
    DeletePrefix { prefix: Key },
}

#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub content: Option<Bytes>,
}

/// All records of all spaces.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct State {
    pub records: BTreeMap<Key, Entry>,
}

pub fn batch_of(ops: &[Op], synced: bool) -> Batch {
    let mut batch = Batch::default();
    for op in ops {
        match op {
            Op::Put { key, value } => batch.put(key, |to| to.extend_from_slice(value)),
            Op::PutNew { key, value, content } => {
                batch.put_with_content(key, content.clone(), |to| to.extend_from_slice(value));
            }
            Op::PutKeep { key, value } => {
                batch.put_keep_content(key, |to| to.extend_from_slice(value));
            }
            Op::PutOf { key, source, value } => {
                batch.put_content_of(key, source, |to| to.extend_from_slice(value));
            }
            Op::Delete { key } => batch.delete(key),
            Op::DeletePrefix { prefix } => batch.delete_prefix(prefix),
        }
    }
    if synced {
        batch.require_sync();
    }
    batch
}

impl State {
    pub fn apply(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Put { key, value } => self.put(*key, value, None),
                Op::PutNew { key, value, content } => self.put(*key, value, Some(content.clone())),
                Op::PutKeep { key, value } => self.put(*key, value, self.content(key)),
                Op::PutOf { key, source, value } => self.put(*key, value, self.content(source)),
                Op::Delete { key } => {
                    self.records.remove(key);
                }
                Op::DeletePrefix { prefix } => {
                    self.records.retain(|key, _| !key.as_bytes().starts_with(prefix.as_bytes()));
                }
            }
        }
    }

    fn put(&mut self, key: Key, value: &[u8], content: Option<Bytes>) {
        self.records.insert(key, Entry { value: value.to_vec(), content });
    }

    fn content(&self, key: &Key) -> Option<Bytes> {
        self.records.get(key)?.content.clone()
    }

    /// Everything that a store shows: every record of every space, and every content.
    pub fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut records = BTreeMap::new();
        for space in SPACES {
            let mut last: Option<Key> = None;
            visit_records(store, &Key::of_space(space), |key, value| {
                let key = Key::from_bytes(key).expect("a key that was stored");
                assert!(last.is_none_or(|last| last < key), "a scan ascends by key");
                last = Some(key);
                records.insert(key, Entry { value: value.to_vec(), content: None });
            })?;
        }
        let keys: Vec<Key> = records.keys().copied().collect();
        let mut contents = Vec::new();
        store.pin(&keys, &mut contents);
        assert_eq!(contents.len(), keys.len(), "a pin answers for every key");
        for (entry, content) in records.values_mut().zip(contents) {
            entry.content = content.map(|content| load(&content)).transpose()?;
        }
        Ok(Self { records })
    }

    /// Number of records that differ from another state, and the first difference.
    pub fn difference(&self, found: &Self) -> Option<(usize, String)> {
        let keys: BTreeSet<&Key> = self.records.keys().chain(found.records.keys()).collect();
        let differing: Vec<&Key> = keys
            .into_iter()
            .filter(|key| self.records.get(key) != found.records.get(key))
            .collect();
        let key = differing.first()?;
        let side = |state: &Self| {
            state
                .records
                .get(key)
                .map_or_else(|| "nothing".to_owned(), |entry| format!("{entry:?}"))
        };
        let text = format!(
            "{} records differ, the first is {key:?}: {} expected, {} found",
            differing.len(),
            side(self),
            side(found),
        );
        Some((differing.len(), text))
    }
}

/// Reads pinned content on this thread.
pub fn load(content: &ContentRef) -> Result<Bytes, StoreError> {
    if let Some(bytes) = content.loaded() {
        return Ok(bytes.clone());
    }
    read(content.load())
}

/// Reads a range of pinned content on this thread.
pub fn load_range(content: &ContentRef, from: usize, length: usize) -> Result<Bytes, StoreError> {
    read(content.load_range(from as u64, length as u64))
}

fn read<T>(reading: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().unwrap();
    }
    RUNTIME.with(|runtime| runtime.block_on(reading))
}

fn short(bytes: &[u8]) -> String {
    let head: String = bytes.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{head}..{}", bytes.len())
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", short(&self.value))?;
        if let Some(content) = &self.content {
            write!(f, " content {}", short(content))?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value } => write!(f, "put {key:?} {}", short(value)),
            Self::PutNew { key, value, content } => {
                write!(f, "put {key:?} {} content {}", short(value), short(content))
            }
            Self::PutKeep { key, value } => write!(f, "keep {key:?} {}", short(value)),
            Self::PutOf { key, source, value } => {
                write!(f, "put {key:?} {} content of {source:?}", short(value))
            }
            Self::Delete { key } => write!(f, "delete {key:?}"),
            Self::DeletePrefix { prefix } => write!(f, "delete all {prefix:?}"),
        }
    }
}

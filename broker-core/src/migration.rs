//! Migration: copies all records of a stopped broker into an empty store, and compares both stores
//! (CLU-54). `peeklock migrate` calls it, in either direction between a journal and a database.
//!
//! ```text
//!  begin ─► mark the destination ─► copy: namespace, then space by space ─► (open it again)
//!                                                                               │
//!                          finish: remove the mark ◄── compare each space ◄─────┘
//! ```
//!
//! The mark is a record of the namespace: no broker opens a store with it. An interrupted migration
//! is run again from its begin. A space that is equal is skipped, and any other one is removed and
//! copied again, so the source may have served meanwhile.

mod digest;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::actor::namespace::unfinished_copy_key;
use crate::change::codec::{
    self, NAMESPACE_SPACE, QUEUE_ENTRY, SUBSCRIPTION_ENTRY, TOPIC_ENTRY, space_key,
};
use crate::ids::EntityId;
use crate::store::{
    Batch, BatchId, Fence, Key, RecordSlice, Reserved, SLICE_BYTES, SPACE_BYTES, Shard, Shortage,
    Store, StoreError, Submission, Waker,
};
pub use digest::Digest;
use digest::{Hasher, hash_of};

/// Value of the mark of an unfinished migration.
const MARK: &[u8] = &[1];
/// Bytes of a batch; a larger content has one of its own.
const BATCH_BYTES: u64 = 1 << 20;
/// Records of the namespace that are written at a time.
const NAMESPACE_RECORDS: usize = 1_000;
/// Maximum number of contents of a topic that are known to be equal. Copies of later ones are
/// stored once for each subscription. 100 bytes each.
const SHARED_CONTENTS_MAX: usize = 1_000_000;
/// Maximum number of records that share a content: a store writes them together when it cleans.
const SHARED_CONTENT_USERS_MAX: u32 = 1_000;
/// Time between looks at a destination that does not store a batch.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reason why a migration has ended.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The source has no broker's data.
    #[error("the source is empty: no broker has used it")]
    Empty,
    /// The source is the destination of a migration that has not finished.
    #[error("the source is an unfinished migration itself; finish that one first")]
    SourceUnfinished,
    /// The destination has the data of a broker.
    #[error(
        "the destination has the data of a broker, perhaps of an earlier run that has completed; \
         choose an empty one"
    )]
    NotEmpty,
    /// The destination has too little room.
    #[error("the destination is full{}; then run the command again", remedy(.0))]
    Full(Option<Shortage>),
    /// The observer has stopped it.
    #[error("interrupted; run the command again to continue")]
    Interrupted,
    /// The source failed.
    #[error("the source cannot be read: {0}")]
    Source(#[source] StoreError),
    /// The destination failed.
    #[error("the destination cannot be written or read: {0}; run the command again to continue")]
    Destination(#[source] StoreError),
    /// The stores differ after the copy.
    #[error(
        "the destination differs from the source in {place}: {found} instead of {expected}; it is \
         not used, run the command again"
    )]
    Different {
        /// The part of the namespace.
        place: Box<str>,
        /// Summary of the source.
        expected: Digest,
        /// Summary of the destination.
        found: Digest,
    },
}

fn remedy(shortage: &Option<Shortage>) -> String {
    shortage.as_ref().map_or_else(String::new, |one| format!(": {one}; {}", one.remedy()))
}

/// Progress of a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Whether the copy is being compared.
    pub is_comparing: bool,
    /// Number of spaces that are done.
    pub done: usize,
    /// Number of all spaces.
    pub total: usize,
    /// Bytes of keys, values and contents that were read in this step.
    pub bytes: u64,
}

/// Receives the progress after each part. Returns whether to continue.
pub type Observer<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// A space of the store: the records of an entity.
struct Space {
    id: EntityId,
    /// The queue or topic to whose tree it belongs.
    root: EntityId,
    path: Box<str>,
}

/// The records of the namespace itself.
struct NamespaceRecords {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    is_unfinished: bool,
}

impl NamespaceRecords {
    async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut records = BTreeMap::new();
        let facts = codec::namespace_facts_key().cut(SPACE_BYTES);
        for space in [Key::of_space(NAMESPACE_SPACE), facts] {
            let take =
                |key: &[u8], value: &[u8]| drop(records.insert(key.to_vec(), value.to_vec()));
            store.scan(&space).for_each(take).await?;
        }
        let is_unfinished = records.remove(unfinished_copy_key().as_bytes()).is_some();
        Ok(Self { records, is_unfinished })
    }

    /// The spaces of all entities, tree by tree.
    fn spaces(&self) -> Result<Vec<Space>, StoreError> {
        let damaged = || StoreError::Damaged("a record of the namespace cannot be read".into());
        let mut spaces = Vec::new();
        for (key, value) in &self.records {
            let Some((table, rest)) = key.get(SPACE_BYTES..).and_then(<[u8]>::split_first) else {
                return Err(damaged());
            };
            if !key.starts_with(Key::of_space(NAMESPACE_SPACE).as_bytes())
                || ![QUEUE_ENTRY, TOPIC_ENTRY, SUBSCRIPTION_ENTRY].contains(table)
            {
                continue;
            }
            let id = EntityId(u64::from_be_bytes(rest.try_into().map_err(|_| damaged())?));
            let (root, path) = match *table {
                SUBSCRIPTION_ENTRY => {
                    codec::read_subscription_entry(value).map_err(|_| damaged())?
                }
                _ => (id, std::str::from_utf8(value).map_err(|_| damaged())?.into()),
            };
            spaces.push(Space { id, root, path });
        }
        spaces.sort_by_key(|space| (space.root.0, space.id.0));
        Ok(spaces)
    }
}

/// The first key with each content of a tree, by a keyed hash of the content.
#[derive(Default)]
struct SharedContents {
    root: Option<EntityId>,
    first: HashMap<u128, SharedContent>,
}

struct SharedContent {
    key: Key,
    /// Number of further records that name it.
    users: u32,
}

impl SharedContents {
    fn begin(&mut self, root: EntityId) {
        if self.root.replace(root) != Some(root) {
            self.first.clear();
        }
    }

    /// The key of an equal content in another space, as subscriptions share the content of a
    /// message. Equal messages of a space have contents of their own.
    fn find(&mut self, hash: u128, key: &Key) -> Option<Key> {
        let new = SharedContent { key: *key, users: 0 };
        let space = |key: &Key| key.as_bytes().first_chunk::<SPACE_BYTES>().copied();
        match self.first.get_mut(&hash) {
            Some(known) if space(&known.key) == space(key) => None,
            Some(known) if known.users < SHARED_CONTENT_USERS_MAX => {
                known.users += 1;
                Some(known.key)
            }
            Some(known) => {
                *known = new;
                None
            }
            None => {
                if self.first.len() < SHARED_CONTENTS_MAX {
                    self.first.insert(hash, new);
                }
                None
            }
        }
    }
}

/// A migration that has begun.
pub struct Migration<'a> {
    source: &'a dyn Store,
    destination: &'a dyn Store,
    observer: Observer<'a>,
    /// Key of hashes, so that no sender of messages can make contents with equal hashes.
    hash_key: [u8; 16],
    spaces: Vec<Space>,
    namespace: NamespaceRecords,
    /// Namespace of an earlier attempt at the destination.
    earlier: NamespaceRecords,
    fences: HashMap<u16, (Fence, BatchId)>,
    shared: SharedContents,
    bytes: u64,
    /// The progress that was reported last.
    reported: Progress,
}

/// The content of the source, to which the destination is compared.
pub struct Expected {
    hash_key: [u8; 16],
    namespace: Digest,
    spaces: Vec<(Space, Digest)>,
}

impl<'a> Migration<'a> {
    /// Begins a migration, or continues an interrupted one, and marks the destination. Both stores
    /// belong to this process, and no broker runs on them.
    ///
    /// # Errors
    /// If the destination is not empty, the source is, or a store fails.
    pub async fn begin(
        source: &'a dyn Store,
        destination: &'a dyn Store,
        hash_key: [u8; 16],
        observer: Observer<'a>,
    ) -> Result<Self, MigrationError> {
        let namespace = NamespaceRecords::read(source).await.map_err(MigrationError::Source)?;
        if namespace.is_unfinished {
            return Err(MigrationError::SourceUnfinished);
        }
        if namespace.records.is_empty() {
            return Err(MigrationError::Empty);
        }
        let spaces = namespace.spaces().map_err(MigrationError::Source)?;
        let failed = MigrationError::Destination;
        let earlier = NamespaceRecords::read(destination).await.map_err(failed)?;
        if !earlier.is_unfinished {
            if !earlier.records.is_empty() {
                return Err(MigrationError::NotEmpty);
            }
            let mut batch = Batch::default();
            batch.put(&unfinished_copy_key(), |value| value.extend_from_slice(MARK));
            let expected = [(unfinished_copy_key(), None)];
            if !destination.amend(&expected, batch).await.map_err(failed)? {
                return Err(MigrationError::NotEmpty);
            }
        }
        Ok(Self {
            source,
            destination,
            observer,
            hash_key,
            spaces,
            namespace,
            earlier,
            fences: HashMap::new(),
            shared: SharedContents::default(),
            bytes: 0,
            reported: Progress::default(),
        })
    }

    /// Copies everything that the destination lacks. The destination should be opened again before
    /// [`Expected::compare`], so that everything is read from its medium.
    ///
    /// # Errors
    /// If a store fails, the destination is full, or the observer stops it.
    pub async fn copy(mut self) -> Result<Expected, MigrationError> {
        let is_resumed = self.earlier.is_unfinished;
        self.remove_earlier_spaces().await?;
        self.write_namespace().await?;
        let mut copied = Vec::with_capacity(self.spaces.len());
        let total = self.spaces.len();
        for space in std::mem::take(&mut self.spaces) {
            self.report(copied.len(), total)?;
            self.shared.begin(space.root);
            let digest = match is_resumed {
                true => self.complete(&space, (copied.len(), total)).await?,
                false => self.copy_space(&space, (copied.len(), total)).await?,
            };
            copied.push((space, digest));
        }
        self.report(total, total)?;
        let namespace = digest_of_namespace(&self.hash_key, &self.namespace);
        Ok(Expected { hash_key: self.hash_key, namespace, spaces: copied })
    }

    fn report(&mut self, done: usize, total: usize) -> Result<(), MigrationError> {
        self.reported = Progress { is_comparing: false, done, total, bytes: self.bytes };
        if (self.observer)(self.reported) { Ok(()) } else { Err(MigrationError::Interrupted) }
    }

    /// Removes the spaces of an earlier attempt whose entities the source has no longer.
    async fn remove_earlier_spaces(&mut self) -> Result<(), MigrationError> {
        let earlier = self.earlier.spaces().map_err(MigrationError::Destination)?;
        let is_there = |one: &Space| {
            self.spaces.iter().any(|space| (space.id, space.root) == (one.id, one.root))
        };
        let gone: Vec<Space> = earlier.into_iter().filter(|one| !is_there(one)).collect();
        for space in gone {
            self.remove_space(&space).await?;
        }
        Ok(())
    }

    async fn remove_space(&mut self, space: &Space) -> Result<(), MigrationError> {
        let mut batch = Batch::default();
        batch.delete_prefix(&space_key(space.id));
        self.submit(space.root, batch).await
    }

    /// Makes the records of the namespace equal, while the mark is there.
    async fn write_namespace(&mut self) -> Result<(), MigrationError> {
        let failed = MigrationError::Destination;
        let damaged = || failed(StoreError::Damaged("a key is too long".into()));
        let (wanted, found) = (&self.namespace.records, &self.earlier.records);
        let gone = found.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key, None));
        let put = wanted.iter().filter(|(key, value)| found.get(*key) != Some(*value));
        let changes: Vec<(&Vec<u8>, Option<&Vec<u8>>)> =
            gone.chain(put.map(|(key, value)| (key, Some(value)))).collect();
        for changes in changes.chunks(NAMESPACE_RECORDS) {
            let mut batch = Batch::default();
            for (key, value) in changes {
                let key = Key::from_bytes(key).ok_or_else(damaged)?;
                match value {
                    Some(value) => batch.put(&key, |place| place.extend_from_slice(value)),
                    None => batch.delete(&key),
                }
            }
            amend(self.destination, batch).await?;
        }
        Ok(())
    }

    /// Copies a space, unless an earlier attempt has copied it and it is still equal.
    async fn complete(
        &mut self,
        space: &Space,
        place: (usize, usize),
    ) -> Result<Digest, MigrationError> {
        let (destination, hash_key) = (self.destination, self.hash_key);
        let none = async |_: Key, _: &[u8], _: Option<Bytes>| Ok(());
        let found =
            walk(destination, space.id, &hash_key, MigrationError::Destination, none).await?;
        let mut keys = Vec::new();
        let note = async |key: Key, _: &[u8], content: Option<Bytes>| {
            if let Some(content) = content
                && keys.len() < SHARED_CONTENTS_MAX
            {
                keys.push((hash_of(&hash_key, &content), key));
            }
            Ok(())
        };
        let expected = walk(self.source, space.id, &hash_key, MigrationError::Source, note).await?;
        if found == expected {
            for (hash, key) in keys {
                self.shared.find(hash, &key);
            }
            self.bytes += expected.bytes;
            return Ok(expected);
        }
        self.remove_space(space).await?;
        self.copy_space(space, place).await
    }

    async fn copy_space(
        &mut self,
        space: &Space,
        (done, total): (usize, usize),
    ) -> Result<Digest, MigrationError> {
        let (source, hash_key) = (self.source, self.hash_key);
        let mut batch = Batch::default();
        let copy = async |key: Key, value: &[u8], content: Option<Bytes>| {
            let write = |place: &mut Vec<u8>| place.extend_from_slice(value);
            let content_bytes = content.as_ref().map_or(0, Bytes::len);
            self.bytes += (key.as_bytes().len() + value.len() + content_bytes) as u64;
            match content {
                None => batch.put(&key, write),
                Some(content) => match self.shared.find(hash_of(&hash_key, &content), &key) {
                    Some(first) => batch.put_content_of(&key, &first, write),
                    None => batch.put_with_content(&key, content, write),
                },
            }
            if batch.bytes() < BATCH_BYTES {
                return Ok(());
            }
            self.submit(space.root, std::mem::take(&mut batch)).await?;
            self.report(done, total)
        };
        let digest = walk(source, space.id, &hash_key, MigrationError::Source, copy).await?;
        if !batch.is_empty() {
            self.submit(space.root, batch).await?;
        }
        Ok(digest)
    }

    /// Stores a batch in the shard of a tree.
    async fn submit(&mut self, root: EntityId, mut batch: Batch) -> Result<(), MigrationError> {
        let failed = MigrationError::Destination;
        let count = u64::from(self.destination.shard_count().max(1));
        let number = u16::try_from(root.0 % count).unwrap_or_default();
        let (fence, id) = match self.fences.get(&number) {
            Some(held) => *held,
            None => self.destination.acquire(Shard(number)).await.map_err(failed)?,
        };
        self.fences.insert(number, (fence, BatchId(id.0 + 1)));
        let bytes = batch.bytes();
        self.reserve(Shard(number), bytes).await?;
        batch.carry_reservation(bytes);
        batch.require_sync();
        let (sender, outcome) = oneshot::channel();
        let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
        let completion = Box::new(move |outcome| drop(sender.send(outcome)));
        self.destination.submit(submission, completion);
        let lost = |_| StoreError::Failed("the store has lost a batch".into());
        let mut outcome = outcome;
        loop {
            match tokio::time::timeout(LOOK_EVERY, &mut outcome).await {
                Ok(stored) => return stored.map_err(lost).flatten().map_err(failed),
                // A database without room repeats the batch until there is some.
                Err(_) => match self.destination.shortage(bytes) {
                    Some(Shortage::DatabaseAway { .. }) | None => {}
                    shortage => return Err(MigrationError::Full(shortage)),
                },
            }
            if !(self.observer)(self.reported) {
                return Err(MigrationError::Interrupted);
            }
        }
    }

    async fn reserve(&self, shard: Shard, bytes: u64) -> Result<(), MigrationError> {
        let woken = Arc::new(Notify::new());
        let waker = || -> Waker {
            let woken = Arc::clone(&woken);
            Box::new(move || woken.notify_one())
        };
        loop {
            match self.destination.reserve(shard, bytes, &waker) {
                Reserved::Granted => return Ok(()),
                Reserved::Full => {
                    return Err(MigrationError::Full(self.destination.shortage(bytes)));
                }
                Reserved::Busy => woken.notified().await,
            }
        }
    }
}

impl Expected {
    /// Compares all records of a store with the records that were read from the source. Returns the
    /// summary of all entities, and their number.
    ///
    /// # Errors
    /// If the store differs or fails, or the observer stops the comparison.
    pub async fn compare(
        &self,
        destination: &dyn Store,
        observer: Observer<'_>,
    ) -> Result<(Digest, usize), MigrationError> {
        let failed = MigrationError::Destination;
        let found = NamespaceRecords::read(destination).await.map_err(failed)?;
        let found = digest_of_namespace(&self.hash_key, &found);
        same("the namespace", self.namespace, found)?;
        let mut sum = found;
        let total = self.spaces.len();
        for (done, (space, expected)) in self.spaces.iter().enumerate() {
            let progress = Progress { is_comparing: true, done, total, bytes: sum.bytes };
            if !observer(progress) {
                return Err(MigrationError::Interrupted);
            }
            let none = async |_: Key, _: &[u8], _: Option<Bytes>| Ok(());
            let found = walk(destination, space.id, &self.hash_key, failed, none).await?;
            same(&format!("`{}`", space.path), *expected, found)?;
            sum.records += found.records;
            sum.bytes += found.bytes;
        }
        Ok((sum, total))
    }

    /// Removes the mark of a store that was compared: from then on a broker can serve it. Acquires
    /// the shards of the source before, which fails if a broker has taken them meanwhile.
    ///
    /// # Errors
    /// If the source has another owner, or a store fails.
    pub async fn finish(
        self,
        source: &dyn Store,
        destination: &dyn Store,
    ) -> Result<(), MigrationError> {
        for shard in 0..source.shard_count() {
            source.acquire(Shard(shard)).await.map_err(MigrationError::Source)?;
        }
        let mut batch = Batch::default();
        batch.delete(&unfinished_copy_key());
        amend(destination, batch).await
    }
}

fn same(place: &str, expected: Digest, found: Digest) -> Result<(), MigrationError> {
    if expected == found {
        return Ok(());
    }
    Err(MigrationError::Different { place: place.into(), expected, found })
}

/// Stores records of the namespace while the mark is there.
async fn amend(destination: &dyn Store, batch: Batch) -> Result<(), MigrationError> {
    let expected = [(unfinished_copy_key(), Some(Bytes::from_static(MARK)))];
    let is_stored =
        destination.amend(&expected, batch).await.map_err(MigrationError::Destination)?;
    let lost = || StoreError::Failed("its mark of an unfinished migration is gone".into());
    if is_stored { Ok(()) } else { Err(MigrationError::Destination(lost())) }
}

fn digest_of_namespace(hash_key: &[u8; 16], namespace: &NamespaceRecords) -> Digest {
    let mut hasher = Hasher::new(hash_key);
    for (key, value) in &namespace.records {
        hasher.add(key, value, None);
    }
    hasher.finish()
}

/// Passes each record of a space with its content to `visit`, and returns their digest.
async fn walk(
    store: &dyn Store,
    space: EntityId,
    hash_key: &[u8; 16],
    failed: fn(StoreError) -> MigrationError,
    mut visit: impl AsyncFnMut(Key, &[u8], Option<Bytes>) -> Result<(), MigrationError>,
) -> Result<Digest, MigrationError> {
    let mut hasher = Hasher::new(hash_key);
    let mut records = store.scan(&space_key(space));
    let mut slice = RecordSlice::default();
    let mut contents = Vec::new();
    loop {
        records.next(SLICE_BYTES, &mut slice).await.map_err(failed)?;
        if slice.is_empty() {
            return Ok(hasher.finish());
        }
        let keys: Option<Vec<Key>> = slice.iter().map(|(key, _)| Key::from_bytes(key)).collect();
        let keys = keys.ok_or_else(|| failed(StoreError::Damaged("a key is too long".into())))?;
        store.pin_unloaded(&keys, &mut contents);
        for ((key, (_, value)), content) in keys.iter().zip(slice.iter()).zip(contents.drain(..)) {
            let content = match content {
                Some(content) => Some(content.load().await.map_err(failed)?),
                None => None,
            };
            hasher.add(key.as_bytes(), value, content.as_ref());
            visit(*key, value, content).await?;
        }
    }
}

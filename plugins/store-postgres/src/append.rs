//! An append: the rows of some batches, which one statement inserts, and their effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_record::{Batch, ContentOp, Key, Record, SPACE_BYTES, space_of};
use peeklock_store_log::{
    CONTENT_HEAD, ContentAt, IndexEntry, LogPosition, LogRecord, LogSegment as _, Op, PART_BYTES,
    PLACE_BYTES, PartPositions, PendingOps, RECORD_HEAD_MAX, RecordContent, write_content,
};

use crate::leaf::{Leaf, LeafIndex};
use crate::row::{BODY_BYTES_MAX, HEAD_BYTES_MAX, META_BYTES, Row, RowKind, Stamp};
use crate::shard::Tail;

/// Seed of the checksums of records and contents: rows of another place never pass, because the
/// checksum of a head covers the id.
pub const SEED: u32 = 0;

/// The spaces that belong to no shard. They are in a table of their own.
pub const SHARED_SPACES: [u64; 2] = [0, 1 << 63];

/// Whether a key is in the table of shared records.
pub fn is_shared(key: &[u8]) -> bool {
    SHARED_SPACES.contains(&space_of(key))
}

/// The least key after all keys with a prefix; `None` if there is none.
pub fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Whether an operation removes a whole space.
pub fn is_whole_space(prefix: &Key) -> bool {
    prefix.as_bytes().len() == SPACE_BYTES
}

/// Changes of shared records, of which only the last one of a key remains.
#[derive(Default)]
pub struct SharedChanges {
    /// The new values; `None` for removed keys.
    pub keys: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Prefixes whose keys are removed before that.
    pub prefixes: Vec<Vec<u8>>,
}

impl SharedChanges {
    fn remove_prefix(&mut self, prefix: &[u8]) {
        self.keys.retain(|key, _| !key.starts_with(prefix));
        self.prefixes.push(prefix.to_vec());
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.prefixes.is_empty()
    }
}

/// The rows of an append to a leaf, in the making.
pub struct Append {
    pub leaf: Arc<Leaf>,
    stamp: Stamp,
    /// The position at which the next row begins.
    offset: u32,
    /// Contents and records of the row in the making.
    body: Vec<u8>,
    records: Vec<u8>,
    /// The first operation of that row.
    first_op: usize,
    pub rows: Vec<Row>,
    pub ops: PendingOps,
    /// Bodies, for the cache.
    pub bodies: Vec<(LogPosition, Bytes)>,
    pub shared: SharedChanges,
    /// Keys to remove in other shards, and the batch that removes them.
    pub removed: Vec<(u16, u64, Vec<Key>)>,
    /// The parts of new large contents, to add to the index before the operations.
    pub large: Vec<PartPositions>,
    /// Whether a row is needed even without records.
    needs_row: bool,
    /// Bytes of all rows.
    bytes: usize,
}

/// The source of contents that a batch refers to.
pub enum NewContent<'a> {
    Here(&'a Bytes),
    Parts { places: Vec<LogPosition>, length: u32 },
}

impl Append {
    pub fn new(leaf: Arc<Leaf>, stamp: Stamp) -> Self {
        let offset = u32::try_from(leaf.end()).unwrap_or(u32::MAX);
        Self {
            leaf,
            stamp,
            offset,
            body: Vec::new(),
            records: Vec::new(),
            first_op: 0,
            rows: Vec::new(),
            ops: PendingOps::default(),
            bodies: Vec::new(),
            shared: SharedChanges::default(),
            removed: Vec::new(),
            large: Vec::new(),
            needs_row: false,
            bytes: 0,
        }
    }

    /// Bytes of the append.
    pub const fn bytes(&self) -> usize {
        self.bytes + self.body.len() + self.records.len()
    }

    /// The offset at which the leaf ends after the append.
    pub const fn end(&self) -> u32 {
        self.offset
    }

    /// Sets the highest id of a batch, before the last row ends. The append has a row even if the
    /// batch has no records here.
    pub const fn set_batch(&mut self, batch: u64) {
        self.stamp.batch = batch;
        self.needs_row = true;
    }

    /// Has the append consist of at least one row.
    pub const fn require_row(&mut self) {
        self.needs_row = true;
    }

    /// Ends the last row. Returns whether there is something to store.
    pub fn finish(&mut self) -> bool {
        self.end_row();
        if self.rows.is_empty() && self.needs_row {
            self.push_row(RowKind::Mark, &[], Bytes::from_static(&[0]));
        }
        !self.rows.is_empty()
    }

    /// Sets the epoch of all rows, if it was raised since the append was made.
    pub fn set_epoch(&mut self, epoch: u64) {
        if self.stamp.epoch != epoch {
            self.stamp.epoch = epoch;
            self.rows.iter_mut().for_each(|row| row.set_epoch(epoch));
        }
    }

    /// The last row, as the row before the next append.
    pub fn tail(&self) -> Option<Tail> {
        let row = self.rows.last()?;
        let meta = row.meta().try_into().ok()?;
        Some(Tail { slot: self.leaf.slot, id: row.id, meta })
    }

    fn place(&self, offset: u32) -> LogPosition {
        LogPosition { segment: self.leaf.number(), offset }
    }

    /// Ends the row in the making. A body that is too long begins in earlier rows.
    pub fn end_row(&mut self) {
        if self.body.is_empty() && self.records.is_empty() {
            return;
        }
        let mut body = Bytes::from(std::mem::take(&mut self.body));
        let records = std::mem::take(&mut self.records);
        self.bytes += body.len() + records.len();
        let records_at = self.offset.saturating_add(length_of(&body));
        self.ops.move_records(self.first_op, records_at);
        self.first_op = self.ops.all().len();
        if !body.is_empty() {
            self.bodies.push((self.place(self.offset), body.clone()));
        }
        while body.len() > BODY_BYTES_MAX {
            self.push_row(RowKind::Body, &[], body.split_to(BODY_BYTES_MAX));
        }
        self.push_row(RowKind::Records, &records, body);
    }

    fn push_row(&mut self, kind: RowKind, records: &[u8], body: Bytes) {
        let length = length_of(&body).saturating_add(length_of(records));
        self.rows.push(Row::new(self.place(self.offset), kind, self.stamp, records, body));
        self.offset = self.offset.saturating_add(length);
    }

    /// Adds a part of a large content in rows of its own, and returns its place.
    pub fn add_part(&mut self, mut part: Bytes) -> LogPosition {
        self.end_row();
        let place = self.place(self.offset);
        self.bytes += part.len();
        while !part.is_empty() {
            let body = part.split_to(part.len().min(BODY_BYTES_MAX));
            self.push_row(RowKind::Body, &[], body);
        }
        place
    }

    /// Makes room for a record with at most `record_bytes` bytes and a content.
    fn make_room(&mut self, record_bytes: usize, content_bytes: usize) {
        let head_is_full = META_BYTES + self.records.len() + record_bytes > HEAD_BYTES_MAX;
        let body_is_full = self.body.len() + content_bytes > BODY_BYTES_MAX;
        if (head_is_full && !self.records.is_empty()) || (body_is_full && !self.body.is_empty()) {
            self.end_row();
        }
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Key) {
        self.make_room(RECORD_HEAD_MAX + key.as_bytes().len(), 0);
        LogRecord::Delete { key: key.as_bytes() }.write_cut(&mut self.records, SEED);
        self.ops.push(Op::Delete { key });
    }

    /// Sets a key to a value and new content; returns the place of the content.
    pub fn put_new(&mut self, key: Key, value: &[u8], content: NewContent<'_>) -> ContentAt {
        let bytes = key.as_bytes();
        let fields = RECORD_HEAD_MAX + bytes.len() + value.len();
        let (record, content, is_apart) = match &content {
            NewContent::Here(content) => {
                self.make_room(fields, CONTENT_HEAD + content.len());
                let offset = self.offset.saturating_add(length_of(&self.body));
                let at = ContentAt {
                    place: self.place(offset),
                    length: length_of(content),
                    is_large: false,
                };
                write_content(content, &mut self.body, SEED);
                (RecordContent::Here(content), at, true)
            }
            NewContent::Parts { places, length } => {
                self.make_room(fields + places.len() * PLACE_BYTES, 0);
                let place = places.first().copied().unwrap_or_default();
                self.large.push(Arc::from(places.as_slice()));
                let at = ContentAt { place, length: *length, is_large: true };
                (RecordContent::Parts { places: places.clone(), length: *length }, at, false)
            }
        };
        let offset = length_of(&self.records);
        let put = LogRecord::Put { key: bytes, value, content: record };
        let record_bytes = put.write_cut(&mut self.records, SEED);
        let entry = IndexEntry::new(self.place(offset), record_bytes, Some(content));
        let entry = if is_apart { entry.with_content_apart() } else { entry };
        self.ops.push(Op::Put { key, entry, content_is_new: true });
        content
    }

    /// Sets a key to a value, without content or with one that is in the log.
    pub fn put_known(
        &mut self,
        key: Key,
        value: &[u8],
        known: Option<ContentAt>,
        index: &LeafIndex,
    ) {
        let content = match known {
            None => RecordContent::None,
            Some(ContentAt { place, length, is_large: false }) => {
                RecordContent::At { place, length }
            }
            Some(ContentAt { place, length, is_large: true }) => {
                let is_new = |parts: &&PartPositions| parts.first() == Some(&place);
                let new = self.large.iter().find(is_new).cloned();
                let places = new.or_else(|| index.part_places(place));
                let places = places.map(|places| places.to_vec()).unwrap_or_default();
                RecordContent::Parts { places, length }
            }
        };
        let places = known.map_or(0, |content| {
            (content.length as usize).div_ceil(PART_BYTES).max(1) * PLACE_BYTES
        });
        self.make_room(RECORD_HEAD_MAX + key.as_bytes().len() + value.len() + places, 0);
        let offset = length_of(&self.records);
        let put = LogRecord::Put { key: key.as_bytes(), value, content };
        let record_bytes = put.write_cut(&mut self.records, SEED);
        let entry = IndexEntry::new(self.place(offset), record_bytes, known);
        self.ops.push(Op::Put { key, entry, content_is_new: false });
    }

    /// Adds a batch of a shard. `parts` are the places of its large contents, in order.
    pub fn add_batch(
        &mut self,
        (shard, id): (u16, u64),
        batch: &Batch,
        parts: Vec<Vec<LogPosition>>,
        index: &LeafIndex,
    ) {
        let mut parts = parts.into_iter();
        let mut removed: BTreeMap<u16, Vec<Key>> = BTreeMap::new();
        for record in batch.records() {
            match record {
                Record::Put { key, value, .. } if is_shared(key) => {
                    self.shared.keys.insert(key.to_vec(), Some(value.to_vec()));
                }
                Record::Delete { key } | Record::DeleteIn { key, .. } if is_shared(key) => {
                    self.shared.keys.insert(key.to_vec(), None);
                }
                Record::DeletePrefix { prefix } if is_shared(prefix) => {
                    self.shared.remove_prefix(prefix);
                }
                Record::DeleteIn { shard: other, key } if other != shard => {
                    removed.entry(other).or_default().push(key_of(key));
                }
                Record::Delete { key } | Record::DeleteIn { key, .. } => self.delete(key_of(key)),
                Record::DeletePrefix { prefix } => {
                    self.make_room(RECORD_HEAD_MAX + prefix.len(), 0);
                    LogRecord::DeletePrefix { prefix }.write_cut(&mut self.records, SEED);
                    self.ops.push(Op::DeletePrefix { prefix: key_of(prefix) });
                }
                Record::Put { key, value, content } => {
                    self.put(key_of(key), value, content, &mut parts, index);
                }
            }
        }
        self.removed.extend(removed.into_iter().map(|(other, keys)| (other, id, keys)));
    }

    fn put(
        &mut self,
        key: Key,
        value: &[u8],
        content: ContentOp<'_>,
        parts: &mut impl Iterator<Item = Vec<LogPosition>>,
        index: &LeafIndex,
    ) {
        let known = match content {
            ContentOp::None => None,
            ContentOp::New(content) if is_large(content) => {
                let places = parts.next().unwrap_or_default();
                let length = length_of(content);
                self.put_new(key, value, NewContent::Parts { places, length });
                return;
            }
            ContentOp::New(content) => {
                self.put_new(key, value, NewContent::Here(content));
                return;
            }
            ContentOp::Keep => self.content_of(&key, index),
            ContentOp::Of(source) => self.content_of(&key_of(source), index),
        };
        self.put_known(key, value, known, index);
    }

    /// The content of a key after all operations of the append.
    fn content_of(&mut self, key: &Key, index: &LeafIndex) -> Option<ContentAt> {
        let pending = self.ops.content_of(key);
        pending.unwrap_or_else(|| index.get(key.as_bytes())?.content_at())
    }
}

/// Whether a content is written before its batch, in parts.
pub const fn is_large(content: &Bytes) -> bool {
    content.len() > PART_BYTES
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn key_of(key: &[u8]) -> Key {
    Key::from_bytes(key).unwrap_or_else(|| unreachable!("a batch holds no longer keys"))
}

/// The reason why a batch cannot be stored, if there is one.
pub fn flaw_of(batch: &Batch) -> Option<&'static str> {
    batch.records().find_map(|record| match record {
        Record::Put { key, content: ContentOp::New(_) | ContentOp::Of(_), .. }
            if is_shared(key) =>
        {
            Some("records of spaces 0 and 2^63 have no contents")
        }
        Record::DeletePrefix { prefix } if prefix.len() < SPACE_BYTES => {
            Some("a prefix contains a whole space")
        }
        Record::Put { .. }
        | Record::Delete { .. }
        | Record::DeleteIn { .. }
        | Record::DeletePrefix { .. } => None,
    })
}

//! Scans: the records under a prefix, in slices.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_record::{Key, space_of};
use peeklock_store::{RecordSlice, Records, StoreError};
use peeklock_store_log::{Flaw, IndexEntry};

use crate::append::{end_of_prefix, is_shared};
use crate::fault::store_error;
use crate::inner::Inner;
use crate::reader::ReadHead;
use crate::shard::ShardLog;

/// Number of entries that are copied from the index at a time.
const PAGE: usize = 1_024;
/// Number of heads of the first read. It doubles with each sequential read.
const HEADS_MIN: i64 = 4;
const HEADS_MAX: i64 = 128;
/// Number of shared records that are read at a time.
const SHARED_PAGE: i64 = 256;

/// The records under a prefix.
pub struct Scan {
    inner: Arc<Inner>,
    prefix: Key,
    /// The last key of the slices before.
    after: Option<Key>,
    heads: Heads,
}

/// The last heads that were read.
pub struct Heads {
    segment: u32,
    heads: Vec<ReadHead>,
    count: i64,
}

impl Scan {
    pub fn new(inner: Arc<Inner>, prefix: Key) -> Self {
        Self { inner, prefix, after: None, heads: Heads::none() }
    }
}

#[async_trait]
impl Records for Scan {
    async fn next(&mut self, bytes: usize, slice: &mut RecordSlice) -> Result<(), StoreError> {
        slice.clear();
        let (inner, prefix, after) = (Arc::clone(&self.inner), self.prefix, self.after);
        let mut heads = std::mem::replace(&mut self.heads, Heads::none());
        let reading = self.inner.ask(async move {
            let mut slice = RecordSlice::default();
            let last = if is_shared(prefix.as_bytes()) {
                read_shared(&inner, &prefix, after, bytes, &mut slice).await?
            } else {
                read_shard(&inner, &prefix, after, bytes, &mut slice, &mut heads).await?
            };
            Ok((slice, last, heads))
        });
        let (read, last, heads) = reading.await?;
        (*slice, self.heads) = (read, heads);
        self.after = last.or(self.after);
        Ok(())
    }
}

async fn read_shared(
    inner: &Inner,
    prefix: &Key,
    after: Option<Key>,
    bytes: usize,
    slice: &mut RecordSlice,
) -> Result<Option<Key>, StoreError> {
    const PAGE_SQL: &str = "SELECT key, value FROM shared WHERE key >= $1 AND ($2::bytea IS NULL \
        OR key < $2) AND ($3::bytea IS NULL OR key > $3) ORDER BY key LIMIT $4";
    let connection = inner.reader().await;
    let end = end_of_prefix(prefix.as_bytes());
    let mut last = after;
    while !slice.is_full(bytes) {
        let after = last.as_ref().map(Key::as_bytes);
        let rows = connection
            .client
            .query(PAGE_SQL, &[&prefix.as_bytes(), &end, &after, &SHARED_PAGE])
            .await
            .map_err(|error| {
                connection.note_error(&error);
                store_error(&error)
            })?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if slice.is_full(bytes) {
                break;
            }
            let key = row.get::<_, &[u8]>(0);
            slice.push(key, row.get(1));
            last = Key::from_bytes(key);
            if last.is_none() {
                return Err(StoreError::Damaged(
                    "table `shared` has a key that is too long".into(),
                ));
            }
        }
    }
    Ok(last)
}

async fn read_shard(
    inner: &Inner,
    prefix: &Key,
    after: Option<Key>,
    bytes: usize,
    slice: &mut RecordSlice,
    heads: &mut Heads,
) -> Result<Option<Key>, StoreError> {
    let mut last = after;
    let Some(shard) = inner.shard_of(space_of(prefix.as_bytes()))? else { return Ok(last) };
    let mut page = Vec::new();
    while !slice.is_full(bytes) {
        page.clear();
        shard.page(prefix, last.as_ref(), PAGE, &mut page);
        if page.is_empty() {
            break;
        }
        for (key, entry) in &page {
            if slice.is_full(bytes) {
                break;
            }
            if let Some(value) = read(inner, shard, heads, key, *entry).await? {
                slice.push(key.as_bytes(), &value);
            }
            last = Some(*key);
        }
    }
    Ok(last)
}

/// Reads the value of a key at its current position; `None` if the key was removed meanwhile.
async fn read(
    inner: &Inner,
    shard: &ShardLog,
    heads: &mut Heads,
    key: &Key,
    mut entry: IndexEntry,
) -> Result<Option<Vec<u8>>, StoreError> {
    loop {
        let read = heads.value(inner, shard, key, &entry).await;
        match (read, shard.index.get(key.as_bytes())) {
            (Ok(value), _) => return Ok(Some(value)),
            (Err(error), Some(now)) if now == entry => {
                // The next owner of the shard may have emptied the leaf.
                return Err(shard.fault().cloned().unwrap_or(error));
            }
            // The record was written again.
            (Err(_), Some(now)) => entry = now,
            (Err(_), None) => return Ok(None),
        }
    }
}

impl Heads {
    pub const fn none() -> Self {
        Self { segment: 0, heads: Vec::new(), count: HEADS_MIN }
    }

    /// The value of a record.
    pub async fn value(
        &mut self,
        inner: &Inner,
        shard: &ShardLog,
        key: &Key,
        entry: &IndexEntry,
    ) -> Result<Vec<u8>, StoreError> {
        let (segment, offset) = (entry.record.segment, entry.record.offset);
        let leaf = shard.leaves.get(segment).ok_or_else(|| {
            StoreError::Damaged(
                format!("leaf {segment} of shard {} is missing", shard.number).into(),
            )
        })?;
        let find = |heads: &[ReadHead]| {
            let place = heads.partition_point(|head| head.start <= offset).checked_sub(1)?;
            heads.get(place).filter(|head| head.has(offset)).map(|_| place)
        };
        let mut place = if self.segment == segment { find(&self.heads) } else { None };
        if place.is_none() {
            let goes_on = self.segment == segment
                && self.heads.last().is_some_and(|last| last.start < offset);
            self.count = if goes_on { (self.count * 2).min(HEADS_MAX) } else { HEADS_MIN };
            self.heads = inner.read_heads(&leaf, offset, self.count).await?;
            self.segment = segment;
            place = find(&self.heads);
        }
        let head = place.and_then(|place| self.heads.get(place));
        head.ok_or_else(|| leaf.damaged(offset, Flaw::Absent))?.value(&leaf, entry, key)
    }
}

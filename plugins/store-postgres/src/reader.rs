//! Reading from leaves: values of records, and contents.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use peeklock_record::Key;
use peeklock_store::StoreError;
use peeklock_store::content_ref::{ContentRef, StoredContent};
use peeklock_store_log::{
    CONTENT_HEAD, CacheLookup, CachedBytes, CachedPiece, Flaw, IndexEntry, LogPosition,
    LogSegment as _, PART_BYTES, Pinned, RecordReader, Version, read_content,
};

use crate::append::SEED;
use crate::fault::store_error;
use crate::inner::Inner;
use crate::leaf::Leaf;
use crate::row::{RowHead, id_of};
use crate::schema;
use crate::session::Connection;
use crate::shard::ShardLog;

/// A head that was read, with the place of its records.
pub struct ReadHead {
    pub start: u32,
    records_at: u32,
    end: u32,
    records: Bytes,
}

impl ReadHead {
    fn of(leaf: &Leaf, id: i64, head: &[u8]) -> Result<Self, StoreError> {
        let read = RowHead::read(id, head).map_err(|flaw| leaf.damaged(offset_of(id), flaw))?;
        let records = Bytes::copy_from_slice(read.records);
        let (start, records_at, end) = (read.start.offset, read.records_at(), read.end());
        Ok(Self { start, records_at, end, records })
    }

    /// Whether a record is in it.
    pub fn has(&self, offset: u32) -> bool {
        (self.records_at..self.end).contains(&offset)
    }

    /// The value of a record.
    pub fn value(&self, leaf: &Leaf, entry: &IndexEntry, key: &Key) -> Result<Vec<u8>, StoreError> {
        let offset = entry.record.offset;
        let from = usize::try_from(offset - self.records_at).unwrap_or(usize::MAX);
        let end = from.saturating_add(entry.record_bytes as usize);
        let bytes = self.records.get(from..end);
        let bytes = bytes.ok_or_else(|| leaf.damaged(offset, Flaw::Short))?;
        RecordReader::new(Version::CURRENT, SEED)
            .read_value(bytes, key.as_bytes())
            .map_err(|flaw| leaf.damaged(offset, flaw))
    }
}

fn offset_of(id: i64) -> u32 {
    crate::row::position_of(id).map_or(0, |position| position.offset)
}

fn failure(connection: &Connection, error: &tokio_postgres::Error) -> StoreError {
    connection.note_error(error);
    store_error(error)
}

impl Inner {
    /// Reads up to `count` heads of a leaf, from the row with an offset on.
    pub async fn read_heads(
        &self,
        leaf: &Leaf,
        offset: u32,
        count: i64,
    ) -> Result<Vec<ReadHead>, StoreError> {
        let connection = self.reader().await;
        let failed = |error: tokio_postgres::Error| failure(&connection, &error);
        let sql = schema::read_heads(&leaf.table());
        let statement = connection.prepared(&sql).await.map_err(failed)?;
        let from = id_of(LogPosition { segment: leaf.number(), offset });
        let end = id_of(LogPosition { segment: leaf.number() + 1, offset: 0 });
        let rows = connection.client.query(&statement, &[&from, &end, &count]).await;
        let rows = rows.map_err(failed)?;
        rows.iter().map(|row| ReadHead::of(leaf, row.get(0), row.get(1))).collect()
    }

    /// Reads bytes of bodies, and the whole bodies into the cache. Bodies that begin with the bytes
    /// are checked if `is_part`; a content has its own checksum.
    async fn read_bytes(
        &self,
        leaf: &Leaf,
        offset: u32,
        length: usize,
        is_part: bool,
    ) -> Result<Bytes, StoreError> {
        let connection = self.reader().await;
        let failed = |error: tokio_postgres::Error| failure(&connection, &error);
        let statement = connection.prepared(&schema::read_rows(&leaf.table())).await;
        let statement = statement.map_err(failed)?;
        let from = id_of(LogPosition { segment: leaf.number(), offset });
        let to = from.saturating_add(i64::try_from(length).unwrap_or(i64::MAX));
        let rows = connection.client.query(&statement, &[&from, &to]).await.map_err(failed)?;
        let mut bytes = BytesMut::with_capacity(length);
        let mut at = u64::from(offset);
        for row in &rows {
            let (id, head, body) = (row.get(0), row.get::<_, &[u8]>(1), row.get::<_, &[u8]>(2));
            let damaged = |flaw| leaf.damaged(offset_of(id), flaw);
            let head = RowHead::read(id, head).map_err(damaged)?;
            head.check_body(body).map_err(damaged)?;
            let start = u64::from(head.start.offset);
            let skipped = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            let wanted = body.get(skipped..).unwrap_or_default();
            let wanted = wanted.get(..length - bytes.len()).unwrap_or(wanted);
            bytes.extend_from_slice(wanted);
            at = start + body.len() as u64;
            if !is_part {
                let piece = Bytes::copy_from_slice(body);
                let memory_bytes = piece.len();
                let piece = CachedPiece { bytes: piece, memory_bytes, is_written: false };
                self.cache.insert(leaf.cache_place(head.start.offset), piece);
            }
        }
        if bytes.len() < length {
            return Err(leaf.damaged(offset, Flaw::Absent));
        }
        Ok(bytes.freeze())
    }
}

/// A content in the log. It keeps its leaves.
pub struct PinnedContent {
    shard: Arc<ShardLog>,
    place: LogPosition,
    length: usize,
    leaf: Arc<Leaf>,
    parts: Option<Vec<(LogPosition, Arc<Leaf>)>>,
}

impl PinnedContent {
    pub fn of(shard: &Arc<ShardLog>, pinned: Pinned<Leaf>) -> Self {
        let Pinned { content, segment, parts } = pinned;
        let (shard, length) = (Arc::clone(shard), content.length as usize);
        Self { shard, place: content.place, length, leaf: segment, parts }
    }

    /// The cached content, if any.
    pub fn lookup(&self, lookup: &mut CacheLookup<'_>) -> Option<CachedBytes> {
        if self.parts.is_some() {
            return None;
        }
        lookup.get(self.leaf.cache_place(self.place.offset), CONTENT_HEAD + self.length)
    }

    /// The found content, checked if it was read.
    pub fn checked(&self, found: &CachedBytes) -> Result<Bytes, StoreError> {
        if !found.is_written {
            self.check(&found.bytes)?;
        }
        Ok(found.bytes.slice(CONTENT_HEAD.min(found.bytes.len())..))
    }

    fn check(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let read = read_content(bytes, SEED);
        read.map(drop).map_err(|flaw| self.leaf.damaged(self.place.offset, flaw))
    }

    /// The whole content, from the cache or the database.
    pub async fn whole(&self, inner: &Inner) -> Result<Bytes, StoreError> {
        let found = self.lookup(&mut inner.cache.lookup());
        match found {
            Some(found) => self.checked(&found),
            None => self.read(inner, 0..self.length).await,
        }
    }

    /// Reads a range of the content. Everything that is read is checked.
    pub async fn read(&self, inner: &Inner, range: Range<usize>) -> Result<Bytes, StoreError> {
        let read = self.read_checked(inner, range).await;
        // The next owner of the shard may have emptied the leaf: nothing is damaged.
        read.map_err(|error| match self.shard.fault() {
            Some(StoreError::Fenced { .. }) => {
                StoreError::Unavailable("another broker owns the shard now".into())
            }
            Some(fault) => fault.clone(),
            None => error,
        })
    }

    async fn read_checked(&self, inner: &Inner, range: Range<usize>) -> Result<Bytes, StoreError> {
        let Some(parts) = &self.parts else {
            let length = CONTENT_HEAD + self.length;
            let bytes = inner.read_bytes(&self.leaf, self.place.offset, length, false).await?;
            self.check(&bytes)?;
            return Ok(cut(&bytes.slice(CONTENT_HEAD..), range));
        };
        let mut bytes = BytesMut::with_capacity(range.len());
        for number in range.start / PART_BYTES..range.end.div_ceil(PART_BYTES) {
            let start = number * PART_BYTES;
            let length = PART_BYTES.min(self.length.saturating_sub(start));
            let Some((place, leaf)) = parts.get(number) else {
                return Err(self.leaf.damaged(self.place.offset, Flaw::Short));
            };
            let part = inner.read_bytes(leaf, place.offset, length, true).await?;
            let wanted = range.start.max(start) - start..range.end.min(start + length) - start;
            bytes.extend_from_slice(part.get(wanted).unwrap_or_default());
        }
        Ok(bytes.freeze())
    }
}

/// Returns the whole content, or a copy of a part: a slice would keep the whole in memory.
fn cut(content: &Bytes, range: Range<usize>) -> Bytes {
    if range == (0..content.len()) {
        return content.clone();
    }
    Bytes::copy_from_slice(content.get(range).unwrap_or_default())
}

/// A reference to a content in the database.
struct Pin {
    content: Arc<PinnedContent>,
    inner: Arc<Inner>,
}

impl Pin {
    async fn fetch(&self, range: Range<usize>) -> Result<Bytes, StoreError> {
        if let Some(found) = self.cached() {
            return Ok(cut(&found?, range));
        }
        let (content, inner) = (Arc::clone(&self.content), Arc::clone(&self.inner));
        self.inner.ask(async move { content.read(&inner, range).await }).await
    }
}

#[async_trait]
impl StoredContent for Pin {
    fn length(&self) -> u64 {
        self.content.length as u64
    }

    fn cached(&self) -> Option<Result<Bytes, StoreError>> {
        let found = self.content.lookup(&mut self.inner.cache.lookup())?;
        Some(self.content.checked(&found.copied()))
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        self.fetch(0..self.content.length).await
    }

    async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.content.length);
        self.fetch(place(from)..place(from.saturating_add(length))).await
    }
}

/// A reference to a content in the database.
pub fn stored(content: PinnedContent, inner: &Arc<Inner>) -> ContentRef {
    ContentRef::Stored(Arc::new(Pin { content: Arc::new(content), inner: Arc::clone(inner) }))
}

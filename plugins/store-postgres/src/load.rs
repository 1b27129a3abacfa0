//! Loading: reads the heads of all rows into the indexes, shard by shard. A damaged shard is closed,
//! and the others are not affected.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use peeklock_record::{Key, space_of};
use peeklock_store::StoreError;
use peeklock_store_log::{
    CONTENT_HEAD, ContentAt, Flaw, IndexEntry, LogPosition, LogSegment as _, Op, RecordContent,
    RecordReader, Version, content_of, op,
};
use tokio_postgres::Error;

use crate::append::SEED;
use crate::fault::opening_error;
use crate::leaf::{Leaf, SLOTS_PER_SHARD, capacity, table_of};
use crate::row::{META_BYTES, RowHead, RowKind, id_of, position_of};
use crate::schema;
use crate::session::Connection;
use crate::shard::{Removed, ShardLog, Tail};

/// The last row that was read, in order of the log.
#[derive(Default)]
struct Progress {
    /// The highest id of a batch.
    batch: u64,
    epoch: u64,
    tail: Option<Tail>,
}

/// Reads all leaves. Returns the highest id of a batch of each shard.
///
/// # Errors
/// If the database does not answer. Damage closes only its shard, which then has a fault.
pub async fn load(
    connection: &Connection,
    shards: &[Arc<ShardLog>],
    leaf_bytes: u64,
) -> Result<Vec<u64>, StoreError> {
    let mut slots: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
    for slot in schema::slots(connection).await? {
        match usize::try_from(slot / SLOTS_PER_SHARD).ok().filter(|at| *at < shards.len()) {
            Some(at) => slots.entry(at).or_default().push(slot),
            None => tracing::warn!(table = table_of(slot), "this table belongs to no shard"),
        }
    }
    let mut removed = removed(connection).await?;
    let mut lasts = Vec::new();
    for (at, shard) in shards.iter().enumerate() {
        let slots = slots.remove(&at).unwrap_or_default();
        let removed = removed.remove(&shard.number).unwrap_or_default();
        let last = match load_shard(connection, shard, &slots, removed, leaf_bytes).await {
            Ok(last) => last,
            Err(error @ StoreError::Damaged(_)) => {
                tracing::error!(%error, shard = shard.number, "a shard is closed");
                shard.set_fault(error);
                0
            }
            Err(error) => return Err(error),
        };
        lasts.push(last);
    }
    Ok(lasts)
}

async fn load_shard(
    connection: &Connection,
    shard: &ShardLog,
    slots: &[i32],
    removed: Vec<RemovedRow>,
    leaf_bytes: u64,
) -> Result<u64, StoreError> {
    let damaged = |text: String| StoreError::Damaged(text.into());
    let mut leaves: BTreeMap<u32, i32> = BTreeMap::new();
    for slot in slots {
        shard.note_table(*slot);
        let first = format!("SELECT min(id) FROM {}", table_of(*slot));
        let row = connection.client.query_one(&first, &[]).await;
        match row.map_err(|error| opening_error(&error))?.get::<_, Option<i64>>(0) {
            Some(id) => {
                let number = position_of(id).map_or(0, |position| position.segment);
                if let Some(other) = leaves.insert(number, *slot) {
                    let (one, other) = (table_of(*slot), table_of(other));
                    return Err(damaged(format!("tables `{one}` and `{other}` have one number")));
                }
            }
            None => shard.add_free(*slot),
        }
    }
    let mut progress = Progress::default();
    let mut newest: Option<Arc<Leaf>> = None;
    for (number, slot) in leaves {
        let leaf = Arc::new(Leaf::new(number, slot, leaf_bytes));
        if let Some(before) = newest.replace(Arc::clone(&leaf)) {
            before.seal();
            if before.number() + 1 != number {
                return Err(leaf.damaged(0, Flaw::Order));
            }
        }
        shard.leaves.insert(Arc::clone(&leaf));
        load_leaf(connection, shard, &leaf, &mut progress).await?;
    }
    shard
        .index
        .open_account()
        .map_err(|number| damaged(format!("leaf {number} of shard {} is missing", shard.number)))?;
    // The newest leaf goes on as large as a new one would be.
    if let Some(newest) = newest {
        let capacity = capacity(leaf_bytes, shard.index.used_bytes());
        newest.set_capacity(capacity);
    }
    for RemovedRow { by_shard, by_id, keys } in removed {
        let text = "table `removed` has a row that cannot be read";
        let by_shard = u16::try_from(by_shard).map_err(|_| damaged(text.into()))?;
        let by_id = u64::try_from(by_id).map_err(|_| damaged(text.into()))?;
        let keys = keys.iter().map(|key| Key::from_bytes(key)).collect::<Option<Vec<Key>>>();
        let keys = keys.ok_or_else(|| damaged(text.into()))?;
        shard.remove(Removed { by_shard, by_id, keys });
    }
    shard.set_tail(progress.tail);
    Ok(progress.batch)
}

/// Reads the heads of a leaf into the index.
async fn load_leaf(
    connection: &Connection,
    shard: &ShardLog,
    leaf: &Leaf,
    progress: &mut Progress,
) -> Result<(), StoreError> {
    let failed = |error: Error| opening_error(&error);
    let sql = format!("SELECT id, head FROM {} ORDER BY id", leaf.table());
    let none: [&(dyn tokio_postgres::types::ToSql + Sync); 0] = [];
    let rows = connection.client.query_raw(&sql, none).await.map_err(failed)?;
    let mut rows = pin!(rows);
    let mut end = 0;
    while let Some(row) = rows.try_next().await.map_err(failed)? {
        let (id, bytes) = (row.get::<_, i64>(0), row.get::<_, &[u8]>(1));
        let head = RowHead::read(id, bytes).map_err(|flaw| leaf.damaged(end, flaw))?;
        // The first row of a leaf begins at 0, and each other one where the last ends. Epochs never
        // fall: a row of a past owner cannot follow one of a later owner.
        let is_next = head.start == (LogPosition { segment: leaf.number(), offset: end });
        if !is_next || head.stamp.epoch < progress.epoch || head.stamp.epoch > shard.epoch() {
            return Err(leaf.damaged(end, Flaw::Order));
        }
        replay(shard, &head).map_err(|flaw| leaf.damaged(head.records_at(), flaw))?;
        end = head.end();
        progress.epoch = head.stamp.epoch;
        progress.batch = progress.batch.max(head.stamp.batch);
        let meta = bytes.get(..META_BYTES).and_then(|meta| meta.try_into().ok());
        progress.tail = meta.map(|meta| Tail { slot: leaf.slot, id: id_of(head.start), meta });
    }
    leaf.set_end(u64::from(end));
    Ok(())
}

/// Applies the records of a row to the index.
fn replay(shard: &ShardLog, head: &RowHead<'_>) -> Result<(), Flaw> {
    if head.kind != RowKind::Records {
        return Ok(());
    }
    let mut reader = RecordReader::new(Version::CURRENT, SEED);
    let (mut rest, mut record_at) = (head.records, head.records_at());
    let mut contents = Vec::new();
    let mut ops = Vec::new();
    while !rest.is_empty() {
        let (read, held) = reader.read_cut(rest)?;
        let place = LogPosition { segment: head.start.segment, offset: record_at };
        let bytes = read.bytes();
        let found = op(&read.record, place, bytes, |content| match (content, held) {
            (RecordContent::Here(_), Some(length)) => {
                // Its place follows below.
                Some(ContentAt { place, length, is_large: false })
            }
            _ => content_of(content),
        });
        let found = found.ok_or(Flaw::Form)?;
        let span = read.span;
        contents.push(held);
        ops.push(found);
        rest = rest.get(span..).unwrap_or_default();
        record_at = record_at.saturating_add(u32::try_from(span).unwrap_or(u32::MAX));
    }
    // The contents of the row end where its records begin. A long body begins in rows before.
    let bytes = |length: u32| u32::try_from(CONTENT_HEAD).unwrap_or(0).saturating_add(length);
    let total: u32 = contents.iter().flatten().map(|length| bytes(*length)).sum();
    let mut offset = head.records_at().checked_sub(total).ok_or(Flaw::Form)?;
    for (found, held) in ops.iter_mut().zip(contents) {
        if let (Op::Put { entry, .. }, Some(length)) = (&mut found.op, held) {
            let place = LogPosition { segment: head.start.segment, offset };
            let content = ContentAt { place, length, is_large: false };
            *entry = IndexEntry::new(entry.record, entry.record_bytes, Some(content))
                .with_content_apart();
            offset = offset.saturating_add(bytes(length));
        }
    }
    for found in ops {
        if let Some(parts) = found.parts {
            shard.index.add_large(parts);
        }
        shard.index.replay(&[found.op]);
    }
    Ok(())
}

/// A row of the table `removed`, unchecked.
struct RemovedRow {
    by_shard: i32,
    by_id: i64,
    keys: Vec<Vec<u8>>,
}

/// Reads the keys that batches of other shards have removed, by the shard of the keys.
async fn removed(connection: &Connection) -> Result<HashMap<u16, Vec<RemovedRow>>, StoreError> {
    const REMOVED: &str = "SELECT shard, by_shard, by_id, keys FROM removed";
    let mut removed: HashMap<u16, Vec<RemovedRow>> = HashMap::new();
    let rows = connection.client.query(REMOVED, &[]).await;
    for row in rows.map_err(|error| opening_error(&error))? {
        let shard = row.get::<_, i32>(0);
        let (by_shard, by_id, keys) = (row.get(1), row.get(2), row.get(3));
        match u16::try_from(shard) {
            Ok(shard) => {
                removed.entry(shard).or_default().push(RemovedRow { by_shard, by_id, keys });
            }
            Err(_) => tracing::warn!(shard, "a row of `removed` belongs to no shard"),
        }
    }
    Ok(removed)
}

/// The shard of each space that has records. The spaces of damaged shards are not known.
pub fn spaces_of(shards: &[Arc<ShardLog>]) -> HashMap<u64, u16> {
    let mut spaces = HashMap::new();
    for shard in shards.iter().filter(|shard| shard.fault().is_none()) {
        shard.index.each(&mut |key, _| {
            spaces.insert(space_of(key.as_bytes()), shard.number);
        });
    }
    spaces
}

//! The cleaner: writes the records in use of the oldest leaf of a shard again, and empties the leaf
//! when none is left (decision 7).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peeklock_record::Key;
use peeklock_store::StoreError;
use peeklock_store_log::{IndexEntry, LogPosition, LogSegment as _, SweepCursor};
use tokio::sync::oneshot;

use crate::fault::{store_error, text_of};
use crate::inner::Inner;
use crate::leaf::{Leaf, table_of};
use crate::reader::PinnedContent;
use crate::row::{id_of, integer, position_of};
use crate::scan::Heads;
use crate::shard::{Job, MovedContent, MovedRecord, ShardLog, Tail};

/// Number of index entries that are searched at a time.
const ENTRIES_PER_STEP: usize = 8_192;
/// Pause before a leaf that is read or locked is tried again.
const LATER: Duration = Duration::from_millis(500);

/// Starts a task that cleans a shard, if there is something to clean and no task does it.
pub fn start_if_due(inner: &Arc<Inner>, shard: &Arc<ShardLog>) {
    if !has_work(inner, shard) || shard.is_cleaning.swap(true, Ordering::AcqRel) {
        return;
    }
    let (inner, shard) = (Arc::clone(inner), Arc::clone(shard));
    tokio::spawn(async move {
        while has_work(&inner, &shard) && !inner.is_closing() {
            if let Err(error) = clean(&inner, &shard).await {
                tracing::warn!(%error, shard = shard.number, "space of the log is freed later");
                tokio::time::sleep(LATER).await;
                break;
            }
        }
        shard.is_cleaning.store(false, Ordering::Release);
    });
}

/// Whether the oldest leaf is unused, or the log has too much garbage.
fn has_work(inner: &Inner, shard: &ShardLog) -> bool {
    if shard.fault().is_some() {
        return false;
    }
    let Some((oldest, _)) = oldest(shard) else { return false };
    oldest.uses() == 0 || shard.sizes(inner.leaf_bytes, inner.room.is_tight()).is_due()
}

/// The oldest leaf, and the last row of the log, which is in a newer one: the row names the highest
/// id of a batch, so it stays.
fn oldest(shard: &ShardLog) -> Option<(Arc<Leaf>, Tail)> {
    let oldest = shard.leaves.oldest().filter(|leaf| leaf.is_sealed())?;
    let tail = shard.tail()?;
    (position_of(tail.id)?.segment > oldest.number()).then_some((oldest, tail))
}

async fn clean(inner: &Arc<Inner>, shard: &Arc<ShardLog>) -> Result<(), StoreError> {
    let Some((oldest, _)) = oldest(shard) else { return Ok(()) };
    if oldest.uses() > 0 {
        let move_bytes = shard.sizes(inner.leaf_bytes, inner.room.is_tight()).move_bytes();
        move_all(inner, shard, &oldest, move_bytes).await?;
    }
    if oldest.uses() > 0 {
        // A part of a content whose batch is still to come.
        tokio::time::sleep(LATER).await;
        return Ok(());
    }
    drop(oldest);
    release(inner, shard).await
}

/// Has all records and contents in use of a leaf written again.
async fn move_all(
    inner: &Arc<Inner>,
    shard: &Arc<ShardLog>,
    leaf: &Arc<Leaf>,
    move_bytes: usize,
) -> Result<(), StoreError> {
    let mut cursor = Some(SweepCursor::default());
    let mut shared: BTreeMap<LogPosition, Vec<(Key, IndexEntry)>> = BTreeMap::new();
    let (mut heads, mut items, mut bytes) = (Heads::none(), Vec::new(), 0);
    while let Some(from) = cursor {
        let mut found = Vec::new();
        cursor = shard.index.sweep(leaf.number(), from, ENTRIES_PER_STEP, &mut found);
        for (key, entry) in found {
            if entry.content_length().is_some() && shard.index.is_shared(entry.content) {
                // Its users are complete at the end of the search.
                shared.entry(entry.content).or_default().push((key, entry));
                continue;
            }
            bytes +=
                read_item(inner, shard, leaf, vec![(key, entry)], &mut heads, &mut items).await?;
            if bytes >= move_bytes {
                bytes = 0;
                write(shard, std::mem::take(&mut items)).await?;
            }
        }
        tokio::task::yield_now().await;
    }
    for (_, users) in shared {
        bytes += read_item(inner, shard, leaf, users, &mut heads, &mut items).await?;
        if bytes >= move_bytes {
            bytes = 0;
            write(shard, std::mem::take(&mut items)).await?;
        }
    }
    write(shard, items).await
}

async fn write(shard: &ShardLog, items: Vec<MovedContent>) -> Result<(), StoreError> {
    if items.is_empty() {
        return Ok(());
    }
    let (answer, answered) = oneshot::channel();
    let closed = || StoreError::Failed("the store is closed".into());
    shard.jobs.send(Job::Move(items, answer)).await.map_err(|_| closed())?;
    answered.await.map_err(|_| closed())
}

/// Reads the records that share a content, and the content if it is in the leaf. Returns the bytes.
async fn read_item(
    inner: &Arc<Inner>,
    shard: &Arc<ShardLog>,
    leaf: &Leaf,
    users: Vec<(Key, IndexEntry)>,
    heads: &mut Heads,
    items: &mut Vec<MovedContent>,
) -> Result<usize, StoreError> {
    let is_current =
        |key: &Key, entry: &IndexEntry| shard.index.get(key.as_bytes()) == Some(*entry);
    let mut moved = Vec::new();
    let mut bytes = 0;
    for (key, entry) in users {
        match heads.value(inner, shard, &key, &entry).await {
            Ok(value) => {
                bytes += value.len();
                moved.push(MovedRecord { key, expected: entry, value });
            }
            Err(_) if !is_current(&key, &entry) => {}
            Err(error) => return Err(error),
        }
    }
    let Some(first) = moved.first() else { return Ok(bytes) };
    let (key, entry) = (first.key, first.expected);
    let mut content = None;
    if moves_content(shard, leaf, &entry) {
        let mut pinned = Vec::new();
        shard.index.pin(&[key], &mut pinned);
        let Some(pinned) = pinned.pop().flatten() else { return Ok(bytes) };
        let length = pinned.content.length as usize;
        match PinnedContent::of(shard, pinned).whole(inner).await {
            Ok(read) => content = Some(read),
            Err(_) if !is_current(&key, &entry) => return Ok(bytes),
            Err(error) => return Err(error),
        }
        bytes += length;
    }
    items.push(MovedContent { content, users: moved });
    Ok(bytes)
}

/// Whether the content or one of its parts is in the leaf.
fn moves_content(shard: &ShardLog, leaf: &Leaf, entry: &IndexEntry) -> bool {
    let Some(content) = entry.content_at() else { return false };
    if !content.is_large {
        return content.place.segment == leaf.number();
    }
    let parts = shard.index.part_places(content.place);
    parts.is_some_and(|parts| parts.iter().any(|part| part.segment == leaf.number()))
}

/// Empties the table of the oldest leaf, which is unused.
async fn release(inner: &Arc<Inner>, shard: &ShardLog) -> Result<(), StoreError> {
    const RECYCLE: &str = "SELECT recycle($1, $2, $3, $4, $5, $6, $7)";
    let Some((leaf, tail)) = oldest(shard) else { return Ok(()) };
    let (number, slot) = (leaf.number(), leaf.slot);
    // The list of leaves and this task hold it, and readers of its contents.
    if leaf.uses() > 0 || Arc::strong_count(&leaf) > 2 {
        tokio::time::sleep(LATER).await;
        return Ok(());
    }
    let below = id_of(LogPosition { segment: number + 1, offset: 0 });
    let connection = inner.connection(&inner.keeper).await;
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
        &i32::from(shard.number),
        &integer(shard.epoch()),
        &leaf.table(),
        &below,
        &table_of(tail.slot),
        &tail.id,
        &&tail.meta[..],
    ];
    let recycled = connection.client.query_one(RECYCLE, &parameters).await;
    let answer = match &recycled {
        Ok(_) if connection.is_spoiled() => "not emptied for certain",
        Ok(row) => row.get(0),
        // Another program holds a lock on the table, such as a dump.
        Err(error)
            if error.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE) =>
        {
            let error = text_of(error);
            tracing::debug!(error, table = leaf.table(), "a leaf is emptied later");
            tokio::time::sleep(LATER).await;
            return Ok(());
        }
        Err(error) => {
            connection.note_error(error);
            return Err(store_error(error));
        }
    };
    match answer {
        "free" => {
            shard.leaves.remove(number);
            shard.add_free(slot);
            Ok(())
        }
        "hole" => {
            let text = "the database has lost the last row of the log (CLU-10): a standby without \
                it became the primary, or an old copy was restored";
            let error = StoreError::Damaged(text.into());
            inner.lose(shard, &error);
            Err(error)
        }
        reason => Err(StoreError::Unavailable(format!("`{}` is {reason}", leaf.table()).into())),
    }
}

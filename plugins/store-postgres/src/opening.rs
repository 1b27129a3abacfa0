//! Opening: takes all shards, and reads the heads of their rows into the indexes.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use peeklock_record::{Key, space_of};
use peeklock_store::StoreError;
use peeklock_store_log::{
    CONTENT_HEAD, Cache, ContentAt, Flaw, LogPosition, LogSegment as _, Op, RecordContent,
    RecordReader, Version, content_of, op,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::append::SEED;
use crate::config::PostgresConfig;
use crate::leaf::{Leaf, SLOTS_PER_SHARD, table_of};
use crate::room::Room;
use crate::row::{RowHead, RowKind, position_of};
use crate::schema;
use crate::session::{ConnectError, Connection, Connector, Session, store_error};
use crate::shard::{Removed, ShardLog};
use crate::writer::Writer;
use crate::{APPEND_SESSIONS, End, Inner, READ_SESSIONS};

/// Time to wait for a database that starts, and for the end of the last broker's session.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// Time between looks at the session that has the lock.
const GUARD_EVERY: Duration = Duration::from_secs(2);

/// Opens the store.
pub async fn open(config: &PostgresConfig, runtime: Handle) -> Result<Arc<Inner>, StoreError> {
    let connector = Arc::new(Connector::new(config)?);
    let keeper = Session::new(&connector);
    let connection = connect(&keeper).await?;
    lock(&connection).await?;
    let shard_count = schema::prepare(&connection, config.shard_count).await?;
    let owner = random()?;
    let (shards, receivers): (Vec<_>, Vec<_>) = (0..shard_count)
        .map(|number| {
            let (jobs, receiver) = mpsc::unbounded_channel();
            (Arc::new(ShardLog::new(number, jobs)), receiver)
        })
        .unzip();
    take(&connection, owner, &shards).await?;
    let lasts = load(&connection, &shards).await?;
    // A commit of this broker after the reading: so nothing rests on rows that only a dying primary
    // had (CLU-08).
    take(&connection, owner, &shards).await?;
    let inner = Arc::new(Inner {
        runtime,
        owner,
        leaf_bytes: config.leaf_bytes,
        spaces: RwLock::new(spaces_of(&shards)),
        cache: Cache::new(config.cache_bytes),
        room: Room::new(
            shards.iter().map(|shard| Arc::clone(&shard.index)).collect(),
            config.capacity_bytes,
        ),
        shards,
        keeper,
        readers: (0..READ_SESSIONS).map(|_| Session::new(&connector)).collect(),
        next_reader: AtomicUsize::new(0),
        is_closing: AtomicBool::new(false),
        end: Mutex::new(End::default()),
    });
    let sessions: Vec<Arc<Session>> =
        (0..APPEND_SESSIONS).map(|_| Arc::new(Session::new(&connector))).collect();
    let shards = inner.shards.iter().zip(sessions.iter().cycle()).zip(receivers).zip(lasts);
    for (((shard, session), receiver), last) in shards {
        let (shard, session) = (Arc::clone(shard), Arc::clone(session));
        let writer = Writer::new(Arc::clone(&inner), shard, session, receiver, last);
        inner.runtime.spawn(writer.run());
    }
    inner.runtime.spawn(guard(Arc::downgrade(&inner), connection));
    Ok(inner)
}

/// Takes the lock again when the session that had it was lost.
async fn guard(inner: Weak<Inner>, mut locked: Arc<Connection>) {
    loop {
        tokio::time::sleep(GUARD_EVERY).await;
        let Some(inner) = inner.upgrade().filter(|inner| !inner.is_closing()) else { return };
        let Ok(connection) = inner.keeper.get().await else { continue };
        if Arc::ptr_eq(&connection, &locked) {
            continue;
        }
        match try_lock(&connection).await {
            Ok(true) => locked = connection,
            Ok(false) => tracing::warn!(
                "another session holds the lock of the database; a second broker may be running"
            ),
            Err(error) => tracing::debug!(%error, "the lock of the database is taken later"),
        }
    }
}

async fn connect(session: &Session) -> Result<Arc<Connection>, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match session.get().await {
            Ok(connection) => return Ok(connection),
            Err(ConnectError::Away(text)) if Instant::now() >= deadline => {
                let text = format!(
                    "the database cannot be reached: {text}; start it, or correct `store.postgres.url`"
                );
                return Err(StoreError::Failed(text.into()));
            }
            Err(ConnectError::Away(_)) => tokio::time::sleep(PAUSE).await,
            Err(refused) => return Err(refused.into_store_error()),
        }
    }
}

/// Keeps other brokers away from the database while the session lasts. Epochs make the data safe;
/// the lock keeps a second broker from taking the shards of a running one by mistake.
async fn lock(connection: &Connection) -> Result<(), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if try_lock(connection).await? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(StoreError::Failed(
                "another broker uses the database; stop it, or give this one another database"
                    .into(),
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn try_lock(connection: &Connection) -> Result<bool, StoreError> {
    const LOCK: &str = "SELECT pg_try_advisory_lock(1885693291, hashtext(current_schema()))";
    let row = connection.client.query_one(LOCK, &[]).await.map_err(|error| store_error(&error))?;
    Ok(row.get(0))
}

fn random() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("no random bytes: {error}").into()))?;
    Ok(i64::from_le_bytes(bytes))
}

/// Takes all shards from their last owner, and raises their epochs.
async fn take(
    connection: &Connection,
    owner: i64,
    shards: &[Arc<ShardLog>],
) -> Result<(), StoreError> {
    const TAKE: &str = "UPDATE shards SET owner = $1, epoch = epoch + 1, since = now() \
        RETURNING shard, epoch";
    let rows =
        connection.client.query(TAKE, &[&owner]).await.map_err(|error| store_error(&error))?;
    for row in rows {
        let shard = usize::try_from(row.get::<_, i32>(0)).ok().and_then(|at| shards.get(at));
        let epoch = u64::try_from(row.get::<_, i64>(1));
        if let (Some(shard), Ok(epoch)) = (shard, epoch) {
            shard.epoch.store(epoch, Ordering::Release);
        }
    }
    Ok(())
}

/// Reads all leaves. Returns the highest id of a batch of each shard.
async fn load(connection: &Connection, shards: &[Arc<ShardLog>]) -> Result<Vec<u64>, StoreError> {
    let mut leaves: BTreeMap<(usize, u32), i32> = BTreeMap::new();
    for slot in schema::slots(connection).await? {
        let place =
            usize::try_from(slot / SLOTS_PER_SHARD).ok().and_then(|at| Some((at, shards.get(at)?)));
        let Some((at, shard)) = place else {
            let text = format!("table `{}` belongs to no shard", table_of(slot));
            return Err(StoreError::Damaged(text.into()));
        };
        shard
            .table_count
            .fetch_max(u64::try_from(slot % SLOTS_PER_SHARD).unwrap_or(0) + 1, Ordering::AcqRel);
        let first = format!("SELECT min(id) FROM {}", table_of(slot));
        let row =
            connection.client.query_one(&first, &[]).await.map_err(|error| store_error(&error))?;
        match row.get::<_, Option<i64>>(0) {
            Some(id) => {
                let number = position_of(id).map_or(0, |position| position.segment);
                leaves.insert((at, number), slot);
            }
            None => shard.add_free(slot),
        }
    }
    let mut lasts = vec![0; shards.len()];
    let mut newest: HashMap<usize, u32> = HashMap::new();
    for ((at, number), slot) in leaves {
        let (Some(shard), Some(last)) = (shards.get(at), lasts.get_mut(at)) else { continue };
        let before = newest.insert(at, number);
        let leaf = Arc::new(Leaf::new(number, slot));
        if before.is_some_and(|before| before + 1 != number) {
            return Err(leaf.damaged(0, Flaw::Order));
        }
        if let Some(before) = before.and_then(|before| shard.leaves.get(before)) {
            before.seal();
        }
        shard.leaves.insert(Arc::clone(&leaf));
        *last = (*last).max(load_leaf(connection, shard, &leaf).await?);
    }
    load_removed(connection, shards).await?;
    for shard in shards {
        shard.index.open_account().map_err(|number| {
            let text = format!("leaf {number} of shard {} is missing", shard.number);
            StoreError::Damaged(text.into())
        })?;
        for removed in shard.take_removed() {
            let gone: Vec<Op> = removed.keys.iter().map(|key| Op::Delete { key: *key }).collect();
            shard.index.apply(&gone);
            shard.add_removed(removed);
        }
    }
    Ok(lasts)
}

/// Reads the heads of a leaf into the index.
async fn load_leaf(
    connection: &Connection,
    shard: &ShardLog,
    leaf: &Leaf,
) -> Result<u64, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let sql = format!("SELECT id, head FROM {} ORDER BY id", leaf.table());
    let none: [&(dyn tokio_postgres::types::ToSql + Sync); 0] = [];
    let rows = connection.client.query_raw(&sql, none).await.map_err(failed)?;
    let mut rows = pin!(rows);
    let (mut end, mut last) = (0, 0);
    while let Some(row) = rows.try_next().await.map_err(failed)? {
        let (id, head) = (row.get::<_, i64>(0), row.get::<_, &[u8]>(1));
        let head = RowHead::read(id, head).map_err(|flaw| leaf.damaged(end, flaw))?;
        // The first row of a leaf begins at 0, and each other one where the last ends.
        if head.start != (LogPosition { segment: leaf.number(), offset: end }) {
            return Err(leaf.damaged(end, Flaw::Order));
        }
        replay(shard, &head).map_err(|flaw| leaf.damaged(head.records_at(), flaw))?;
        end = head.end();
        last = last.max(head.stamp.batch);
    }
    leaf.set_end(u64::from(end));
    Ok(last)
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
            *entry = peeklock_store_log::IndexEntry::new(
                entry.record,
                entry.record_bytes,
                Some(content),
            )
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

/// Reads the keys that batches of other shards have removed.
async fn load_removed(connection: &Connection, shards: &[Arc<ShardLog>]) -> Result<(), StoreError> {
    const REMOVED: &str = "SELECT shard, by_shard, by_id, keys FROM removed";
    let rows = connection.client.query(REMOVED, &[]).await.map_err(|error| store_error(&error))?;
    for row in rows {
        let damaged = || StoreError::Damaged("table `removed` has a row of no shard".into());
        let shard = usize::try_from(row.get::<_, i32>(0)).ok().and_then(|at| shards.get(at));
        let by_shard = u16::try_from(row.get::<_, i32>(1)).map_err(|_| damaged())?;
        let by_id = u64::try_from(row.get::<_, i64>(2)).map_err(|_| damaged())?;
        let keys = row.get::<_, Vec<&[u8]>>(3);
        let keys = keys.into_iter().map(Key::from_bytes).collect::<Option<Vec<Key>>>();
        let keys = keys.ok_or_else(damaged)?;
        shard.ok_or_else(damaged)?.add_removed(Removed { by_shard, by_id, keys });
    }
    Ok(())
}

/// The shard of each space that has records.
fn spaces_of(shards: &[Arc<ShardLog>]) -> HashMap<u64, u16> {
    let mut spaces = HashMap::new();
    for shard in shards {
        shard.index.each(&mut |key, _| {
            spaces.insert(space_of(key.as_bytes()), shard.number);
        });
    }
    spaces
}

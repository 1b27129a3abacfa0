//! Opening: takes all shards, loads them, and starts their writers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::{Duration, Instant};

use peeklock_store::StoreError;
use peeklock_store_log::Cache;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::config::PostgresConfig;
use crate::fault::opening_error;
use crate::inner::{End, Inner, Place};
use crate::load::{load, spaces_of};
use crate::room::Room;
use crate::schema;
use crate::session::{ConnectError, Connection, Connector, Session};
use crate::shard::{JOBS_MAX, Job, ShardLog};
use crate::writer::Writer;

/// Sessions for appends, over which the shards are spread.
const APPEND_SESSIONS: usize = 4;
/// Sessions for reading.
const READ_SESSIONS: usize = 2;
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
            let (jobs, receiver) = mpsc::channel(JOBS_MAX);
            (Arc::new(ShardLog::new(number, jobs)), receiver)
        })
        .unzip();
    take_when_free(&connection, owner, &shards).await?;
    let lasts = load(&connection, &shards, config.leaf_bytes).await?;
    // A commit of this broker after the reading: so nothing rests on rows that only a dying primary
    // had (CLU-08).
    take_when_free(&connection, owner, &shards).await?;
    let damage = shards.iter().find_map(|shard| shard.fault().cloned());
    let room = Room::new(
        shards.iter().map(|shard| Arc::clone(&shard.index)).collect(),
        config.capacity_bytes,
    );
    let inner = Arc::new(Inner {
        runtime,
        owner,
        leaf_bytes: config.leaf_bytes,
        spaces: RwLock::new(spaces_of(&shards)),
        spaces_unknown: damage.clone(),
        cache: Cache::new(config.cache_bytes),
        room: Arc::new(room),
        shards,
        keeper,
        readers: (0..READ_SESSIONS).map(|_| Session::new(&connector)).collect(),
        next_reader: AtomicUsize::new(0),
        is_closing: AtomicBool::new(false),
        gave_up: AtomicBool::new(false),
        end: Mutex::new(End::of(damage)),
        troubles: Mutex::new(BTreeMap::new()),
        connector: Arc::clone(&connector),
    });
    let sessions: Vec<Arc<Session>> =
        (0..APPEND_SESSIONS).map(|_| Arc::new(Session::new(&connector))).collect();
    let shards = inner.shards.iter().zip(sessions.iter().cycle()).zip(receivers).zip(lasts);
    for (((shard, session), receiver), last) in shards {
        let (shard, session) = (Arc::clone(shard), Arc::clone(session));
        let writer = Writer::new(Arc::clone(&inner), Arc::clone(&shard), session, receiver, last);
        let writing = inner.runtime.spawn(writer.run());
        let watcher = Arc::clone(&inner);
        inner.runtime.spawn(async move {
            // Without a fault of the program, a writer ends only with the store.
            if let Err(error) = writing.await
                && error.is_panic()
            {
                let text = format!("the writer of a shard has failed: {error}");
                watcher.lose(&shard, &StoreError::Failed(text.into()));
            }
        });
    }
    inner.runtime.spawn(guard(Arc::downgrade(&inner), connection));
    Ok(inner)
}

/// Keeps a session, and takes the lock again when the session that had it was lost. Then each log
/// gets a row: so a database that has lost acknowledged rows is noticed soon (CLU-10).
async fn guard(inner: Weak<Inner>, mut last: Arc<Connection>) {
    let mut is_locked = true;
    loop {
        tokio::time::sleep(GUARD_EVERY).await;
        let Some(inner) = inner.upgrade().filter(|inner| !inner.is_closing()) else { return };
        let connection = match inner.keeper.get().await {
            Ok(connection) => connection,
            Err(error) => {
                inner.note_trouble(Place::Keeper, Some(&error.to_string()));
                continue;
            }
        };
        inner.note_trouble(Place::Keeper, None);
        if !Arc::ptr_eq(&connection, &last) {
            last = Arc::clone(&connection);
            is_locked = false;
            for shard in inner.shards.iter().filter(|shard| shard.tail().is_some()) {
                // A full queue has jobs that lead to an append.
                shard.jobs.try_send(Job::Mark).ok();
            }
        }
        if is_locked {
            continue;
        }
        match try_lock(&connection).await {
            Ok(locked) => is_locked = locked,
            Err(error) => tracing::debug!(%error, "the lock of the database is taken later"),
        }
        if !is_locked {
            let holder = holder(&connection).await;
            tracing::warn!(holder, "another session holds the lock of the database");
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
                    "the database cannot be used: {text}; start it, or name a running primary in \
                     `store.postgres.url`"
                );
                return Err(StoreError::Failed(text.into()));
            }
            Err(ConnectError::Away(_)) => tokio::time::sleep(PAUSE).await,
            Err(ConnectError::Refused(text)) => return Err(StoreError::Failed(text.into())),
        }
    }
}

/// Keeps other brokers away from the database while the session lasts. Epochs make the data safe;
/// the lock keeps a second broker from taking the shards of a running one by mistake.
async fn lock(connection: &Connection) -> Result<(), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    while !try_lock(connection).await? {
        if Instant::now() >= deadline {
            let holder = holder(connection).await;
            let text = format!(
                "another broker uses the database ({holder}); stop it, or give this one another \
                 database"
            );
            return Err(StoreError::Failed(text.into()));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn try_lock(connection: &Connection) -> Result<bool, StoreError> {
    const LOCK: &str = "SELECT pg_try_advisory_lock(1885693291, hashtext(current_schema()))";
    let row = connection.client.query_one(LOCK, &[]).await;
    // It is null if the schema was dropped.
    let row = row.map_err(|error| opening_error(&error))?;
    Ok(row.get::<_, Option<bool>>(0).unwrap_or(false))
}

/// The session that has the lock, for people.
async fn holder(connection: &Connection) -> String {
    const HOLDER: &str = "SELECT l.pid, coalesce(host(a.client_addr), 'this machine') \
        FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
        WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = 1885693291 \
        AND l.objid = hashtext(current_schema())::oid AND l.objsubid = 2 \
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    match connection.client.query_opt(HOLDER, &[]).await {
        Ok(Some(row)) => {
            let (process, host) = (row.get::<_, i32>(0), row.get::<_, &str>(1));
            format!("its session has process {process}, from {host}")
        }
        Ok(None) | Err(_) => "its session is not visible".to_owned(),
    }
}

fn random() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("no random bytes: {error}").into()))?;
    Ok(i64::from_le_bytes(bytes))
}

/// As [`take`]. Waits for appends of the last owner that are still on their way.
async fn take_when_free(
    connection: &Connection,
    owner: i64,
    shards: &[Arc<ShardLog>],
) -> Result<(), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match take(connection, owner, shards).await {
            Err(error) if error.is_unavailable() && Instant::now() < deadline => {
                tracing::debug!(%error, "the shards are taken later");
                tokio::time::sleep(PAUSE).await;
            }
            taken => return taken,
        }
    }
}

/// Takes all shards from their last owner, and raises their epochs. The commit is confirmed.
async fn take(
    connection: &Connection,
    owner: i64,
    shards: &[Arc<ShardLog>],
) -> Result<(), StoreError> {
    const TAKE: &str = "UPDATE shards SET owner = $1, epoch = epoch + 1, since = now() \
        RETURNING shard, epoch";
    let rows =
        connection.client.query(TAKE, &[&owner]).await.map_err(|error| opening_error(&error))?;
    if connection.is_spoiled() {
        return Err(StoreError::Unavailable("no standby has confirmed the opening".into()));
    }
    for row in rows {
        let shard = usize::try_from(row.get::<_, i32>(0)).ok().and_then(|at| shards.get(at));
        let epoch = u64::try_from(row.get::<_, i64>(1));
        if let (Some(shard), Ok(epoch)) = (shard, epoch) {
            shard.set_epoch(epoch);
        }
    }
    Ok(())
}

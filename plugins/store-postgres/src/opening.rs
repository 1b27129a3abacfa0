//! Opening: joins the brokers of a database, and later, as the owner of all shards, loads them and
//! starts their writers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use peeklock_store::StoreError;
use peeklock_store::registry::{Owner, Registry as _, SeenOwner};
use peeklock_store_log::Cache;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc};

use crate::config::PostgresConfig;
use crate::fault::opening_error;
use crate::inner::{Inner, Place};
use crate::load::{load, spaces_of};
use crate::registry::Leases;
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
/// Time between renewals of a lease without a keeper.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// Time between looks at the session that is always kept.
const GUARD_EVERY: Duration = Duration::from_secs(2);

/// Connects, and makes missing tables. Takes and loads nothing. Leases are renewed on the second
/// runtime.
pub async fn join(
    config: &PostgresConfig,
    [runtime, renewing]: [Handle; 2],
) -> Result<Arc<Inner>, StoreError> {
    let owner = random()?;
    let connector = Arc::new(Connector::new(config, owner)?);
    let keeper = Session::new(&connector);
    let connection = connect(&keeper).await?;
    let shard_count = prepare(&connection, config.shard_count).await?;
    let (shards, receivers): (Vec<_>, Vec<_>) = (0..shard_count)
        .map(|number| {
            let (jobs, receiver) = mpsc::channel(JOBS_MAX);
            (Arc::new(ShardLog::new(number, jobs)), receiver)
        })
        .unzip();
    let indexes = shards.iter().map(|shard| Arc::clone(&shard.index)).collect();
    let leases = (owner, config.lease);
    let leases = Leases::new(&connector, &config.broker_name, leases, renewing);
    Ok(Arc::new(Inner {
        runtime,
        owner,
        leases: Arc::new(leases),
        is_alone: AtomicBool::new(false),
        leaf_bytes: config.leaf_bytes,
        unloaded: Mutex::new(receivers),
        loaded: OnceCell::new(),
        spaces: RwLock::default(),
        spaces_unknown: OnceLock::new(),
        cache: Cache::new(config.cache_bytes),
        room: Arc::new(Room::new(indexes, config.capacity_bytes)),
        shards,
        keeper,
        readers: (0..READ_SESSIONS).map(|_| Session::new(&connector)).collect(),
        next_reader: AtomicUsize::new(0),
        is_closing: AtomicBool::new(false),
        gave_up: AtomicBool::new(false),
        end: Mutex::default(),
        troubles: Mutex::new(BTreeMap::new()),
        connector,
    }))
}

/// Makes the tables. Waits for the end of a broker of an older version.
async fn prepare(connection: &Connection, shard_count: u16) -> Result<u16, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match schema::prepare(connection, shard_count).await? {
            Some(shard_count) => return Ok(shard_count),
            None if Instant::now() >= deadline => {
                let text = "a broker of an older version uses the database, and cannot share it; \
                            stop that broker, then start this one again";
                return Err(StoreError::Failed(text.into()));
            }
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Owns the shards of a store that no keeper keeps: waits for the end of the last owner's lease,
/// and renews the lease of this process until the store is closed.
pub async fn claim(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    let mut watched = None;
    loop {
        let is_late = Instant::now() >= deadline;
        match take_if_free(&inner.leases, &mut watched).await {
            Ok(Owner::This) => break,
            Ok(Owner::Other { name, .. }) if is_late => {
                let text = format!(
                    "the broker `{name}` uses the database; stop it, or give this one another \
                     database"
                );
                return Err(StoreError::Failed(text.into()));
            }
            Err(error) if is_late => return Err(error),
            Ok(Owner::Other { .. } | Owner::Nobody) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    inner.is_alone.store(true, Ordering::Release);
    let renewed = Arc::downgrade(inner);
    inner.runtime.spawn(async move {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let inner = renewed.upgrade().filter(|inner| !inner.is_closing());
            let Some(inner) = inner else { return };
            if let Err(error) = inner.leases.renew(None).await {
                tracing::debug!(%error, "the lease is renewed later");
            }
        }
    });
    Ok(())
}

/// Renews the lease of this process, over and over.
pub async fn renew_lease(inner: &Inner) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        if let Err(error) = inner.leases.renew(None).await {
            tracing::debug!(%error, "the lease is renewed later");
        }
    }
}

/// Renews the lease of this process, and takes the shards if they are free. Returns their owner.
/// `watched` is another owner, and the instant since which it has renewed nothing: the clock of the
/// server may have been set.
async fn take_if_free(
    leases: &Leases,
    watched: &mut Option<(SeenOwner, Instant)>,
) -> Result<Owner, StoreError> {
    let renewed = leases.renew(None).await;
    if renewed.is_err() {
        // In an outage the owner could not renew either (CLU-21).
        *watched = None;
    }
    let owner = renewed?.owner;
    let from = match owner {
        Owner::Nobody => None,
        Owner::Other { seen, is_barred: true, .. } => Some(seen),
        Owner::Other { seen, has_ended, .. } => {
            if watched.is_none_or(|(known, _)| known != seen) {
                *watched = Some((seen, Instant::now()));
            }
            let waited = watched.map(|(_, since)| since.elapsed());
            if !has_ended || waited < leases.lease() {
                return Ok(owner);
            }
            Some(seen)
        }
        Owner::This => return Ok(owner),
    };
    leases.take(from).await?;
    Ok(leases.renew(None).await?.owner)
}

/// Loads all shards and starts their writers, at the first call. This process must own the shards;
/// if it does not, nothing is loaded. If the loading fails, the store is of no use.
pub async fn load_once(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let loaded = inner.loaded.get_or_try_init(|| async {
        let connection = connect(&inner.keeper).await?;
        raise_when_free(&connection, inner).await?;
        Ok(load_all(inner, connection).await)
    });
    loaded.await?.clone()
}

async fn load_all(inner: &Arc<Inner>, connection: Arc<Connection>) -> Result<(), StoreError> {
    let lasts = load(&connection, &inner.shards, inner.leaf_bytes).await?;
    // A commit of this broker after the reading: so nothing rests on rows that only a dying primary
    // had (CLU-08).
    raise_when_free(&connection, inner).await?;
    if let Some(damage) = inner.shards.iter().find_map(|shard| shard.fault().cloned()) {
        inner.spaces_unknown.set(damage.clone()).ok();
        inner.note_damage(&damage);
    }
    *inner.spaces.write().unwrap_or_else(PoisonError::into_inner) = spaces_of(&inner.shards);
    let receivers =
        std::mem::take(&mut *inner.unloaded.lock().unwrap_or_else(PoisonError::into_inner));
    let sessions: Vec<Arc<Session>> =
        (0..APPEND_SESSIONS).map(|_| Arc::new(Session::new(&inner.connector))).collect();
    let shards = inner.shards.iter().zip(sessions.iter().cycle()).zip(receivers).zip(lasts);
    for (((shard, session), receiver), last) in shards {
        let (shard, session) = (Arc::clone(shard), Arc::clone(session));
        let writer = Writer::new(Arc::clone(inner), Arc::clone(&shard), session, receiver, last);
        let writing = inner.runtime.spawn(writer.run());
        let watcher = Arc::clone(inner);
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
    inner.runtime.spawn(guard(Arc::downgrade(inner), connection));
    Ok(())
}

/// Keeps a session. After it was lost, each log gets a row: so a database that has lost acknowledged
/// rows is noticed soon (CLU-10).
async fn guard(inner: Weak<Inner>, mut last: Arc<Connection>) {
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
            last = connection;
            for shard in inner.shards.iter().filter(|shard| shard.tail().is_some()) {
                // A full queue has jobs that lead to an append.
                shard.jobs.try_send(Job::Mark).ok();
            }
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

/// A number that no other process has, and that is not 0.
fn random() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("no random bytes: {error}").into()))?;
    Ok(i64::from_le_bytes(bytes).max(i64::MIN + 1).abs().max(1))
}

/// As [`raise`]. Waits for appends that are still on their way.
async fn raise_when_free(connection: &Connection, inner: &Inner) -> Result<(), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match raise(connection, inner).await {
            Err(error) if error.is_unavailable() && Instant::now() < deadline => {
                tracing::debug!(%error, "the epochs are raised later");
                tokio::time::sleep(PAUSE).await;
            }
            raised => return raised,
        }
    }
}

/// Raises the epochs of all shards, which this process must own. The commit is confirmed.
async fn raise(connection: &Connection, inner: &Inner) -> Result<(), StoreError> {
    const RAISE: &str = "UPDATE shards SET epoch = epoch + 1 WHERE owner = $1 \
        RETURNING shard, epoch";
    let rows = connection.client.query(RAISE, &[&inner.owner]).await;
    let rows = rows.map_err(|error| opening_error(&error))?;
    if connection.is_spoiled() {
        return Err(StoreError::Unavailable("no standby has confirmed the opening".into()));
    }
    if rows.len() < inner.shards.len() {
        return Err(StoreError::Fenced { held: 0, current: 0 });
    }
    for row in rows {
        let shard = usize::try_from(row.get::<_, i32>(0)).ok();
        let shard = shard.and_then(|at| inner.shards.get(at));
        let epoch = u64::try_from(row.get::<_, i64>(1));
        if let (Some(shard), Ok(epoch)) = (shard, epoch) {
            shard.set_epoch(epoch);
        }
    }
    Ok(())
}

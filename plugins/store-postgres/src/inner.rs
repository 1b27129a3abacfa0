//! The parts that all tasks of a store share, and questions to the database.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use peeklock_record::{Batch, Record, space_of};
use peeklock_store::{Shortage, StoreError, Watcher};
use peeklock_store_log::{Cache, Op};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::append::{end_of_prefix, is_whole_space};
use crate::fault::store_error;
use crate::registry::Leases;
use crate::room::Room;
use crate::session::{ANSWER_TIMEOUT, Connection, Connector, Session};
use crate::shard::{Job, ShardLog};

/// Pause before a database that is away is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The parts that all tasks share.
pub struct Inner {
    pub runtime: Handle,
    pub connector: Arc<Connector>,
    /// The number under which this process owns shards.
    pub owner: i64,
    pub leases: Arc<Leases>,
    /// Whether the store renews its lease by itself.
    pub is_alone: AtomicBool,
    pub leaf_bytes: u64,
    /// Jobs for the writers, until the shards are loaded.
    pub unloaded: Mutex<Vec<mpsc::Receiver<Job>>>,
    /// The result of loading the shards.
    pub loaded: OnceCell<Result<(), StoreError>>,
    pub shards: Vec<Arc<ShardLog>>,
    /// The shard of each space that has records.
    pub spaces: RwLock<HashMap<u64, u16>>,
    /// The damage of a shard that was found at the opening: its spaces are not known.
    pub spaces_unknown: OnceLock<StoreError>,
    pub cache: Cache,
    pub room: Arc<Room>,
    /// The session for everything that is neither append nor read.
    pub keeper: Session,
    pub readers: Vec<Session>,
    pub next_reader: AtomicUsize,
    pub is_closing: AtomicBool,
    /// Whether batches were not stored because the store was closing.
    pub gave_up: AtomicBool,
    pub end: Mutex<End>,
    pub troubles: Mutex<BTreeMap<Place, Arc<str>>>,
}

/// The first permanent failure of a shard, and the watchers of the store.
#[derive(Default)]
pub struct End {
    error: Option<StoreError>,
    watchers: Vec<Watcher>,
}

/// A part of the store that may be unable to work for a while.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The session that is always kept.
    Keeper,
    /// The writer of a shard.
    Shard(u16),
}

impl Inner {
    /// A connection for a question. Waits for a database that is away or refuses the broker: the
    /// time limit of the question ends it, so that callers do not ask again at once.
    pub async fn connection(&self, session: &Session) -> Arc<Connection> {
        loop {
            match session.get().await {
                Ok(connection) => return connection,
                Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }

    pub async fn reader(&self) -> Arc<Connection> {
        let place = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.readers.len().max(1);
        self.connection(self.readers.get(place).unwrap_or(&self.keeper)).await
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// The shard that has the records of a space; `None` if no shard has any.
    ///
    /// # Errors
    /// If the shard is closed, or may be a damaged one whose spaces are not known, or if no shard is
    /// loaded yet.
    pub fn shard_of(&self, space: u64) -> Result<Option<&Arc<ShardLog>>, StoreError> {
        match self.loaded.get() {
            Some(loaded) => loaded.clone()?,
            None => return Err(StoreError::Failed("no shard was acquired yet".into())),
        }
        let Some(shard) = self.known_shard_of(space) else {
            return self.spaces_unknown.get().cloned().map_or(Ok(None), Err);
        };
        shard.check()?;
        Ok(Some(shard))
    }

    /// As [`Self::shard_of`], also if the shard is closed.
    pub fn known_shard_of(&self, space: u64) -> Option<&Arc<ShardLog>> {
        let number = *self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(&space)?;
        self.shards.get(usize::from(number))
    }

    /// Notes the spaces of new records, and forgets dropped ones.
    pub fn note_spaces(&self, shard: u16, ops: &[Op]) {
        let mut last = None;
        for op in ops {
            let (space, is_there) = match op {
                Op::Put { key, .. } => (space_of(key.as_bytes()), true),
                Op::DeletePrefix { prefix } if is_whole_space(prefix) => {
                    (space_of(prefix.as_bytes()), false)
                }
                Op::Delete { .. } | Op::DeletePrefix { .. } => continue,
            };
            if last.replace((space, is_there)) == Some((space, is_there)) {
                continue;
            }
            let known =
                self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(&space).copied();
            if is_there == (known == Some(shard)) {
                continue;
            }
            let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
            match is_there {
                true => spaces.insert(space, shard),
                false => spaces.remove(&space),
            };
        }
    }

    /// Runs a question on the threads of the store, within its time limit.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            let asked = tokio::time::timeout(ANSWER_TIMEOUT, question).await;
            answer.send(asked).ok();
        });
        match answered.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                let problem = self.trouble();
                let problem = problem.as_deref().unwrap_or("no answer in time");
                Err(StoreError::Unavailable(problem.into()))
            }
            Err(_) => Err(StoreError::Failed("the store is closed".into())),
        }
    }

    /// Closes a shard permanently, and informs the watchers: the broker needs all of its shards.
    pub fn lose(&self, shard: &ShardLog, error: &StoreError) {
        if !shard.set_fault(error.clone()) {
            return;
        }
        tracing::error!(%error, shard = shard.number, "a shard is closed");
        self.note_trouble(Place::Shard(shard.number), None);
        self.room.set_disk_full(shard.number, false);
        self.room.set_tables_used_up(shard.number, false);
        let mut end = lock(&self.end);
        let error = end.error.get_or_insert_with(|| error.clone()).clone();
        let watchers = std::mem::take(&mut end.watchers);
        drop(end);
        for watcher in watchers {
            watcher(&error);
        }
    }

    /// Notes that a shard was damaged when it was loaded.
    pub fn note_damage(&self, damage: &StoreError) {
        lock(&self.end).error.get_or_insert_with(|| damage.clone());
    }

    /// Adds a watcher. It is called at once if a shard is closed.
    pub fn watch(&self, watcher: Watcher) {
        let mut end = lock(&self.end);
        match end.error.clone() {
            Some(error) => {
                drop(end);
                watcher(&error);
            }
            None => end.watchers.push(watcher),
        }
    }

    /// The first permanent failure of a shard.
    pub fn failure(&self) -> Option<StoreError> {
        lock(&self.end).error.clone()
    }

    /// Records the reason why a part of the store cannot work at present, or that it works. Logs the
    /// begin and the end of an outage (CLU-21).
    pub fn note_trouble(&self, place: Place, problem: Option<&str>) {
        let mut troubles = lock(&self.troubles);
        let was_away = !troubles.is_empty();
        match problem {
            Some(problem) => drop(troubles.insert(place, problem.into())),
            None => drop(troubles.remove(&place)),
        }
        match (troubles.values().next(), was_away) {
            (Some(problem), false) => {
                let outage = Shortage::DatabaseAway { problem: Arc::clone(problem) };
                tracing::warn!("{outage}; requests wait until it answers; {}", outage.remedy());
            }
            (None, true) => tracing::info!("the database answers again"),
            (Some(_), true) | (None, false) => {}
        }
    }

    /// The reason why the store cannot work at present.
    fn trouble(&self) -> Option<Arc<str>> {
        let trouble = lock(&self.troubles).values().next().map(Arc::clone);
        trouble.or_else(|| self.leases.problem())
    }

    /// The reason why no new message of `bytes` bytes is stored at present.
    pub fn shortage(&self, bytes: u64) -> Option<Shortage> {
        let away = self.trouble().map(|problem| Shortage::DatabaseAway { problem });
        away.or_else(|| self.room.shortage(bytes))
    }

    /// Stores an amendment.
    pub async fn amend(
        &self,
        expected: &[(Vec<u8>, Option<Vec<u8>>)],
        batch: &Batch,
    ) -> Result<bool, StoreError> {
        const AMEND: &str = "SELECT amend($1, $2, $3, $4, $5, $6, $7, $8)";
        let mut changes: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        let mut prefixes: Vec<&[u8]> = Vec::new();
        for record in batch.records() {
            match record {
                Record::Put { key, value, .. } => drop(changes.insert(key, Some(value))),
                Record::Delete { key } | Record::DeleteIn { key, .. } => {
                    changes.insert(key, None);
                }
                Record::DeletePrefix { prefix } => {
                    changes.retain(|key, _| !key.starts_with(prefix));
                    prefixes.push(prefix);
                }
            }
        }
        let (keys, values): (Vec<&[u8]>, Vec<Option<&[u8]>>) =
            expected.iter().map(|(key, value)| (&key[..], value.as_deref())).unzip();
        let (put, put_values): (Vec<&[u8]>, Vec<&[u8]>) =
            changes.iter().filter_map(|(key, value)| Some((*key, (*value)?))).unzip();
        let gone: Vec<&[u8]> =
            changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key).collect();
        let ends: Vec<Option<Vec<u8>>> = prefixes.iter().map(|one| end_of_prefix(one)).collect();
        let connection = self.connection(&self.keeper).await;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
            [&self.owner, &keys, &values, &put, &put_values, &gone, &prefixes, &ends];
        let row = connection.client.query_one(AMEND, &parameters).await;
        let row = row.map_err(|error| {
            connection.note_error(&error);
            store_error(&error)
        })?;
        if connection.is_spoiled() {
            return Err(StoreError::Unavailable("no standby has confirmed the change".into()));
        }
        row.get::<_, Option<bool>>(0).ok_or(StoreError::Fenced { held: 0, current: 0 })
    }

    /// Which of these keys in shared spaces have records.
    pub async fn shared_keys(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, StoreError> {
        const KEYS: &str = "SELECT key FROM shared WHERE key = ANY ($1)";
        let connection = self.reader().await;
        let rows = connection.client.query(KEYS, &[&keys]).await.map_err(|error| {
            connection.note_error(&error);
            store_error(&error)
        })?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The registry of brokers in the tables `brokers` and `shards`: leases, and takeovers of all
//! shards (CLU-07, CLU-16).
//!
//! The server compares leases by its own clock. Each lease has the length that its own broker gives
//! it. Every owner of shards has a lease; one broker owns all shards. A takeover first locks the
//! lease of the past owner, then raises all epochs, which waits for appends that have begun. So
//! after it, the past owner renews nothing and stores nothing.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use peeklock_store::StoreError;
use peeklock_store::registry::{Incarnation, Owner, Registry, SeenOwner, View};
use tokio::runtime::Handle;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::fault::{opening_error, store_error};
use crate::session::{ANSWER_TIMEOUT, Connection, Connector, Session};

/// Names of leases in sessions, so that sessions of a past owner can be ended.
pub fn application_name(owner: i64) -> String {
    format!("peeklock {owner}")
}

/// The registry as one broker sees it. Its connections belong to a runtime of their own, which
/// neither appends nor loading delay, so calls come from any thread.
pub struct Leases {
    broker: Arc<BrokerLease>,
    runtime: Handle,
}

struct BrokerLease {
    /// A takeover may wait for locks, and renewals go on meanwhile.
    renewals: Session,
    takeovers: Session,
    name: String,
    owner: i64,
    lease: Duration,
    /// Whether this broker has had a lease.
    has_entered: AtomicBool,
    /// Number of the last renewal that was begun.
    last_renewal: AtomicI64,
    /// Reason why the database did not answer the last renewal, if it did not.
    problem: Mutex<Option<Arc<str>>>,
    /// When the database has last answered a renewal.
    answered_at: Mutex<Instant>,
}

/// Renews the lease, or enters the broker, and reads the owner of the shards. Parameters: name and
/// number of the broker, whether it may enter, the length of its lease in milliseconds, its horizon
/// in microseconds, and the number of the renewal. A name belongs to its last process until the
/// lease of that process is over.
const RENEW: &str = "SELECT * FROM renew($1, $2, $3, $4, $5, $6)";

/// Ends the sessions of an owner whose lease is over. A session that hangs within an append would
/// delay the takeover. Parameters: number of the owner, name of its sessions, its last renewal.
const END_SESSIONS: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = $2 AND usename = current_user AND pid <> pg_backend_pid()
    AND NOT EXISTS (SELECT 1 FROM brokers WHERE incarnation = $1
        AND (ends > clock_timestamp() OR renewal <> $3))";

/// Takes all shards from an owner whose lease is over. Parameters: numbers of the new and the past
/// owner, and the last renewal of the past owner.
const TAKE: &str = "SELECT take_shards($1, $2, $3)";

/// Gives all shards up, and then the name. Each is a transaction of its own. A renewal that arrives
/// later changes nothing.
const LEAVE: [&str; 2] = [
    "UPDATE shards SET owner = 0 WHERE owner = $1",
    "UPDATE brokers SET ends = clock_timestamp(), renewal = 9223372036854775807 \
        WHERE incarnation = $1",
];

/// Part of a lease after which a renewal without an answer is given up, with its connection.
const RENEWALS_PER_LEASE: u32 = 3;
/// Part of a lease that is the longest pause between attempts to connect. After an outage, an owner
/// must renew before a standby has watched its lease for its whole length (CLU-21).
const PAUSES_PER_LEASE: u32 = 12;

impl Leases {
    pub fn new(
        connector: &Arc<Connector>,
        name: &str,
        (owner, lease): (i64, Duration),
        runtime: Handle,
    ) -> Self {
        let session = || Session::with_pause_max(connector, lease / PAUSES_PER_LEASE);
        let broker = Arc::new(BrokerLease {
            renewals: session(),
            takeovers: session(),
            name: name.to_owned(),
            owner,
            lease,
            has_entered: AtomicBool::new(false),
            last_renewal: AtomicI64::new(0),
            problem: Mutex::default(),
            answered_at: Mutex::new(Instant::now()),
        });
        Self { broker, runtime }
    }

    /// Reason why the database did not answer the last renewals, if it did not. Renewals also
    /// notice a database that keeps its connections and answers nothing. One slow renewal is no
    /// problem.
    pub fn problem(&self) -> Option<Arc<str>> {
        let silence = lock(&self.broker.answered_at).elapsed();
        let is_long = silence >= self.broker.lease * 2 / RENEWALS_PER_LEASE;
        lock(&self.broker.problem).clone().filter(|_| is_long)
    }

    /// Gives the shards and the name up. A lease that cannot be ended is over after its time.
    pub async fn leave(&self) {
        if let Err(error) = self.broker.leave().await {
            tracing::debug!(%error, "the lease is over after its time");
        }
        self.broker.renewals.close().await;
    }

    /// Runs a call on the runtime of the leases, also without the caller.
    async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = |_| StoreError::Failed("the store is closed".into());
        self.runtime.spawn(call).await.map_err(ended)?
    }
}

#[async_trait]
impl Registry for Leases {
    fn lease(&self) -> Option<Duration> {
        Some(self.broker.lease)
    }

    async fn renew(&self, horizon: Option<SystemTime>) -> Result<View, StoreError> {
        let broker = Arc::clone(&self.broker);
        self.run(async move { broker.renew(horizon).await }).await
    }

    async fn take(&self, from: Option<SeenOwner>) -> Result<(), StoreError> {
        let broker = Arc::clone(&self.broker);
        self.run(async move {
            let taken = broker.take(from).await;
            broker.takeovers.close().await;
            taken
        })
        .await
    }
}

impl BrokerLease {
    async fn leave(&self) -> Result<(), StoreError> {
        let connection = connection(&self.renewals).await?;
        for statement in LEAVE {
            let left = connection.client.execute(statement, &[&self.owner]).await;
            left.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }

    async fn renew(&self, horizon: Option<SystemTime>) -> Result<View, StoreError> {
        let number = self.last_renewal.fetch_add(1, Ordering::AcqRel) + 1;
        let renewed = self.renew_as(number, horizon).await;
        if self.is_latest(number) {
            let problem = match &renewed {
                Err(StoreError::Unavailable(problem)) => Some(Arc::clone(problem)),
                Ok(_) | Err(_) => None,
            };
            if problem.is_none() {
                *lock(&self.answered_at) = Instant::now();
            }
            *lock(&self.problem) = problem;
        }
        renewed
    }

    /// Whether no later renewal has begun.
    fn is_latest(&self, number: i64) -> bool {
        self.last_renewal.load(Ordering::Acquire) == number
    }

    async fn renew_as(&self, number: i64, horizon: Option<SystemTime>) -> Result<View, StoreError> {
        let require_latest = || match self.is_latest(number) {
            true => Ok(()),
            false => Err(StoreError::Unavailable("a later renewal has begun".into())),
        };
        let connection = connection(&self.renewals).await?;
        require_latest()?;
        let row = self.ask_for_renewal(&connection, number, horizon).await?;
        // The database refuses a renewal that comes after a later one.
        require_latest()?;
        let has_entered = self.has_entered.load(Ordering::Acquire);
        if !row.get::<_, bool>(0) {
            if has_entered {
                return Err(StoreError::Fenced { held: 0, current: 0 });
            }
            let text = format!(
                "another broker with the name `{}` uses the database; give each broker its own \
                 `cluster.name`",
                self.name
            );
            return Err(StoreError::Failed(text.into()));
        }
        if connection.is_spoiled() {
            return Err(StoreError::Unavailable("no standby has confirmed the renewal".into()));
        }
        self.has_entered.store(true, Ordering::Release);
        let owner = match row.get::<_, Option<i64>>(3).unwrap_or(0) {
            0 => Owner::Nobody,
            owner if owner == self.owner => Owner::This,
            owner => Owner::Other {
                seen: SeenOwner {
                    incarnation: Incarnation(owner.cast_unsigned()),
                    renewal: row.get::<_, i64>(5).cast_unsigned(),
                },
                name: row.get::<_, Option<&str>>(4).unwrap_or("unknown").into(),
                has_ended: row.get(6),
                is_barred: row.get(7),
            },
        };
        let horizon = row.get::<_, Option<i64>>(2).map(wall_time);
        Ok(View { now: wall_time(row.get(1)), horizon, owner })
    }

    async fn ask_for_renewal(
        &self,
        connection: &Connection,
        number: i64,
        horizon: Option<SystemTime>,
    ) -> Result<Row, StoreError> {
        let may_enter = !self.has_entered.load(Ordering::Acquire);
        let lease_ms = self.lease.as_secs_f64() * 1_000.0;
        let horizon = horizon.map(microseconds);
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&self.name, &self.owner, &may_enter, &lease_ms, &horizon, &number];
        let asked = async {
            let statement = connection.prepared(RENEW).await?;
            connection.client.query_one(&statement, &parameters).await
        };
        match tokio::time::timeout(self.lease / RENEWALS_PER_LEASE, asked).await {
            Ok(Ok(row)) => Ok(row),
            Ok(Err(error)) => {
                connection.note_error(&error);
                Err(opening_error(&error))
            }
            Err(_) => {
                // The next renewal makes a new connection, to another server if this one is gone.
                connection.give_up();
                Err(StoreError::Unavailable("the database does not answer in time".into()))
            }
        }
    }

    async fn take(&self, from: Option<SeenOwner>) -> Result<(), StoreError> {
        let connection = connection(&self.takeovers).await?;
        let taking = self.take_over(&connection, from);
        tokio::time::timeout(ANSWER_TIMEOUT, taking).await.unwrap_or_else(|_| {
            connection.give_up();
            Err(StoreError::Unavailable("the database does not answer in time".into()))
        })
    }

    async fn take_over(
        &self,
        connection: &Connection,
        from: Option<SeenOwner>,
    ) -> Result<(), StoreError> {
        let failed = |error: tokio_postgres::Error| {
            connection.note_error(&error);
            store_error(&error)
        };
        let past = from.map_or(0, |from| from.incarnation.0.cast_signed());
        let renewal = from.map_or(0, |from| from.renewal.cast_signed());
        if past != 0 {
            let sessions = application_name(past);
            let parameters: [&(dyn ToSql + Sync); 3] = [&past, &sessions, &renewal];
            let ended = connection.client.query_one(END_SESSIONS, &parameters).await;
            let count = ended.map_err(failed)?.get::<_, i64>(0);
            if count > 0 {
                tracing::info!(count, "sessions of the past owner are ended");
            }
        }
        let parameters: [&(dyn ToSql + Sync); 3] = [&self.owner, &past, &renewal];
        connection.client.execute(TAKE, &parameters).await.map_err(failed)?;
        Ok(())
    }
}

async fn connection(session: &Session) -> Result<Arc<Connection>, StoreError> {
    session.get().await.map_err(|error| StoreError::Unavailable(error.to_string().into()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall_time(microseconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
}

/// Rounded up: a horizon is not left out.
fn microseconds(time: SystemTime) -> i64 {
    let nanos = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    i64::try_from(nanos.div_ceil(1_000)).unwrap_or(i64::MAX)
}

//! The registry of brokers in the tables `brokers` and `shards`: leases, and takeovers of all shards
//! (CLU-07, CLU-16).
//!
//! The server compares leases by its own clock. Every owner of shards has a lease; one broker owns
//! all shards. A takeover raises all epochs in one statement, which waits for appends that have
//! begun. So nothing of the past owner is stored after it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use peeklock_store::StoreError;
use peeklock_store::registry::{Incarnation, Owner, Registry, View};
use tokio::runtime::Handle;

use crate::fault::{opening_error, store_error};
use crate::session::{Connection, Connector, Session};

/// Names of leases in sessions, so that those of a past owner can be ended.
pub fn application_name(owner: i64) -> String {
    format!("peeklock {owner}")
}

/// The registry as one broker sees it. Its connection belongs to the runtime of the store, so calls
/// come from any thread.
pub struct Leases {
    broker: Arc<BrokerLease>,
    runtime: Handle,
}

struct BrokerLease {
    session: Session,
    name: String,
    owner: i64,
    lease: Duration,
}

/// Renews the lease, or enters the broker, and reads who owns the shards. Parameters: name and
/// number of the broker, and the length of a lease in milliseconds. A name belongs to its last
/// process until the lease of that process is over.
const RENEW: &str = "
    WITH entered AS (
        INSERT INTO brokers AS b (name, incarnation, renewed) VALUES ($1, $2, clock_timestamp())
        ON CONFLICT (name) DO UPDATE SET incarnation = $2, renewed = clock_timestamp()
        WHERE b.incarnation = $2 OR b.renewed < clock_timestamp() - $3 * interval '1 ms'
        RETURNING 1)
    SELECT EXISTS (SELECT 1 FROM entered),
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, s.owner, b.name,
        coalesce(b.renewed < clock_timestamp() - $3 * interval '1 ms', true)
    FROM shards s LEFT JOIN brokers b ON b.incarnation = s.owner WHERE s.shard = 0";

/// Ends the sessions of an owner whose lease is over. A session that hangs within an append would
/// delay the takeover. Parameters: number of the owner, length of a lease, name of its sessions.
const END_SESSIONS: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = $3 AND usename = current_user AND pid <> pg_backend_pid()
    AND NOT EXISTS (SELECT 1 FROM brokers WHERE incarnation = $1
        AND renewed >= clock_timestamp() - $2 * interval '1 ms')";

/// Takes all shards from an owner whose lease is over. Parameters: numbers of the new and the past
/// owner, length of a lease.
const TAKE: &str = "
    UPDATE shards SET owner = $1, epoch = epoch + 1, since = clock_timestamp() WHERE owner = $2
    AND NOT EXISTS (SELECT 1 FROM brokers WHERE incarnation = $2
        AND renewed >= clock_timestamp() - $3 * interval '1 ms')";

const LEAVE: &str = "UPDATE brokers SET renewed = '-infinity' WHERE incarnation = $1";

impl Leases {
    pub fn new(
        connector: &Arc<Connector>,
        name: &str,
        (owner, lease): (i64, Duration),
        runtime: &Handle,
    ) -> Self {
        let (session, name) = (Session::new(connector), name.to_owned());
        let broker = Arc::new(BrokerLease { session, name, owner, lease });
        Self { broker, runtime: runtime.clone() }
    }

    /// Ends the lease. A lease that cannot be ended is over after its time.
    pub async fn leave(&self) {
        if let Err(error) = self.broker.leave().await {
            tracing::debug!(%error, "the lease is over after its time");
        }
        self.broker.session.close().await;
    }

    /// Runs a call on the runtime of the store, also without the caller.
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
    async fn renew(&self) -> Result<View, StoreError> {
        let broker = Arc::clone(&self.broker);
        self.run(async move { broker.renew().await }).await
    }

    async fn take(&self, from: Option<Incarnation>) -> Result<(), StoreError> {
        let broker = Arc::clone(&self.broker);
        self.run(async move { broker.take(from).await }).await
    }
}

impl BrokerLease {
    /// Length of a lease in milliseconds.
    fn lease_ms(&self) -> f64 {
        self.lease.as_secs_f64() * 1_000.0
    }

    async fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        self.session.get().await.map_err(|error| StoreError::Unavailable(error.to_string().into()))
    }

    async fn leave(&self) -> Result<(), StoreError> {
        let connection = self.connection().await?;
        let left = connection.client.execute(LEAVE, &[&self.owner]).await;
        left.map(drop).map_err(|error| store_error(&error))
    }

    async fn renew(&self) -> Result<View, StoreError> {
        let connection = self.connection().await?;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&self.name, &self.owner, &self.lease_ms()];
        let row = connection.client.query_one(RENEW, &parameters).await.map_err(|error| {
            connection.note_error(&error);
            opening_error(&error)
        })?;
        if !row.get::<_, bool>(0) {
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
        let now = u64::try_from(row.get::<_, i64>(1)).unwrap_or(0);
        let now: SystemTime = UNIX_EPOCH + Duration::from_micros(now);
        let owner = match row.get::<_, i64>(2) {
            0 => Owner::Nobody,
            owner if owner == self.owner => Owner::This,
            owner => Owner::Other {
                incarnation: Incarnation(owner.cast_unsigned()),
                name: row.get::<_, Option<&str>>(3).unwrap_or("unknown").into(),
                has_ended: row.get(4),
            },
        };
        Ok(View { now, owner })
    }

    async fn take(&self, from: Option<Incarnation>) -> Result<(), StoreError> {
        let connection = self.connection().await?;
        let failed = |error: tokio_postgres::Error| {
            connection.note_error(&error);
            store_error(&error)
        };
        let past = from.map_or(0, |from| from.0.cast_signed());
        if past != 0 {
            let sessions = application_name(past);
            let ended = connection
                .client
                .query_one(END_SESSIONS, &[&past, &self.lease_ms(), &sessions])
                .await
                .map_err(failed)?;
            let count = ended.get::<_, i64>(0);
            if count > 0 {
                tracing::info!(count, "sessions of the past owner are ended");
            }
        }
        let lease = self.lease_ms();
        connection.client.execute(TAKE, &[&self.owner, &past, &lease]).await.map_err(failed)?;
        Ok(())
    }
}

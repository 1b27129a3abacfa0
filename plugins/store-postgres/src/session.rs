//! Sessions: connections to the database that are checked when they are made, and made again when
//! they are lost.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use peeklock_store::StoreError;
use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{PostgresConfig, server_count};

/// The oldest supported server.
const VERSION_MIN: i32 = 140_000;
/// Maximum number of prepared statements of a session. At more, all are prepared again.
const STATEMENTS_MAX: usize = 256;
/// Time for a question to the database.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Parameters of all sessions.
pub struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    i_know: bool,
    warned: StdMutex<Vec<String>>,
}

/// Reason why there is no session.
#[derive(Debug)]
pub enum ConnectError {
    /// The database cannot be reached, or does not take writes at present.
    Away(String),
    /// The server breaks a promise of the store. Trying again does not help.
    Refused(String),
}

impl ConnectError {
    /// The error of a question that could not be asked.
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Away(text) => StoreError::Unavailable(text.into()),
            Self::Refused(text) => StoreError::Failed(text.into()),
        }
    }
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Away(text) | Self::Refused(text)) = self;
        f.write_str(text)
    }
}

/// A connection.
pub struct Connection {
    pub client: Client,
    statements: StdMutex<HashMap<String, Statement>>,
}

impl Connection {
    /// The prepared form of a statement.
    pub async fn prepared(&self, sql: &str) -> Result<Statement, Error> {
        let known = |statements: &StdMutex<HashMap<String, Statement>>| {
            statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
        };
        if let Some(statement) = known(&self.statements) {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// A place for one connection.
pub struct Session {
    connector: Arc<Connector>,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl Session {
    pub fn new(connector: &Arc<Connector>) -> Self {
        Self { connector: Arc::clone(connector), connection: Mutex::new(None) }
    }

    /// The connection; a new one if the last was lost.
    pub async fn get(&self) -> Result<Arc<Connection>, ConnectError> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|held| !held.client.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(self.connector.connect().await?);
        *held = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Ends the connection. Statements that run are not waited for.
    pub async fn close(&self) {
        self.connection.lock().await.take();
    }
}

impl Connector {
    pub fn new(config: &PostgresConfig) -> Result<Self, StoreError> {
        let mut tls = peeklock_tls::client_config(&config.authorities, None).map_err(|error| {
            StoreError::Failed(format!("certificates for the database: {error}").into())
        })?;
        // PostgreSQL has a name of its own here, or none.
        tls.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self {
            config: config.connection()?,
            tls: MakeRustlsConnect::new(tls),
            i_know: config.i_know,
            warned: StdMutex::default(),
        })
    }

    /// Connects to the first address that takes writes, and checks the server.
    async fn connect(&self) -> Result<Connection, ConnectError> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce)
            .map_err(|error| ConnectError::Away(format!("no random bytes: {error}")))?;
        let nonce = u64::from_le_bytes(nonce).to_string();
        let mut config = self.config.clone();
        let given = config.get_options().unwrap_or_default().to_owned();
        config.options(format!(
            "{given} -c synchronous_commit=on -c plan_cache_mode=force_generic_plan \
             -c default_transaction_isolation=read\\ committed -c statement_timeout=0 \
             -c idle_in_transaction_session_timeout=0 -c peeklock.session={nonce}"
        ));
        let connecting = config.connect(self.tls.clone());
        let connected = tokio::time::timeout(ANSWER_TIMEOUT, connecting).await;
        let connected =
            connected.map_err(|_| ConnectError::Away("no answer in time".to_owned()))?;
        let (client, connection) = connected.map_err(|error| refusal(&error))?;
        // It ends with the client, or when the connection is lost.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database has ended");
            }
        });
        let checking = tokio::time::timeout(ANSWER_TIMEOUT, self.check(&client, &nonce)).await;
        checking.map_err(|_| ConnectError::Away("no answer in time".to_owned()))??;
        Ok(Connection { client, statements: StdMutex::default() })
    }

    /// Refuses servers that lose acknowledged data (CLU-05, CLU-09).
    async fn check(&self, client: &Client, nonce: &str) -> Result<(), ConnectError> {
        const FACTS: &str = "SELECT version(), current_setting('server_version_num')::int, \
            current_setting('peeklock.session', true), pg_is_in_recovery(), \
            current_setting('fsync'), current_setting('full_page_writes'), \
            current_setting('synchronous_standby_names'), current_setting('synchronous_commit')";
        let facts = client.query_one(FACTS, &[]).await.map_err(|error| refusal(&error))?;
        let text = |place: usize| facts.get::<_, Option<String>>(place).unwrap_or_default();
        let is_on = |place: usize| text(place) == "on";
        let product = text(0);
        if !product.starts_with("PostgreSQL ") || product.contains("-YB-") {
            return Err(ConnectError::Refused(format!(
                "the server is no PostgreSQL (`{product}`); use PostgreSQL 14 or later"
            )));
        }
        if facts.get::<_, i32>(1) < VERSION_MIN {
            return Err(ConnectError::Refused(format!(
                "the server is too old (`{product}`); use PostgreSQL 14 or later"
            )));
        }
        if text(2) != nonce || !is_on(7) {
            return Err(ConnectError::Refused(
                "settings of the session do not reach the server: there is a pooler between, which \
                 shares its connections; connect to the server itself, or use the session mode of \
                 the pooler and let it pass `options` on"
                    .to_owned(),
            ));
        }
        if facts.get::<_, bool>(3) {
            return Err(ConnectError::Away("the server is a standby".to_owned()));
        }
        let mut risks = Vec::new();
        if !is_on(4) {
            risks.push("`fsync` is off: a crash of its machine loses acknowledged messages");
        }
        if !is_on(5) {
            risks.push("`full_page_writes` is off: a crash can damage stored messages");
        }
        if server_count(&self.config) > 1 && text(6).is_empty() {
            risks.push(
                "the address names several servers, and no standby is synchronous: a failover loses \
                 acknowledged messages; set `synchronous_standby_names`",
            );
        }
        for risk in risks {
            if !self.i_know {
                return Err(ConnectError::Refused(format!(
                    "the database is not safe: {risk}; change it, or set `store.postgres.i_know`"
                )));
            }
            self.warn_once(risk);
        }
        Ok(())
    }

    fn warn_once(&self, risk: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if !warned.iter().any(|known| known == risk) {
            tracing::warn!("the database is not safe, as `store.postgres.i_know` accepts: {risk}");
            warned.push(risk.to_owned());
        }
    }
}

/// Whether waiting can help.
fn refusal(error: &Error) -> ConnectError {
    let text = text_of(error);
    let is_final = error.code().is_some_and(|code| {
        [
            &SqlState::INVALID_PASSWORD,
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            &SqlState::INVALID_CATALOG_NAME,
            &SqlState::INSUFFICIENT_PRIVILEGE,
        ]
        .contains(&code)
    });
    if is_final { ConnectError::Refused(text) } else { ConnectError::Away(text) }
}

/// The text of an error with its causes.
pub fn text_of(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text.push_str(": ");
        text.push_str(&one.to_string());
        cause = one.source();
    }
    text
}

/// The error of a question that was asked.
pub fn store_error(error: &Error) -> StoreError {
    let text = text_of(error).into();
    // Without a code, the connection was lost.
    match error.code() {
        None => StoreError::Unavailable(text),
        Some(code) if is_passing(code) => StoreError::Unavailable(text),
        Some(_) => StoreError::Failed(text),
    }
}

/// Whether the same statement may succeed later: classes of connections, resources, operators and
/// the system.
pub fn is_passing(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    ["08", "25", "40", "53", "55", "57", "58"].contains(&class)
}

//! Sessions: connections to the database that are checked when they are made, and made again when
//! they are lost.

use std::collections::HashMap;
use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use peeklock_store::StoreError;
use tokio::sync::{Mutex, watch};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::checks::{Checked, check};
use crate::config::{PostgresConfig, servers};
use crate::fault::{keeps_connection, text_of};
use crate::registry::application_name;
use crate::remedy::remedy;

/// Maximum number of prepared statements of a session. At more, all are prepared again.
const STATEMENTS_MAX: usize = 256;
/// Time for a question to the database.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to connect to one of several servers, with its checks. One that hangs is left for the next.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without new attempts after the first failed one; it doubles up to the maximum of the
/// session, which usually is this one.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Options of all sessions. The server notices within seconds that the broker's machine is gone, so
/// that the locks of its sessions end. A statement waits for the locks of others for a few seconds
/// at most, because shards share connections.
const OPTIONS: &str = "-c synchronous_commit=on -c plan_cache_mode=force_generic_plan \
    -c default_transaction_isolation=read\\ committed -c statement_timeout=0 \
    -c idle_in_transaction_session_timeout=0 -c lock_timeout=3000 -c tcp_keepalives_idle=5 \
    -c tcp_keepalives_interval=5 -c tcp_keepalives_count=2 -c tcp_user_timeout=10000";

/// Parameters of all sessions.
pub struct Connector {
    /// Parameters for each server.
    servers: Vec<Config>,
    /// The server that is tried first: the last one that took writes.
    first: AtomicUsize,
    tls: MakeRustlsConnect,
    i_know: bool,
    logged: StdMutex<Vec<String>>,
    /// Whether the store is closing: no new connection is made.
    closing: watch::Sender<bool>,
}

/// Reason why there is no session.
#[derive(Clone, Debug)]
pub enum ConnectError {
    /// The database cannot be reached, or does not take writes at present.
    Away(String),
    /// The server breaks a promise of the store, or refuses the broker. An operator must act.
    Refused(String),
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
    is_spoiled: Arc<AtomicBool>,
}

impl Connection {
    /// The prepared form of a statement.
    pub async fn prepared(&self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = lock(&self.statements).get(sql).cloned() {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        let mut statements = lock(&self.statements);
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Whether the connection takes no further statement. The result of a statement counts only if
    /// the connection is not spoiled after it: a commit whose wait for a standby was cancelled is
    /// reported as a success, after a notice.
    pub fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Acquire)
    }

    /// Has the session make a new connection.
    pub fn give_up(&self) {
        self.is_spoiled.store(true, Ordering::Release);
    }

    /// Has the session make a new connection, unless the error leaves this one as it was.
    pub fn note_error(&self, error: &Error) {
        if !keeps_connection(error) {
            self.give_up();
        }
    }
}

/// A place for one connection.
pub struct Session {
    connector: Arc<Connector>,
    /// Longest time without new attempts.
    pause_max: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failure: Option<Failure>,
}

/// The last failed attempts to connect.
struct Failure {
    error: ConnectError,
    count: u32,
    /// Until then, the error stands for further attempts.
    until: Instant,
}

impl Session {
    pub fn new(connector: &Arc<Connector>) -> Self {
        Self::with_pause_max(connector, PAUSE_MAX)
    }

    /// A session for work that has a pace of its own. It makes new attempts after this time.
    pub fn with_pause_max(connector: &Arc<Connector>, pause_max: Duration) -> Self {
        Self { connector: Arc::clone(connector), pause_max, state: Mutex::default() }
    }

    /// The connection; a new one if the last was lost. After a failed attempt its error is returned
    /// for a while without another attempt.
    pub async fn get(&self) -> Result<Arc<Connection>, ConnectError> {
        let mut state = self.state.lock().await;
        let usable = |held: &&Arc<Connection>| !held.client.is_closed() && !held.is_spoiled();
        if let Some(connection) = state.connection.as_ref().filter(usable) {
            return Ok(Arc::clone(connection));
        }
        state.connection = None;
        if let Some(failure) = state.failure.as_ref().filter(|one| Instant::now() < one.until) {
            return Err(failure.error.clone());
        }
        match self.connector.connect_unless_closing().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *state = State { connection: Some(Arc::clone(&connection)), failure: None };
                Ok(connection)
            }
            Err(error) => {
                let count = state.failure.as_ref().map_or(0, |failure| failure.count) + 1;
                let until = Instant::now() + pause_after(count, self.pause_max);
                state.failure = Some(Failure { error: error.clone(), count, until });
                Err(error)
            }
        }
    }

    /// Ends the connection. Statements that run are not waited for.
    pub async fn close(&self) {
        self.state.lock().await.connection.take();
    }
}

/// A growing pause, of which a random half is left out, so that sessions do not connect together.
fn pause_after(count: u32, pause_max: Duration) -> Duration {
    let longest = PAUSE_MIN.saturating_mul(1 << count.min(10)).min(pause_max);
    let mut byte = [0];
    // Without random bytes the whole pause is as good.
    getrandom::fill(&mut byte).ok();
    longest - longest.mul_f64(f64::from(byte[0]) / 512.0)
}

impl Connector {
    /// Sessions of the broker that has this number.
    pub fn new(config: &PostgresConfig, owner: i64) -> Result<Self, StoreError> {
        let mut tls = peeklock_tls::client_config(&config.authorities, None).map_err(|error| {
            StoreError::Failed(format!("certificates for the database: {error}").into())
        })?;
        // PostgreSQL has a name of its own here, or none.
        tls.alpn_protocols = vec![b"postgresql".to_vec()];
        let mut parameters = config.connection()?;
        parameters.application_name(application_name(owner));
        Ok(Self {
            servers: servers(&parameters),
            first: AtomicUsize::new(0),
            tls: MakeRustlsConnect::new(tls),
            i_know: config.i_know,
            logged: StdMutex::default(),
            closing: watch::Sender::new(false),
        })
    }

    /// Ends attempts to connect, and refuses new ones. Connections stay.
    pub fn stop(&self) {
        self.closing.send_replace(true);
    }

    /// Ends when the store is closing.
    pub async fn stopped(&self) {
        let mut closing = self.closing.subscribe();
        // The sender is part of `self`, so there is no error.
        closing.wait_for(|is_closing| *is_closing).await.map(drop).ok();
    }

    async fn connect_unless_closing(&self) -> Result<Connection, ConnectError> {
        let made = tokio::select! {
            biased;
            () = self.stopped() => Err(ConnectError::Away("the store is closing".to_owned())),
            made = self.connect() => made,
        };
        if let Err(ConnectError::Refused(text)) = &made {
            self.log_once(text, || {
                tracing::error!("the database cannot be used until an operator acts: {text}");
            });
        }
        made
    }

    /// Connects to the first server that takes writes, and checks it. The last one is tried first.
    async fn connect(&self) -> Result<Connection, ConnectError> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce)
            .map_err(|error| ConnectError::Away(format!("no random bytes: {error}")))?;
        let nonce = u64::from_le_bytes(nonce).to_string();
        let count = self.servers.len();
        let limit = if count > 1 { SERVER_TIMEOUT } else { ANSWER_TIMEOUT };
        let late = |_| ConnectError::Away("no answer in time".to_owned());
        let first = self.first.load(Ordering::Relaxed);
        let mut found = Err(ConnectError::Away("the address names no server".to_owned()));
        for (place, server) in self.servers.iter().enumerate().cycle().skip(first).take(count) {
            let mut server = server.clone();
            let given = server.get_options().unwrap_or_default().to_owned();
            server.options(format!("{given} {OPTIONS} -c peeklock.session={nonce}"));
            let connected = tokio::time::timeout(limit, server.connect(self.tls.clone())).await;
            found = connected
                .map_err(late)
                .and_then(|connected| connected.map_err(|error| refusal(&error)));
            if found.is_ok() {
                self.first.store(place, Ordering::Relaxed);
                break;
            }
        }
        let (client, mut connection) = found?;
        let is_spoiled = Arc::new(AtomicBool::new(false));
        let spoiled = Arc::clone(&is_spoiled);
        // It ends with the client, or when the connection is lost. Messages arrive in order: the
        // mark is set before the result of the statement is passed on.
        tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        // The only notices of this routine: the wait for a standby was cancelled.
                        if notice.routine() == Some("SyncRepWaitForLSN") {
                            spoiled.store(true, Ordering::Release);
                            tracing::warn!("a commit is not confirmed by a standby: {notice}");
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a connection to the database has ended");
                        return;
                    }
                    None => return,
                }
            }
        });
        let checking = check(&client, &nonce, count);
        let Checked { risks, note } =
            tokio::time::timeout(limit, checking).await.map_err(late)??;
        for risk in risks {
            if !self.i_know {
                return Err(ConnectError::Refused(format!(
                    "the database is not safe: {risk}; change it, or set `store.postgres.i_know`"
                )));
            }
            self.log_once(risk, || {
                tracing::warn!(
                    "the database is not safe, as `store.postgres.i_know` accepts: {risk}"
                );
            });
        }
        self.log_once(&note, || tracing::info!("{note}"));
        Ok(Connection { client, statements: StdMutex::default(), is_spoiled })
    }

    /// Logs a text, unless it was one of the last ones.
    fn log_once(&self, text: &str, log: impl FnOnce()) {
        const TEXTS_MAX: usize = 16;
        let mut logged = lock(&self.logged);
        if !logged.iter().any(|known| known == text) {
            log();
            if logged.len() >= TEXTS_MAX {
                logged.clear();
            }
            logged.push(text.to_owned());
        }
    }
}

/// The error of a failed attempt to connect.
pub fn refusal(error: &Error) -> ConnectError {
    let text = text_of(error);
    if let Some(reason) = trust_problem(error) {
        return ConnectError::Refused(format!("{reason}: {text}"));
    }
    match remedy(error.code(), &text) {
        Some(remedy) => ConnectError::Refused(format!("{text}; {remedy}")),
        None => ConnectError::Away(text),
    }
}

/// The reason why TLS with this server can never work, with the remedy.
fn trust_problem(error: &Error) -> Option<&'static str> {
    if !error.to_string().starts_with("error performing TLS handshake") {
        return None;
    }
    match error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        // The server's certificate, or its answer, does not pass.
        Some(error) if error.kind() == io::ErrorKind::InvalidData => Some(
            "the certificate of the database is not accepted; name its authority in \
             `store.postgres.ca_file`, and the host as in the certificate",
        ),
        Some(_) => None,
        None => Some(
            "the database does not offer TLS; set `ssl = on` and a certificate there, or set \
             `store.postgres.i_know` and `sslmode=disable`",
        ),
    }
}

fn lock<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-06: the server ends the sessions of a lost machine soon, and commits are confirmed.
    #[test]
    fn sessions_have_keepalive_and_lock_options() {
        for option in [
            "synchronous_commit=on",
            "lock_timeout=3000",
            "tcp_keepalives_idle=5",
            "tcp_keepalives_interval=5",
            "tcp_keepalives_count=2",
            "tcp_user_timeout=10000",
        ] {
            assert!(OPTIONS.contains(&format!("-c {option}")), "{option}");
        }
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        for pause_max in [PAUSE_MAX, PAUSE_MIN * 2] {
            for count in 1..100 {
                let pause = pause_after(count, pause_max);
                assert!(pause >= PAUSE_MIN / 2 && pause <= pause_max, "{count}: {pause:?}");
            }
            assert!(pause_after(20, pause_max) >= pause_max / 2);
        }
    }
}

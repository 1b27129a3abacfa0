//! Life of `peeklock serve`: start, wait for a signal or a failure, stop in order. `cli/serve.rs`
//! and embedding programs call it. The banner is printed only after all listeners accept
//! connections.

mod address_files;
mod banner;
mod building;
mod declare;
mod opening;
mod otlp;
mod root_key;
mod signals;
mod standby;
mod supervisor;

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use peeklock::audit::OpenError;
use peeklock::contract::{RunningTransport, Transport, TransportError};
use peeklock::core::cluster::tenure::Ending;
use peeklock::error::BrokerError;
use peeklock::http::{MetricsHook, Readiness};
use peeklock::listen::Entrances;
use peeklock::otlp::{Otlp, StartError as OtlpError};
use peeklock::policies::{Policies, ROOT_POLICY};
use peeklock::store::StoreError;
use peeklock::store::journal::disk::OsDisk;
use peeklock::time::Timestamp;
use peeklock::tls::{Tls, Watch};
use peeklock::{Broker, StartError};

use crate::config::{ClusterSection, Config, ConfigError, InPlace, Loaded, budget, store_text};
use crate::{Host, emulator};
use crate::{files, memory, registry};
pub use address_files::{HTTP_URL as HTTP_URL_FILE, ONE_PORT, PUBLIC_URL as PUBLIC_URL_FILE};
use banner::{Banner, BannerTls, Listener};
pub use building::{broker_builder, open_any_store};
use declare::declare;
use opening::{database_hint, hold_data_dir, in_directory, store_hint};
pub use root_key::FILE as ROOT_KEY_FILE;
use root_key::Keeper;
pub use signals::Signals;
use standby::{Interruption, Start};
use supervisor::TimeExtension;

/// Grace for requests in progress after a signal (DESIGN section 6).
const GRACE: Duration = Duration::from_secs(5);
/// Grace after a failure of the broker, when few requests can still succeed.
const GRACE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Pause before a broker that was too late starts again as a standby.
const PAUSE_BEFORE_START: Duration = Duration::from_secs(1);
/// Number of memory consumers in a warning, the largest first.
const BUDGET_ROWS_MAX: usize = 4;

/// Error that ends `serve`.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The broker did not start.
    #[error("broker cannot start: {0}")]
    Start(#[from] StartError),
    /// The metrics recorder could not be installed.
    #[error("metrics cannot be recorded: {0}")]
    Metrics(String),
    /// Telemetry cannot be sent to the configured collector.
    #[error("traces and metrics cannot be sent: {0}")]
    Otlp(#[from] OtlpError),
    /// The audit trail could not be opened.
    #[error(transparent)]
    Audit(#[from] OpenError),
    /// The jobs of operators could not be opened.
    #[error("jobs cannot be opened in the data directory: {0}")]
    Jobs(#[source] io::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(#[source] io::Error),
    /// A declared entity could not be created or updated.
    #[error("queues and topics of the configuration cannot be declared: {0}")]
    Declared(#[source] BrokerError),
    /// The certificate files cannot be watched for changes.
    #[error("changes of the certificate cannot be watched: {0}")]
    Watch(#[source] io::Error),
    /// A value of the configuration cannot be used.
    #[error(transparent)]
    Misconfigured(#[from] ConfigError),
    /// A transport could not listen.
    #[error("{source}{}", transport_hint(.source))]
    Transport {
        /// Error of the transport.
        #[source]
        source: TransportError,
    },
    /// The file with the first key could not be written (SEC-25).
    #[error(
        "`{path}` cannot be written: {source}; it holds the connection string of the root policy"
    )]
    RootKey {
        /// Path of the file.
        path: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The broker has failed.
    #[error("broker has failed: {0}")]
    Broker(String),
    /// The store could not be opened.
    #[error("{}{}", in_directory(.directory, .source), store_hint(.source))]
    Open {
        /// Directory of the store.
        directory: String,
        /// Error of the store.
        #[source]
        source: StoreError,
    },
    /// The store in PostgreSQL could not be opened.
    #[error("the store in PostgreSQL cannot be opened: {}{}", store_text(.source), database_hint(.source))]
    OpenDatabase {
        /// Error of the store.
        #[source]
        source: StoreError,
    },
    /// The data directory of a broker that stores its messages elsewhere could not be used.
    #[error("{source}; choose another directory with --data-dir or server.data_dir")]
    DataDir {
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The store could not be closed in order.
    #[error("store cannot be closed: {0}")]
    Store(#[from] StoreError),
}

/// Advice for a transport that cannot listen.
fn transport_hint(error: &TransportError) -> String {
    let name = error.transport;
    if registry::TRANSPORTS.iter().all(|(known, _)| *known != name) {
        // A transport of the host has no setting.
        return String::new();
    }
    let flag = if name == "websocket" { "ws" } else { name };
    let problem = match error.source.kind() {
        io::ErrorKind::AddrInUse => "another process already listens there,",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address,",
        io::ErrorKind::PermissionDenied if is_privileged(&error.address) => {
            "a port below 1024 requires CAP_NET_BIND_SERVICE, which the systemd unit of the \
             package grants; grant it, or"
        }
        io::ErrorKind::PermissionDenied => "the system does not let this program listen there,",
        _ => return String::new(),
    };
    format!("; {problem} choose another address with --{flag} or {name}.address")
}

/// Whether the port of an address requires a privilege.
fn is_privileged(address: &str) -> bool {
    address.parse().is_ok_and(|address: SocketAddr| address.port() < 1024)
}

/// Reason for which `serve` has ended without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A signal has stopped it.
    Stopped,
    /// Another broker has taken the messages over: the program must start again, as a standby.
    Lost,
}

/// Serves with the configured parts and the parts of the host until a signal or a failure ends it.
pub async fn serve(loaded: &Loaded, host: Host) -> Result<End, ServeError> {
    // From here on a signal stops in order, even while the broker is starting.
    let mut signals = Signals::new().map_err(ServeError::Signals)?;
    let mut loaded = loaded.clone();
    fit_connections_to_files(&mut loaded);
    if loaded.config.cluster.name.is_empty() {
        loaded.config.cluster.name = ClusterSection::default_name();
    }
    let loaded = &loaded;
    log_warnings(loaded, host.authorizer.is_some());
    let policies = Policies::new();
    if loaded.emulator.is_some() {
        policies.allow_development_key(emulator::KEY);
    }
    let opening = TimeExtension::during("opening the store");
    let store_place = match &host.store {
        Some(_) => None,
        None => registry::store_place(loaded),
    };
    let otlp = otlp::start(loaded)?;
    let readiness = Readiness::default();
    let beginning = Beginning { signals: &mut signals, opening, readiness: readiness.clone() };
    let started = start(loaded, &policies, host, otlp.as_ref(), beginning);
    let RunningBroker { broker, transports, root_key: _root_key, tls: _tls, data_dir: _data_dir } =
        match started.await {
            Ok(ControlFlow::Continue(served)) => served,
            Ok(ControlFlow::Break(interruption)) => {
                supervisor::stopping();
                let signal = interruption.signal;
                tracing::info!(signal, "stopping before the start; a second signal stops at once");
                signals.exit_on_next();
                interruption.close_store().await;
                otlp::stop(otlp, GRACE).await;
                tracing::info!("stopped");
                return Ok(End::Stopped);
            }
            Err(ServeError::Start(StartError::Store(StoreError::Fenced { .. }))) => {
                tracing::warn!("another broker has taken over first; starting again as a standby");
                supervisor::starting_again();
                otlp::stop(otlp, Duration::ZERO).await;
                // If the database is not as it should be, the next start ends here too.
                let signal = signals.next_within(PAUSE_BEFORE_START).await;
                return Ok(signal.map_or(End::Lost, |_| End::Stopped));
            }
            Err(error) => {
                otlp::stop(otlp, Duration::ZERO).await;
                return Err(error);
            }
        };
    if loaded.emulator.is_some() {
        tracing::info!("{}", emulator::READY);
    }
    let is_new = broker.describe_queue(banner::QUEUE).await.is_err();
    print_banner(loaded, store_place, &broker, &transports, is_new);
    let _watchdog = supervisor::ready(&broker);
    let outcome = tokio::select! {
        signal = signals.next() => Ok(signal),
        why = broker.failed() => Err(why),
    };
    let is_lost = outcome.is_err() && has_lost_messages(&broker, loaded).await;
    if is_lost {
        supervisor::starting_again();
    } else {
        supervisor::stopping();
    }
    match outcome {
        Ok(signal) => {
            tracing::info!(signal, grace = ?GRACE, "stopping; a second signal stops at once");
            signals.exit_on_next();
            standby::leave(&broker, &readiness, loaded.config.cluster.leave_delay).await;
            // A suspended broker refuses the requests that the transports wait for.
            broker.begin_stop();
            // The transports end waiting receives and let settlements finish, so the broker itself
            // needs no grace.
            stop(transports, GRACE).await;
            let closed = broker.stop(Duration::ZERO).await;
            // The collector stops after the broker, so that it receives telemetry of the last
            // answers.
            otlp::stop(otlp, GRACE).await;
            closed?;
            tracing::info!("stopped");
            Ok(End::Stopped)
        }
        Err(_) if is_lost => {
            tracing::warn!("another broker serves the clients now; starting again as a standby");
            let closing = async {
                stop(transports, GRACE_AFTER_FAILURE).await;
                // Nothing of this broker counts any more, so its store need not end in order.
                drop(tokio::time::timeout(GRACE, broker.stop(Duration::ZERO)).await);
                otlp::stop(otlp, GRACE_AFTER_FAILURE).await;
            };
            tokio::select! {
                biased;
                signal = signals.next() => {
                    tracing::info!(signal, "stopped");
                    Ok(End::Stopped)
                }
                () = closing => Ok(End::Lost),
            }
        }
        Err(why) => {
            tracing::error!(why, "broker has failed, stopping");
            signals.exit_on_next();
            stop(transports, GRACE_AFTER_FAILURE).await;
            otlp::stop(otlp, GRACE_AFTER_FAILURE).await;
            Err(ServeError::Broker(why))
        }
    }
}

/// Whether a broker that has failed is one whose messages another broker has taken over. The refusal
/// of an append may come first; the next renewal of the lease then has the reason.
async fn has_lost_messages(broker: &Broker, loaded: &Loaded) -> bool {
    let lease = loaded.config.cluster.lease.to_std();
    broker.lease_left().is_some()
        && tokio::time::timeout(lease, broker.lease_ended()).await == Ok(Ending::Lost)
}

/// Lowers the connection limits to the number of files that remain after the files of the store.
fn fit_connections_to_files(loaded: &mut Loaded) {
    let Some(files_max) = files::raise_limit() else { return };
    let config = &mut loaded.config;
    let files_needed = config.open_files();
    if let Some(connections) = config.fit_connections(files_max) {
        let forwarder_threads = config.settings.limits.forwarder_thread_count_max;
        tracing::warn!(
            files_max,
            files_needed,
            connections,
            forwarder_threads,
            "the limit of open files is lower than connections, forwarders and a full journal \
             need, so fewer connections are accepted and fewer threads forward: raise the limit \
             (ulimit -n, LimitNOFILE), or lower limits.connection_count_max"
        );
    }
}

/// Logs warnings that an operator should see before the first message.
fn log_warnings(loaded: &Loaded, has_authorizer: bool) {
    let config = &loaded.config;
    if let Some(emulator) = &loaded.emulator {
        warn_of_emulator(emulator);
    }
    // An authorizer of the host decides about access by itself.
    let decides_access = !has_authorizer;
    let is_closed = !config.security.allow_anonymous && !config.jwt.is_used();
    let knows_no_key = config.server.ephemeral && loaded.emulator.is_none();
    if decides_access && is_closed && knows_no_key {
        tracing::warn!(
            "every client is refused: security.allow_anonymous is false, and with --ephemeral \
             there is no file with a first key; set security.allow_anonymous = true or keep data \
             on disk"
        );
    } else if !config.security.allow_anonymous {
        tracing::debug!("clients need a token");
    } else if decides_access
        && let Some((_, address)) =
            config.addresses().iter().find(|(_, address)| !address.ip().is_loopback())
    {
        tracing::warn!(
            %address,
            "every client that reaches this address may read and delete every message \
             (security.i_know = true)"
        );
    }
    if config.tls.is_left_off() {
        tracing::warn!(
            "tls.certificate_file is ignored because tls.enabled is false: connections are not \
             encrypted"
        );
    }
    warn_of_everywhere(config);
    warn_of_memory(&config.budget(), config.kept_bytes());
}

/// Warns of `*` for proxies or hosts, which is meant for closed networks.
fn warn_of_everywhere(config: &Config) {
    for (setting, proxies) in [
        ("http.proxy_protocol", &config.http.proxies),
        ("websocket.proxy_protocol", &config.websocket.proxies),
        ("amqp.proxy_protocol", &config.amqp.proxies),
        ("gateway.proxy_protocol", &config.gateway.proxy_protocol),
    ] {
        if proxies.include_all_addresses() {
            tracing::warn!(
                setting,
                "`*` accepts a client address from every client, so clients can forge it; list the \
                 addresses or networks of your proxies"
            );
        }
    }
    for (setting, hosts) in [
        ("webhook.allowed_hosts", &config.webhook.allowed_hosts),
        ("peers.allowed_hosts", &config.peers.allowed_hosts),
    ] {
        if hosts.iter().any(|host| host == "*") {
            tracing::warn!(
                setting,
                "`*` allows every client with the right to set ForwardTo to make this broker \
                 connect to any host, including its own network; list the allowed hosts"
            );
        }
    }
}

/// Warns that the emulator accepts a public key (SEC-24).
fn warn_of_emulator(emulator: &InPlace) {
    tracing::warn!(
        policy = ROOT_POLICY,
        key = emulator::KEY,
        "in the emulator's place every client may do everything with a public key: use this for \
         development only"
    );
    for answer in &emulator.answers {
        tracing::info!("{answer}");
    }
    for note in &emulator.notes {
        tracing::warn!(file = %emulator.file_text(), "{note}");
    }
}

/// Warns if the shared buffers, which a few slow clients can fill, exceed the available memory. The
/// maximum for all connections and all stored entities exceeds a usual machine even with the
/// default limits, so it is only logged at debug level.
fn warn_of_memory(budget: &[budget::Row], kept_bytes: u64) {
    let Some(available_bytes) = memory::available_bytes() else { return };
    let shared_bytes = budget::sum(budget, |row| row.shared_bytes);
    let budget_bytes = budget::sum(budget, budget::Row::bytes);
    if available_bytes < shared_bytes {
        tracing::warn!(
            shared_bytes,
            available_bytes,
            largest = %budget::largest(budget, BUDGET_ROWS_MAX, |row| row.shared_bytes),
            "clients may use more memory in shared buffers than this machine has, and a few \
             clients can fill these: lower the settings listed in `largest`"
        );
    } else if available_bytes < budget_bytes {
        tracing::debug!(
            budget_bytes,
            available_bytes,
            largest = %budget::largest(budget, BUDGET_ROWS_MAX, budget::Row::bytes),
            "clients may use more memory than this machine has if the maximum number of clients \
             connects and each uses its limits: lower the settings listed in `largest`, or the \
             connection limits"
        );
    }
    if available_bytes < budget_bytes.saturating_add(kept_bytes) {
        tracing::debug!(
            kept_bytes,
            available_bytes,
            "messages, entities, sessions and message ids may use more memory than this machine \
             has if they reach limits.broker_*_max"
        );
    }
}

type Running = (&'static str, Box<dyn RunningTransport>);

/// A broker that serves clients.
struct RunningBroker {
    broker: Broker,
    transports: Vec<Running>,
    /// Keeps the file of the first key up to date.
    root_key: Option<Keeper>,
    /// Certificate in use, and the watch that replaces it when its files change.
    tls: Option<(Arc<Tls>, Watch)>,
    /// Lock of the data directory, if the store does not hold it.
    data_dir: Option<OsDisk>,
}

/// Connections of a start to the outside.
struct Beginning<'a> {
    /// Signals that end it.
    signals: &'a mut Signals,
    /// Requests for time, until the broker has started or stands by.
    opening: TimeExtension,
    readiness: Readiness,
}

async fn start(
    loaded: &Loaded,
    policies: &Policies,
    mut host: Host,
    otlp: Option<&Otlp>,
    Beginning { signals, opening, readiness }: Beginning<'_>,
) -> Result<ControlFlow<Interruption, RunningBroker>, ServeError> {
    // The recorder comes first: threads of the broker look their counters up once.
    let recorder = otlp::record(otlp).map_err(|error| ServeError::Metrics(error.to_string()))?;
    host.tracer = otlp.and_then(Otlp::tracer);
    // Addresses are checked before the store opens: an address in use must not leave a new data
    // directory behind.
    for (setting, address) in loaded.config.addresses() {
        let transport = setting.split('.').next().unwrap_or(setting);
        let taken = |source| TransportError { transport, address: address.to_string(), source };
        drop(
            TcpListener::bind(address)
                .map_err(taken)
                .map_err(|source| ServeError::Transport { source })?,
        );
    }
    let tls = match loaded.tls()? {
        Some(tls) => {
            let watch = Watch::start(&tls).map_err(ServeError::Watch)?;
            Some((tls, watch))
        }
        None => None,
    };
    let is_in_database = registry::store_in_use(loaded) == registry::POSTGRES;
    let data_dir = match is_in_database && host.store.is_none() {
        true => Some(hold_data_dir(&loaded.config.server.data_dir)?),
        false => None,
    };
    let store = match open_any_store(loaded, &mut host, signals).await? {
        ControlFlow::Continue(store) => store,
        ControlFlow::Break(signal) => {
            return Ok(ControlFlow::Break(Interruption { signal, store: None }));
        }
    };
    let builder = broker_builder(loaded, policies, &mut host, Arc::clone(&store))?;
    let starting = Start { loaded, tls: tls.as_ref().map(|(tls, _)| tls), store, opening };
    let broker = match starting.run(builder, signals).await? {
        ControlFlow::Continue(broker) => broker,
        ControlFlow::Break(interruption) => return Ok(ControlFlow::Break(interruption)),
    };
    if let Some(otlp) = otlp {
        otlp.observe(&broker, loaded.config.metrics.entities.count_max());
    }
    let metrics: MetricsHook = {
        let (broker, shown) = (broker.clone(), loaded.config.metrics.entities);
        Arc::new(move || recorder.render(&broker, shown))
    };
    let around = registry::ProcessParts {
        metrics,
        readiness,
        tls: tls.as_ref().map(|(tls, _)| Arc::clone(tls)),
        entrances: Entrances::default(),
    };
    let configured = registry::TRANSPORTS.into_iter().filter_map(|(_, make)| make(loaded, &around));
    let served = open(loaded, policies, broker, tls, configured.chain(host.transports)).await?;
    around.readiness.set();
    Ok(ControlFlow::Continue(RunningBroker { data_dir, ..served }))
}

/// Opens the broker to clients. If any step fails, the broker and the transports that serve already
/// are stopped.
async fn open(
    loaded: &Loaded,
    policies: &Policies,
    broker: Broker,
    tls: Option<(Arc<Tls>, Watch)>,
    ways_in: impl Iterator<Item = Box<dyn Transport>>,
) -> Result<RunningBroker, ServeError> {
    let mut transports: Vec<Running> = Vec::new();
    let certificate = tls.as_ref().map(|(tls, _)| tls.certificate());
    let opening = async {
        declare(&broker, loaded).await?;
        for transport in ways_in {
            let name = transport.name();
            let running = transport.start(broker.clone()).await;
            transports.push((name, running.map_err(|source| ServeError::Transport { source })?));
        }
        address_files::write_address_files(loaded, &transports, certificate.as_ref())?;
        root_key::keep(loaded, policies, &transports, certificate.as_ref())
    };
    match opening.await {
        Ok(root_key) => Ok(RunningBroker { broker, transports, root_key, tls, data_dir: None }),
        Err(error) => {
            stop(transports, Duration::ZERO).await;
            // The broker is stopped so that the store is closed in order.
            if let Err(error) = broker.stop(Duration::ZERO).await {
                tracing::error!(%error, "store cannot be closed");
            }
            Err(error)
        }
    }
}

/// Prints the banner on standard output.
fn print_banner(
    loaded: &Loaded,
    store_place: Option<String>,
    broker: &Broker,
    transports: &[Running],
    is_new: bool,
) {
    let listeners = transports
        .iter()
        .map(|(name, running)| Listener { name, address: running.local_address() })
        .collect();
    let (store, is_durable) = broker.store();
    let second = Timestamp::from_unix_ms(broker.now().unix_ms() / 1_000 * 1_000);
    let owner = broker.lease_left().map(|_| (&*loaded.config.cluster.name, second));
    let banner = Banner {
        listeners,
        store,
        is_durable,
        data_dir: &loaded.config.server.data_dir,
        store_place,
        owner,
        tls: BannerTls::of(loaded),
        is_new,
        // Without durable data there is no file with a key.
        requires_token: is_durable && !broker.allows_anonymous(),
        has_console: loaded.config.console.enabled,
        colours: crate::telemetry::colours(&io::stdout()),
    };
    let mut out = io::stdout().lock();
    if let Err(error) = write!(out, "{banner}").and_then(|()| out.flush()) {
        tracing::debug!(%error, "could not read the banner");
    }
}

/// Stops all transports at the same time.
async fn stop(transports: Vec<Running>, grace: Duration) {
    let mut stopping = tokio::task::JoinSet::new();
    for (_, transport) in transports {
        stopping.spawn(transport.stop(grace));
    }
    while let Some(stopped) = stopping.join_next().await {
        if let Err(error) = stopped {
            tracing::error!(%error, "transport did not stop cleanly");
        }
    }
}

#[cfg(test)]
mod tests;

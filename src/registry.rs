//! Tables of all stores, authorizers, transports and forwarders by name, one line each. To add a
//! part, add its crate, a line in a table here, and the function that passes its settings. An
//! embedding program calls `Broker::builder` and `Transport::start` instead.

use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use peeklock::ChecksConfig;
use peeklock::amqp::AmqpTransport;
use peeklock::audit::{AuditConfig, AuditTrail, MemoryTrail, OpenError};
use peeklock::auth_jwt::JwtAuthorizer;
use peeklock::auth_sas::{SasAuthorizer, SasConfig};
use peeklock::console::{self, Console};
use peeklock::contract::{Auditor, Authorizer, Ceiling, Forwarder, JobRunner, Transport};
use peeklock::forward_log::LogForwarder;
use peeklock::forward_peeklock::PeerForwarder;
use peeklock::forward_webhook::WebhookForwarder;
use peeklock::http::{ConsoleFile, ConsoleHook, HttpTransport, MetricsHook, Readiness};
use peeklock::listen::{Admission, Entrances, Gateway, GatewayConfig, SharedPort};
use peeklock::operations::Operations;
use peeklock::policies::Policies;
use peeklock::postgres::PostgresStore;
use peeklock::store::{Journal, MemoryStore, Store, StoreError};
use peeklock::tls::{Acceptor, Protocol, Tls};
use peeklock::websocket::WebSocketTransport;

use crate::config::{ConfigError, Loaded, StoreKind, TopologyText};

/// Opens a store.
type OpenStore = fn(&Loaded) -> Result<Arc<dyn Store>, StoreError>;
/// Creates an authorizer over the policies of the broker, if it is configured.
type MakeAuthorizer = fn(&Loaded, &Policies) -> Result<Option<Arc<dyn Authorizer>>, ConfigError>;
/// Creates a transport, if it is configured.
type MakeTransport = fn(&Loaded, &ProcessParts) -> Option<Box<dyn Transport>>;
/// Creates a forwarder.
type MakeForwarder = fn(&Loaded) -> Result<Arc<dyn Forwarder>, ConfigError>;

/// Parts of the process that transports share.
pub struct ProcessParts {
    /// Renderer of the metrics page.
    pub metrics: MetricsHook,
    /// Set once all transports serve and the files for clients are written.
    pub readiness: Readiness,
    /// Certificate in use; none without TLS.
    pub tls: Option<Arc<Tls>>,
    /// Ways into the transports for connections at a port for all protocols.
    pub entrances: Entrances,
}

impl ProcessParts {
    /// TLS settings of a listener; none without TLS.
    fn acceptor(&self, protocol: Protocol) -> Option<Acceptor> {
        self.tls.as_ref().map(|tls| tls.acceptor(protocol))
    }
}

/// All stores. [`store_in_use`] selects one.
pub const STORES: [(&str, OpenStore); 3] =
    [("journal", journal), ("memory", memory), (POSTGRES, postgres)];

/// Name of the store in a database.
pub const POSTGRES: &str = "postgres";

/// All authorizers. The first one that is configured is used; the last one always is.
pub const AUTHORIZERS: [(&str, MakeAuthorizer); 2] =
    [("jwt", authorize_by_issuer), ("sas", authorize_by_policies)];

/// All transports. The configured ones start in this order, because the AMQP port and the gateway
/// serve the earlier ones.
pub const TRANSPORTS: [(&str, MakeTransport); 4] =
    [("http", http), ("websocket", websocket), ("amqp", amqp), ("gateway", gateway)];

/// All forwarders. They are always available; the scheme of a destination selects one.
pub const FORWARDERS: [(&str, MakeForwarder); 3] =
    [("log", forward_log), ("peeklock", forward_peeklock), ("webhook", forward_webhook)];

/// Shards of the memory store, independent of the number of cores.
const MEMORY_SHARDS: u16 = 16;

/// Name of the configured store.
pub const fn store_in_use(loaded: &Loaded) -> &'static str {
    match (loaded.config.server.ephemeral, loaded.config.store.kind) {
        (true, _) => "memory",
        (false, StoreKind::Journal) => "journal",
        (false, StoreKind::Postgres) => POSTGRES,
    }
}

/// Place of the configured store, for people; none in memory.
pub fn store_place(loaded: &Loaded) -> Option<String> {
    match store_in_use(loaded) {
        "memory" => None,
        // The address has no password.
        POSTGRES => Some(format!("at {}", loaded.config.postgres.url)),
        _ => Some(format!("in {}", loaded.config.server.data_dir)),
    }
}

fn journal(loaded: &Loaded) -> Result<Arc<dyn Store>, StoreError> {
    let mut journal = loaded.config.journal.clone();
    if journal.capacity_bytes == 0 {
        journal.capacity_bytes = u64::MAX;
    }
    Ok(Journal::open(Path::new(&loaded.config.server.data_dir), journal)?)
}

fn memory(loaded: &Loaded) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(MemoryStore::new(MEMORY_SHARDS, loaded.config.server.memory_bytes())))
}

fn postgres(loaded: &Loaded) -> Result<Arc<dyn Store>, StoreError> {
    let config = loaded.postgres().map_err(|error| StoreError::Failed(error.to_string().into()))?;
    Ok(PostgresStore::open(&config)?)
}

/// Folder of the audit trail in the data directory.
pub const AUDIT_FOLDER: &str = "audit";

/// Opens the audit trail: in the data directory, or in memory for a broker without one.
pub fn audit_trail(loaded: &Loaded) -> Result<Arc<dyn Auditor>, OpenError> {
    let reads = loaded.config.console.audit_reads;
    if loaded.config.server.ephemeral {
        return Ok(Arc::new(MemoryTrail::new(MemoryTrail::BYTES_MAX, reads)));
    }
    let folder = Path::new(&loaded.config.server.data_dir).join(AUDIT_FOLDER);
    Ok(Arc::new(AuditTrail::open(&folder, AuditConfig::default().with_reads(reads))?))
}

/// Folder of jobs in the data directory.
pub const JOBS_FOLDER: &str = "jobs";

/// Opens the jobs of operators: in the data directory, or in memory for a broker without one.
pub fn jobs(loaded: &Loaded) -> io::Result<Arc<dyn JobRunner>> {
    if loaded.config.server.ephemeral {
        return Ok(Arc::new(Operations::in_memory()));
    }
    let folder = Path::new(&loaded.config.server.data_dir).join(JOBS_FOLDER);
    Ok(Arc::new(Operations::open(&folder)?))
}

/// Settings of the checks of all entities (CON-39).
pub fn checks(loaded: &Loaded) -> ChecksConfig {
    let (config, server) = (&loaded.config, &loaded.config.server);
    let mut addresses = config.addresses().into_iter();
    let is_beyond_loopback = addresses.any(|(_, address)| !address.ip().is_loopback());
    let counts = ["http", "websocket", "amqp"].into_iter().zip(config.connections());
    ChecksConfig {
        directory: (!server.ephemeral).then(|| Path::new(&server.data_dir).join("checks")),
        connection_count_max: counts.map(|(name, count)| (name, count as u64)).collect(),
        admits_anonymous_machines: config.security.i_know && is_beyond_loopback,
    }
}

/// Authorizer for tokens of an identity provider, which falls back to the policies.
fn authorize_by_issuer(
    loaded: &Loaded,
    policies: &Policies,
) -> Result<Option<Arc<dyn Authorizer>>, ConfigError> {
    let Some(jwt) = loaded.jwt()? else { return Ok(None) };
    let authorizer = JwtAuthorizer::new(jwt, Arc::new(by_policies(loaded, policies)));
    Ok(Some(Arc::new(authorizer)))
}

fn authorize_by_policies(
    loaded: &Loaded,
    policies: &Policies,
) -> Result<Option<Arc<dyn Authorizer>>, ConfigError> {
    Ok(Some(Arc::new(by_policies(loaded, policies))))
}

fn by_policies(loaded: &Loaded, policies: &Policies) -> SasAuthorizer {
    let config = &loaded.config;
    let mut sas = SasConfig::closed();
    sas.allow_anonymous = config.security.allow_anonymous;
    sas.beyond_loopback = config.security.i_know;
    sas.own_hosts = config.known_hosts();
    sas.audience_hosts = config.security.strict_audience.then(|| config.known_hosts());
    SasAuthorizer::new(policies, sas)
}

/// Number of threads of a listener or of entities; zero means one per core.
pub fn workers(count: usize) -> usize {
    match count {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        count => count,
    }
}

fn http(loaded: &Loaded, around: &ProcessParts) -> Option<Box<dyn Transport>> {
    let mut config = loaded.config.http.clone();
    config.workers = workers(config.workers);
    [config.connection_count_max, _, _] = loaded.config.connections();
    config.i_know = loaded.config.security.i_know;
    config.metrics = Some(Arc::clone(&around.metrics));
    config.console = console_in_use(loaded);
    config.declarations = Some(Arc::new(TopologyText));
    let console = &loaded.config.console;
    config.anonymous_role = console.anonymous_role;
    config.needs_unlock = console.unlock;
    config.protected = console.protect.clone();
    if console.read_only {
        config.role_max = Ceiling::Viewer;
    }
    config.readiness = Some(around.readiness.clone());
    config.tls = around.acceptor(Protocol::Http);
    config.entrance = around.entrances.http.clone();
    config.amqp = around.entrances.amqp.clone();
    Some(Box::new(HttpTransport::new(config)))
}

/// Files of the console; none if it is switched off.
fn console_in_use(loaded: &Loaded) -> Option<ConsoleHook> {
    let section = &loaded.config.console;
    let console = section.enabled.then(|| Console::new(&section.label))?;
    Some(Arc::new(move |path| {
        let console::File { content_type, is_immutable, content } = console.file(path)?;
        Some(ConsoleFile { content_type, is_immutable, headers: &console::HEADERS, content })
    }))
}

fn websocket(loaded: &Loaded, around: &ProcessParts) -> Option<Box<dyn Transport>> {
    let mut config = loaded.config.websocket.clone();
    config.workers = workers(config.workers);
    [_, config.connection_count_max, _] = loaded.config.connections();
    config.i_know = loaded.config.security.i_know;
    // WebSocket connections begin as HTTP.
    config.tls = around.acceptor(Protocol::Http);
    config.entrance = around.entrances.websocket.clone();
    Some(Box::new(WebSocketTransport::new(config)))
}

fn amqp(loaded: &Loaded, around: &ProcessParts) -> Option<Box<dyn Transport>> {
    let mut config = loaded.config.amqp.clone();
    config.workers = workers(config.workers);
    [_, _, config.connection_count_max] = loaded.config.connections();
    config.own_hosts = loaded.config.known_hosts();
    if let Some(bytes) = NonZero::new(loaded.config.settings.limits.message_bytes_max) {
        config.message_bytes_max = bytes;
    }
    config.i_know = loaded.config.security.i_know;
    config.tls = around.acceptor(Protocol::HttpOrAmqp);
    config.entrance = around.entrances.amqp.clone();
    config.shared_port = Some(SharedPort {
        opening_timeout: loaded.config.gateway.opening_timeout.to_std(),
        entrances: around.entrances.clone(),
    });
    Some(Box::new(AmqpTransport::new(config)))
}

fn gateway(loaded: &Loaded, around: &ProcessParts) -> Option<Box<dyn Transport>> {
    let section = &loaded.config.gateway;
    Some(Box::new(Gateway::new(GatewayConfig {
        address: section.address?,
        workers: workers(section.workers),
        opening_timeout: section.opening_timeout.to_std(),
        admission: Admission {
            proxies: section.proxy_protocol.clone(),
            tls: around.acceptor(Protocol::HttpOrAmqp),
        },
        i_know: loaded.config.security.i_know,
        entrances: around.entrances.clone(),
    })))
}

fn forward_log(_: &Loaded) -> Result<Arc<dyn Forwarder>, ConfigError> {
    Ok(Arc::new(LogForwarder))
}

fn forward_peeklock(loaded: &Loaded) -> Result<Arc<dyn Forwarder>, ConfigError> {
    Ok(Arc::new(PeerForwarder::new(loaded.peers()?)))
}

fn forward_webhook(loaded: &Loaded) -> Result<Arc<dyn Forwarder>, ConfigError> {
    Ok(Arc::new(WebhookForwarder::new(loaded.webhook()?)))
}

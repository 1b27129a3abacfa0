//! Every store, authorizer, transport and forwarder by name, one line each. To add one: its crate, a line in a table
//! here, and the function that hands it its settings. An embedding program does the same with calls
//! of `Broker::builder` and `Transport::start`.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use peeklock::amqp::{AmqpConfig, AmqpTransport};
use peeklock::auth_jwt::JwtAuthorizer;
use peeklock::auth_sas::{SasAuthorizer, SasConfig};
use peeklock::contract::{Authorizer, Forwarder, Transport};
use peeklock::forward_log::LogForwarder;
use peeklock::forward_peeklock::PeerForwarder;
use peeklock::forward_webhook::WebhookForwarder;
use peeklock::http::{HttpConfig, HttpTransport, MetricsHook, Readiness};
use peeklock::listen::{Admission, Entrances, Gateway, GatewayConfig, SharedPort};
use peeklock::policies::Policies;
use peeklock::store::{Journal, MemoryStore, Store, StoreError};
use peeklock::tls::{Acceptor, Protocol, Tls};
use peeklock::websocket::{WebSocketConfig, WebSocketTransport};

use crate::config::{ConfigError, Loaded};

/// Opens a store.
type OpenStore = fn(&Loaded) -> Result<Arc<dyn Store>, StoreError>;
/// Makes an authorizer over the policies of the broker, if the configuration asks for it.
type MakeAuthorizer = fn(&Loaded, &Policies) -> Result<Option<Arc<dyn Authorizer>>, ConfigError>;
/// Makes a transport, if the configuration asks for it.
type MakeTransport = fn(&Loaded, &Around) -> Option<Box<dyn Transport>>;
/// Makes a forwarder.
type MakeForwarder = fn(&Loaded) -> Result<Arc<dyn Forwarder>, ConfigError>;

/// What transports share of the process around them.
pub struct Around {
    /// Renders the metrics page.
    pub metrics: MetricsHook,
    /// Set when everything is served and the files for clients are written.
    pub readiness: Readiness,
    /// The certificate in use; none without TLS.
    pub tls: Option<Arc<Tls>>,
    /// Ways into the transports for connections at a port that serves everything.
    pub entrances: Entrances,
}

impl Around {
    /// How a listener makes connections secure, if it does.
    fn acceptor(&self, protocol: Protocol) -> Option<Acceptor> {
        self.tls.as_ref().map(|tls| tls.acceptor(protocol))
    }
}

/// All stores; which one is used is told by [`store_in_use`].
pub const STORES: [(&str, OpenStore); 2] = [("journal", journal), ("memory", memory)];

/// The first that the configuration asks for decides who may do what; the last one always serves.
pub const AUTHORIZERS: [(&str, MakeAuthorizer); 2] =
    [("jwt", authorize_by_issuer), ("sas", authorize_by_policies)];

/// All that the configuration asks for are started, in this order: the port of AMQP and the gateway serve those before
/// them.
pub const TRANSPORTS: [(&str, MakeTransport); 4] =
    [("http", http), ("websocket", websocket), ("amqp", amqp), ("gateway", gateway)];

/// All are there; the scheme of a destination chooses.
pub const FORWARDERS: [(&str, MakeForwarder); 3] =
    [("log", forward_log), ("peeklock", forward_peeklock), ("webhook", forward_webhook)];

/// How many shards the memory store gets, independent of the number of cores.
const MEMORY_SHARDS: u16 = 16;

/// The name of the store that the configuration asks for.
pub const fn store_in_use(loaded: &Loaded) -> &'static str {
    if loaded.config.server.ephemeral.0 { "memory" } else { "journal" }
}

fn journal(loaded: &Loaded) -> Result<Arc<dyn Store>, StoreError> {
    let path = Path::new(&loaded.config.server.data_dir.0);
    Ok(Journal::open(path, loaded.config.journal.config())?)
}

fn memory(loaded: &Loaded) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(MemoryStore::new(MEMORY_SHARDS, loaded.config.server.memory_bytes())))
}

/// Tokens of an identity provider, and beside them all that policies let in.
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
    sas.allow_anonymous = config.security.allow_anonymous.0;
    sas.beyond_loopback = config.security.i_know.0;
    sas.own_hosts = config.known_hosts();
    sas.audience_hosts = config.security.strict_audience.0.then(|| config.known_hosts());
    SasAuthorizer::new(policies, sas)
}

/// Threads of a listener, or of entities; zero is one per core.
pub fn workers(count: usize) -> usize {
    match count {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        count => count,
    }
}

fn http(loaded: &Loaded, around: &Around) -> Option<Box<dyn Transport>> {
    let section = &loaded.config.http;
    let mut config = HttpConfig::at(section.address.0);
    config.allowed_hosts.clone_from(&section.allowed_hosts.0);
    config.allowed_origins.clone_from(&section.allowed_origins.0);
    config.public_url = Some(section.public_url.0.clone()).filter(|url| !url.is_empty());
    config.workers = workers(section.workers.0);
    config.connection_count_max = loaded.config.connection_count_max(&loaded.settings.limits);
    config.inbound_bytes_max = section.inbound_bytes_max.0;
    config.outbound_bytes_max = section.outbound_bytes_max.0;
    config.head_timeout = section.head_timeout.0.to_std();
    config.body_timeout = section.body_timeout.0.to_std();
    config.write_timeout = section.write_timeout.0.to_std();
    config.operation_timeout = section.operation_timeout.0.to_std();
    config.keep_alive = section.keep_alive.0.to_std();
    config.metrics_public = section.metrics_public.0;
    config.i_know = loaded.config.security.i_know.0;
    config.metrics = Some(Arc::clone(&around.metrics));
    config.readiness = Some(around.readiness.clone());
    config.tls = around.acceptor(Protocol::Http);
    config.proxies = section.proxy_protocol.0.clone();
    config.entrance = around.entrances.http.clone();
    config.amqp = around.entrances.amqp.clone();
    Some(Box::new(HttpTransport::new(config)))
}

fn websocket(loaded: &Loaded, around: &Around) -> Option<Box<dyn Transport>> {
    let section = &loaded.config.websocket;
    let mut config = WebSocketConfig::at(section.address.0);
    config.allowed_hosts.clone_from(&section.allowed_hosts.0);
    config.allowed_origins.clone_from(&section.allowed_origins.0);
    config.workers = workers(section.workers.0);
    config.connection_count_max = section.connection_count_max(&loaded.settings.limits);
    config.link_count_max = section.link_count_max.0;
    config.unsettled_count_max = section.unsettled_count_max.0;
    config.frame_bytes_max = section.frame_bytes_max.0;
    config.inbound_bytes_max = section.inbound_bytes_max.0;
    config.outbound_bytes_max = section.outbound_bytes_max.0;
    config.handshake_timeout = section.handshake_timeout.0.to_std();
    config.frame_timeout = section.frame_timeout.0.to_std();
    config.heartbeat = section.heartbeat.0.to_std();
    config.grace = section.grace.0.to_std();
    config.i_know = loaded.config.security.i_know.0;
    // Its connections begin as HTTP.
    config.tls = around.acceptor(Protocol::Http);
    config.proxies = section.proxy_protocol.0.clone();
    config.entrance = around.entrances.websocket.clone();
    Some(Box::new(WebSocketTransport::new(config)))
}

fn amqp(loaded: &Loaded, around: &Around) -> Option<Box<dyn Transport>> {
    let section = &loaded.config.amqp;
    let mut config = AmqpConfig::at(section.address.0);
    config.own_hosts = loaded.config.known_hosts();
    config.allowed_hosts.clone_from(&section.allowed_hosts.0);
    config.allowed_origins.clone_from(&section.allowed_origins.0);
    config.workers = workers(section.workers.0);
    config.connection_count_max = section.connection_count_max(&loaded.settings.limits);
    config.link_count_max = section.link_count_max.0;
    config.shared_link_count_max = section.shared_link_count_max.0;
    config.unsettled_count_max = section.unsettled_count_max.0;
    if let Some(bytes) = NonZero::new(loaded.settings.limits.message_bytes_max) {
        config.message_bytes_max = bytes;
    }
    config.inbound_bytes_max = section.inbound_bytes_max.0;
    config.outbound_bytes_max = section.outbound_bytes_max.0;
    config.opening_timeout = section.opening_timeout.0.to_std();
    config.idle_timeout = section.idle_timeout.0.to_std();
    config.write_timeout = section.write_timeout.0.to_std();
    config.i_know = loaded.config.security.i_know.0;
    config.tls = around.acceptor(Protocol::HttpOrAmqp);
    config.proxies = section.proxy_protocol.0.clone();
    config.entrance = around.entrances.amqp.clone();
    config.shared_port = Some(SharedPort {
        opening_timeout: loaded.config.gateway.opening_timeout.0.to_std(),
        entrances: around.entrances.clone(),
    });
    Some(Box::new(AmqpTransport::new(config)))
}

fn gateway(loaded: &Loaded, around: &Around) -> Option<Box<dyn Transport>> {
    let section = &loaded.config.gateway;
    Some(Box::new(Gateway::new(GatewayConfig {
        address: section.address.0.0?,
        workers: workers(section.workers.0),
        opening_timeout: section.opening_timeout.0.to_std(),
        admission: Admission {
            proxies: section.proxy_protocol.0.clone(),
            tls: around.acceptor(Protocol::HttpOrAmqp),
        },
        i_know: loaded.config.security.i_know.0,
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

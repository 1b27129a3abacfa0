//! What an operator can set.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peeklock_core::contract::port;
use peeklock_listen::{Entrance, Proxies};
use peeklock_tls::Acceptor;

/// Renders the metrics page; provided by a metrics plugin.
pub type MetricsHook = Arc<dyn Fn() -> String + Send + Sync>;

/// Whether a program has begun to serve in full; set by its host.
#[derive(Clone, Default, Debug)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on `/readyz` says that the broker can work.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The settings of the HTTP transport.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpConfig {
    /// `http.address`: where to listen; loopback unless told otherwise.
    pub address: SocketAddr,
    /// `http.allowed_hosts`: names beside IP literals and `localhost` that a request's `Host` may
    /// have while anonymous access is on (SEC-23).
    pub allowed_hosts: Vec<String>,
    /// `http.allowed_origins`: origins beside the listener's own that may send requests (SEC-23).
    pub allowed_origins: Vec<String>,
    /// `http.public_url`: how clients reach this listener, such as `https://bus.example`; begins the
    /// `Location` of a locked message (HTP-06). By default the request's `Host` behind `http://`, or `https://`
    /// where TLS is spoken.
    pub public_url: Option<String>,
    /// `http.workers`: threads that serve connections.
    pub workers: usize,
    /// `http.connection_count_max`: open connections; for a further one that is closed which was idle
    /// longest, and if none is, it is refused with `ServerBusy`.
    pub connection_count_max: usize,
    /// `http.inbound_bytes_max`: requests in memory, all connections together; when it is used up, the
    /// slowest yields to who waits, and who finds no room in time is answered with `ServerBusy`.
    pub inbound_bytes_max: u64,
    /// `http.outbound_bytes_max`: answers in memory until they were written, likewise.
    pub outbound_bytes_max: u64,
    /// `http.head_timeout`: time in which the line and headers of a request must have arrived.
    pub head_timeout: Duration,
    /// `http.body_timeout`: time after which a request body that has begun must arrive at a pace.
    pub body_timeout: Duration,
    /// `http.write_timeout`: time after which an answer must be read at a pace.
    pub write_timeout: Duration,
    /// `http.operation_timeout`: how long the broker is waited for, beyond what a receive asks to wait; then the answer is
    /// `ServiceTimeout`.
    pub operation_timeout: Duration,
    /// `http.keep_alive`: how long an idle connection stays open.
    pub keep_alive: Duration,
    /// `http.metrics_public`: whether `/metrics`, which names entities, needs no Manage right.
    pub metrics_public: bool,
    /// `tls.enabled`: how connections are made secure; none if they are not.
    pub tls: Option<Acceptor>,
    /// `http.proxy_protocol`: proxies that say for whom they speak (LIS-04).
    pub proxies: Proxies,
    /// Where connections come in that another listener has accepted (LIS-01).
    pub entrance: Entrance,
    /// Where connections go that begin as AMQP; such clients are served there if its transport has started, and are refused
    /// as no HTTP if it has not.
    pub amqp: Entrance,
    /// `security.i_know`: lets a listener beyond loopback serve anonymous clients (SEC-17).
    pub i_know: bool,
    /// Renders `/metrics`; without it there is no such page.
    pub metrics: Option<MetricsHook>,
    /// `/readyz` answers 503 until this is set; without it the broker is ready as soon as it listens.
    pub readiness: Option<Readiness>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port::HTTP)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            public_url: None,
            workers: 2,
            connection_count_max: 5_000,
            inbound_bytes_max: 64 << 20,
            outbound_bytes_max: 128 << 20,
            head_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            operation_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(75),
            metrics_public: false,
            tls: None,
            proxies: Proxies::default(),
            entrance: Entrance::default(),
            amqp: Entrance::default(),
            i_know: false,
            metrics: None,
            readiness: None,
        }
    }
}

impl HttpConfig {
    /// The defaults at this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }
}

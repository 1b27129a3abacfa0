//! Settings of the HTTP transport, which the program fills from `[http]` of its configuration.
//! [`HttpTransport`](crate::HttpTransport) takes it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use actix_web::web::Bytes;
use peeklock_core::contract::{Ceiling, Principal, port};
use peeklock_core::declaration::Declaration;
use peeklock_core::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use peeklock_core::rule::RuleDescription;
use peeklock_listen::{Entrance, Proxies};
use peeklock_tls::Acceptor;

/// Renders the metrics page; provided by a metrics plugin.
pub type MetricsHook = Arc<dyn Fn() -> String + Send + Sync>;

/// Finds a file of the console for operators by its path below `/$console/`, which is empty for the
/// document; provided by a console plugin.
pub type ConsoleHook = Arc<dyn Fn(&str) -> Option<ConsoleFile> + Send + Sync>;

/// Reads and writes declarations as text; provided by the program, which knows the configuration
/// file.
pub type DeclarationHook = Arc<dyn DeclarationText>;

/// Declarations as text (CON-40).
pub trait DeclarationText: Send + Sync {
    /// Reads a TOML document, or the `Config.json` of the emulator.
    ///
    /// # Errors
    /// Returns the place of a fault, and its remedy.
    fn read(&self, text: &str) -> Result<ReadDeclaration, String>;

    /// Returns the text of a part of a namespace. The texts of all parts, one after the other, are
    /// one TOML document.
    ///
    /// # Errors
    /// Returns the value that TOML cannot hold.
    fn write(&self, part: &DeclaredPart<'_>) -> Result<String, String>;
}

/// Finds the place in a text of an error about its declaration.
pub type PlaceHook = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A declaration that was read from a text.
pub struct ReadDeclaration {
    /// The declaration.
    pub declaration: Declaration,
    /// Values that were ignored or changed, each with its place.
    pub notes: Vec<String>,
    /// The reason why entities that the text does not name must not be deleted, if there is one.
    pub reason_to_keep: Option<String>,
    /// Returns the place in the text of an error whose detail begins with the place in the
    /// declaration.
    pub place_of: PlaceHook,
}

/// A part of a namespace, in the order of its text.
#[derive(Debug)]
pub enum DeclaredPart<'a> {
    /// The beginning of the document.
    Head,
    /// A queue.
    Queue(&'a QueueDescription),
    /// A topic; its subscriptions follow.
    Topic(&'a TopicDescription),
    /// A subscription of the topic before it.
    Subscription {
        /// Its properties.
        subscription: &'a SubscriptionDescription,
        /// Whether its rules follow; it has none otherwise.
        has_rules: bool,
    },
    /// A rule of the subscription before it.
    Rule(&'a RuleDescription),
}

/// A file of the console.
#[derive(Clone, Debug)]
pub struct ConsoleFile {
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Whether the content of its address never changes, so that a browser may keep it forever.
    pub is_immutable: bool,
    /// Further headers, such as the content security policy.
    pub headers: &'static [(&'static str, &'static str)],
    /// The content.
    pub content: Bytes,
}

/// Whether the program is ready to serve; set by its host.
#[derive(Clone, Default, Debug)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    const READY: u8 = 1;
    const ENDED: u8 = 2;

    /// Makes `/readyz` report that the broker is ready, from now on.
    pub fn set(&self) {
        self.0.store(Self::READY, Ordering::Release);
    }

    /// Makes `/readyz` report that the broker is stopping, from now on. Requests are still served.
    pub fn end(&self) {
        self.0.store(Self::ENDED, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::READY
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ENDED
    }
}

/// The settings of the HTTP transport.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpConfig {
    /// `http.address`: address to listen on; loopback by default.
    pub address: SocketAddr,
    /// `http.allowed_hosts`: names that the `Host` of a request may have while anonymous access is
    /// on, in addition to IP literals and `localhost` (SEC-23).
    pub allowed_hosts: Vec<String>,
    /// `http.allowed_origins`: foreign origins that may send requests (SEC-23); the listener's own
    /// always may.
    pub allowed_origins: Vec<String>,
    /// `http.public_url`: URL by which clients reach this listener, such as `https://bus.example`;
    /// used at the start of the `Location` of a locked message (HTP-06). By default the request's
    /// `Host` after `http://`, or after `https://` with TLS.
    pub public_url: Option<String>,
    /// `http.workers`: number of threads that serve connections.
    pub workers: usize,
    /// `http.connection_count_max`: maximum number of open connections. A further one replaces the
    /// connection that is idle longest; if none is idle, it is refused with `ServerBusy`.
    pub connection_count_max: usize,
    /// `http.inbound_bytes_max`: maximum of bytes of requests in memory, all connections together.
    /// At the limit the slowest request yields to waiting ones; a request without room in time is
    /// answered with `ServerBusy`.
    pub inbound_bytes_max: u64,
    /// `http.outbound_bytes_max`: maximum of bytes of unwritten answers, with the same rules.
    pub outbound_bytes_max: u64,
    /// `http.stream_count_max`: maximum number of open streams (CON-33). A further one is refused
    /// with `ServerBusy`.
    pub stream_count_max: usize,
    /// `http.head_timeout`: maximum time until the request line and headers have arrived.
    pub head_timeout: Duration,
    /// `http.body_timeout`: time after which a partial request body must arrive at a minimum pace.
    pub body_timeout: Duration,
    /// `http.write_timeout`: time after which an answer must be read at a minimum pace.
    pub write_timeout: Duration,
    /// `http.operation_timeout`: maximum time that a request waits for the broker, in addition to
    /// the requested wait of a receive; then the answer is `ServiceTimeout`.
    pub operation_timeout: Duration,
    /// `http.keep_alive`: maximum time that an idle connection stays open.
    pub keep_alive: Duration,
    /// `http.metrics_public`: whether `/metrics`, which names entities, needs no Manage right.
    pub metrics_public: bool,
    /// `tls.enabled`: TLS of the listener; none for plain connections.
    pub tls: Option<Acceptor>,
    /// `http.proxy_protocol`: proxies whose PROXY header gives the address of the client (LIS-04).
    pub proxies: Proxies,
    /// Entrance for connections that another listener has accepted (LIS-01).
    pub entrance: Entrance,
    /// Destination of connections that begin as AMQP. They are served there if the AMQP transport
    /// has started; otherwise they are refused as invalid HTTP.
    pub amqp: Entrance,
    /// `security.i_know`: lets a listener beyond loopback serve anonymous clients (SEC-17).
    pub i_know: bool,
    /// `console.read_only`: highest role of every client of the JSON API (CON-73).
    pub role_max: Ceiling,
    /// `console.anonymous_role`: highest role of clients of the JSON API without credentials. None:
    /// admin on loopback, viewer elsewhere.
    pub anonymous_role: Option<Ceiling>,
    /// `console.unlock`: an administrator with a console token is a viewer until it is unlocked; one
    /// without credentials is always a viewer (CON-73).
    pub needs_unlock: bool,
    /// `console.protect`: paths of entities that the JSON API neither deletes nor purges (CON-64).
    pub protected: Vec<String>,
    /// Renders `/metrics`; none for no such page.
    pub metrics: Option<MetricsHook>,
    /// Files under `/$console/`; none for no console.
    pub console: Option<ConsoleHook>,
    /// Declarations as text; none for no such operations.
    pub declarations: Option<DeclarationHook>,
    /// `/readyz` answers 503 until this is set; without it the broker is ready as soon as it
    /// listens.
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
            stream_count_max: 64,
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
            role_max: Ceiling::Admin,
            anonymous_role: None,
            needs_unlock: false,
            protected: Vec::new(),
            metrics: None,
            console: None,
            declarations: None,
            readiness: None,
        }
    }
}

impl HttpConfig {
    /// Returns the default settings with this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }

    /// Returns the highest role of a client of the JSON API.
    pub(crate) fn ceiling(&self, principal: &Principal) -> Ceiling {
        if principal.token.is_some() || principal.tls.is_some() {
            return self.role_max;
        }
        let usual = if principal.is_local() { Ceiling::Admin } else { Ceiling::Viewer };
        let role = self.role_max.min(self.anonymous_role.unwrap_or(usual));
        // There is no token to unlock.
        if self.needs_unlock && role == Ceiling::Admin { Ceiling::Viewer } else { role }
    }
}

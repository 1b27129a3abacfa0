//! Settings of the WebSocket transport, which the program fills from `[websocket]` of its
//! configuration. [`WebSocketTransport`](crate::WebSocketTransport) takes it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use peeklock_core::contract::port;
use peeklock_listen::{Entrance, Proxies};
use peeklock_tls::Acceptor;

/// The settings of the WebSocket transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WebSocketConfig {
    /// `websocket.address`: address to listen on; loopback by default.
    pub address: SocketAddr,
    /// `websocket.allowed_hosts`: names that the `Host` of an upgrade may have while anonymous
    /// access is on, in addition to IP literals and `localhost` (SEC-23).
    pub allowed_hosts: Vec<String>,
    /// `websocket.allowed_origins`: foreign origins that may connect (SEC-23); the listener's own
    /// always may.
    pub allowed_origins: Vec<String>,
    /// `websocket.workers`: number of threads that serve connections.
    pub workers: usize,
    /// `websocket.connection_count_max`: maximum number of connections, including those that may be
    /// resumed.
    pub connection_count_max: usize,
    /// `websocket.link_count_max`: maximum number of links of a connection.
    pub link_count_max: usize,
    /// `websocket.unsettled_count_max`: maximum number of unsettled deliveries of a receiver. At
    /// the limit it gets no further deliveries.
    pub unsettled_count_max: u32,
    /// `websocket.frame_bytes_max`: maximum size of a client frame in bytes.
    pub frame_bytes_max: usize,
    /// `websocket.inbound_bytes_max`: maximum of bytes of partial frames, all connections together.
    /// At the limit, sockets are not read, and the slowest one yields.
    pub inbound_bytes_max: u64,
    /// `websocket.outbound_bytes_max`: maximum of bytes of deliveries under way on one connection.
    /// Twice this is kept for a client that has not confirmed it. A socket with this many bytes of
    /// answers is not read.
    pub outbound_bytes_max: u64,
    /// `websocket.handshake_timeout`: maximum duration of the upgrade, and of the hello after it.
    pub handshake_timeout: Duration,
    /// `websocket.frame_timeout`: time after which a partial frame, and written bytes, must make
    /// progress at a minimum pace.
    pub frame_timeout: Duration,
    /// `websocket.heartbeat`: longest silence of either side.
    pub heartbeat: Duration,
    /// `websocket.grace`: longest time that a lost connection may be resumed, if its client asks
    /// for it.
    pub grace: Duration,
    /// `tls.enabled`: TLS of the listener; none for plain connections.
    pub tls: Option<Acceptor>,
    /// `websocket.proxy_protocol`: proxies whose PROXY header gives the address of the client
    /// (LIS-04).
    pub proxies: Proxies,
    /// Entrance for connections that another listener has accepted (LIS-01).
    pub entrance: Entrance,
    /// `security.i_know`: lets a listener beyond loopback serve anonymous clients (SEC-17).
    pub i_know: bool,
}

impl Default for WebSocketConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port::WEBSOCKET)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            workers: 2,
            connection_count_max: 5_000,
            link_count_max: 256,
            unsettled_count_max: 8_192,
            frame_bytes_max: 4 << 20,
            inbound_bytes_max: 64 << 20,
            outbound_bytes_max: 2 << 20,
            handshake_timeout: Duration::from_secs(5),
            frame_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(20),
            grace: Duration::from_secs(30),
            tls: None,
            proxies: Proxies::default(),
            entrance: Entrance::default(),
            i_know: false,
        }
    }
}

impl WebSocketConfig {
    /// Returns the default settings with this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }
}

//! What an operator can set.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use peeklock_core::contract::port;
use peeklock_listen::{Entrance, Proxies};
use peeklock_tls::Acceptor;

/// The settings of the WebSocket transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WebSocketConfig {
    /// `websocket.address`: where to listen; loopback unless told otherwise.
    pub address: SocketAddr,
    /// `websocket.allowed_hosts`: names beside IP literals and `localhost` that an upgrade's `Host`
    /// may have while anonymous access is on (SEC-23).
    pub allowed_hosts: Vec<String>,
    /// `websocket.allowed_origins`: origins beside the listener's own that may connect (SEC-23).
    pub allowed_origins: Vec<String>,
    /// `websocket.workers`: threads that serve connections.
    pub workers: usize,
    /// `websocket.connection_count_max`: connections, those that may be resumed included.
    pub connection_count_max: usize,
    /// `websocket.link_count_max`: links of one connection.
    pub link_count_max: usize,
    /// `websocket.unsettled_count_max`: deliveries of one receiver that are not settled; beyond, it
    /// gets nothing more.
    pub unsettled_count_max: u32,
    /// `websocket.frame_bytes_max`: a frame of a client.
    pub frame_bytes_max: usize,
    /// `websocket.inbound_bytes_max`: frames that have not arrived whole, all connections together;
    /// beyond, sockets are not read, and the slowest yields.
    pub inbound_bytes_max: u64,
    /// `websocket.outbound_bytes_max`: deliveries of one connection that are under way. Twice as much is
    /// kept for a client that has not confirmed it; with as much in answers its socket is not read.
    pub outbound_bytes_max: u64,
    /// `websocket.handshake_timeout`: time for the upgrade, and for the hello after it.
    pub handshake_timeout: Duration,
    /// `websocket.frame_timeout`: time after which a frame that has begun, and what was written, must pass
    /// at a pace.
    pub frame_timeout: Duration,
    /// `websocket.heartbeat`: the longest silence of either side.
    pub heartbeat: Duration,
    /// `websocket.grace`: how long a lost connection may be resumed, if its client asks for it.
    pub grace: Duration,
    /// `tls.enabled`: how connections are made secure; none if they are not.
    pub tls: Option<Acceptor>,
    /// `websocket.proxy_protocol`: proxies that say for whom they speak (LIS-04).
    pub proxies: Proxies,
    /// Where connections come in that another listener has accepted (LIS-01).
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
    /// The defaults at this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }
}

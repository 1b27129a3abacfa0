//! Settings of the AMQP transport, and the settings of each connection that follow from them.
//! [`AmqpTransport`](super::AmqpTransport) takes it.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;

use peeklock_core::contract::port;
use peeklock_listen::{Entrance, Proxies, SharedPort};
use peeklock_tls::Acceptor;

use crate::connection::Config;

/// Maximum size of a request to `$cbs`, to a coordinator, or to the management node of an entity
/// that takes no messages, in bytes.
const REQUEST_BYTES_MAX: NonZero<u64> = NonZero::new(2 << 20).unwrap();

/// The settings of the AMQP transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AmqpConfig {
    /// `amqp.address`: address to listen on; loopback by default.
    pub address: SocketAddr,
    /// `amqp.allowed_hosts`: names, in addition to `localhost` and IP addresses, by which clients
    /// over WebSocket may address this broker while anonymous access is on (SEC-23).
    pub allowed_hosts: Vec<String>,
    /// Hosts by which clients know this broker. An audience may start with one of these names
    /// instead of a scheme (AMQP-24).
    pub own_hosts: Vec<String>,
    /// `amqp.allowed_origins`: origins whose web pages may connect over WebSocket (SEC-23).
    pub allowed_origins: Vec<String>,
    /// `amqp.workers`: number of threads that serve connections.
    pub workers: usize,
    /// `amqp.connection_count_max`: maximum number of connections.
    pub connection_count_max: usize,
    /// `amqp.link_count_max`: maximum number of links, and of tokens, of a connection.
    pub link_count_max: usize,
    /// `amqp.shared_link_count_max`: maximum number of links that all connections share above the
    /// first 256 of each connection.
    pub shared_link_count_max: usize,
    /// First delivery-count of links to clients, on the wire and internally. Clients accept any
    /// number; it wraps at 2³² (AMQP-09).
    pub initial_delivery_count: u32,
    /// `amqp.unsettled_count_max`: maximum number of unsettled deliveries of a receiver, and of a
    /// session.
    pub unsettled_count_max: u32,
    /// `limits.message_bytes_max`: maximum message size in bytes, if the entity allows it
    /// (AMQP-34).
    pub message_bytes_max: NonZero<u64>,
    /// `amqp.inbound_bytes_max`: maximum number of bytes of incomplete messages, over all
    /// connections. Above it, sockets are not read, and the slowest client is disconnected.
    pub inbound_bytes_max: u64,
    /// `amqp.outbound_bytes_max`: maximum number of bytes of deliveries and answers in transit on a
    /// connection.
    pub outbound_bytes_max: u64,
    /// `amqp.opening_timeout`: maximum time until a client has authenticated and opened its
    /// connection.
    pub opening_timeout: Duration,
    /// `amqp.idle_timeout`: maximum time without bytes from a client (AMQP-06).
    pub idle_timeout: Duration,
    /// `amqp.write_timeout`: maximum time in which a client reads none of the written bytes.
    pub write_timeout: Duration,
    /// `tls.enabled`: acceptor of TLS; `None` for plain connections.
    pub tls: Option<Acceptor>,
    /// `amqp.proxy_protocol`: proxies that report the addresses of their clients (LIS-04).
    pub proxies: Proxies,
    /// Entrance for connections that another listener has accepted (LIS-01).
    pub entrance: Entrance,
    /// Other transports at `amqp.address` (LIS-01), with [`entrance`](Self::entrance) as its
    /// `amqp`. `None` by default: the port serves AMQP and AMQP over WebSocket. With TLS it needs
    /// an acceptor for [`Protocol::HttpOrAmqp`](peeklock_tls::Protocol::HttpOrAmqp).
    pub shared_port: Option<SharedPort>,
    /// `security.i_know`: allows a listener beyond loopback to serve anonymous clients (SEC-17).
    pub i_know: bool,
}

impl Default for AmqpConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port::AMQP)),
            allowed_hosts: Vec::new(),
            own_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            workers: 2,
            connection_count_max: 5_000,
            link_count_max: 4_999,
            shared_link_count_max: 65_536,
            initial_delivery_count: 0,
            unsettled_count_max: 8_192,
            message_bytes_max: NonZero::new(100 << 20).unwrap_or(NonZero::<u64>::MIN),
            inbound_bytes_max: 64 << 20,
            outbound_bytes_max: 2 << 20,
            opening_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(240),
            write_timeout: Duration::from_secs(30),
            tls: None,
            proxies: Proxies::default(),
            entrance: Entrance::default(),
            shared_port: None,
            i_know: false,
        }
    }
}

impl AmqpConfig {
    /// Makes the default settings with this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }

    /// Returns the settings for the machine of a connection.
    pub(super) fn of_connection(&self, container_id: &str) -> Config {
        Config {
            container_id: container_id.into(),
            // The JavaScript SDK skips SASL if its connection string has a token and no key
            // (AMQP-04).
            sasl_required: false,
            initial_delivery_count: self.initial_delivery_count,
            idle_time_out: self.idle_timeout,
            opening_max: self.opening_timeout,
            unsettled_max: usize::try_from(self.unsettled_count_max).unwrap_or(usize::MAX),
            message_bytes_max: REQUEST_BYTES_MAX,
            ..Config::default()
        }
    }
}

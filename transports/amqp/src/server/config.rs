//! What an operator can set.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;

use peeklock_core::contract::port;
use peeklock_listen::{Entrance, Proxies, SharedPort};
use peeklock_tls::Acceptor;

use crate::connection::Config;

/// What is asked of `$cbs` and of coordinators, and of management nodes of what takes no messages.
const REQUEST_BYTES_MAX: NonZero<u64> = NonZero::new(2 << 20).unwrap();

/// The settings of the AMQP transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AmqpConfig {
    /// `amqp.address`: where to listen; loopback unless told otherwise.
    pub address: SocketAddr,
    /// `amqp.allowed_hosts`: names, besides `localhost` and IP addresses, by which clients over WebSocket may
    /// address this broker while anonymous access is on (SEC-23).
    pub allowed_hosts: Vec<String>,
    /// Hosts that clients know this broker by: an audience may name one of them without a scheme before it (AMQP-24).
    pub own_hosts: Vec<String>,
    /// `amqp.allowed_origins`: origins whose web pages may connect over WebSocket (SEC-23).
    pub allowed_origins: Vec<String>,
    /// `amqp.workers`: threads that serve connections.
    pub workers: usize,
    /// `amqp.connection_count_max`: connections.
    pub connection_count_max: usize,
    /// `amqp.link_count_max`: links, and tokens, of one connection.
    pub link_count_max: usize,
    /// `amqp.shared_link_count_max`: those of all connections together beyond the first 256 of each.
    pub shared_link_count_max: usize,
    /// What deliveries to a client are counted from on each link, on the wire as here. Clients take any number; it
    /// goes round at 2³² (AMQP-09).
    pub initial_delivery_count: u32,
    /// `amqp.unsettled_count_max`: deliveries of one receiver, and of one session, that are not settled.
    pub unsettled_count_max: u32,
    /// `limits.message_bytes_max`: the largest message of a client, where its entity allows it (AMQP-34).
    pub message_bytes_max: NonZero<u64>,
    /// `amqp.inbound_bytes_max`: messages that have not arrived whole, all connections together; beyond,
    /// sockets are not read, and the slowest yields.
    pub inbound_bytes_max: u64,
    /// `amqp.outbound_bytes_max`: deliveries and answers of one connection that are under way.
    pub outbound_bytes_max: u64,
    /// `amqp.opening_timeout`: time until a client has said who it is and opened its connection.
    pub opening_timeout: Duration,
    /// `amqp.idle_timeout`: the longest silence of a client (AMQP-06).
    pub idle_timeout: Duration,
    /// `amqp.write_timeout`: the longest time in which a client takes nothing of what is written.
    pub write_timeout: Duration,
    /// `tls.enabled`: how connections are made secure; none if they are not.
    pub tls: Option<Acceptor>,
    /// `amqp.proxy_protocol`: proxies that say for whom they speak (LIS-04).
    pub proxies: Proxies,
    /// Where connections come in that another listener has accepted (LIS-01).
    pub entrance: Entrance,
    /// The other transports that are served at `amqp.address` (LIS-01), with [`entrance`](Self::entrance) as its `amqp`.
    /// None by default: the port answers AMQP and AMQP over WebSocket. With TLS it takes an acceptor for
    /// [`Protocol::HttpOrAmqp`](peeklock_tls::Protocol::HttpOrAmqp).
    pub shared_port: Option<SharedPort>,
    /// `security.i_know`: lets a listener beyond loopback serve anonymous clients (SEC-17).
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
    /// The defaults at this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }

    /// What the machine of a connection is told.
    pub(super) fn of_connection(&self, container_id: &str) -> Config {
        Config {
            container_id: container_id.into(),
            // JavaScript says nothing of itself when its connection string has a token and no key (AMQP-04).
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

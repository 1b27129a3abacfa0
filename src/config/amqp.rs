//! The section `[amqp]`.

use std::net::SocketAddr;

use peeklock::limits::Limits;
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::gateway::ProxyList;
use super::text::{List, Scalar};

/// The AMQP transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct AmqpSection {
    /// Where it listens, for AMQP and for AMQP over WebSocket.
    pub address: Scalar<SocketAddr>,
    /// Proxies that say for whom they speak.
    pub proxy_protocol: ProxyList,
    /// Names of this broker (SEC-23).
    pub allowed_hosts: List,
    /// Origins of web pages that may connect over WebSocket (SEC-23).
    pub allowed_origins: List,
    /// Threads that serve connections; zero for one per core.
    pub workers: Scalar<usize>,
    /// Connections at the same time; zero for the limit of the namespace.
    pub connection_count_max: Scalar<usize>,
    /// Links, and tokens, of one connection.
    pub link_count_max: Scalar<usize>,
    /// Those of all connections together beyond the first 256 of each.
    pub shared_link_count_max: Scalar<usize>,
    /// Deliveries of one receiver that are not settled.
    pub unsettled_count_max: Scalar<u32>,
    /// Messages that have not arrived whole in memory.
    pub inbound_bytes_max: Scalar<u64>,
    /// Deliveries of one connection that are under way.
    pub outbound_bytes_max: Scalar<u64>,
    /// Time until a client has opened its connection.
    pub opening_timeout: Scalar<TimeSpan>,
    /// The longest silence of a client.
    pub idle_timeout: Scalar<TimeSpan>,
    /// The longest time in which a client takes nothing of what is written.
    pub write_timeout: Scalar<TimeSpan>,
}

impl AmqpSection {
    /// Connections at the same time.
    pub const fn connection_count_max(&self, limits: &Limits) -> usize {
        match self.connection_count_max.0 {
            0 => limits.connection_count_max,
            count => count,
        }
    }
}

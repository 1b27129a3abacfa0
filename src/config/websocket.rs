//! The section `[websocket]`.

use std::net::SocketAddr;

use peeklock::limits::Limits;
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::gateway::ProxyList;
use super::text::{List, Scalar};

/// The WebSocket transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct WebSocketSection {
    /// Where it listens.
    pub address: Scalar<SocketAddr>,
    /// Proxies that say for whom they speak.
    pub proxy_protocol: ProxyList,
    /// Names of this broker (SEC-23).
    pub allowed_hosts: List,
    /// Origins of web pages that may connect (SEC-23).
    pub allowed_origins: List,
    /// Threads that serve connections; zero for one per core.
    pub workers: Scalar<usize>,
    /// Connections at the same time; zero for the limit of the namespace.
    pub connection_count_max: Scalar<usize>,
    /// Links of one connection.
    pub link_count_max: Scalar<usize>,
    /// Deliveries of one receiver that are not settled.
    pub unsettled_count_max: Scalar<u32>,
    /// A frame of a client.
    pub frame_bytes_max: Scalar<usize>,
    /// Frames that have not arrived whole in memory.
    pub inbound_bytes_max: Scalar<u64>,
    /// Deliveries of one connection that are under way.
    pub outbound_bytes_max: Scalar<u64>,
    /// Time for the upgrade, and for the first frame.
    pub handshake_timeout: Scalar<TimeSpan>,
    /// Time for a frame that has begun.
    pub frame_timeout: Scalar<TimeSpan>,
    /// The longest silence of either side.
    pub heartbeat: Scalar<TimeSpan>,
    /// How long a lost connection may be resumed.
    pub grace: Scalar<TimeSpan>,
}

impl WebSocketSection {
    /// Connections at the same time.
    pub const fn connection_count_max(&self, limits: &Limits) -> usize {
        match self.connection_count_max.0 {
            0 => limits.connection_count_max,
            count => count,
        }
    }
}

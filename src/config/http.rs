//! The section `[http]`.

use std::net::SocketAddr;

use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::gateway::ProxyList;
use super::text::{List, Scalar};

/// The HTTP transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct HttpSection {
    /// Where it listens.
    pub address: Scalar<SocketAddr>,
    /// Proxies that say for whom they speak.
    pub proxy_protocol: ProxyList,
    /// Names of this broker (SEC-23).
    pub allowed_hosts: List,
    /// Origins of web pages that may send requests (SEC-23).
    pub allowed_origins: List,
    /// Threads that serve connections; zero for one per core.
    pub workers: Scalar<usize>,
    /// How clients reach it; empty for the `Host` of the request (HTP-06).
    pub public_url: Scalar<String>,
    /// Connections at the same time; zero for the limit of the namespace.
    pub connection_count_max: Scalar<usize>,
    /// Request bodies in memory.
    pub inbound_bytes_max: Scalar<u64>,
    /// Contents on their way out in memory.
    pub outbound_bytes_max: Scalar<u64>,
    /// Time for the head of a request.
    pub head_timeout: Scalar<TimeSpan>,
    /// Time for the body of a request, before it must come at a pace.
    pub body_timeout: Scalar<TimeSpan>,
    /// Time for an answer, before it must be read at a pace.
    pub write_timeout: Scalar<TimeSpan>,
    /// Time for what a request asks of the broker, beyond the wait of a receive.
    pub operation_timeout: Scalar<TimeSpan>,
    /// How long an idle connection stays open.
    pub keep_alive: Scalar<TimeSpan>,
    /// Whether the metrics page needs no right.
    pub metrics_public: Scalar<bool>,
}

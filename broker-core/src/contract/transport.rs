//! The contract of a transport: bytes to commands and back, framing and flow control, nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::broker::Broker;

/// Why a transport could not start.
#[derive(Debug, thiserror::Error)]
#[error("{transport} cannot listen on {address}: {source}")]
pub struct TransportError {
    /// Its name.
    pub transport: &'static str,
    /// Where it should have listened.
    pub address: String,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// A way into the broker. All transports offer one semantics (FND-05): they build
/// [`crate::command::Command`]s and submit them to [`crate::broker::Entity`] handles, which they get from the
/// [`Access`](crate::access::Access) of each client ([`Broker::access`]). Handles check what is granted;
/// a transport never decides who may do what.
#[async_trait]
pub trait Transport: Send {
    /// The name in configuration, logs and metrics.
    fn name(&self) -> &'static str;

    /// Begins to listen. Called once, by the host, inside a tokio runtime; returns when connections
    /// are accepted, and goes on in threads or tasks of its own.
    ///
    /// # Errors
    /// When the address cannot be bound.
    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError>;
}

/// A transport that accepts connections.
#[async_trait]
pub trait RunningTransport: Send {
    /// The address it is bound to.
    fn local_address(&self) -> SocketAddr;

    /// Stops accepting, lets requests in progress end for up to `grace`, closes what is left.
    async fn stop(self: Box<Self>, grace: Duration);
}

//! Where a transport listens, and whether it may.

use std::io;
use std::net::{SocketAddr, TcpListener};

use peeklock_core::Broker;
use peeklock_core::contract::TransportError;

/// Where a transport listens.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// The name of the transport.
    pub transport: &'static str,
    /// The address that was configured; with port 0 the system chooses one.
    pub address: SocketAddr,
    /// `security.i_know`: whether anonymous clients are served beyond loopback, too (SEC-17).
    pub i_know: bool,
}

impl Listener {
    /// A socket that takes connections. Who listens beyond loopback without authentication must say so (SEC-17).
    ///
    /// # Errors
    /// When it may not be, or the system does not give the address.
    pub fn bind(&self, broker: &Broker) -> Result<TcpListener, TransportError> {
        let is_open = broker.allows_anonymous() && !self.address.ip().is_loopback();
        if is_open && !self.i_know {
            return Err(self.failed(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "anonymous access is on and the address is not loopback; configure a policy, or set \
                 `security.i_know = true` to serve everybody who can reach it",
            )));
        }
        TcpListener::bind(self.address).map_err(|error| self.failed(error))
    }

    /// Why the transport could not start.
    #[must_use]
    pub fn failed(&self, source: io::Error) -> TransportError {
        TransportError { transport: self.transport, address: self.address.to_string(), source }
    }
}

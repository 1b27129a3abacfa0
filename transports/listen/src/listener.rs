//! Address of a transport, and the check whether it may listen there. Transports bind with it.
//! Anonymous access on other addresses than loopback needs a confirmation (SEC-17).

use std::io;
use std::net::{SocketAddr, TcpListener};

use peeklock_core::Broker;
use peeklock_core::contract::TransportError;
use socket2::SockRef;

/// Connections that wait in the system until they are accepted, limited by the system
/// (`net.core.somaxconn` on Linux). The connection attempt of a further client is dropped, and it
/// retries after a second. The usual value of 128 is too small for a burst of connections.
const UNACCEPTED_MAX: i32 = 1_024;

/// Listening address of a transport.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// Name of the transport.
    pub transport: &'static str,
    /// Configured address; with port 0 the system chooses a port.
    pub address: SocketAddr,
    /// `security.i_know`: allows anonymous clients on an address other than loopback (SEC-17).
    pub i_know: bool,
}

impl Listener {
    /// Opens a listening socket. Anonymous access beyond loopback requires `i_know` (SEC-17).
    ///
    /// # Errors
    /// If anonymous access is not allowed at the address, or the system refuses the address.
    pub fn bind(&self, broker: &Broker) -> Result<TcpListener, TransportError> {
        let is_open = broker.allows_anonymous() && !self.address.ip().is_loopback();
        if is_open && !self.i_know {
            return Err(self.failed(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "anonymous access is on and the address is not loopback; configure a policy, or \
                 set `security.i_know = true` to serve every client that can reach it",
            )));
        }
        let listening = TcpListener::bind(self.address).and_then(|socket| {
            SockRef::from(&socket).listen(UNACCEPTED_MAX)?;
            Ok(socket)
        });
        listening.map_err(|error| self.failed(error))
    }

    /// Error for a transport that could not start.
    #[must_use]
    pub fn failed(&self, source: io::Error) -> TransportError {
        TransportError { transport: self.transport, address: self.address.to_string(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// A burst of connections is established immediately, although none is accepted yet.
    #[tokio::test]
    async fn a_burst_of_connections_is_not_turned_away() {
        const BURST: usize = 300;
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener { transport: "test", address, i_know: false };
        let socket = listener.bind(&broker).unwrap();
        let address = socket.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(900));
        let burst: Result<Vec<_>, _> = std::iter::repeat_with(connect).take(BURST).collect();
        assert_eq!(burst.unwrap().len(), BURST);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

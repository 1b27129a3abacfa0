//! Where a transport listens, and whether it may.

use std::io;
use std::net::{SocketAddr, TcpListener};

use peeklock_core::Broker;
use peeklock_core::contract::TransportError;
use socket2::SockRef;

/// So many connections that nobody has accepted yet wait in the system, as far as that lets them (`net.core.somaxconn` on
/// Linux). Clients of further ones hear nothing, and try again after a second: with the 128 that are usual a burst of
/// connections is enough for that.
const UNACCEPTED_MAX: i32 = 1_024;

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

    /// Why the transport could not start.
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

    /// Many who come at once are connected at once, although none of them is accepted yet.
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

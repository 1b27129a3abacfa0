//! From the settings of a transport to its listener, for transports whose connections live on
//! threads of the listener and need places apart from sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::admission::sockets;
use peeklock_core::contract::{RunningTransport, TransportError};
use peeklock_tls::Acceptor;

use crate::accept::socket_permits;
use crate::admission::Admission;
use crate::entrance::{Entrance, Shared};
use crate::gateway::{SharedListener, SharedPort};
use crate::listener::Listener;
use crate::proxy::Proxies;
use crate::serve::{Serve, Threads};

/// Settings that such transports have in common.
#[derive(Debug)]
pub struct ListenerStart {
    /// Name of the transport.
    pub transport: &'static str,
    /// Name of its threads.
    pub threads: &'static str,
    /// Address to listen on.
    pub address: SocketAddr,
    /// `security.i_know`: allows anonymous clients on an address other than loopback (SEC-17).
    pub i_know: bool,
    /// Number of threads that serve connections.
    pub workers: usize,
    /// Maximum connections; there are [spare sockets](peeklock_core::admission::spare_sockets) in addition.
    pub connection_count_max: usize,
    /// Proxies that name their clients (LIS-04).
    pub proxies: Proxies,
    /// TLS settings; none for connections without TLS.
    pub tls: Option<Acceptor>,
    /// Entrance for connections that another listener has accepted (LIS-01). It holds the site, so
    /// the site must not hold it, which would be a reference cycle.
    pub entrance: Entrance,
    /// Other transports at the same port; none if the port serves only this transport.
    pub shared_port: Option<SharedPort>,
}

impl ListenerStart {
    /// Listens, and serves connections with the site that `site` creates for this broker.
    ///
    /// # Errors
    /// If listening at the address is not allowed, or the system provides no address or no threads.
    pub fn serve<S: Serve>(
        self,
        broker: Broker,
        site: impl FnOnce(Broker) -> S,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let listener =
            Listener { transport: self.transport, address: self.address, i_know: self.i_know };
        let socket = listener.bind(&broker)?;
        let socket_count_max = sockets(self.connection_count_max);
        let admission = Admission { proxies: self.proxies, tls: self.tls };
        let (name, count, entrance) = (self.threads, self.workers, self.entrance);
        let site = Arc::new(site(broker));
        let Some(shared) = self.shared_port else {
            let threads = Threads { name, count, socket_count_max, admission, entrance };
            return listener.serve(socket, threads, site);
        };
        let own = Some(site.connections().clone());
        entrance.open(Shared::new(site, socket_permits(socket_count_max), socket_count_max));
        SharedListener { listener, threads: name, workers: count, admission, shared, own }
            .open(socket)
    }
}

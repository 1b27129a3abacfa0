//! From the settings of a transport to its listener, for those whose connections live in threads of their listener, and have
//! places beside their sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::contract::{RunningTransport, TransportError};
use peeklock_tls::Acceptor;

use crate::accept::{places, sockets};
use crate::admission::Admission;
use crate::entrance::{Entrance, Shared};
use crate::gateway::{Door, SharedPort};
use crate::listener::Listener;
use crate::proxy::Proxies;
use crate::serve::{Serve, Threads};

/// What such transports are told alike.
#[derive(Debug)]
pub struct Start {
    /// The name of the transport.
    pub transport: &'static str,
    /// The name of its threads.
    pub threads: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// `security.i_know`: whether anonymous clients are served beyond loopback, too (SEC-17).
    pub i_know: bool,
    /// Threads that serve connections.
    pub workers: usize,
    /// Connections, beside which there are [spare sockets](crate::spare_sockets).
    pub connection_count_max: usize,
    /// Proxies that say for whom they speak (LIS-04).
    pub proxies: Proxies,
    /// How connections are made secure; none if they are not.
    pub tls: Option<Acceptor>,
    /// Where connections come in that another listener has accepted (LIS-01). It leads to the site, which must not keep it:
    /// it would keep itself.
    pub entrance: Entrance,
    /// The other transports that are served at the same port; none where the port is for this one only.
    pub shared_port: Option<SharedPort>,
}

impl Start {
    /// Listens, and serves connections as the site of this broker does.
    ///
    /// # Errors
    /// When it may not listen there, or the system gives no address or no threads.
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
        entrance.open(Shared::new(site, places(socket_count_max), socket_count_max));
        Door { listener, threads: name, workers: count, admission, shared, own }.open(socket)
    }
}

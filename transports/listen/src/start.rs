//! From the settings of a transport to its listener, for those whose connections live in threads of their listener, and have
//! places beside their sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::contract::{RunningTransport, TransportError};
use peeklock_tls::Acceptor;

use crate::accept::sockets;
use crate::admission::Admission;
use crate::entrance::Entrance;
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
        let threads = Threads {
            name: self.threads,
            count: self.workers,
            socket_count_max: sockets(self.connection_count_max),
            admission: Admission { proxies: self.proxies, tls: self.tls },
            entrance: self.entrance,
        };
        listener.serve(socket, threads, Arc::new(site(broker)))
    }
}

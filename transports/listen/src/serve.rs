//! From a socket to its connection, and the end of all connections. Transports implement [`Serve`]
//! for their connections, and `start.rs` and `gateway.rs` run it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::contract::{RunningTransport, TransportError};
use peeklock_tls::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::accept::{accept, socket_permits};
use crate::admission::Admission;
use crate::entrance::{Entrance, Shared};
use crate::listener::Listener;
use crate::tracker::Tracker;
use crate::workers::Workers;

/// Time after the grace of a stop for the close of connections and the answers to it.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// Service of a transport for its connections.
pub trait Serve: Send + Sync + 'static {
    /// Serves a connection to its end, from its first byte inside TLS.
    fn serve(self: Arc<Self>, stream: Stream) -> impl Future<Output = ()> + Send;

    /// Connections that a stop waits for. The service must track each connection that belongs to
    /// them.
    fn connections(&self) -> &Tracker;

    /// Evicts a connection, if one can go, for a connection that waits for a socket. Called
    /// repeatedly while that connection waits.
    fn evict_for_socket(&self) {}

    /// Whether the transport accepts an upgrade to WebSocket at this path (LIS-01).
    fn takes_upgrade(&self, path: &str) -> bool;
}

/// Threads and bounds of a listener.
#[derive(Debug)]
pub struct Threads {
    /// Name of the threads.
    pub name: &'static str,
    /// Number of threads; at least one.
    pub count: usize,
    /// Maximum sockets at the same time, including connections that came through the entrance;
    /// further ones wait.
    pub socket_count_max: usize,
    /// PROXY protocol and TLS of new sockets.
    pub admission: Admission,
    /// Entrance for connections that another listener has accepted.
    pub entrance: Entrance,
}

struct Running<S> {
    listener: Listener,
    address: SocketAddr,
    site: Arc<S>,
    accepting: watch::Sender<bool>,
    workers: Workers,
}

impl Listener {
    /// Serves the connections of a socket that [`Listener::bind`] returned.
    ///
    /// # Errors
    /// If the system provides no threads.
    pub fn serve<S: Serve>(
        self,
        socket: std::net::TcpListener,
        threads: Threads,
        site: Arc<S>,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let failed = |error| self.failed(error);
        let Threads { name, count, socket_count_max, admission, entrance } = threads;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let workers = Workers::start(name, count.max(1)).map_err(failed)?;
        let sockets = socket_permits(socket_count_max);
        entrance.open(Shared::new(Arc::clone(&site), Arc::clone(&sockets), socket_count_max));
        let (accepting, stop) = watch::channel(true);
        if let Some(first) = workers.handles().first() {
            let _runtime = first.enter();
            let socket = TcpListener::from_std(socket).map_err(failed)?;
            let handles = workers.handles().to_vec();
            let (mut turn, site) = (0, Arc::clone(&site));
            let crowded = Arc::clone(&site);
            let evict = move || crowded.evict_for_socket();
            first.spawn(accept(socket, sockets, stop, evict, move |stream, permit| {
                turn = (turn + 1) % handles.len();
                if let Some(worker) = handles.get(turn) {
                    let (site, admission) = (Arc::clone(&site), admission.clone());
                    worker.spawn(async move {
                        // Boxed, so that its memory is freed before the connection is served.
                        let admitted = Box::pin(open_stream(stream, &admission));
                        if let Ok(stream) = admitted.await {
                            site.serve(stream).await;
                        }
                        drop(permit);
                    });
                }
                std::future::ready(())
            }));
        }
        tracing::info!(transport = self.transport, %address, "listening");
        Ok(Box::new(Running { listener: self, address, site, accepting, workers }))
    }
}

/// Turns a socket into a stream, in the runtime of its thread.
pub(crate) async fn open_stream(
    stream: std::net::TcpStream,
    admission: &Admission,
) -> io::Result<Stream> {
    admission.admit(TcpStream::from_std(stream)?).await
}

#[async_trait]
impl<S: Serve> RunningTransport for Running<S> {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>, grace: Duration) {
        self.accepting.send_replace(false);
        let connections = [self.site.connections().clone()];
        stop_connections(self.listener.transport, self.address, &connections, grace, self.workers)
            .await;
    }
}

/// Asks connections to end and ends their threads. Connections that exceed the grace are cut off.
pub(crate) async fn stop_connections(
    transport: &'static str,
    address: SocketAddr,
    connections: &[Tracker],
    grace: Duration,
    workers: Workers,
) {
    for tracker in connections {
        tracker.begin_stop(grace);
    }
    let quiet = async {
        for tracker in connections {
            tracker.wait_until_idle().await;
        }
    };
    if tokio::time::timeout(grace + CLOSE_GRACE, quiet).await.is_err() {
        // A connection at a shared port is counted by two trackers.
        let connections = connections.iter().map(Tracker::count).max().unwrap_or_default();
        tracing::warn!(transport, connections, "grace period is over; open connections are closed");
    }
    if !workers.end().await {
        tracing::error!(transport, "a thread of the listener panicked");
    }
    tracing::info!(transport, %address, "stopped");
}

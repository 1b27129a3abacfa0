//! From a socket to its connection, and the end of all of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::contract::{RunningTransport, TransportError};
use peeklock_tls::{Acceptor, Stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::listener::Listener;
use crate::tracker::Tracker;
use crate::workers::Workers;

/// After the grace of a stop, for what is said at the end of a connection and its answer.
const CLOSE_GRACE: Duration = Duration::from_secs(3);
/// After an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a transport does with its connections.
pub trait Serve: Send + Sync + 'static {
    /// Serves one to its end, from its first byte inside TLS on.
    fn serve(self: Arc<Self>, stream: Stream) -> impl Future<Output = ()> + Send;

    /// Those that a stop waits for. Who is served counts itself as soon as it is one of them.
    fn connections(&self) -> &Tracker;
}

/// How a listener serves.
#[derive(Debug)]
pub struct Threads {
    /// The name of its threads.
    pub name: &'static str,
    /// How many there are; at least one.
    pub count: usize,
    /// Sockets at the same time; further ones wait in the system.
    pub socket_count_max: usize,
    /// How connections are made secure; none if they are not.
    pub tls: Option<Acceptor>,
}

struct Running<S> {
    listener: Listener,
    address: SocketAddr,
    site: Arc<S>,
    accepting: watch::Sender<bool>,
    workers: Workers,
}

impl Listener {
    /// Serves the connections of a socket that [`Listener::bind`] has given.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn serve<S: Serve>(
        self,
        socket: std::net::TcpListener,
        threads: Threads,
        site: Arc<S>,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let failed = |error| self.failed(error);
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let workers = Workers::start(threads.name, threads.count.max(1)).map_err(failed)?;
        let (accepting, stop) = watch::channel(true);
        if let Some(first) = workers.handles().first() {
            let _runtime = first.enter();
            let socket = TcpListener::from_std(socket).map_err(failed)?;
            let handles = workers.handles().to_vec();
            first.spawn(accept(socket, threads, handles, Arc::clone(&site), stop));
        }
        tracing::info!(transport = self.transport, %address, "listening");
        Ok(Box::new(Running { listener: self, address, site, accepting, workers }))
    }
}

/// Accepts until it is told to stop, and hands sockets to the workers in turn.
async fn accept<S: Serve>(
    socket: TcpListener,
    threads: Threads,
    workers: Vec<Handle>,
    site: Arc<S>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(threads.socket_count_max.min(Semaphore::MAX_PERMITS)));
    let mut turn = workers.iter().cycle();
    let next = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let stream = match socket.accept().await {
                Ok((stream, _)) => stream.into_std(),
                Err(error) => Err(error),
            };
            let (Ok(stream), Some(worker)) = (stream, turn.next()) else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (site, tls) = (Arc::clone(&site), threads.tls.clone());
            worker.spawn(async move {
                // In memory of its own, which is given back when it is agreed on.
                let secured = Box::pin(secured(stream, tls.as_ref()));
                if let Ok(stream) = secured.await {
                    site.serve(stream).await;
                }
                drop(place);
            });
        }
    };
    tokio::select! {
        () = next => {}
        _ = stop.wait_for(|accepting| !accepting) => {}
    }
}

/// A socket in the runtime of its thread, with TLS on it where that is configured.
async fn secured(stream: std::net::TcpStream, tls: Option<&Acceptor>) -> io::Result<Stream> {
    let stream = TcpStream::from_std(stream)?;
    // Answers are written whole; waiting to fill a packet only delays them.
    stream.set_nodelay(true).ok();
    // Why it came to nothing was told there.
    Acceptor::accept_on(tls, stream).await.map_err(io::Error::other)
}

#[async_trait]
impl<S: Serve> RunningTransport for Running<S> {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>, grace: Duration) {
        let transport = self.listener.transport;
        self.accepting.send_replace(false);
        let connections = self.site.connections();
        connections.begin_stop(grace);
        if tokio::time::timeout(grace + CLOSE_GRACE, connections.quiet()).await.is_err() {
            let connections = connections.count();
            tracing::warn!(transport, connections, "grace is over, connections are cut");
        }
        if !self.workers.end().await {
            tracing::error!(transport, "a thread of the listener panicked");
        }
        tracing::info!(transport, address = %self.address, "stopped");
    }
}

//! One port for all protocols (LIS-01): detects the protocol of a connection by its first bytes,
//! gives them back, and hands the connection to the transport that serves it.
//!
//! ```text
//!  socket ─► proxy? ─► TLS? ─► first bytes ─┬─ AMQP ──────────────────────────► amqp
//!                                           └─ any other ─► http ─► answers, or upgrade ─► amqp, websocket
//! ```
//!
//! The AMQP port is such a port if its transport has a [`SharedPort`]; a [`Gateway`] is a further
//! one. A connection stays on the thread that accepted it, since a TLS session cannot move. The
//! bounds of its transport apply, shared with connections to the transport's own port (LIS-02):
//! there are sockets for the connections of all transports, which decide about them. This module
//! bounds only the way there: the time until a connection has shown its protocol, and the number of
//! connections that have not (LIS-03).
//!
//! A gateway parses no requests, and transports do not know each other.

mod opening;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::admission::Openings;
use peeklock_core::contract::{RunningTransport, Transport, TransportError};
use peeklock_tls::{Acceptor, Stream};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::spawn_local;

use crate::accept::{accept, socket_permits};
use crate::admission::Admission;
use crate::entrance::{self, Attend, Enter, Entrance, Upgrade};
use crate::listener::Listener;
use crate::proxy;
use crate::serve::{open_stream, stop_connections};
use crate::tracker::Tracker;
use crate::workers::Workers;
use opening::{DetectedProtocol, detect_protocol};

const NAME: &str = "gateway";
/// Thread name of a gateway that is not the port of a transport.
const THREADS: &str = "peeklock-gate";
/// Maximum connections that have not shown their protocol. A further one, or one that waits for a
/// socket, ends the oldest.
const OPENING_COUNT_MAX: usize = 256;
/// Accepted sockets that wait for a thread.
const SOCKETS_AHEAD: usize = 16;

/// Settings of the gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// `gateway.address`: address to listen on.
    pub address: SocketAddr,
    /// `gateway.workers`: number of threads that serve connections.
    pub workers: usize,
    /// `gateway.opening_timeout`: time until a connection must have shown its protocol.
    pub opening_timeout: Duration,
    /// PROXY protocol and TLS of new sockets.
    pub admission: Admission,
    /// `security.i_know`: allows anonymous clients on an address other than loopback (SEC-17).
    pub i_know: bool,
    /// Transports behind the gateway; they must start first.
    pub entrances: Entrances,
}

/// Settings that make the port of a transport a port for all protocols (LIS-01).
#[derive(Clone, Debug)]
pub struct SharedPort {
    /// `gateway.opening_timeout`: time until a connection must have shown its protocol.
    pub opening_timeout: Duration,
    /// Transports that are served at the port, including the transport that owns it. The others
    /// must start first.
    pub entrances: Entrances,
}

/// Ways to the transports behind a gateway.
#[derive(Clone, Default, Debug)]
pub struct Entrances {
    /// For connections that begin as AMQP, and for upgrades that the AMQP transport accepts.
    pub amqp: Entrance,
    /// For all other connections.
    pub http: Entrance,
    /// For upgrades that the WebSocket transport accepts.
    pub websocket: Entrance,
}

/// Transport that serves all protocols at one port. The host gives each transport its own
/// [`Entrances`] field as its `entrance`, and starts it before the gateway.
///
/// ```
/// # mod peeklock { pub use peeklock_core::*; pub use peeklock_listen as listen; }
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use peeklock::Broker;
/// use peeklock::contract::Transport;
/// use peeklock::listen::{Admission, Entrances, Gateway, GatewayConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// let entrances = Entrances::default();
/// // Pass `entrances.http.clone()` to the HTTP transport, and so on, and start these transports.
/// let gateway = Gateway::new(GatewayConfig {
///     address: SocketAddr::from(([127, 0, 0, 1], 0)),
///     workers: 2,
///     opening_timeout: Duration::from_secs(5),
///     admission: Admission::default(),
///     i_know: false,
///     entrances,
/// });
/// // No transport was started here, so the gateway cannot start.
/// let refused = Box::new(gateway).start(broker.clone()).await.err().unwrap();
/// assert!(refused.to_string().contains("has not started"));
/// # broker.stop(Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
pub struct Gateway {
    config: GatewayConfig,
}

impl GatewayConfig {
    /// Maximum sockets that belong to no transport yet: proxies without a header, TLS handshakes,
    /// connections that have not shown their protocol, and connections that wait for a socket of
    /// AMQP or WebSocket. It is the sum of these bounds, but at most `socket_count_max` (the
    /// sockets of the transports) or 256, whichever is larger. So a broker for few connections
    /// opens few files.
    #[must_use]
    pub fn pending_socket_count_max(socket_count_max: usize, handshake_count_max: usize) -> usize {
        let all = proxy::WAITING_COUNT_MAX + OPENING_COUNT_MAX + 2 * entrance::WAITING_COUNT_MAX;
        all.saturating_add(handshake_count_max).min(socket_count_max.max(OPENING_COUNT_MAX))
    }
}

impl Gateway {
    /// Creates a gateway with these settings; the host starts it.
    #[must_use]
    pub const fn new(config: GatewayConfig) -> Self {
        Self { config }
    }
}

/// Port that serves all protocols.
pub(crate) struct SharedListener {
    /// Its address, and the name of the transport that owns it.
    pub(crate) listener: Listener,
    /// Name of its threads.
    pub(crate) threads: &'static str,
    /// Number of threads; at least one.
    pub(crate) workers: usize,
    /// PROXY protocol and TLS of new sockets.
    pub(crate) admission: Admission,
    /// Transports that are served at the port.
    pub(crate) shared: SharedPort,
    /// Connections of the transport that owns the port; they end with it.
    pub(crate) own: Option<Tracker>,
}

/// State that all threads share.
struct PortState {
    transport: &'static str,
    admission: Admission,
    shared: SharedPort,
    openings: Arc<Openings>,
    connections: Tracker,
}

/// State of a thread.
struct PortThread {
    site: Arc<PortState>,
    amqp: Rc<dyn Attend>,
    http: Rc<dyn Attend>,
    websocket: Rc<dyn Attend>,
}

type Socket = (std::net::TcpStream, OwnedSemaphorePermit);

struct Running {
    listener: Listener,
    address: SocketAddr,
    /// Connections at this port, and all connections of the transport that owns it.
    connections: Vec<Tracker>,
    accepting: watch::Sender<bool>,
    workers: Workers,
}

#[async_trait]
impl Transport for Gateway {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let GatewayConfig { address, workers, opening_timeout, admission, i_know, entrances } =
            self.config;
        let listener = Listener { transport: NAME, address, i_know };
        let shared = SharedPort { opening_timeout, entrances };
        let door =
            SharedListener { listener, threads: THREADS, workers, admission, shared, own: None };
        door.check()?;
        let socket = listener.bind(&broker)?;
        door.open(socket)
    }
}

impl SharedListener {
    /// Checks that all transports behind the port have started.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        let Entrances { amqp, http, websocket } = &self.shared.entrances;
        if [amqp, http, websocket].iter().any(|entrance| entrance.get().is_none()) {
            let why = "a transport behind the gateway has not started";
            return Err(self.listener.failed(io::Error::other(why)));
        }
        Ok(())
    }

    /// Maximum sockets at the same time; the transports must have started. When they are taken, the
    /// connection that has been silent for longest is closed. If all have shown their protocol, a
    /// further socket waits until one reaches its transport or exceeds its time.
    fn sockets(&self) -> usize {
        let Entrances { amqp, http, websocket } = &self.shared.entrances;
        let of = |entrance: &Entrance| entrance.get().map_or(0, |transport| transport.sockets());
        let behind = [amqp, http, websocket].into_iter().map(of).fold(0, usize::saturating_add);
        let tls = self.admission.tls.as_ref();
        let handshakes = tls.map_or(0, Acceptor::handshake_count_max);
        behind.saturating_add(GatewayConfig::pending_socket_count_max(behind, handshakes))
    }

    /// Serves the connections of a socket that [`Listener::bind`] returned.
    pub(crate) fn open(
        self,
        socket: std::net::TcpListener,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        self.check()?;
        let (count, sockets) = (self.workers.max(1), socket_permits(self.sockets()));
        let Self { listener, threads, workers: _, admission, shared, own } = self;
        let failed = |error| listener.failed(error);
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let transport = listener.transport;
        let site = Arc::new(PortState {
            transport,
            admission,
            shared,
            openings: Openings::new(OPENING_COUNT_MAX),
            connections: Tracker::default(),
        });
        let connections = std::iter::once(site.connections.clone()).chain(own).collect();
        let (senders, mains): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                let (sender, receiver) = mpsc::channel(SOCKETS_AHEAD);
                let site = Arc::clone(&site);
                (sender, move || run(site, receiver))
            })
            .unzip();
        let workers = Workers::start_with(threads, mains).map_err(failed)?;
        let (accepting, stop) = watch::channel(true);
        if let Some(first) = workers.handles().first() {
            let _runtime = first.enter();
            let socket = TcpListener::from_std(socket).map_err(failed)?;
            let mut turn = 0;
            // Only connections without a known protocol make room here; the transports bound their
            // own connections.
            let openings = Arc::clone(&site.openings);
            let evict = move || openings.evict_oldest();
            first.spawn(accept(socket, sockets, stop, evict, move |stream, permit| {
                turn = (turn + 1) % senders.len();
                let sender = senders.get(turn).cloned();
                async move {
                    if let Some(sender) = sender {
                        // If the thread has ended, the socket is closed.
                        sender.send((stream, permit)).await.ok();
                    }
                }
            }));
        }
        tracing::info!(transport, %address, "listening");
        Ok(Box::new(Running { listener, address, connections, accepting, workers }))
    }
}

/// Main function of a thread.
async fn run(site: Arc<PortState>, mut sockets: mpsc::Receiver<Socket>) {
    let transport = site.transport;
    let thread = match PortThread::open(site).await {
        Ok(thread) => Rc::new(thread),
        Err(error) => {
            tracing::error!(transport, %error, "a thread of the listener has ended");
            return;
        }
    };
    while let Some((socket, permit)) = sockets.recv().await {
        let thread = Rc::clone(&thread);
        spawn_local(async move {
            let _tracked = thread.site.connections.track();
            thread.serve_socket(socket).await;
            drop(permit);
        });
    }
    // After the stop has begun no further sockets arrive; connections on this thread go on until
    // the thread is ended (LIS-02).
    std::future::pending::<()>().await;
}

impl PortThread {
    async fn open(site: Arc<PortState>) -> io::Result<Self> {
        let Entrances { amqp, http, websocket } = &site.shared.entrances;
        let (amqp, http, websocket) =
            (service_of(amqp).await?, service_of(http).await?, service_of(websocket).await?);
        Ok(Self { site, amqp, http, websocket })
    }

    /// Hands a socket to the transport that serves it, and waits until the connection has ended.
    async fn serve_socket(&self, socket: std::net::TcpStream) {
        // A stop ends only connections without a transport here; each transport stops its own.
        let opened = tokio::select! {
            biased;
            _ = self.site.connections.stop_begun() => return,
            opened = Box::pin(self.site.open_socket(socket)) => opened,
        };
        match opened {
            Ok((stream, DetectedProtocol::Amqp)) => {
                self.amqp.attend(stream).await;
            }
            Ok((stream, DetectedProtocol::Http)) => {
                if let Some(upgrade) = self.http.attend(stream).await {
                    self.upgrade(upgrade).await;
                }
            }
            Ok((stream, DetectedProtocol::Tls)) => {
                let peer = stream.peer();
                tracing::debug!(
                    ?peer,
                    "no connection: the client uses TLS, but this address does not"
                );
            }
            Err(error) => tracing::debug!(%error, "no connection"),
        }
    }

    async fn upgrade(&self, Upgrade { stream, path }: Upgrade) {
        let Entrances { amqp, websocket, .. } = &self.site.shared.entrances;
        let takers = [(amqp, &self.amqp), (websocket, &self.websocket)];
        let takes = |entrance: &Entrance| entrance.get().is_some_and(|it| it.takes_upgrade(&path));
        if let Some((_, taker)) = takers.into_iter().find(|(entrance, _)| takes(entrance)) {
            taker.attend(stream).await;
        }
    }
}

impl PortState {
    /// Turns a socket into a stream and detects its protocol, within `opening_timeout` (LIS-03).
    async fn open_socket(
        &self,
        socket: std::net::TcpStream,
    ) -> io::Result<(Stream, DetectedProtocol)> {
        let Self { admission, shared, openings, .. } = self;
        let mut stream = open_stream(socket, admission).await?;
        let opening = openings.begin();
        let ended = |why| Err(io::Error::new(io::ErrorKind::TimedOut, why));
        let spoken = tokio::select! {
            biased;
            () = opening.evicted() => return ended("the oldest silent connection was closed for a new \
                client"),
            spoken = tokio::time::timeout(shared.opening_timeout, detect_protocol(&mut stream)) => spoken,
        };
        match spoken {
            Ok(spoken) => Ok((stream, spoken?)),
            Err(_) => ended("no byte arrived within `gateway.opening_timeout`"),
        }
    }
}

/// The service of a transport on this thread.
async fn service_of(entrance: &Entrance) -> io::Result<Rc<dyn Attend>> {
    let closed = || io::Error::other("a transport behind the gateway has not started");
    let opening: &dyn Enter = entrance.get().ok_or_else(closed)?;
    opening.open().await
}

#[async_trait]
impl RunningTransport for Running {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>, grace: Duration) {
        self.accepting.send_replace(false);
        let transport = self.listener.transport;
        stop_connections(transport, self.address, &self.connections, grace, self.workers).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpStream;
    use tokio::time::advance;

    use super::*;

    /// LIS-03: a connection that has not shown its protocol within 5 s is closed, even after a part
    /// of its first bytes.
    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed_after_5_s() {
        let mut context = Context::from_waker(Waker::noop());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let site = PortState {
            transport: NAME,
            admission: Admission::default(),
            shared: SharedPort {
                opening_timeout: Duration::from_secs(5),
                entrances: Entrances::default(),
            },
            openings: Openings::new(OPENING_COUNT_MAX),
            connections: Tracker::default(),
        };
        let listener = TcpListener::bind(address).await.unwrap();
        for begun in ["", "A", "AMQ"] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            client.write_all(begun.as_bytes()).await.unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            let mut opening = pin!(site.open_socket(socket.into_std().unwrap()));
            assert!(opening.as_mut().poll(&mut context).is_pending());
            advance(Duration::from_millis(4_999)).await;
            assert!(opening.as_mut().poll(&mut context).is_pending(), "{begun}");
            advance(Duration::from_millis(2)).await;
            let Poll::Ready(Err(ended)) = opening.as_mut().poll(&mut context) else {
                panic!("{begun} is waited for")
            };
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        }
    }
}

//! Starts and stops the listener, and the threads that serve its connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::contract::{RunningTransport, Transport, TransportError};
use peeklock_tls::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio_tungstenite::accept_hdr_async_with_config;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig as SocketConfig;

use crate::config::WebSocketConfig;
use crate::connection::converse;
use crate::frame::Encoding;
use crate::handshake;
use crate::metered::Metered;
use crate::site::{SPARE_SOCKETS, Site, Socket};

const NAME: &str = "websocket";
/// What is read at once from a socket, and kept for it.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// After this the system is asked to take what is written so far.
const WRITE_BUFFER_BYTES: usize = 512 << 10;
/// After the grace of a stop, for close frames.
const CLOSE_GRACE: Duration = Duration::from_secs(3);
/// After an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The WebSocket transport. See the crate's documentation for what it serves.
pub struct WebSocketTransport {
    config: WebSocketConfig,
}

impl WebSocketTransport {
    /// A transport with these settings, to be started by the host.
    #[must_use]
    pub const fn new(config: WebSocketConfig) -> Self {
        Self { config }
    }
}

struct Running {
    site: Arc<Site>,
    address: SocketAddr,
    accepting: watch::Sender<bool>,
    workers: Workers,
}

/// The threads, each with a runtime of its own: a connection stays with one, and nothing is stolen.
struct Workers {
    end: watch::Sender<bool>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

#[async_trait]
impl Transport for WebSocketTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let address = self.config.address;
        let failed =
            |source| TransportError { transport: NAME, address: address.to_string(), source };
        refuse_open_listener(&broker, &self.config).map_err(failed)?;
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let workers = Workers::start(self.config.workers.max(1)).map_err(failed)?;
        let site = Arc::new(Site::new(broker, self.config));
        let (accepting, stop) = watch::channel(true);
        if let Some(first) = workers.handles.first() {
            let _runtime = first.enter();
            let listener = TcpListener::from_std(listener).map_err(failed)?;
            first.spawn(accept(Arc::clone(&site), listener, workers.handles.clone(), stop));
        }
        tracing::info!(transport = NAME, %address, "listening");
        Ok(Box::new(Running { site, address, accepting, workers }))
    }
}

/// SEC-17: who listens beyond loopback without authentication must say so.
fn refuse_open_listener(broker: &Broker, config: &WebSocketConfig) -> io::Result<()> {
    if config.address.ip().is_loopback() || config.i_know || !broker.allows_anonymous() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "anonymous access is on and the address is not loopback; configure a policy, or set \
         `security.i_know = true` to serve everybody who can reach it",
    ))
}

impl Workers {
    fn start(count: usize) -> io::Result<Self> {
        let (end, ended) = watch::channel(false);
        let mut workers = Self { end, handles: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            workers.handles.push(runtime.handle().clone());
            let mut ended = ended.clone();
            let thread = std::thread::Builder::new().name("peeklock-ws".to_owned());
            workers.threads.push(thread.spawn(move || {
                runtime.block_on(async {
                    // The sender lives as long as the workers are wanted.
                    drop(ended.wait_for(|ended| *ended).await);
                });
            })?);
        }
        Ok(workers)
    }
}

/// Accepts until it is told to stop, and hands sockets to the workers in turn.
async fn accept(
    site: Arc<Site>,
    listener: TcpListener,
    workers: Vec<Handle>,
    mut stop: watch::Receiver<bool>,
) {
    let count_max = site.config.connection_count_max.saturating_add(SPARE_SOCKETS);
    let sockets = Arc::new(Semaphore::new(count_max.min(Semaphore::MAX_PERMITS)));
    let mut turn = workers.iter().cycle();
    let next = async {
        loop {
            let Ok(place) = Arc::clone(&sockets).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream.into_std(),
                Err(error) => Err(error),
            };
            let (Ok(stream), Some(worker)) = (stream, turn.next()) else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let site = Arc::clone(&site);
            worker.spawn(async move {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    upgrade(site, stream).await;
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

/// Serves one socket from its first byte.
async fn upgrade(site: Arc<Site>, stream: TcpStream) {
    let handshake = site.handshakes.enter();
    let agreed = tokio::select! {
        biased;
        () = handshake.needed() => None,
        agreed = agree(&site, stream) => agreed,
    };
    if let Some((socket, encoding)) = agreed {
        converse(site, socket, encoding, handshake).await;
    }
}

/// A socket after its upgrade; none if it was refused.
async fn agree(site: &Site, stream: TcpStream) -> Option<(Socket, Encoding)> {
    // Answers are written whole; waiting to fill a packet only delays them.
    stream.set_nodelay(true).ok();
    let accepted = Acceptor::accept_on(site.config.tls.as_ref(), stream).await;
    // Why it came to nothing was told there.
    let stream = accepted.ok()?;
    let metered = Metered::new(stream, site.inbound.seat());
    let config = SocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(site.config.frame_bytes_max))
        .max_frame_size(Some(site.config.frame_bytes_max));
    let (mut agreed, mut by_proxy) = (None, false);
    let judge = judge(site, &mut agreed, &mut by_proxy);
    let accepting = accept_hdr_async_with_config(metered, judge, Some(config));
    let accepted = tokio::time::timeout(site.config.handshake_timeout, accepting).await;
    let (Ok(Ok(mut socket)), Some(encoding)) = (accepted, agreed) else { return None };
    socket.get_mut().frame_taken();
    if by_proxy {
        socket.get_mut().mark_by_proxy();
    }
    Some((socket, encoding))
}

type Judged = Result<Response, ErrorResponse>;

#[expect(clippy::result_large_err, reason = "the library's type")]
fn judge<'a>(
    site: &'a Site,
    agreed: &'a mut Option<Encoding>,
    by_proxy: &'a mut bool,
) -> impl FnOnce(&Request, Response) -> Judged + 'a {
    move |request, response| {
        let (encoding, response) =
            handshake::accept(&site.broker, &site.config, request, response)?;
        *agreed = Some(encoding);
        *by_proxy = handshake::is_by_proxy(request);
        Ok(response)
    }
}

#[async_trait]
impl RunningTransport for Running {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>, grace: Duration) {
        self.accepting.send_replace(false);
        self.site.begin_stop(grace);
        if tokio::time::timeout(grace + CLOSE_GRACE, self.site.quiet()).await.is_err() {
            let connections = self.site.conversation_count();
            tracing::warn!(transport = NAME, connections, "grace is over, connections are cut");
        }
        self.workers.end.send_replace(true);
        let threads = self.workers.threads;
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        });
        if !matches!(joined.await, Ok(true)) {
            tracing::error!(transport = NAME, "a thread of the listener panicked");
        }
        tracing::info!(transport = NAME, address = %self.address, "stopped");
    }
}

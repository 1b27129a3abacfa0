//! Starts and stops the listener, in a thread of its own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_server::{Server, ServerHandle};
use actix_service::{ServiceFactoryExt as _, fn_service};
use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::contract::{RunningTransport, Transport, TransportError};
use peeklock_listen::{Admission, Listener, sockets};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::config::HttpConfig;
use crate::entrance::HttpEntrance;
use crate::service::http;
use crate::site::Site;
use crate::socket::Socket;

const NAME: &str = "http";
/// After the grace of a stop, for answers that are being written.
const WRITE_GRACE_SECONDS: u64 = 1;
/// Nothing here blocks; the pool is for the metrics page, one at a time, and for whatever the framework does.
const BLOCKING_THREADS: usize = 1;

/// The HTTP transport. See the crate's documentation for what it serves.
///
/// ```
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use peeklock_core::Broker;
/// use peeklock_core::contract::Transport;
/// use peeklock_http::{HttpConfig, HttpTransport};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// // Port 0 is any that is free.
/// let mut config = HttpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
/// config.workers = 2;
/// let running = Box::new(HttpTransport::new(config)).start(broker.clone()).await?;
/// println!("curl http://{}/$api/v1/namespace", running.local_address());
///
/// running.stop(Duration::from_secs(5)).await;
/// broker.stop(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
pub struct HttpTransport {
    config: HttpConfig,
}

impl HttpTransport {
    /// A transport with these settings, to be started by the host.
    #[must_use]
    pub const fn new(config: HttpConfig) -> Self {
        Self { config }
    }
}

struct Running {
    site: Arc<Site>,
    address: SocketAddr,
    handle: ServerHandle,
    thread: JoinHandle<()>,
}

#[async_trait]
impl Transport for HttpTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let mut config = self.config;
        // It leads to the site, which must not keep itself.
        let entrance = std::mem::take(&mut config.entrance);
        let listener = Listener { transport: NAME, address: config.address, i_know: config.i_know };
        let failed = |source| listener.failed(source);
        let socket = listener.bind(&broker)?;
        let address = socket.local_addr().map_err(failed)?;
        let site = Arc::new(Site::new(broker, config));
        let (started, start) = oneshot::channel();
        let thread = {
            let site = Arc::clone(&site);
            std::thread::Builder::new()
                .name("peeklock-http".to_owned())
                .spawn(move || run(&site, socket, started))
                .map_err(failed)?
        };
        let ended = || failed(io::Error::other("the listener's thread ended"));
        let handle = start.await.map_err(|_| ended())?.map_err(failed)?;
        entrance.open(HttpEntrance::new(Arc::clone(&site)));
        tracing::info!(transport = NAME, %address, "listening");
        Ok(Box::new(Running { site, address, handle, thread }))
    }
}

/// The listener's thread: serves until it is stopped.
fn run(
    site: &Arc<Site>,
    listener: TcpListener,
    started: oneshot::Sender<io::Result<ServerHandle>>,
) {
    actix_rt::System::new().block_on(async move {
        match server(site, listener) {
            Ok(server) => {
                drop(started.send(Ok(server.handle())));
                if let Err(error) = server.await {
                    tracing::error!(transport = NAME, %error, "listener failed");
                }
            }
            Err(error) => {
                drop(started.send(Err(error)));
            }
        }
    });
}

fn server(site: &Arc<Site>, listener: TcpListener) -> io::Result<Server> {
    let config = &site.config;
    let workers = config.workers.max(1);
    let sockets = sockets(config.connection_count_max);
    let site = Arc::clone(site);
    let admission = Admission { proxies: config.proxies.clone(), tls: config.tls.clone() };
    let connections = move || {
        let (site, admission) = (Arc::clone(&site), admission.clone());
        let http = http(&site);
        let sockets = fn_service(move |stream: TcpStream| {
            let (site, admission) = (Arc::clone(&site), admission.clone());
            async move {
                // Why it came to nothing was told there.
                let stream = admission.admit(stream).await.map_err(DispatchError::Io)?;
                let peer = stream.peer();
                Ok::<_, DispatchError>((Socket::new(stream, site, None), peer))
            }
        });
        sockets.and_then(http)
    };
    let server = Server::build()
        .workers(workers)
        .worker_max_blocking_threads(BLOCKING_THREADS)
        .max_concurrent_connections(sockets.div_ceil(workers))
        .shutdown_timeout(WRITE_GRACE_SECONDS)
        .disable_signals()
        .listen(NAME, listener, connections)?;
    Ok(server.run())
}

#[async_trait]
impl RunningTransport for Running {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>, grace: Duration) {
        self.handle.pause().await;
        self.site.begin_stop(grace);
        if tokio::time::timeout(grace, self.site.requests.quiet()).await.is_err() {
            let requests = self.site.requests.count();
            tracing::warn!(transport = NAME, requests, "grace is over, requests are cut");
        }
        self.handle.stop(true).await;
        let thread = self.thread;
        if !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(()))) {
            tracing::error!(transport = NAME, "the listener's thread panicked");
        }
        tracing::info!(transport = NAME, address = %self.address, "stopped");
    }
}

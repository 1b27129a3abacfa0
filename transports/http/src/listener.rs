//! Starts and stops the listener, which has a thread of its own. The broker calls it. A stop waits
//! for running requests, up to the grace period.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_server::{Server, ServerHandle};
use actix_service::{Service as _, ServiceFactoryExt as _, apply_fn_factory, fn_service};
use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::admission::sockets;
use peeklock_core::contract::{RunningTransport, Transport, TransportError};
use peeklock_listen::{Admission, Entrance, Listener};
use peeklock_tls::Stream;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::config::HttpConfig;
use crate::entrance::HttpEntrance;
use crate::serve::http;
use crate::site::Site;
use crate::socket::{Socket, TakesOver};

const NAME: &str = "http";
/// Extra time after the grace period of a stop, for answers that are being written.
const WRITE_GRACE_SECONDS: u64 = 1;
/// Only the metrics page, one at a time, and actix-web itself use the blocking pool.
const BLOCKING_THREADS: usize = 1;

/// The HTTP transport. The documentation of the crate lists its requests.
///
/// ```
/// # mod peeklock { pub use peeklock_core::*; pub use peeklock_http as http; }
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use peeklock::Broker;
/// use peeklock::contract::Transport;
/// use peeklock::http::{HttpConfig, HttpTransport};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// // Port 0 selects a free port.
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
    /// Makes a transport with these settings; the host starts it.
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
        // The entrance refers to the site, so keeping it in the site would be a reference cycle.
        let entrance = std::mem::take(&mut config.entrance);
        let amqp = std::mem::take(&mut config.amqp);
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
                .spawn(move || run(&site, &amqp, socket, started))
                .map_err(failed)?
        };
        let ended = || failed(io::Error::other("the listener's thread ended"));
        let handle = start.await.map_err(|_| ended())?.map_err(failed)?;
        entrance.open(HttpEntrance::new(Arc::clone(&site)));
        tracing::info!(transport = NAME, %address, "listening");
        Ok(Box::new(Running { site, address, handle, thread }))
    }
}

/// Body of the listener's thread: serves until it is stopped.
fn run(
    site: &Arc<Site>,
    amqp: &Entrance,
    listener: TcpListener,
    started: oneshot::Sender<io::Result<ServerHandle>>,
) {
    actix_rt::System::new().block_on(async move {
        match server(site, amqp, listener) {
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

fn server(site: &Arc<Site>, amqp: &Entrance, listener: TcpListener) -> io::Result<Server> {
    let config = &site.config;
    let workers = config.workers.max(1);
    let sockets = sockets(config.connection_count_max);
    let (site, amqp) = (Arc::clone(site), amqp.clone());
    let admission = Admission { proxies: config.proxies.clone(), tls: config.tls.clone() };
    let connections = move || {
        let admission = admission.clone();
        let streams = fn_service(move |stream: TcpStream| {
            let admission = admission.clone();
            // `admit` has logged the reason.
            async move { admission.admit(stream).await.map_err(DispatchError::Io) }
        });
        let (amqp, served) = (amqp.clone(), Arc::clone(&site));
        let connections = apply_fn_factory(http(&site), move |stream: Stream, http| {
            let (amqp, site) = (amqp.clone(), Arc::clone(&served));
            let (taking, mut taken) = oneshot::channel();
            let takes_over =
                if amqp.is_open() { TakesOver::Amqp(taking) } else { TakesOver::Nobody };
            let peer = stream.peer();
            let serving = http.call((Socket::new(stream, Arc::clone(&site), takes_over), peer));
            async move {
                let served = serving.await;
                if let Ok(stream) = taken.try_recv() {
                    let _tracked = site.taken_over.track();
                    tracing::debug!(?peer, "a client uses AMQP at the HTTP port and is served");
                    amqp.attend(stream).await.map_err(DispatchError::Io)?;
                }
                served
            }
        });
        streams.and_then(connections)
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
        let Site { requests, taken_over, .. } = &*self.site;
        // AMQP ends the connections that it has taken over.
        let quiet = async {
            requests.wait_until_idle().await;
            taken_over.wait_until_idle().await;
        };
        if tokio::time::timeout(grace, quiet).await.is_err() {
            let (requests, taken_over) = (requests.count(), taken_over.count());
            tracing::warn!(
                transport = NAME,
                requests,
                taken_over,
                "grace period is over; open requests are closed"
            );
        }
        self.handle.stop(true).await;
        let thread = self.thread;
        if !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(()))) {
            tracing::error!(transport = NAME, "the listener's thread panicked");
        }
        tracing::info!(transport = NAME, address = %self.address, "stopped");
    }
}

//! A transport made of a function that handles each connection. [`Host`](crate::Host) makes it for
//! programs that embed the server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock::contract::{Principal, RunningTransport, Transport, TransportError};
use peeklock::listen::Listener;
use peeklock::{Broker, Client};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Pause after a failed accept, such as without free files.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepted connection.
#[non_exhaustive]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    /// Client with the rights of the connection.
    pub client: Client,
    /// Address of the peer.
    pub peer: SocketAddr,
}

/// Transport that accepts connections at an address.
pub(super) struct FunctionTransport<A> {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    pub(super) attend: Arc<A>,
}

struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<JoinSet<()>>,
}

#[async_trait]
impl<A, F> Transport for FunctionTransport<A>
where
    A: Fn(Connection) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let Self { name, address, attend } = *self;
        let listener = Listener { transport: name, address, i_know: false };
        let socket = listener.bind(&broker)?;
        let opened = (|| {
            socket.set_nonblocking(true)?;
            let socket = TcpListener::from_std(socket)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        })();
        let (socket, address) = opened.map_err(|error: io::Error| listener.failed(error))?;
        let (stop, stopping) = watch::channel(false);
        let accepting = tokio::spawn(accept(name, socket, broker, attend, stopping));
        Ok(Box::new(Running { address, stop, accepting }))
    }
}

/// Accepts connections until it is stopped; returns those still open.
async fn accept<A, F>(
    name: &'static str,
    socket: TcpListener,
    broker: Broker,
    attend: Arc<A>,
    mut stopping: watch::Receiver<bool>,
) -> JoinSet<()>
where
    A: Fn(Connection) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let count_max = broker.settings().limits.connection_count_max;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return connections,
            // A panic of a connection was logged; the connection is finished.
            _ = connections.join_next(), if !connections.is_empty() => continue,
            accepted = socket.accept(), if connections.len() < count_max => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let access = broker.access(Principal::anonymous().from_peer(peer));
                let client = Client::with_access(access);
                let attending = attend(Connection { stream, client, peer });
                connections.spawn(async move {
                    if let Err(error) = attending.await {
                        tracing::debug!(transport = name, %peer, %error, "a connection ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(transport = name, %error, "could not accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[async_trait]
impl RunningTransport for Running {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>, grace: Duration) {
        self.stop.send_replace(true);
        let Ok(mut connections) = self.accepting.await else { return };
        let ended = async { while connections.join_next().await.is_some() {} };
        // Dropping the set closes the remaining connections.
        tokio::time::timeout(grace, ended).await.ok();
    }
}

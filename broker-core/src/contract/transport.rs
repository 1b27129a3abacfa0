//! Contract of a transport, which converts bytes to commands and back: framing and flow control,
//! nothing else. The builder takes transports by this contract.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::broker::Broker;

/// Error of a transport that could not start.
#[derive(Debug, thiserror::Error)]
#[error("{transport} cannot listen on {address}: {source}")]
pub struct TransportError {
    /// Name of the transport.
    pub transport: &'static str,
    /// Address that it could not bind.
    pub address: String,
    /// Error of the operating system.
    #[source]
    pub source: std::io::Error,
}

/// A protocol for access to the broker. All transports offer the same semantics (FND-05): they
/// build [`crate::command::Command`]s and submit them to [`crate::broker::Entity`] handles, which
/// they get from the [`Access`](crate::access::Access) of each client ([`Broker::access`]). Handles
/// check the grant of each command; a transport never decides about rights.
///
/// This example sends the bytes of each connection as one message to the queue `said`:
///
/// ```
/// # use peeklock_core as peeklock;
/// use std::io::{Read, Write};
/// use std::net::{SocketAddr, TcpListener, TcpStream};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
///
/// use async_trait::async_trait;
/// use peeklock::Broker;
/// use peeklock::command::{Command, Outcome, ReceiveMode};
/// use peeklock::contract::{Action, Principal, RunningTransport, Transport, TransportError};
/// use peeklock::description::QueueUpdate;
/// use peeklock::message::Message;
/// use peeklock::time::TimeSpan;
/// use tokio::runtime::Handle;
///
/// struct Said(SocketAddr);
///
/// struct Running {
///     address: SocketAddr,
///     is_stopped: Arc<AtomicBool>,
/// }
///
/// #[async_trait]
/// impl Transport for Said {
///     fn name(&self) -> &'static str {
///         "said"
///     }
///
///     async fn start(
///         self: Box<Self>,
///         broker: Broker,
///     ) -> Result<Box<dyn RunningTransport>, TransportError> {
///         let failed = |source| {
///             let (transport, address) = ("said", self.0.to_string());
///             TransportError { transport, address, source }
///         };
///         let listener = TcpListener::bind(self.0).map_err(failed)?;
///         let address = listener.local_addr().map_err(failed)?;
///         let is_stopped = Arc::new(AtomicBool::new(false));
///         let (runtime, stopped) = (Handle::current(), Arc::clone(&is_stopped));
///         std::thread::spawn(move || {
///             for mut socket in listener.incoming().flatten() {
///                 if stopped.load(Ordering::Relaxed) {
///                     return;
///                 }
///                 let mut body = Vec::new();
///                 if socket.read_to_end(&mut body).is_err() {
///                     continue;
///                 }
///                 // The access decides about rights, not the transport.
///                 let client = Principal::anonymous().from_peer(socket.peer_addr().ok());
///                 let access = broker.access(client);
///                 let sent = runtime.block_on(async {
///                     let queue = access.entity("said", Action::Send).await?;
///                     let message = access.broker().inbound(Message::new(body));
///                     queue.call(Command::Send { message }).await
///                 });
///                 let answer = sent.map_or_else(|error| error.to_string(), |_| "stored".to_owned());
///                 socket.write_all(answer.as_bytes()).ok();
///             }
///         });
///         Ok(Box::new(Running { address, is_stopped }))
///     }
/// }
///
/// #[async_trait]
/// impl RunningTransport for Running {
///     fn local_address(&self) -> SocketAddr {
///         self.address
///     }
///
///     async fn stop(self: Box<Self>, _grace: Duration) {
///         self.is_stopped.store(true, Ordering::Relaxed);
///         // Wakes the thread that accepts.
///         TcpStream::connect(self.address).ok();
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// broker.create_queue("said", QueueUpdate::default()).await?;
/// let transport = Box::new(Said(SocketAddr::from(([127, 0, 0, 1], 0))));
/// let running = transport.start(broker.clone()).await?;
///
/// let mut client = TcpStream::connect(running.local_address())?;
/// client.write_all(b"hello")?;
/// client.shutdown(std::net::Shutdown::Write)?;
/// let receive = Command::Receive {
///     mode: ReceiveMode::ReceiveAndDelete,
///     count_max: 1,
///     bytes_max: 1 << 20,
///     wait: TimeSpan::from_seconds(10),
///     holder: None,
/// };
/// let Outcome::Received(received) = broker.entity("said")?.call(receive).await? else { panic!() };
/// assert_eq!(received.len(), 1);
///
/// running.stop(Duration::ZERO).await;
/// broker.stop(Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Transport: Send {
    /// Name in configuration, logs and metrics.
    fn name(&self) -> &'static str;

    /// Starts to listen. The host calls it once, inside a tokio runtime. It returns when
    /// connections are accepted, and continues in threads or tasks of its own.
    ///
    /// # Errors
    /// An address that cannot be bound.
    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError>;
}

/// A transport that accepts connections.
#[async_trait]
pub trait RunningTransport: Send {
    /// Bound address.
    fn local_address(&self) -> SocketAddr;

    /// Stops accepting, waits for up to `grace` for requests in progress, then closes the remaining
    /// connections.
    async fn stop(self: Box<Self>, grace: Duration);
}

//! The client: the handles that every transport offers, over a WebSocket connection. An application
//! moves between this client and a broker in its own process by changing the line that makes the
//! client.
//!
//! [`connect`] opens a connection, which is reopened after a loss, with pauses that grow and vary.
//! Within the grace period the conversation is resumed: calls in flight are answered and locks are
//! kept. After that, calls in flight fail with `CommunicationProblem`, which leaves their outcome
//! open (ERR-06); calls that were not sent yet are sent.
//!
//! [`connect_by`] takes a connection string, as `peeklock connection-string` prints it. From it the
//! client takes the address of the broker and the key to sign tokens, each before its predecessor
//! expires. Over `wss://` the certificate of the broker is always verified ([`ClientTls`]).
//!
//! `connection` implements the port of the handles. `core` and `link` hand their requests to `driver`,
//! the task that owns the socket; `deliveries` is the link of a consumer.

mod backoff;
mod connection;
mod core;
mod credential;
mod deliveries;
mod driver;
mod link;
mod manage;
mod peer;
mod text;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::error::BrokerError;
use tokio::io::{AsyncRead, AsyncWrite};

use self::connection::Connection;
use self::core::Core;
use crate::frame::Encoding;

#[doc(inline)]
pub use peeklock_client::*;
#[doc(no_inline)]
pub use peeklock_sas::ConnectionString;
#[doc(no_inline)]
pub use peeklock_tls::{ClientTls, FileError, certificates};

pub use self::peer::{PeerMessage, PeerSender};
pub use self::text::{
    MessageTextError, acted_to_json, explanation_to_json, findings_to_json, message_from_json,
    message_to_json, policy_keys_to_json, policy_to_json, queue_to_json, received_to_json,
    rule_from_json, rule_to_json, session_state_to_json, subscription_to_json, topic_to_json,
};

/// A byte stream to the broker.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens the streams of a client in place of TCP and TLS, for instance through a tunnel. The client
/// calls it for each connection; the time counts towards [`ClientOptions::connect_timeout`].
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Returns a stream to the broker on which nothing was sent yet.
    ///
    /// # Errors
    /// Fails if there is no stream now; the client tries again later.
    async fn connect(&self) -> io::Result<Box<dyn Stream>>;
}

/// Options of a client.
///
/// ```
/// # mod peeklock { pub use peeklock_websocket as websocket; }
/// use std::time::Duration;
///
/// use peeklock::websocket::client::ClientOptions;
///
/// // It is non-exhaustive: change fields of the defaults.
/// let mut options = ClientOptions::default();
/// options.name = Some("order service".into());
/// options.give_up_after = Some(Duration::from_secs(60));
/// assert_eq!(options.grace, Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Encoding of frames; binary by default.
    pub encoding: Encoding,
    /// Token in the form that the authorizer of the broker expects.
    pub token: Option<Arc<str>>,
    /// Connection string that signs tokens, used in place of [`ClientOptions::token`]; it restricts
    /// the client to its `EntityPath` (SEC-20).
    pub connection_string: Option<Arc<ConnectionString>>,
    /// Lifetime of each signed token, at least one second. The client sends a new token when a
    /// quarter of the lifetime is left.
    pub token_time: Duration,
    /// Trusted authorities and client certificate for `wss://`.
    pub tls: ClientTls,
    /// Name of the client in the log of the broker.
    pub name: Option<Arc<str>>,
    /// Time for which the broker keeps the locks of a lost connection, if it allows that; zero for
    /// not at all.
    pub grace: Duration,
    /// First pause before a lost connection is reopened; later pauses are longer.
    pub pause_min: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// Time without a connection after which the client ends and its calls fail with
    /// `CommunicationProblem`; without limit by default.
    pub give_up_after: Option<Duration>,
    /// Maximum duration of opening a connection.
    pub connect_timeout: Duration,
    /// Maximum size of a frame of the broker, in bytes. A larger frame ends the connection. The
    /// default covers the largest answer to a peek or receive, and the largest message. A broker
    /// can make the client hold this many bytes for each connection, so lower it for brokers that
    /// you do not trust.
    pub frame_bytes_max: usize,
    /// Opens the streams in place of TCP, and of TLS if the URL begins with `wss://`.
    pub connector: Option<Arc<dyn Connector>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            encoding: Encoding::Binary,
            token: None,
            connection_string: None,
            token_time: Duration::from_secs(60 * 60),
            tls: ClientTls::of_system(),
            name: None,
            grace: Duration::from_secs(30),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            give_up_after: None,
            connect_timeout: Duration::from_secs(5),
            frame_bytes_max: 256 << 20,
            connector: None,
        }
    }
}

/// Connects to `ws://HOST:PORT`, or to `wss://HOST:PORT` for TLS. Must be called inside a tokio
/// runtime, on which it starts a task. [`Client::close`], or dropping the last handle, closes the
/// connection in order.
///
/// ```
/// # mod peeklock { pub use peeklock_core::*; pub use peeklock_websocket as websocket; }
/// use peeklock::Broker;
/// use peeklock::contract::Transport as _;
/// use peeklock::message::Message;
/// use peeklock::websocket::{WebSocketConfig, WebSocketTransport, client};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// let config = WebSocketConfig::at(([127, 0, 0, 1], 0).into());
/// let listener = Box::new(WebSocketTransport::new(config)).start(broker.clone()).await?;
///
/// let client = client::connect(&format!("ws://{}", listener.local_address())).await?;
/// client.admin().create_queue("orders").await?;
/// client.sender("orders")?.send(Message::new("two coffees")).await?;
/// client.close().await;
/// # listener.stop(std::time::Duration::ZERO).await;
/// # broker.stop(std::time::Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `ArgumentError` for an invalid URL, `CommunicationProblem` if no broker answers, `Unauthorized`.
pub async fn connect(url: &str) -> Result<Client, BrokerError> {
    connect_with(url, ClientOptions::default()).await
}

/// Connects with the given options; otherwise like [`connect`].
///
/// ```no_run
/// # mod peeklock { pub use peeklock_websocket as websocket; }
/// use peeklock::websocket::client::{ClientOptions, ClientTls, certificates, connect_with};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = ClientOptions::default();
/// options.tls = ClientTls::of_system().trusting(certificates("data/tls/authority.pem".as_ref())?);
/// let client = connect_with("wss://bus.example.com", options).await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`connect`].
pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Client, BrokerError> {
    let only = options.connection_string.clone();
    let core = driver::start(url, options).await?;
    Ok(Client::over(Arc::new(Connection { core, only })))
}

/// Connects with a connection string:
/// `Endpoint=sb://HOST:PORT;SharedAccessKeyName=…;SharedAccessKey=…`, or with
/// `SharedAccessSignature=…`. [`url_of`] gives the default port. TLS is used unless the string has
/// `UseDevelopmentEmulator=true` (SEC-21), and entities other than its `EntityPath` are refused
/// (SEC-20).
///
/// ```no_run
/// # mod peeklock { pub use peeklock_websocket as websocket; }
/// use peeklock::websocket::client::{ClientOptions, connect_by};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// // As `peeklock connection-string` prints it.
/// let string = std::env::var("PEEKLOCK_CONNECTION_STRING")?;
/// let client = connect_by(&string, ClientOptions::default()).await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`connect`]; `ArgumentError` for an invalid connection string.
pub async fn connect_by(
    connection_string: &str,
    mut options: ClientOptions,
) -> Result<Client, BrokerError> {
    let string = ConnectionString::parse(connection_string)
        .map_err(|rejection| Core::new().refuse(rejection, ""))?;
    let url = url_of(&string);
    options.connection_string = Some(Arc::new(string));
    connect_with(&url, options).await
}

/// Returns the URL of the broker in a connection string: `wss://HOST:PORT`, or `ws://HOST:PORT`
/// with `UseDevelopmentEmulator=true`; port 5301 if the string has none.
#[must_use]
pub fn url_of(string: &ConnectionString) -> String {
    let scheme = if string.use_development_emulator { "ws" } else { "wss" };
    let port = string.endpoint.port.unwrap_or(peeklock_core::contract::port::WEBSOCKET);
    format!("{scheme}://{}:{port}", string.endpoint.host)
}

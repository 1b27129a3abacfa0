//! The client: the handles of every transport, over a connection. Code moves between this and a broker in
//! process by changing the line that makes the client.
//!
//! [`connect`] opens a connection that is made anew when it is lost, with pauses that grow
//! and vary. Within the grace period it goes on where it was: calls in flight are answered as if
//! nothing had happened, and locks are kept. Later, calls that were in flight fail with
//! `CommunicationProblem`, whose outcome is open (ERR-06); calls that had not been sent go out.
//!
//! [`connect_by`] takes a connection string, as `peeklock connection-string` prints it: with it a client finds its
//! broker, and signs the tokens that it shows, each before the one before it ends. Over `wss://` the broker's
//! certificate is verified ([`ClientTls`]); there is no way to do without.

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
    MessageTextError, explanation_to_json, message_from_json, message_to_json, policy_keys_to_json,
    policy_to_json, queue_to_json, received_to_json, rule_from_json, rule_to_json,
    session_state_to_json, subscription_to_json, topic_to_json,
};

/// What a connection is made over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens the streams of a client in place of TCP and TLS, for instance through a tunnel. Asked for each connection, within
/// its time.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// A stream to the broker, on which nothing was said yet.
    ///
    /// # Errors
    /// When there is none now; the client tries again later.
    async fn connect(&self) -> io::Result<Box<dyn Stream>>;
}

/// How a client connects.
///
/// ```
/// # mod peeklock { pub use peeklock_websocket as websocket; }
/// use std::time::Duration;
///
/// use peeklock::websocket::client::ClientOptions;
///
/// // It is non-exhaustive: what is to be otherwise is set on the defaults.
/// let mut options = ClientOptions::default();
/// options.name = Some("order service".into());
/// options.give_up_after = Some(Duration::from_secs(60));
/// assert_eq!(options.grace, Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The encoding; binary unless told otherwise.
    pub encoding: Encoding,
    /// The token, as the broker's authorizer expects it.
    pub token: Option<Arc<str>>,
    /// In place of a token: what tokens are signed with, whenever one is due. Restricts the client to its
    /// `EntityPath` (SEC-20).
    pub connection_string: Option<Arc<ConnectionString>>,
    /// How long a token is good that is signed so, one second at least; a newer one is shown when a quarter of
    /// it is left.
    pub token_time: Duration,
    /// Whom to trust over `wss://`, and who the client is there.
    pub tls: ClientTls,
    /// What the client calls itself in the broker's log.
    pub name: Option<Arc<str>>,
    /// How long the broker is asked to keep locks when the connection is lost; zero for not at all.
    pub grace: Duration,
    /// The first pause before a connection is made anew; later ones are longer.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// After how long without a connection the client ends and its calls fail with
    /// `CommunicationProblem`; never, unless said.
    pub give_up_after: Option<Duration>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// The largest frame of the broker that is read, in bytes. A larger one ends the connection. By default as much as the
    /// answer to a peek, a receive or a large message may have; a broker that is not trusted can make the client hold this
    /// for each connection.
    pub frame_bytes_max: usize,
    /// Opens streams in place of TCP, and of TLS if the URL begins with `wss://`.
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

/// Connects to `ws://HOST:PORT`, or `wss://HOST:PORT` for TLS. To be called inside a tokio runtime, whose task it uses. The connection is
/// closed in order by [`Client::close`], or when the last handle is gone.
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
/// `ArgumentError` for another URL, `CommunicationProblem` if nobody answers, `Unauthorized`.
pub async fn connect(url: &str) -> Result<Client, BrokerError> {
    connect_with(url, ClientOptions::default()).await
}

/// Connects in a way of the caller's.
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
/// As for [`connect`].
pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Client, BrokerError> {
    let only = options.connection_string.clone();
    let core = driver::start(url, options).await?;
    Ok(Client::over(Arc::new(Connection { core, only })))
}

/// Connects with a connection string: `Endpoint=sb://HOST:PORT;SharedAccessKeyName=…;SharedAccessKey=…`, or with
/// `SharedAccessSignature=…`; the port is that of [`url_of`] if there is none. TLS is spoken unless it says
/// `UseDevelopmentEmulator=true` (SEC-21), and other entities than its `EntityPath` are refused (SEC-20).
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
/// As for [`connect`]; `ArgumentError` for a connection string that is none.
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

/// Where the broker of a connection string is: `wss://HOST:PORT`, or `ws://` if it says
/// `UseDevelopmentEmulator=true`; port 5301 if it names none.
#[must_use]
pub fn url_of(string: &ConnectionString) -> String {
    let scheme = if string.use_development_emulator { "ws" } else { "wss" };
    let port = string.endpoint.port.unwrap_or(peeklock_core::contract::port::WEBSOCKET);
    format!("{scheme}://{}:{port}", string.endpoint.host)
}

//! The client: the handles of every transport, over a connection. Code moves between this and a broker in
//! process by changing the line that makes the client.
//!
//! [`connect`] opens a connection that is made anew when it is lost, with pauses that grow
//! and vary. Within the grace period it goes on where it was: calls in flight are answered as if
//! nothing had happened, and locks are kept. Later, calls that were in flight fail with
//! `CommunicationProblem`, whose outcome is open (ERR-06); calls that had not been sent go out.
//!
//! Absent on purpose: TLS, which a proxy in front of the broker provides; here a tunnel, or a
//! [`Connector`] of the caller's.

mod backoff;
mod connection;
mod core;
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
use crate::frame::Encoding;

#[doc(inline)]
pub use peeklock_client::*;

pub use self::peer::{PeerMessage, PeerSender};
pub use self::text::{
    MessageTextError, explanation_to_json, message_from_json, message_to_json, policy_keys_to_json,
    policy_to_json, queue_to_json, received_to_json, rule_from_json, rule_to_json,
    session_state_to_json, subscription_to_json, topic_to_json,
};

/// What a connection is made over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens the streams of a client in place of TCP, for instance with TLS. Asked for each connection, within
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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The encoding; binary unless told otherwise.
    pub encoding: Encoding,
    /// The token, as the broker's authorizer expects it.
    pub token: Option<Arc<str>>,
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
    /// Opens streams in place of TCP; with it the URL may begin with `wss://`.
    pub connector: Option<Arc<dyn Connector>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            encoding: Encoding::Binary,
            token: None,
            name: None,
            grace: Duration::from_secs(30),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            give_up_after: None,
            connect_timeout: Duration::from_secs(5),
            connector: None,
        }
    }
}

/// Connects to `ws://HOST:PORT`. To be called inside a tokio runtime, whose task it uses. The connection is
/// closed in order by [`Client::close`], or when the last handle is gone.
///
/// # Errors
/// `ArgumentError` for another URL, `CommunicationProblem` if nobody answers, `Unauthorized`.
pub async fn connect(url: &str) -> Result<Client, BrokerError> {
    connect_with(url, ClientOptions::default()).await
}

/// Connects in a way of the caller's.
///
/// # Errors
/// As for [`connect`].
pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Client, BrokerError> {
    let core = driver::start(url, options).await?;
    Ok(Client::over(Arc::new(Connection { core })))
}

//! The client: handles of the same shape as those of the in-process transport, so that code moves
//! between the two by changing the constructor.
//!
//! [`Client::connect`] opens a connection that is made anew when it is lost, with pauses that grow
//! and vary. Within the grace period it goes on where it was: calls in flight are answered as if
//! nothing had happened, and locks are kept. Later, calls that were in flight fail with
//! `CommunicationProblem`, whose outcome is open (ERR-06); calls that had not been sent go out.
//!
//! Absent on purpose: TLS, which a proxy in front of the broker provides; here a tunnel, or a
//! [`Connector`] of the caller's.

mod admin;
mod backoff;
mod consumer;
mod core;
mod driver;
mod keeper;
mod peer;
mod received;
mod receiver;
mod sender;
mod session;
mod text;
mod topics;
mod transaction;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::entity::peers::PeerSource;
use peeklock_core::error::BrokerError;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::io::{AsyncRead, AsyncWrite};

use self::core::Lifeline;
use crate::frame::{Encoding, Role};

pub use crate::frame::queue::Cleared;

pub use self::admin::Admin;
pub use self::consumer::{Consumer, ConsumerOptions, Refusal};
pub use self::keeper::LockKeeper;
pub use self::peer::{PeerMessage, PeerSender};
pub use self::received::{BodyError, Received};
pub use self::receiver::Receiver;
pub use self::sender::Sender;
pub use self::session::SessionReceiver;
pub use self::text::{
    MessageTextError, explanation_to_json, message_from_json, message_to_json, queue_to_json,
    rule_from_json, rule_to_json, session_state_to_json, subscription_to_json, topic_to_json,
};
pub use self::transaction::{Committed, Part, Transaction};

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

/// Opens handles on a broker over one connection. Cheap to clone. The connection is closed in order
/// by [`Client::close`], or when the last handle is gone.
#[derive(Clone)]
pub struct Client {
    core: Arc<Lifeline>,
}

impl Client {
    /// Connects to `ws://HOST:PORT`. To be called inside a tokio runtime, whose task it uses.
    ///
    /// # Errors
    /// `ArgumentError` for another URL, `CommunicationProblem` if nobody answers, `Unauthorized`.
    pub async fn connect(url: &str) -> Result<Self, BrokerError> {
        Self::connect_with(url, ClientOptions::default()).await
    }

    /// Connects in a way of the caller's.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Self, BrokerError> {
        Ok(Self { core: driver::start(url, options).await? })
    }

    /// A sender to a queue, with at most 256 sends in flight; see [`Sender::with_in_flight_max`].
    /// Whether there is such a queue is told by the first send.
    ///
    /// # Errors
    /// `CommunicationProblem` if the client is closed.
    pub fn sender(&self, path: &str) -> Result<Sender, BrokerError> {
        let link = self.core.attach(path, Role::Sender, ReceiveMode::PeekLock)?;
        Ok(Sender::new(link))
    }

    /// Hands messages of a source of another broker over to a queue, each once (FWD-13).
    ///
    /// # Errors
    /// `CommunicationProblem` if the client is closed.
    pub fn peer_sender(&self, path: &str, source: PeerSource) -> Result<PeerSender, BrokerError> {
        let link = self.core.attach(path, Role::Sender, ReceiveMode::PeekLock)?;
        Ok(PeerSender::new(link, source))
    }

    /// A receiver on a queue or sub-queue, in peek-lock mode (RCV-05).
    ///
    /// # Errors
    /// `CommunicationProblem` if the client is closed.
    pub fn receiver(&self, path: &str) -> Result<Receiver, BrokerError> {
        self.receiver_in(path, ReceiveMode::PeekLock)
    }

    /// A receiver in either mode (RCV-01). Receive-and-delete is for data of low value only: a
    /// message that was handed out is gone, whatever becomes of it (RCV-04).
    ///
    /// # Errors
    /// `CommunicationProblem` if the client is closed.
    pub fn receiver_in(&self, path: &str, mode: ReceiveMode) -> Result<Receiver, BrokerError> {
        Ok(Receiver::new(self.core.attach(path, Role::Receiver, mode)?))
    }

    /// Locks a session of a queue in peek-lock mode, also one that has no message yet (SES-05).
    ///
    /// # Errors
    /// `EntityNotFound`; `SessionCannotBeLocked` if another receiver holds it (SES-06);
    /// `InvalidOperation` on a queue without sessions (SES-09); `ArgumentOutOfRange` for an id that is
    /// empty or longer than 128 characters.
    pub async fn accept_session(
        &self,
        path: &str,
        session_id: &str,
    ) -> Result<SessionReceiver, BrokerError> {
        self.accept_session_in(path, Some(session_id), ReceiveMode::PeekLock, TimeSpan::ZERO).await
    }

    /// Locks the session with the lowest available message, in peek-lock mode; waits for one up to
    /// `wait` (SES-07, SES-08). Dropping the future locks nothing.
    ///
    /// # Errors
    /// `ServiceTimeout` if there is none in time; `EntityNotFound`, `InvalidOperation`.
    pub async fn accept_next_session(
        &self,
        path: &str,
        wait: TimeSpan,
    ) -> Result<SessionReceiver, BrokerError> {
        self.accept_session_in(path, None, ReceiveMode::PeekLock, wait).await
    }

    /// Locks a session by id, or the next one if none is named, in either mode (SES-21).
    ///
    /// # Errors
    /// As for [`Client::accept_session`] and [`Client::accept_next_session`].
    pub async fn accept_session_in(
        &self,
        path: &str,
        session_id: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Result<SessionReceiver, BrokerError> {
        let (link, accepted) = self.core.accept(path, session_id, mode, wait).await?;
        Ok(SessionReceiver::new(link, accepted))
    }

    /// The ids of sessions of a queue in ascending order, `top` of them after `skip`; at most as many
    /// as a list may have (SES-29).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation`.
    pub async fn sessions(
        &self,
        path: &str,
        which: SessionFilter,
        skip: u64,
        top: u32,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        session::list(&self.core, path, which, skip, top).await
    }

    /// Management of entities.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.core))
    }

    /// The broker's clock, as far as it is known: this machine's, moved by what the broker said when
    /// it was connected.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.now()
    }

    /// Waits until the client has a connection.
    pub async fn connected(&self) {
        self.core.until(true).await;
    }

    /// Waits until the client has lost its connection; it makes it anew by itself.
    pub async fn disconnected(&self) {
        self.core.until(false).await;
    }

    /// Closes the connection in order: locks stay until they run out (SET-21). Calls in flight are
    /// answered first, those that come later fail.
    pub async fn close(self) {
        self.core.close().await;
    }
}

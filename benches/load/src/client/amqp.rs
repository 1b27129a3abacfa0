//! A client over AMQP 1.0, on the codec of the transport. Each client has a connection with one
//! session, and one link per activity.
//!
//! ```text
//!   open ─► link ─► send ◄─► accepted                    a transfer for each message
//!             └───► receive ◄─► settle ◄─► accepted      a disposition for messages received together
//! ```
//!
//! For a fair comparison with WebSocket, a window counts unconfirmed transfers, and deliveries
//! whose completion is unconfirmed. Credit is returned with completions, in steps of a quarter of
//! the window, and output is written at once, in pieces of at most 256 KiB, like the WebSocket
//! client. Completions are sent as ranges of deliveries; the broker confirms each.
//!
//! Absent on purpose: features that a load does not need, such as SASL, heartbeats, recovery and
//! several links at a time. AMQP has no operations to create queues, so WebSocket is used for that.

mod connection;
mod link;
mod open;
mod receive;
mod send;
mod settle;
mod wire;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use peeklock::tls::ClientTls;
use peeklock::websocket::client as ws;
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::Performative;
use tokio::sync::OnceCell;

use self::connection::Connection;
use crate::BenchError;
use crate::latency::Latencies;
use crate::messages::Run;
use peeklock::tls::place::{self, Place};

/// Reason why a connection over AMQP failed.
#[derive(Debug, thiserror::Error)]
pub enum AmqpFault {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Socket(#[from] io::Error),
    /// The URL is invalid.
    #[error("the URL must have the form amqp://HOST:PORT or amqps://HOST:PORT")]
    NotAPlace,
    /// The broker has closed the socket.
    #[error("connection is closed")]
    Closed,
    /// The broker refused an operation, or sent unreadable bytes.
    #[error("{0}")]
    Refused(#[from] AmqpError),
    /// The broker sent an unexpected performative.
    #[error("broker answered with {0:?}")]
    Unexpected(Box<Performative>),
    /// The broker does not begin with the AMQP header.
    #[error("broker does not speak AMQP 1.0 without SASL")]
    Header,
}

impl AmqpFault {
    fn unexpected(performative: Performative) -> Self {
        Self::Unexpected(Box::new(performative))
    }
}

/// A client.
#[derive(Clone)]
pub struct Amqp {
    place: Arc<Place>,
    tls: ClientTls,
    /// Idle connections. A client that receives from several subscriptions has several.
    idle: Arc<Mutex<Vec<Connection>>>,
    /// The address for the creation of queues, and its client, connected on first use.
    websocket: Arc<str>,
    manager: Arc<OnceCell<peeklock::Client>>,
}

impl Amqp {
    /// Connects to `amqp://HOST:PORT`, or `amqps://` with TLS, at a broker that also serves
    /// WebSocket.
    pub async fn connect(url: &str, websocket: &str, tls: &ClientTls) -> Result<Self, BenchError> {
        let place = Place::parse(url, place::AMQP).ok_or(AmqpFault::NotAPlace)?;
        let connection = Connection::open(&place, tls).await?;
        Ok(Self {
            place: Arc::new(place),
            tls: tls.clone(),
            idle: Arc::new(Mutex::new(vec![connection])),
            websocket: websocket.into(),
            manager: Arc::default(),
        })
    }

    /// Handles that create queues and read their counts.
    pub(super) async fn manager(&self) -> Result<&peeklock::Client, BenchError> {
        let mut options = ws::ClientOptions::default();
        options.tls = self.tls.clone();
        let connect = || ws::connect_with(&self.websocket, options);
        Ok(self.manager.get_or_try_init(connect).await?)
    }

    pub(super) async fn send(&self, run: &Run, took: &Latencies) -> Result<(), BenchError> {
        let mut connection = self.take().await?;
        connection.send(run, took).await?;
        self.put_back(connection);
        Ok(())
    }

    pub(super) async fn receive(
        &self,
        path: &str,
        run: &Run,
        took: &Latencies,
    ) -> Result<(), BenchError> {
        let mut connection = self.take().await?;
        connection.receive(path, run, took).await?;
        self.put_back(connection);
        Ok(())
    }

    /// Takes an idle connection, or opens a new one.
    async fn take(&self) -> Result<Connection, AmqpFault> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle.filter(Connection::is_fresh) {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.place, &self.tls).await,
        }
    }

    fn put_back(&self, mut connection: Connection) {
        connection.rest();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

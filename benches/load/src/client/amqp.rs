//! Over AMQP 1.0, on the codec of the transport: each client has a connection with one session, and for each
//! thing that it does one link.
//!
//! ```text
//!   open ─► link ─► send ◄─► accepted                    a transfer for each message
//!             └───► receive ◄─► settle ◄─► accepted      a disposition for what came together
//! ```
//!
//! What is compared with WebSocket: a window is of transfers that are not answered, and of deliveries whose
//! completion is not; credit comes back with completions in steps of a quarter, and what is ready is written
//! at once, 256 KiB at most, as the client over WebSocket does. Completions are in ranges, which is how AMQP
//! says many of them; each is answered.
//!
//! Absent on purpose: what a client in the field needs and a load does not, such as SASL, heartbeats, recovery
//! and several links at a time. AMQP has no words for queues: those are made over WebSocket.

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

/// Why a connection over AMQP did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub enum AmqpFault {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Socket(#[from] io::Error),
    /// There is no such URL.
    #[error("the URL must have the form amqp://HOST:PORT or amqps://HOST:PORT")]
    NotAPlace,
    /// The broker has closed the socket.
    #[error("connection is closed")]
    Closed,
    /// The broker refused something, or said what cannot be read.
    #[error("{0}")]
    Refused(#[from] AmqpError),
    /// The broker said something else than was awaited.
    #[error("broker answered with {0:?}")]
    Unexpected(Box<Performative>),
    /// The broker does not begin as the protocol does.
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
    /// Connections with nothing to do. Who receives from several subscriptions has as many.
    idle: Arc<Mutex<Vec<Connection>>>,
    /// Where queues are made, and who does when one is asked for.
    websocket: Arc<str>,
    manager: Arc<OnceCell<peeklock::Client>>,
}

impl Amqp {
    /// Connects to `amqp://HOST:PORT`, or `amqps://` with TLS, of a broker that listens for WebSocket too.
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

    /// Handles that make queues and look into them.
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

    /// A connection that is open, or a new one.
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

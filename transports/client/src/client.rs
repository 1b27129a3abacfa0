//! The client: it opens all other handles over a port. The port decides how requests reach the
//! broker: in process, over a connection, or simulated.

use std::sync::Arc;

use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::error::BrokerError;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::Reach;

use crate::port::{Managed, Management, Page, Port};
use crate::trace::Tracing;
use crate::{Admin, Receiver, Sender, SessionReceiver, Traces, Transaction};

/// Opens handles on a broker. Cheap to clone, and usable from any thread.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::message::Message;
/// use peeklock::time::TimeSpan;
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// client.admin().create_queue("orders").await?;
/// client.sender("orders")?.send(Message::new("two coffees")).await?;
/// let receiver = client.receiver("orders")?;
/// let order = receiver.receive(TimeSpan::from_seconds(5)).await?.unwrap();
/// receiver.complete(&order).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    port: Arc<dyn Port>,
    tracing: Tracing,
}

impl Client {
    /// Creates a client over a port. [`Client::close`] ends the connection in order; otherwise it
    /// ends with the last handle.
    #[must_use]
    pub const fn over(port: Arc<dyn Port>) -> Self {
        Self { port, tracing: Tracing(None) }
    }

    /// Connects the client's handles to a tracing system. Sent messages carry the current trace
    /// unless they already carry one, and the span of a delivery continues the trace of its
    /// message. With OpenTelemetry and the crate `tracing-opentelemetry` each of the two methods is
    /// one line: inject `Span::current().context()` into the [`TraceContext`](crate::TraceContext),
    /// and pass the context extracted from it to `span.set_parent`.
    #[must_use]
    pub fn with_traces(mut self, traces: Arc<dyn Traces>) -> Self {
        self.tracing = Tracing(Some(traces));
        self
    }

    pub(crate) const fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    pub(crate) const fn port(&self) -> &Arc<dyn Port> {
        &self.port
    }

    /// Opens a sender to a queue or topic, with at most 256 sends in flight; see
    /// [`Sender::with_in_flight_max`]. Over a network, the first send reports an absent entity.
    ///
    /// # Errors
    /// `EntityNotFound`; `CommunicationProblem` if the client is closed.
    pub fn sender(&self, path: &str) -> Result<Sender, BrokerError> {
        Ok(Sender::new(self.port.sender(path, None)?, self.tracing.clone()))
    }

    /// Opens a sender to the queue or topic `destination`. The broker stores its messages at the
    /// queue or topic `via` first and then moves them (VIA-01). No receiver and no subscription of
    /// `via` gets them. A message that cannot be moved goes into the transfer dead-letter queue of
    /// `via` (VIA-03).
    ///
    /// # Errors
    /// `EntityNotFound` if one of the two is absent (VIA-02), `InvalidOperation` if they are the
    /// same entity. Over a network, the first send reports these errors.
    pub fn sender_via(&self, destination: &str, via: &str) -> Result<Sender, BrokerError> {
        Ok(Sender::new(self.port.sender(destination, Some(via))?, self.tracing.clone()))
    }

    /// Opens a receiver on a queue, a subscription (`<topic>/Subscriptions/<name>`) or a sub-queue,
    /// in peek-lock mode (RCV-05). Over a network, the first receive reports an absent entity.
    ///
    /// # Errors
    /// `EntityNotFound`; `CommunicationProblem` if the client is closed.
    pub fn receiver(&self, path: &str) -> Result<Receiver, BrokerError> {
        self.receiver_in(path, ReceiveMode::PeekLock)
    }

    /// Opens a receiver in either mode (RCV-01). Use receive-and-delete only for data of low value:
    /// a delivered message is deleted, even if its processing fails (RCV-04).
    ///
    /// # Errors
    /// As for [`Client::receiver`].
    pub fn receiver_in(&self, path: &str, mode: ReceiveMode) -> Result<Receiver, BrokerError> {
        Ok(Receiver::new(self.port.receiver(path, mode)?))
    }

    /// Locks a session of a queue or subscription in peek-lock mode, even if it has no message yet
    /// (SES-05).
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

    /// Locks the session with the lowest available message, in peek-lock mode. Waits for one for at
    /// most `wait` (SES-07, SES-08). Dropping the future locks nothing.
    ///
    /// # Errors
    /// `ServiceTimeout` if no session is available in time; `EntityNotFound`, `InvalidOperation`.
    pub async fn accept_next_session(
        &self,
        path: &str,
        wait: impl Into<TimeSpan>,
    ) -> Result<SessionReceiver, BrokerError> {
        self.accept_session_in(path, None, ReceiveMode::PeekLock, wait).await
    }

    /// Locks a session by id, or the next one without an id, in either mode (SES-21).
    ///
    /// # Errors
    /// As for [`Client::accept_session`] and [`Client::accept_next_session`].
    pub async fn accept_session_in(
        &self,
        path: &str,
        session_id: Option<&str>,
        mode: ReceiveMode,
        wait: impl Into<TimeSpan>,
    ) -> Result<SessionReceiver, BrokerError> {
        let wait = wait.into();
        Ok(SessionReceiver::new(self.port.session(path, session_id, mode, wait).await?))
    }

    /// Returns the ids of sessions of a queue in ascending order, `top` ids after the first `skip`.
    /// The broker's limit for lists bounds their number (SES-29).
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
        let wide = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let page = Page { skip: wide(skip), top: Some(wide(top.into())) };
        match self.port.manage(path, Management::Sessions(which, page)).await? {
            Managed::Sessions(sessions) => Ok(sessions),
            other => Err(self.port.unexpected(path, &other)),
        }
    }

    /// Begins a transaction: sends and settlements that take effect together or not at all
    /// (TXN-01). All clones of a client together may have 1,000 open transactions (TXN-17). A queue
    /// and its dead-letter queue are one entity (TXN-08), so one transaction can complete a dead
    /// letter and send [its copy](crate::Received::to_resubmit).
    ///
    /// # Errors
    /// `QuotaExceeded` if too many are open; `ArgumentError` in the Basic tier (ENT-02).
    pub async fn begin_transaction(&self) -> Result<Transaction, BrokerError> {
        Transaction::begin(&self.port, Reach::OneEntity).await
    }

    /// Begins a transaction that can also send to other queues and topics, via the first entity
    /// that it uses (TXN-09). It needs the Send right on both (VIA-02).
    ///
    /// # Errors
    /// As for [`Client::begin_transaction`].
    pub async fn begin_cross_entity_transaction(&self) -> Result<Transaction, BrokerError> {
        Transaction::begin(&self.port, Reach::CrossEntity).await
    }

    /// Returns the management handle.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.port))
    }

    /// Returns the broker's clock. Over a network it is an estimate: this machine's clock,
    /// corrected by the broker's time at the connection.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.port.now()
    }

    /// Waits until the broker is reachable; returns immediately in process.
    pub async fn connected(&self) {
        self.port.reached(true).await;
    }

    /// Waits until the connection is lost, which then reconnects by itself; never returns in
    /// process.
    pub async fn disconnected(&self) {
        self.port.reached(false).await;
    }

    /// Closes the connection in order: calls in flight are answered first, later calls fail. Locks
    /// stay until they expire (SET-21).
    pub async fn close(self) {
        self.port.close().await;
    }
}

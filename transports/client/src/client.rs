//! Where handles come from.

use std::sync::Arc;

use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::error::BrokerError;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::Reach;

use crate::port::{Managed, Management, Page, Port};
use crate::trace::Tracing;
use crate::{Admin, Receiver, Sender, SessionReceiver, Traces, Transaction};

/// Opens handles on a broker. Cheap to clone. They may be used from any thread.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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
    /// A client over a port. The way ends in order with [`Client::close`], or when the last handle is gone.
    #[must_use]
    pub const fn over(port: Arc<dyn Port>) -> Self {
        Self { port, tracing: Tracing(None) }
    }

    /// The same client, whose handles go on with traces: what is sent says to which it belongs, unless it says so itself,
    /// and the span of a delivery goes on with that of its message. With OpenTelemetry and the crate
    /// `tracing-opentelemetry` the two methods are a line each: `Span::current().context()` is injected into the
    /// [`TraceContext`](crate::TraceContext), and the one extracted from it is given to `span.set_parent`.
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

    /// A sender to a queue or topic, with at most 256 sends in flight; see
    /// [`Sender::with_in_flight_max`]. Over a network, whether the entity is there is told by the first send.
    ///
    /// # Errors
    /// `EntityNotFound`; `CommunicationProblem` if the client is closed.
    pub fn sender(&self, path: &str) -> Result<Sender, BrokerError> {
        Ok(Sender::new(self.port.sender(path, None)?, self.tracing.clone()))
    }

    /// A sender to the queue or topic `destination` whose messages are stored at the queue or topic
    /// `via` first and are moved by the broker (VIA-01). They are seen by no receiver of `via`, and
    /// published to nobody; one that cannot be moved goes into the transfer
    /// dead-letter queue of `via` (VIA-03).
    ///
    /// # Errors
    /// `EntityNotFound` if one of the two is not there (VIA-02), `InvalidOperation` if they are one. Over a
    /// network they are told by the first send.
    pub fn sender_via(&self, destination: &str, via: &str) -> Result<Sender, BrokerError> {
        Ok(Sender::new(self.port.sender(destination, Some(via))?, self.tracing.clone()))
    }

    /// A receiver on a queue, a subscription (`<topic>/Subscriptions/<name>`) or a sub-queue, in
    /// peek-lock mode (RCV-05). Over a network, whether it is there is told by the first receive.
    ///
    /// # Errors
    /// `EntityNotFound`; `CommunicationProblem` if the client is closed.
    pub fn receiver(&self, path: &str) -> Result<Receiver, BrokerError> {
        self.receiver_in(path, ReceiveMode::PeekLock)
    }

    /// A receiver in either mode (RCV-01). Receive-and-delete is for data of low value only: a
    /// message that was handed out is gone, whatever becomes of it (RCV-04).
    ///
    /// # Errors
    /// As for [`Client::receiver`].
    pub fn receiver_in(&self, path: &str, mode: ReceiveMode) -> Result<Receiver, BrokerError> {
        Ok(Receiver::new(self.port.receiver(path, mode)?))
    }

    /// Locks a session of a queue or subscription in peek-lock mode, also one that has no message yet
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

    /// Locks the session with the lowest available message, in peek-lock mode; waits for one up to
    /// `wait` (SES-07, SES-08). Dropping the future locks nothing.
    ///
    /// # Errors
    /// `ServiceTimeout` if there is none in time; `EntityNotFound`, `InvalidOperation`.
    pub async fn accept_next_session(
        &self,
        path: &str,
        wait: impl Into<TimeSpan>,
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
        wait: impl Into<TimeSpan>,
    ) -> Result<SessionReceiver, BrokerError> {
        let wait = wait.into();
        Ok(SessionReceiver::new(self.port.session(path, session_id, mode, wait).await?))
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
        let wide = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let page = Page { skip: wide(skip), top: Some(wide(top.into())) };
        match self.port.manage(path, Management::Sessions(which, page)).await? {
            Managed::Sessions(sessions) => Ok(sessions),
            other => Err(self.port.unexpected(path, &other)),
        }
    }

    /// Begins a transaction: sends and settlements that take effect together or not at all (TXN-01).
    /// All clones of a client together may have 1,000 of them open (TXN-17). A queue and its dead-letter queue are one
    /// entity (TXN-08): a dead letter is completed and [its copy](crate::Received::to_resubmit) sent in one.
    ///
    /// # Errors
    /// `QuotaExceeded` if that many are open; `ArgumentError` in the Basic tier (ENT-02).
    pub async fn begin_transaction(&self) -> Result<Transaction, BrokerError> {
        Transaction::begin(&self.port, Reach::OneEntity).await
    }

    /// Begins a transaction that also sends to other queues and topics than the first one that it uses,
    /// by way of that one (TXN-09). That takes the Send right on both (VIA-02).
    ///
    /// # Errors
    /// As for [`Client::begin_transaction`].
    pub async fn begin_cross_entity_transaction(&self) -> Result<Transaction, BrokerError> {
        Transaction::begin(&self.port, Reach::CrossEntity).await
    }

    /// Management of entities.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.port))
    }

    /// The broker's clock; over a network as far as it is known: this machine's, moved by what the broker
    /// said when it was connected.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.port.now()
    }

    /// Waits until the broker can be reached; in process it always can.
    pub async fn connected(&self) {
        self.port.reached(true).await;
    }

    /// Waits until the connection is lost, which is made anew by itself; in process it never is.
    pub async fn disconnected(&self) {
        self.port.reached(false).await;
    }

    /// Ends the connection in order, if there is one: locks stay until they run out (SET-21). Calls in flight are
    /// answered first, those that come later fail.
    pub async fn close(self) {
        self.port.close().await;
    }
}

//! The sender: every send has a result, and the number of sends in flight is limited.
//! [`Client`](crate::Client) makes it.

use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::port::{Answer, Link, Request};
use crate::trace::Tracing;

/// Default limit on sends in flight.
const IN_FLIGHT_MAX: usize = 256;

/// Sends to one queue or topic. Clones share the limit on sends in flight.
///
/// Every send has a result: its future completes when the broker has stored or rejected the message
/// (SND-01). Ignoring results hides errors and defeats the limit on memory; the compiler warns
/// about it (SND-15).
///
/// A message sent by a handler continues the trace of the handler's message; with
/// [`Client::with_traces`](crate::Client::with_traces) it continues the current span. A message
/// with its own `traceparent` or `Diagnostic-Id` keeps that.
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
/// # client.admin().create_queue("orders").await?;
/// let sender = client.sender("orders")?;
/// let number = sender.send(Message::new("two coffees")).await?;
/// assert_eq!(number.0, 1);
/// // Independent messages, and one for later.
/// let results = sender.send_many(vec![Message::new("tea"), Message::new("water")]).await;
/// assert!(results.iter().all(Result::is_ok));
/// let at = client.now().plus(TimeSpan::from_minutes(10));
/// sender.schedule(Message::new("cake"), at).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sender {
    link: Arc<dyn Link>,
    tracing: Tracing,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
}

impl Sender {
    pub(crate) fn new(link: Arc<dyn Link>, tracing: Tracing) -> Self {
        let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        Self { link, tracing, in_flight, in_flight_max: IN_FLIGHT_MAX }
    }

    pub(crate) const fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    pub(crate) fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// Sets another limit, at least 1: with a limit of N the N+1st send waits until one of the N
    /// has completed (SND-13). A message counts from the call of send (SND-14).
    #[must_use]
    pub fn with_in_flight_max(mut self, count: usize) -> Self {
        self.in_flight_max = count.max(1);
        self.in_flight = Arc::new(Semaphore::new(self.in_flight_max));
        self
    }

    /// Returns the path of the queue or topic.
    #[must_use]
    pub fn path(&self) -> &str {
        self.link.path()
    }

    /// Sends one message and waits until it is stored. The number is 0 if the message was dropped
    /// as a duplicate (DUP-02).
    ///
    /// # Errors
    /// Returns the first failed check of SND-19. After `ServiceTimeout`, `CommunicationProblem` and
    /// `InternalError` the message may be stored; after any other error it is not (ERR-06).
    pub async fn send(&self, mut message: Message) -> Result<SequenceNumber, BrokerError> {
        self.tracing.add_context([&mut message]);
        let _place = self.places(1).await;
        match self.link.ask(Request::Send(Box::new(message))).await? {
            Answer::Accepted(number) => Ok(number),
            other => Err(self.link.unexpected(&other)),
        }
    }

    /// Sends a message that becomes available at an instant (SCH-02); the number cancels it.
    ///
    /// # Errors
    /// As for [`Sender::send`].
    pub async fn schedule(
        &self,
        message: Message,
        at: Timestamp,
    ) -> Result<SequenceNumber, BrokerError> {
        self.send(message.with_scheduled_enqueue_time(at)).await
    }

    /// Sends independent messages as one group; each has its own result, in order.
    pub async fn send_many(
        &self,
        mut messages: Vec<Message>,
    ) -> Vec<Result<SequenceNumber, BrokerError>> {
        self.tracing.add_context(&mut messages);
        let count = messages.len();
        let _places = self.places(count).await;
        let answer = self.link.ask(Request::SendEach(messages)).await;
        self.link.each(count, answer, |answer| match answer {
            Answer::Sent(numbers) => Ok(numbers),
            other => Err(other),
        })
    }

    /// Sends messages so that all or none are stored (SND-29), with consecutive numbers (SND-31).
    ///
    /// # Errors
    /// Returns the error of the first message that fails a check, or `MessageSizeExceeded` for the
    /// batch (SND-30).
    pub async fn send_batch(
        &self,
        mut messages: Vec<Message>,
    ) -> Result<Vec<SequenceNumber>, BrokerError> {
        self.tracing.add_context(&mut messages);
        let _place = self.places(1).await;
        match self.link.ask(Request::SendBatch(messages)).await? {
            Answer::Sent(numbers) => numbers.into_iter().collect(),
            other => Err(self.link.unexpected(&other)),
        }
    }

    /// Cancels scheduled messages, all or none (SCH-05).
    ///
    /// # Errors
    /// `MessageNotFound` if one is unknown, already enqueued or cancelled.
    pub async fn cancel_scheduled(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<(), BrokerError> {
        self.link.ask(Request::CancelScheduled(sequences)).await.map(drop)
    }

    /// Waits for places among the sends in flight. A list larger than the limit takes all places.
    async fn places(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        let count = u32::try_from(count.clamp(1, self.in_flight_max)).unwrap_or(1);
        self.in_flight.acquire_many(count).await.ok()
    }
}

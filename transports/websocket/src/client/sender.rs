//! Sending: every send is settled, and as many may be in flight as the bound says.

use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::core::{Ask, Link};
use crate::frame::message::Outgoing;
use crate::frame::{Notice, Numbered, Operation, Run, Send};

/// Sends in flight unless said otherwise.
const IN_FLIGHT_MAX: usize = 256;

/// Sends to one queue. Clones share the bound on sends in flight.
///
/// Every send is settled: its future completes when the broker has stored or rejected the message
/// (SND-01). A send whose result is dropped unseen hides errors and breaks the bound on memory; the
/// compiler warns of it (SND-15).
#[derive(Clone)]
pub struct Sender {
    link: Arc<Link>,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
}

impl Sender {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link: Arc::new(link),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            in_flight_max: IN_FLIGHT_MAX,
        }
    }

    /// The same sender with another bound, at least 1: with a bound of N the N+1st send waits until
    /// one of the N has completed (SND-13). An unsent message counts from the call of send (SND-14).
    #[must_use]
    pub fn with_in_flight_max(mut self, count: usize) -> Self {
        self.in_flight_max = count.max(1);
        self.in_flight = Arc::new(Semaphore::new(self.in_flight_max));
        self
    }

    /// The path of the queue.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.link.path
    }

    /// Sends one message and waits until it is stored. The number is 0 if the message was dropped as
    /// a duplicate (DUP-02). Sends that are under way at once share a frame.
    ///
    /// # Errors
    /// With the first check of SND-19 that fails. `ServiceTimeout`, `CommunicationProblem` and
    /// `InternalError` leave open whether it was stored; after any other nothing was (ERR-06).
    pub async fn send(&self, message: Message) -> Result<SequenceNumber, BrokerError> {
        let _place = self.places(1).await;
        let answered = self.begin(message);
        self.link.core.answered(answered, &self.link.path).await.map(SequenceNumber)
    }

    /// Messages that go together.
    pub(super) fn batch(&self, messages: Vec<Message>) -> Send {
        let messages =
            messages.into_iter().map(|message| Outgoing::Typed(Box::new(message))).collect();
        Send { link: self.link.number, messages }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    fn begin(&self, message: Message) -> oneshot::Receiver<Result<u64, BrokerError>> {
        let (answer, answered) = oneshot::channel();
        // Encoded here, in the caller's task.
        let message = Outgoing::Content(message.encode().as_bytes().clone());
        self.link.core.ask(Ask::Send { link: self.link.number, message, answer });
        answered
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

    /// Sends independent messages as one group; each has its own result, in their order.
    pub async fn send_many(
        &self,
        messages: Vec<Message>,
    ) -> Vec<Result<SequenceNumber, BrokerError>> {
        let _places = self.places(messages.len()).await;
        let begun: Vec<_> = messages.into_iter().map(|message| self.begin(message)).collect();
        let mut results = Vec::with_capacity(begun.len());
        for answered in begun {
            let answer = self.link.core.answered(answered, &self.link.path).await;
            results.push(answer.map(SequenceNumber));
        }
        results
    }

    /// Sends messages of which all are stored or none (SND-29), with consecutive numbers (SND-31).
    ///
    /// # Errors
    /// With the error of the first message that fails a check, or `MessageSizeExceeded` for the
    /// batch (SND-30).
    pub async fn send_batch(
        &self,
        messages: Vec<Message>,
    ) -> Result<Vec<SequenceNumber>, BrokerError> {
        let _place = self.places(1).await;
        let count = messages.len();
        match self.link.call(Operation::SendBatch(self.batch(messages))).await? {
            Notice::Accepted(accepted) => {
                let numbers = Run::expand(&accepted.sequence_numbers, count);
                Ok(numbers.into_iter().map(SequenceNumber).collect())
            }
            _ => Err(self.link.unexpected()),
        }
    }

    /// Cancels scheduled messages, all or none (SCH-05).
    ///
    /// # Errors
    /// `MessageNotFound` if one of them is unknown, materialised or cancelled.
    pub async fn cancel_scheduled(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<(), BrokerError> {
        let sequence_numbers = sequences.into_iter().map(|number| number.0).collect();
        let cancel = Numbered { link: self.link.number, sequence_numbers };
        self.link.call(Operation::CancelScheduled(cancel)).await.map(|_| ())
    }

    /// Waits for places among the sends in flight; a list larger than the bound takes all of it.
    async fn places(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        let count = u32::try_from(count.clamp(1, self.in_flight_max)).unwrap_or(1);
        self.in_flight.acquire_many(count).await.ok()
    }
}

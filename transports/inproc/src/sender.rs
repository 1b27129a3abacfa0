//! Sending: every send is settled, and as many may be in flight as the bound says.

use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Sends in flight unless said otherwise.
const IN_FLIGHT_MAX: usize = 256;

/// Sends to one queue or topic. Clones share the bound on sends in flight.
///
/// Every send is settled: its future completes when the broker has stored or rejected the message
/// (SND-01). A send whose result is dropped unseen hides errors and breaks the bound on memory; the
/// compiler warns of it (SND-15).
#[derive(Clone)]
pub struct Sender {
    entity: Entity,
    /// Where messages go that are only stored at `entity` (VIA-01).
    destination: Option<Arc<str>>,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
}

impl Sender {
    pub(crate) fn new(entity: Entity) -> Self {
        Self {
            entity,
            destination: None,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            in_flight_max: IN_FLIGHT_MAX,
        }
    }

    pub(crate) const fn entity(&self) -> &Entity {
        &self.entity
    }

    pub(crate) fn to(mut self, destination: Arc<str>) -> Self {
        self.destination = Some(destination);
        self
    }

    /// The command that sends one message.
    pub(crate) fn command(&self, message: Message) -> Command {
        let message = self.entity.broker().inbound(message);
        match &self.destination {
            None => Command::Send { message },
            Some(destination) => {
                let destination = Arc::clone(destination);
                Command::SendVia { destination, messages: vec![message] }
            }
        }
    }

    /// The command that sends messages of which all are stored or none.
    pub(crate) fn batch(&self, messages: Vec<Message>) -> Command {
        let broker = self.entity.broker();
        let messages = messages.into_iter().map(|message| broker.inbound(message)).collect();
        match &self.destination {
            None => Command::SendBatch { messages },
            Some(destination) => {
                Command::SendVia { destination: Arc::clone(destination), messages }
            }
        }
    }

    /// The number of one message that was sent.
    fn number(&self, outcome: Outcome) -> Result<SequenceNumber, BrokerError> {
        match outcome {
            Outcome::Accepted(sequence) => Ok(sequence),
            Outcome::AcceptedBatch(sequences) if sequences.len() == 1 => {
                Ok(sequences.first().copied().unwrap_or_default())
            }
            other => Err(self.unexpected(&other)),
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

    /// The path of the queue or topic.
    #[must_use]
    pub fn path(&self) -> &str {
        self.entity.path()
    }

    /// Sends one message and waits until it is stored. The number is 0 if the message was dropped as
    /// a duplicate (DUP-02).
    ///
    /// # Errors
    /// With the first check of SND-19 that fails. `ServiceTimeout`, `CommunicationProblem` and
    /// `InternalError` leave open whether it was stored; after any other nothing was (ERR-06).
    pub async fn send(&self, message: Message) -> Result<SequenceNumber, BrokerError> {
        let _place = self.places(1).await;
        let outcome = self.entity.call(self.command(message)).await?;
        self.number(outcome)
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
        let commands = messages.into_iter().map(|message| self.command(message)).collect();
        let results = self.entity.call_many(commands).await;
        results.into_iter().map(|result| self.number(result?)).collect()
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
        match self.entity.call(self.batch(messages)).await? {
            Outcome::AcceptedBatch(sequences) => Ok(sequences),
            other => Err(self.unexpected(&other)),
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
        self.entity.call(Command::CancelScheduled { sequences }).await.map(|_| ())
    }

    /// Waits for places among the sends in flight; a list larger than the bound takes all of it.
    async fn places(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        let count = u32::try_from(count.clamp(1, self.in_flight_max)).unwrap_or(1);
        self.in_flight.acquire_many(count).await.ok()
    }

    fn unexpected(&self, outcome: &Outcome) -> BrokerError {
        self.entity.refuse(Rejection::internal(format!("unexpected answer {outcome:?}")))
    }
}

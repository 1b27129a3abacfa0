//! A delivery made by hand, for tests of handlers without a broker. The test sets its properties
//! and inspects its settlement.

use std::sync::Arc;

use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Message};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::Settled;
use super::{FIRST_INSTANT, TestClient, TestSession};
use peeklock_client::port::Settlement;
use peeklock_client::testing::{Origin, outcome_of};
use peeklock_client::{
    Delivery, Handler, Job, JobError, JobType, Received, SessionDelivery, SessionJob, WriteError,
    job_message,
};

/// Duration of its lock.
const LOCK: TimeSpan = TimeSpan::from_minutes(1);

/// A delivery made by hand, to be given to a handler. By default it is the first delivery of
/// message 1, enqueued at the start time of a [`super::TestBroker`].
///
/// It can be given to a function, [`peeklock_client::jobs`], a responder, the recipient of an actor
/// or, in an actix system, `actors`, as by a consumer:
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::port::Settlement;
/// use peeklock::testing::TestDelivery;
/// use peeklock::time::TimeSpan;
/// use peeklock::{Job, JobType, Refusal, jobs};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order {
///     cups: u32,
/// }
///
/// impl JobType for Order {
///     const NAME: &'static str = "order";
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let brew = jobs(|order: Job<Order>| async move {
///     if order.value.cups > 9 {
///         return Err(Refusal::retry_after(TimeSpan::from_minutes(5)));
///     }
///     Ok(())
/// });
/// let small = TestDelivery::of_job(&Order { cups: 2 })?;
/// assert_eq!(small.given_to(&brew).await, Settlement::Complete);
///
/// let large = TestDelivery::of_job(&Order { cups: 20 })?.with_delivery_count(3);
/// let later = Settlement::Abandon { properties: vec![], delay: Some(TimeSpan::from_minutes(5)) };
/// assert_eq!(large.given_to(&brew).await, later);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestDelivery {
    message: Message,
    sequence: SequenceNumber,
    enqueued_at: Timestamp,
    /// Number of failed deliveries before this one.
    failed_count: u32,
    /// Client for its transactions; `None` for a separate one.
    client: Option<TestClient>,
}

impl TestDelivery {
    /// Creates the first delivery of a message.
    #[must_use]
    pub const fn of(message: Message) -> Self {
        let sequence = SequenceNumber(1);
        Self { message, sequence, enqueued_at: FIRST_INSTANT, failed_count: 0, client: None }
    }

    /// Creates the first delivery of a value that is sent as a job.
    ///
    /// # Errors
    /// Returns an error if the value cannot be written as JSON.
    pub fn of_job<T: JobType + Serialize>(value: &T) -> Result<Self, WriteError> {
        Ok(Self::of(job_message(value)?))
    }

    /// Sets the client for transactions: the handler begins them with the delivery, and sends in
    /// them with the client's senders.
    #[must_use]
    pub fn with_client(mut self, client: &TestClient) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// Sets the sequence number.
    #[must_use]
    pub const fn with_sequence_number(mut self, number: u64) -> Self {
        self.sequence = SequenceNumber(number);
        self
    }

    /// Sets the enqueued instant.
    #[must_use]
    pub const fn with_enqueued_at(mut self, at: Timestamp) -> Self {
        self.enqueued_at = at;
        self
    }

    /// Sets the delivery count; 1 is the first delivery.
    #[must_use]
    pub const fn with_delivery_count(mut self, count: u32) -> Self {
        self.failed_count = count.saturating_sub(1);
        self
    }

    /// Returns the next delivery of the same message, as after an abandon or an expired lock. It
    /// shows whether a handler repeats an action that must happen once.
    #[must_use]
    pub fn again(&self) -> Self {
        let failed_count = self.failed_count.saturating_add(1);
        Self { failed_count, ..self.clone() }
    }

    /// Sets the reason and description, as on a message from a dead-letter queue.
    #[must_use]
    pub fn with_dead_letter_reason(mut self, reason: &str, description: &str) -> Self {
        self.message = self
            .message
            .with_application_property(DEAD_LETTER_REASON, reason)
            .with_application_property(DEAD_LETTER_ERROR_DESCRIPTION, description);
        self
    }

    /// Returns the message as a receiver gets it.
    #[must_use]
    pub fn received(&self) -> Received {
        let token = LockToken(u128::from(self.sequence.0));
        let time_to_live = self.message.time_to_live;
        let size = u32::try_from(self.message.body.as_bytes().len()).unwrap_or(u32::MAX);
        let facts = MessageFacts {
            sequence: self.sequence,
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: self.enqueued_at,
            expires_at: Some(
                time_to_live
                    .map_or(Timestamp::NEVER, |time_to_live| self.enqueued_at.plus(time_to_live)),
            ),
            time_to_live,
            delivery_count: self.failed_count,
            state: MessageState::Active,
            delayed_until: None,
            sub_queue: SubQueue::Main,
            lock: Some(LockGrant { token, until: self.enqueued_at.plus(LOCK) }),
            size,
            overlay_count: 0,
            was_scheduled: false,
        };
        Received::by_hand(self.message.clone(), facts)
    }

    /// Returns the input of a handler of messages, which is also the message to an actor.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.handed().0
    }

    /// Returns the input of a handler of sessions.
    #[must_use]
    pub fn in_session(&self, session: &TestSession) -> SessionDelivery {
        self.handed_in(session).0
    }

    /// Returns the input of a handler of jobs, which is also the message to an actor.
    ///
    /// # Errors
    /// Returns an error if the message is not such a job; [`peeklock_client::jobs`] would
    /// dead-letter it.
    pub fn job<T: JobType + DeserializeOwned>(&self) -> Result<Job<T>, JobError> {
        Job::read(self.delivery())
    }

    /// Returns the input of a handler of session jobs, which is also the message to an actor.
    ///
    /// # Errors
    /// As for [`TestDelivery::job`].
    pub fn job_in<T: JobType + DeserializeOwned>(
        &self,
        session: &TestSession,
    ) -> Result<SessionJob<T>, JobError> {
        SessionJob::read(self.in_session(session))
    }

    /// Gives the delivery to a handler as a consumer does, and returns its settlement: by the
    /// handler itself, if it has settled the message ([`Delivery::complete`], [`Delivery::refuse`],
    /// or a committed transaction), otherwise by its outcome. A panic abandons it.
    pub async fn given_to(&self, handler: &impl Handler<Delivery>) -> Settlement {
        let (delivery, settled) = self.handed();
        let outcome = outcome_of(async { handler.handle(delivery).await }).await;
        settled.get().unwrap_or_else(|| outcome.into())
    }

    /// Gives the delivery to a handler as a message of a session, and returns its settlement, as
    /// [`TestDelivery::given_to`] does. [`TestSession::settled`] returns settlements that the
    /// handler makes with the session.
    pub async fn given_in(
        &self,
        session: &TestSession,
        handler: &impl Handler<SessionDelivery>,
    ) -> Settlement {
        let (delivery, settled) = self.handed_in(session);
        let outcome = outcome_of(async { handler.handle(delivery).await }).await;
        settled.get().unwrap_or_else(|| outcome.into())
    }

    fn handed(&self) -> (Delivery, Settled) {
        let (origin, settled) = self.hand();
        (Delivery::by_hand(self.received(), origin), settled)
    }

    fn handed_in(&self, session: &TestSession) -> (SessionDelivery, Settled) {
        let (origin, settled) = self.hand();
        let (message, session) = (self.received(), Arc::clone(session.receiver()));
        (SessionDelivery::by_hand(message, session, origin), settled)
    }

    /// Returns an origin for the delivery, and its settlement.
    fn hand(&self) -> (Origin, Settled) {
        match &self.client {
            Some(client) => client.hand(),
            None => TestClient::new().hand(),
        }
    }
}

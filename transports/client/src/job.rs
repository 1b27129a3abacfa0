//! Jobs: typed values that are sent as JSON under the name of their type, and arrive at a handler
//! as values of that type.
//!
//! ```text
//!  value ──► job_message: body in JSON, ContentType application/json, Subject = name of the type
//!                                                    │
//!  handler ◄── Job { value, message } ◄── jobs ◄─────┘    otherwise dead-lettered with the reason
//! ```

mod session;

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::Either;
use peeklock_core::error::{BrokerError, Quoted, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::session::SessionJob;
use crate::consumer::Origin;
use crate::{
    Delivery, Handler, Received, Refusal, Sender, SessionDelivery, SessionReceiver, Transaction,
    WriteError, json_message,
};

/// Media type of every job.
const JSON: &str = "application/json";

/// A type whose values are sent as jobs. Sender and receiver agree on the name: it is the Subject
/// of the message, so it should outlive the type's name in a program.
///
/// ```
/// # use peeklock_client as peeklock;
/// use peeklock::{JobType, job_message};
///
/// #[derive(serde::Serialize)]
/// struct Invoice {
///     number: u32,
/// }
///
/// impl JobType for Invoice {
///     const NAME: &'static str = "invoice";
/// }
///
/// let message = job_message(&Invoice { number: 7 })?;
/// assert_eq!(message.subject.as_deref(), Some("invoice"));
/// assert_eq!(message.body.as_bytes(), r#"{"number":7}"#);
/// # Ok::<(), peeklock::WriteError>(())
/// ```
pub trait JobType {
    /// Subject of its messages.
    const NAME: &'static str;
}

/// A message with a typed value for a handler, which returns `Ok` to complete it, or `Err` with
/// another settlement. Actors receive it as an actor message, and functions as an argument;
/// [`jobs`] converts both to handlers.
#[derive(Clone)]
#[non_exhaustive]
pub struct Job<T> {
    /// The value that was sent.
    pub value: T,
    /// The message with the value. A job does not deref to it: `job.message.delivery_count()`.
    pub message: Received,
    /// Its session, if the consumer consumes sessions; see [`SessionDelivery::session`]. A handler
    /// for sessions only can take a [`SessionJob`], which always has a session.
    pub session: Option<Arc<SessionReceiver>>,
    origin: Origin,
}

impl<T> Job<T> {
    /// As [`Delivery::transaction`].
    ///
    /// # Errors
    /// As there.
    pub async fn transaction(&self) -> Result<Transaction, BrokerError> {
        self.origin.transaction(&self.message).await
    }

    /// As [`Delivery::complete`].
    ///
    /// # Errors
    /// As there.
    pub async fn complete(&self) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Ok(())).await
    }

    /// As [`Delivery::refuse`].
    ///
    /// # Errors
    /// As there.
    pub async fn refuse(&self, refusal: Refusal) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Err(refusal)).await
    }
}

/// Reason why a message is not a job of the expected type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The content type is absent or not `application/json`.
    #[error(
        "message {sequence} is not a job {}: its content type is {}, not `application/json`",
        Quoted(wanted),
        Quoted(found)
    )]
    ContentType {
        /// The message.
        sequence: SequenceNumber,
        /// The name of the type.
        wanted: &'static str,
        /// The content type of the message; empty if absent.
        found: String,
    },
    /// The Subject is another job type.
    #[error("message {sequence} is not a job {}: its subject is {}", Quoted(wanted), Quoted(found))]
    Type {
        /// The message.
        sequence: SequenceNumber,
        /// The name of the type.
        wanted: &'static str,
        /// The Subject of the message.
        found: String,
    },
    /// The body is not valid JSON of the type.
    #[error("message {sequence} is not a job {}: {source}", Quoted(wanted))]
    Body {
        /// The message.
        sequence: SequenceNumber,
        /// The name of the type.
        wanted: &'static str,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
}

impl JobError {
    /// Returns the reason for dead-lettering such a message: `ContentTypeNotSupported`,
    /// `JobTypeNotExpected` or `BodyNotReadable`.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::ContentType { .. } => "ContentTypeNotSupported",
            Self::Type { .. } => "JobTypeNotExpected",
            Self::Body { .. } => "BodyNotReadable",
        }
    }
}

/// Dead-letters the message for [`JobError::reason`], because a retry cannot succeed.
impl From<JobError> for Refusal {
    fn from(error: JobError) -> Self {
        Self::dead_letter(error.reason(), error.to_string())
    }
}

impl Received {
    /// Parses the body as a job of a type: the ContentType must be JSON, and the Subject must name
    /// the type. A message without a Subject may have any type.
    ///
    /// # Errors
    /// Returns [`JobError`] if the message is not such a job.
    ///
    /// ```
    /// # use peeklock_client::{JobError, JobType, Receiver};
    /// # use peeklock_core::time::TimeSpan;
    /// # #[derive(serde::Deserialize)]
    /// # struct Invoice { number: u32 }
    /// # impl JobType for Invoice { const NAME: &'static str = "invoice"; }
    /// # async fn book(receiver: Receiver) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(message) = receiver.receive(TimeSpan::from_seconds(5)).await? {
    ///     let invoice: Invoice = message.job()?;
    ///     println!("invoice {}", invoice.number);
    ///     receiver.complete(&message).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn job<T: JobType + DeserializeOwned>(&self) -> Result<T, JobError> {
        let (sequence, wanted) = (self.sequence_number(), T::NAME);
        let content_type = self.message().content_type.as_deref().unwrap_or_default();
        if !is_json(content_type) {
            let found = content_type.to_owned();
            return Err(JobError::ContentType { sequence, wanted, found });
        }
        if let Some(subject) = self.message().subject.as_deref().filter(|text| *text != wanted) {
            return Err(JobError::Type { sequence, wanted, found: subject.to_owned() });
        }
        serde_json::from_slice(self.body()).map_err(|source| JobError::Body {
            sequence,
            wanted,
            source,
        })
    }
}

/// Returns whether a content type is JSON, with any parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(JSON)
}

/// Creates a message with a value as its job. Set further properties on it: an id, a session, or
/// the instant at which it becomes available.
///
/// # Errors
/// As for [`json_message`].
///
/// ```
/// # use peeklock_client::{Client, JobType, job_message};
/// # use peeklock_core::time::TimeSpan;
/// # #[derive(serde::Serialize)]
/// # struct Invoice { number: u32 }
/// # impl JobType for Invoice { const NAME: &'static str = "invoice"; }
/// # async fn send(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let invoice = job_message(&Invoice { number: 7 })?
///     .with_message_id("invoice-7")
///     .with_session_id("customer-3")
///     .with_scheduled_enqueue_time(client.now().plus(TimeSpan::from_minutes(10)));
/// client.sender("invoices")?.send(invoice).await?;
/// # Ok(())
/// # }
/// ```
pub fn job_message<T: JobType + Serialize>(job: &T) -> Result<Message, WriteError> {
    Ok(json_message(job)?.with_subject(T::NAME))
}

impl Sender {
    /// Sends a value as a job and waits until it is stored; see [`Sender::send`]. Use
    /// [`job_message`] to set an id, a session or an instant.
    ///
    /// # Errors
    /// As for [`Sender::send`]; `ArgumentError` if the value cannot be written as JSON.
    ///
    /// ```
    /// # use peeklock_client::{JobType, Sender};
    /// # #[derive(serde::Serialize)]
    /// # struct Invoice { number: u32 }
    /// # impl JobType for Invoice { const NAME: &'static str = "invoice"; }
    /// # async fn send(sender: Sender) -> Result<(), Box<dyn std::error::Error>> {
    /// sender.send_job(&Invoice { number: 7 }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_job<T: JobType + Serialize>(
        &self,
        job: &T,
    ) -> Result<SequenceNumber, BrokerError> {
        self.send(job_written(job, self)?).await
    }
}

impl Transaction {
    /// Sends a value as a job at commit; see [`Transaction::send`]. Use [`job_message`] to set an
    /// id, a session or an instant.
    ///
    /// # Errors
    /// As for [`Transaction::send`]; `ArgumentError` if the value cannot be written as JSON.
    ///
    /// ```
    /// # use peeklock_client_testing::TestBroker;
    /// # use peeklock_client::JobType;
    /// # use peeklock_core::time::TimeSpan;
    /// # #[derive(serde::Serialize)]
    /// # struct Invoice { number: u32 }
    /// # impl JobType for Invoice { const NAME: &'static str = "invoice"; }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let test = TestBroker::start().await?;
    /// # let client = test.client();
    /// # client.admin().create_queue("invoices").await?;
    /// let invoices = client.sender("invoices")?;
    /// let transaction = client.begin_transaction().await?;
    /// transaction.send_job(&invoices, &Invoice { number: 7 }).await?;
    /// transaction.commit().await?;
    /// let sent = client.receiver("invoices")?.receive(TimeSpan::ZERO).await?.unwrap();
    /// assert_eq!(sent.message().subject.as_deref(), Some("invoice"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_job<T: JobType + Serialize>(
        &self,
        sender: &Sender,
        job: &T,
    ) -> Result<(), BrokerError> {
        self.send(sender, job_written(job, sender)?).await
    }
}

/// Writes a job as a message; `sender` provides the context of an error.
fn job_written<T: JobType + Serialize>(job: &T, sender: &Sender) -> Result<Message, BrokerError> {
    job_message(job).map_err(|WriteError { source }| {
        let detail = format!("a job {} cannot be written: {source}", Quoted(T::NAME));
        sender.link().refuse(Rejection::argument(detail))
    })
}

/// Input of a handler for [`jobs`]: [`Job`], [`SessionJob`], or your own type that is read from a
/// delivery, for example with a body that is not JSON. `D` is the consumer's delivery type, a
/// [`Delivery`] or a [`SessionDelivery`].
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::message::Message;
/// use peeklock::port::Settlement;
/// use peeklock::testing::TestDelivery;
/// use peeklock::{Delivery, FromDelivery, Refusal, jobs};
///
/// struct Cups(u32);
///
/// impl FromDelivery<Delivery> for Cups {
///     fn from_delivery(order: Delivery) -> Result<Self, Refusal> {
///         let text = std::str::from_utf8(order.body()).ok();
///         let cups = text.and_then(|text| text.parse().ok());
///         cups.map(Cups).ok_or_else(|| Refusal::dead_letter("NoNumber", "how many cups?"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let brew = jobs(|Cups(count): Cups| async move {
///     println!("{count} cups");
///     Ok(())
/// });
/// let settled = TestDelivery::of(Message::new("2")).given_to(&brew).await;
/// assert_eq!(settled, Settlement::Complete);
/// let settled = TestDelivery::of(Message::new("two")).given_to(&brew).await;
/// assert!(matches!(settled, Settlement::DeadLetter { .. }));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler of `{Self}` cannot take a `{D}`",
    note = "`consume` calls a handler with a `Delivery`, `consume_sessions` with a \
        `SessionDelivery`: `Job<T>` works with both, `SessionJob<T>` with a `SessionDelivery` only"
)]
pub trait FromDelivery<D>: Sized {
    /// Reads the value from a delivery.
    ///
    /// # Errors
    /// Returns the settlement of a message that cannot be read.
    fn from_delivery(delivery: D) -> Result<Self, Refusal>;
}

impl<T: JobType + DeserializeOwned> FromDelivery<Delivery> for Job<T> {
    fn from_delivery(delivery: Delivery) -> Result<Self, Refusal> {
        Ok(Self::read(delivery)?)
    }
}

impl<T: JobType + DeserializeOwned> FromDelivery<SessionDelivery> for Job<T> {
    fn from_delivery(delivery: SessionDelivery) -> Result<Self, Refusal> {
        let SessionDelivery { message, session, origin } = delivery;
        Ok(Self::of(message, Some(session), origin)?)
    }
}

/// A handler that reads a value from each message and passes it to another handler; made by
/// [`jobs`].
pub struct Jobs<J, H> {
    handler: H,
    of: PhantomData<fn() -> J>,
}

/// Converts a handler of jobs, which is a function, the recipient of an actor, or
/// [`actors`](crate::actors), into a handler for [`crate::Client::consume`] and
/// [`crate::Client::consume_sessions`]. A handler of [`Job`]s works with both, a handler of
/// [`SessionJob`]s only with the latter. A message that is not such a job goes into the dead-letter
/// queue, with a reason, and a description that names the type and the flaw ([`JobError`]).
///
/// ```
/// # use peeklock_client::{Client, ConsumerOptions, Job, JobType, jobs};
/// # #[derive(serde::Deserialize)]
/// # struct Invoice { number: u32 }
/// # impl JobType for Invoice { const NAME: &'static str = "invoice"; }
/// # async fn consume(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let book = jobs(|job: Job<Invoice>| async move {
///     println!("invoice {}", job.value.number);
///     Ok(())
/// });
/// let consumer = client.consume("invoices", book, ConsumerOptions::default()).await?;
/// # consumer.stop().await;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub const fn jobs<J, H: Handler<J>>(handler: H) -> Jobs<J, H> {
    Jobs { handler, of: PhantomData }
}

impl<T: JobType + DeserializeOwned> Job<T> {
    /// Reads a job from a delivery.
    ///
    /// # Errors
    /// When the message is no job of this type.
    pub fn read(delivery: Delivery) -> Result<Self, JobError> {
        Self::of(delivery.message, None, delivery.origin)
    }

    /// Reads a job from a message that came by `origin`.
    pub(crate) fn of(
        message: Received,
        session: Option<Arc<SessionReceiver>>,
        origin: Origin,
    ) -> Result<Self, JobError> {
        Ok(Self { value: message.job()?, message, session, origin })
    }
}

impl<D, J, H> Handler<D> for Jobs<J, H>
where
    J: FromDelivery<D> + 'static,
    H: Handler<J>,
{
    /// The handling of a job, or an immediate refusal.
    type Handling = Either<H::Handling, Ready<Result<(), Refusal>>>;

    fn handle(&self, delivery: D) -> Self::Handling {
        match J::from_delivery(delivery) {
            Ok(job) => Either::Left(self.handler.handle(job)),
            Err(refusal) => Either::Right(ready(Err(refusal))),
        }
    }

    fn check(&self) -> Result<(), Rejection> {
        self.handler.check()
    }

    fn is_gone(&self) -> bool {
        self.handler.is_gone()
    }

    fn wait_until_gone(&self) -> impl Future<Output = ()> + Send {
        self.handler.wait_until_gone()
    }
}

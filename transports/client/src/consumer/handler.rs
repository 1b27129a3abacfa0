//! Who consumes, what it gets, and what it answers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::limits::Limits;
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::Reach;
use tokio::time::error::Elapsed;

use crate::port::{Link, Port, Request, Settlement};
use crate::{
    BodyError, Received, RequestError, SessionReceiver, StateError, Transaction, WriteError,
};

/// Who is given messages. Functions that return a future are handlers, and so are the recipients of actors, and those
/// that [`actors`](crate::actors) makes (the feature `actix` of `peeklock-client`, always there in `peeklock`).
///
/// What a function returns is driven by the task of its consumer, with all messages that are at work, and with the
/// renewal of their locks: while it computes or blocks, none of that goes on. Such work is given to
/// `tokio::task::spawn_blocking`, or to an actor, which has its own task.
pub trait Handler<D>: Send + Sync + 'static {
    /// What is at work on one of them. When it panics, the message is abandoned.
    type Handling: Future<Output = Result<(), Refusal>> + Send + 'static;

    /// Gives it a message; its outcome settles the message.
    fn handle(&self, delivery: D) -> Self::Handling;

    /// Whether it can take messages at all; asked once, before anything is consumed.
    ///
    /// # Errors
    /// Why not: then no consumer begins, and its maker is told this.
    fn check(&self) -> Result<(), Rejection> {
        Ok(())
    }

    /// Whether it takes no message any more: then the consumer ends, and says that.
    fn is_gone(&self) -> bool {
        false
    }

    /// Waits until it takes no message any more, so that a consumer ends for which there is none; for ever unless said
    /// otherwise.
    fn gone(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl<D, H, F> Handler<D> for H
where
    H: Fn(D) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Refusal>> + Send + 'static,
{
    type Handling = F;

    fn handle(&self, delivery: D) -> F {
        self(delivery)
    }
}

/// A message for a handler, which answers `Ok` to complete it, or says what else becomes of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The message. A delivery derefs to it, so its methods are those of the delivery too: `delivery.body()` is
    /// `delivery.message.body()`, and `delivery.message()` what [`Received::message`] gives, a
    /// [`Message`](peeklock_core::message::Message).
    pub message: Received,
    pub(crate) origin: Origin,
}

/// A message of a session for a handler, which answers `Ok` to complete it, or says what else becomes of it.
/// The next message of the session comes when this one is settled, so an abandoned one comes again before it
/// (SES-20).
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionDelivery {
    /// The message, to which this derefs as a [`Delivery`] does.
    pub message: Received,
    /// Its session, which the consumer holds: for the state of it (SES-24). What is received or settled
    /// over it is no more the consumer's.
    pub session: Arc<SessionReceiver>,
    pub(crate) origin: Origin,
}

/// The way on which a delivery came: a link, and the port that it is of.
#[derive(Clone)]
pub(crate) struct Origin(Arc<(Arc<dyn Port>, Arc<dyn Link>)>);

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origin")
    }
}

impl Origin {
    /// Over this link of this port.
    pub(crate) fn of(port: &Arc<dyn Port>, link: &Arc<dyn Link>) -> Self {
        Self(Arc::new((Arc::clone(port), Arc::clone(link))))
    }

    /// Settles a message that came this way, and waits for the answer.
    pub(crate) async fn settle(
        &self,
        message: &Received,
        outcome: Result<(), Refusal>,
    ) -> Result<(), BrokerError> {
        let token = self.token(message)?;
        if let Err(refusal) = &outcome {
            refusal.log();
        }
        self.link().ask(Request::Settle(token, outcome.into())).await.map(drop)
    }

    /// A transaction that completes a message which came this way.
    pub(crate) async fn transaction(&self, message: &Received) -> Result<Transaction, BrokerError> {
        let token = self.token(message)?;
        let transaction = Transaction::begin(&self.0.0, Reach::CrossEntity).await?;
        transaction.run(self.link(), Request::Settle(token, Settlement::Complete)).await?;
        Ok(transaction)
    }

    fn link(&self) -> &dyn Link {
        &*self.0.1
    }

    fn token(&self, message: &Received) -> Result<LockToken, BrokerError> {
        let is_not = || Rejection::invalid_operation("the message is not locked");
        message.lock_token().ok_or_else(|| self.link().refuse(is_not()))
    }
}

impl Delivery {
    /// Begins a transaction with which the message is completed: what is sent in it, to this or to other queues and topics,
    /// takes effect together with that, at [`Transaction::commit`] (TXN-01, TXN-09). Afterwards the handler answers
    /// [`Refusal::already_settled`]; an error by `?` drops the transaction, which rolls it back, and the message is
    /// abandoned.
    ///
    /// # Errors
    /// As for [`Client::begin_cross_entity_transaction`](crate::Client::begin_cross_entity_transaction) and
    /// [`Receiver::complete`](crate::Receiver::complete). For one that was made by hand what is sent in it goes through
    /// the client that it was given to (`TestDelivery::with_client`).
    ///
    /// ```
    /// use peeklock_client::{Client, ConsumerOptions, Delivery, Refusal};
    /// use peeklock_core::message::Message;
    ///
    /// # async fn consume(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let receipts = client.sender("receipts")?;
    /// let work = move |order: Delivery| {
    ///     let receipts = receipts.clone();
    ///     async move {
    ///         let transaction = order.transaction().await?;
    ///         transaction.send(&receipts, Message::new(order.body().clone())).await?;
    ///         transaction.commit().await?;
    ///         Err(Refusal::already_settled())
    ///     }
    /// };
    /// client.consume("orders", work, ConsumerOptions::default()).await?.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn transaction(&self) -> Result<Transaction, BrokerError> {
        self.origin.transaction(&self.message).await
    }

    /// Completes the message now, and waits until the broker has done so or refused to (SET-01), for a handler that does
    /// something only if it has. What it answers by its outcome is carried out after it has ended, and a refusal of that
    /// is only in the log. After this, whatever became of it, the handler answers [`Refusal::already_settled`]: any other
    /// outcome is refused then, which changes nothing, and logged.
    ///
    /// # Errors
    /// As for [`Receiver::complete`](crate::Receiver::complete): with `MessageLockLost` the message is with somebody else,
    /// or comes again, or somebody has settled it; after `CommunicationProblem`, `ServiceTimeout` and `InternalError` it may
    /// be completed (ERR-06).
    ///
    /// ```
    /// use peeklock_client::{Delivery, Refusal};
    ///
    /// async fn work(order: Delivery) -> Result<(), Refusal> {
    ///     match order.complete().await {
    ///         Ok(()) => println!("the cup is yours"),
    ///         Err(error) => println!("somebody else brews it: {error}"),
    ///     }
    ///     Err(Refusal::already_settled())
    /// }
    /// # use peeklock_client::port::Settlement;
    /// # use peeklock_client::testing::TestDelivery;
    /// # use peeklock_core::message::Message;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let order = TestDelivery::of(Message::new("two coffees"));
    /// # assert_eq!(order.given_to(&work).await, Settlement::Complete);
    /// # }
    /// ```
    pub async fn complete(&self) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Ok(())).await
    }

    /// Does now to the message what [`Err`] of this would do to it, and waits until the broker has done so or refused to;
    /// otherwise as [`Delivery::complete`]. Nothing else is tried in its place when it is refused: if the lock is there
    /// still, something else can be.
    ///
    /// # Errors
    /// Those of the settlement, such as [`Receiver::abandon`](crate::Receiver::abandon) or
    /// [`Receiver::dead_letter`](crate::Receiver::dead_letter).
    ///
    /// ```
    /// use peeklock_client::{Delivery, Refusal};
    ///
    /// async fn work(order: Delivery) -> Result<(), Refusal> {
    ///     order.refuse(Refusal::dead_letter("SoldOut", "no cup is left")).await?;
    ///     println!("the guest is told"); // once it is certain that nobody else brews it
    ///     Err(Refusal::already_settled())
    /// }
    /// # use peeklock_client::port::Settlement;
    /// # use peeklock_client::testing::TestDelivery;
    /// # use peeklock_core::message::Message;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let order = TestDelivery::of(Message::new("two coffees"));
    /// # assert!(matches!(order.given_to(&work).await, Settlement::DeadLetter { .. }));
    /// # }
    /// ```
    pub async fn refuse(&self, refusal: Refusal) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Err(refusal)).await
    }
}

impl SessionDelivery {
    /// As [`Delivery::transaction`].
    ///
    /// # Errors
    /// As there, and `SessionLockLost`.
    pub async fn transaction(&self) -> Result<Transaction, BrokerError> {
        self.origin.transaction(&self.message).await
    }

    /// As [`Delivery::complete`]. The next message of the session comes when the handler has ended.
    ///
    /// # Errors
    /// As there, and `SessionLockLost`.
    pub async fn complete(&self) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Ok(())).await
    }

    /// As [`Delivery::refuse`].
    ///
    /// # Errors
    /// As there, and `SessionLockLost`.
    pub async fn refuse(&self, refusal: Refusal) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Err(refusal)).await
    }
}

/// What becomes of a message that a handler does not complete.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Available again, at once unless the entity has a retry policy; counted as a failed delivery (SET-03,
    /// RTY-17).
    Abandon {
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Available again after a delay, whatever the retry policy of the entity; counted as a failed delivery
    /// (RTY-01).
    AbandonWithDelay {
        /// For how long nobody gets it.
        delay: TimeSpan,
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer,
    /// Moved to the dead-letter queue (SET-05). Of texts that are too long the beginning is kept.
    DeadLetter {
        /// Why, for programs.
        reason: String,
        /// Why, for people.
        description: String,
    },
    /// Available again as if it had not been delivered; not counted (SET-32).
    Release,
    /// Nothing more: the handler has settled it itself, alone or in a transaction. If it has not, the message is
    /// available again, as with `Release`.
    AlreadySettled,
    /// Available again, counted as a failed delivery, because of an error: what `?` makes of one. The consumer logs the
    /// error with the queue, the sequence number and the id of the message, also if an actor has returned it.
    Failed {
        /// The error.
        error: String,
    },
}

impl Refusal {
    /// Available again, counted as a failed delivery (SET-03).
    #[must_use]
    pub const fn abandon() -> Self {
        Self::Abandon { properties: Vec::new() }
    }

    /// Available again after so long, counted as a failed delivery (RTY-01).
    #[must_use]
    pub fn retry_after(delay: impl Into<TimeSpan>) -> Self {
        Self::AbandonWithDelay { delay: delay.into(), properties: Vec::new() }
    }

    /// Available again as if it had not been delivered, not counted (SET-32).
    #[must_use]
    pub const fn release() -> Self {
        Self::Release
    }

    /// Nothing more: the handler has settled it itself, alone or in a transaction. That this is answered by `Err` means no
    /// failure, only that it is not the outcome that settles.
    #[must_use]
    pub const fn already_settled() -> Self {
        Self::AlreadySettled
    }

    /// Available again, counted as a failed delivery, because of an error, which is logged.
    #[must_use]
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed { error: error.to_string() }
    }

    /// Logs the error, if there is one.
    pub(super) fn log(&self) {
        if let Self::Failed { error } = self {
            tracing::warn!(%error, "a handler returned its message unsettled");
        }
    }

    /// Set aside, to be received by number (DEF-01).
    #[must_use]
    pub const fn defer() -> Self {
        Self::Defer
    }

    /// Moved to the dead-letter queue (SET-05), with a reason for programs and a description for people.
    #[must_use]
    pub fn dead_letter(reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self::DeadLetter { reason: reason.into(), description: description.into() }
    }
}

/// The last line of a handler that has settled its message itself, alone or in a transaction: nothing is left to do.
///
/// It is `Err(Refusal::already_settled())`. The outcome `Ok` asks the consumer to complete the message; this one asks for
/// nothing, and is no failure.
///
/// ```
/// # use peeklock_client::{Delivery, Refusal, already_settled};
/// async fn work(order: Delivery) -> Result<(), Refusal> {
///     order.complete().await?;
///     // What is done from here on is done once.
///     already_settled()
/// }
/// ```
///
/// # Errors
/// Always, with [`Refusal::AlreadySettled`].
pub const fn already_settled() -> Result<(), Refusal> {
    Err(Refusal::AlreadySettled)
}

/// A body that is not what the handler reads never will be: dead-lettered for the reason `BodyNotReadable`.
impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// The same, for who reads the body by himself. The error does not tell whether something was read or written, nor of what:
/// a `?` behind other JSON of yours, such as `serde_json::to_vec`, dead-letters the message for `BodyNotReadable` too. What
/// is sent is written by [`json_message`](crate::json_message) or [`job_message`](crate::job_message), whose error is a
/// [`WriteError`], or goes through `map_err`:
///
/// ```
/// # use peeklock_client::{Delivery, Refusal};
/// # async fn work(_: Delivery) -> Result<(), Refusal> {
/// let receipt = serde_json::to_vec(&["two coffees"])
///     .map_err(|error| Refusal::dead_letter("ReceiptNotWritable", error.to_string()))?;
/// # drop(receipt);
/// # Ok(())
/// # }
/// ```
impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::dead_letter(BODY_NOT_READABLE, error.to_string())
    }
}

/// What a handler wants to send and cannot write it cannot write the next time either: the message that it has is
/// dead-lettered for the reason `BodyNotWritable`.
impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        Self::dead_letter(BODY_NOT_WRITABLE, error.to_string())
    }
}

/// What a broker refuses may go well at the next attempt: abandoned. MaxDeliveryCount bounds how often.
impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self::failed(error)
    }
}

/// A request that the handler made of somebody else has no reply: abandoned likewise.
impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Self::failed(error)
    }
}

/// So is one whose session has a state that is not what the handler reads: the message may not be to blame.
impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::failed(error)
    }
}

/// The same for what a handler has to do with the world.
impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}

/// The same for what took too long.
impl From<Elapsed> for Refusal {
    fn from(error: Elapsed) -> Self {
        Self::failed(error)
    }
}

/// Why a message is dead-lettered whose body its handler cannot read.
const BODY_NOT_READABLE: &str = "BodyNotReadable";
/// Why one is whose handler cannot write what it sends for it.
const BODY_NOT_WRITABLE: &str = "BodyNotWritable";

impl From<Result<(), Refusal>> for Settlement {
    fn from(outcome: Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self::Complete,
            Err(Refusal::Abandon { properties }) => Self::Abandon { properties, delay: None },
            Err(Refusal::AbandonWithDelay { delay, properties }) => {
                Self::Abandon { properties, delay: Some(delay) }
            }
            Err(Refusal::Failed { .. }) => Self::Abandon { properties: Vec::new(), delay: None },
            Err(Refusal::Defer) => Self::Defer { properties: Vec::new() },
            Err(Refusal::DeadLetter { reason, description }) => {
                let limits = Limits::default();
                Self::DeadLetter {
                    reason: Some(cut(reason, limits.dead_letter_reason_chars_max)),
                    description: Some(cut(description, limits.dead_letter_description_chars_max)),
                    properties: Vec::new(),
                }
            }
            // Where it is settled, this is refused and changes nothing.
            Err(Refusal::Release | Refusal::AlreadySettled) => Self::Release,
        }
    }
}

/// The beginning of a text (SET-11).
fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
    }
    text
}

impl Deref for Delivery {
    type Target = Received;

    fn deref(&self) -> &Received {
        &self.message
    }
}

impl Deref for SessionDelivery {
    type Target = Received;

    fn deref(&self) -> &Received {
        &self.message
    }
}

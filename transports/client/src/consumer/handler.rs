//! Who consumes, what it gets, and what it answers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::transaction::Reach;

use crate::port::{Link, Port, Request, Settlement};
use crate::{Received, Refusal, SessionReceiver, Transaction};

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
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; }
    /// use peeklock::message::Message;
    /// use peeklock::{Client, ConsumerOptions, Delivery, Refusal};
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
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
    /// use peeklock::{Delivery, Refusal};
    ///
    /// async fn work(order: Delivery) -> Result<(), Refusal> {
    ///     match order.complete().await {
    ///         Ok(()) => println!("the cup is yours"),
    ///         Err(error) => println!("somebody else brews it: {error}"),
    ///     }
    ///     Err(Refusal::already_settled())
    /// }
    /// # use peeklock::port::Settlement;
    /// # use peeklock::testing::TestDelivery;
    /// # use peeklock::message::Message;
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
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
    /// use peeklock::{Delivery, Refusal};
    ///
    /// async fn work(order: Delivery) -> Result<(), Refusal> {
    ///     order.refuse(Refusal::dead_letter("SoldOut", "no cup is left")).await?;
    ///     println!("the guest is told"); // once it is certain that nobody else brews it
    ///     Err(Refusal::already_settled())
    /// }
    /// # use peeklock::port::Settlement;
    /// # use peeklock::testing::TestDelivery;
    /// # use peeklock::message::Message;
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

//! The trait of handlers, the deliveries that they receive, and settlements that a handler makes
//! itself. Programs implement it; the loops of consumers call it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::transaction::Reach;

use crate::port::{Link, Port, Request, Settlement};
use crate::{Received, Refusal, SessionReceiver, Transaction};

/// A handler of messages. Functions that return a future are handlers, as are recipients of actors,
/// and the pools of [`actors`](crate::actors) (the feature `actix` of `peeklock-client`, always
/// present in `peeklock`).
///
/// The consumer's task drives the future of a function, together with all other current messages
/// and the renewal of their locks. While the function computes or blocks, none of that continues.
/// Give such work to `tokio::task::spawn_blocking`, or to an actor, which has its own task.
pub trait Handler<D>: Send + Sync + 'static {
    /// The processing of a delivery. A panic abandons the message.
    type Handling: Future<Output = Result<(), Refusal>> + Send + 'static;

    /// Starts to process a message; the outcome settles it.
    fn handle(&self, delivery: D) -> Self::Handling;

    /// Checks whether the handler can accept messages at all; called once before the consumer
    /// starts.
    ///
    /// # Errors
    /// Returns the reason if it cannot; the consumer then does not start and returns this error.
    fn check(&self) -> Result<(), Rejection> {
        Ok(())
    }

    /// Returns whether the handler accepts no more messages, which ends the consumer with that
    /// reason.
    fn is_gone(&self) -> bool {
        false
    }

    /// Waits until the handler accepts no more messages, so that an idle consumer ends too. By
    /// default it never returns.
    fn wait_until_gone(&self) -> impl Future<Output = ()> + Send {
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

/// A message for a handler, which returns `Ok` to complete it, or `Err` with another settlement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The message. A delivery derefs to it, so `delivery.body()` is `delivery.message.body()`, and
    /// `delivery.message()` is the [`Message`](peeklock_core::message::Message) of
    /// [`Received::message`].
    pub message: Received,
    pub(crate) origin: Origin,
}

/// A message of a session for a handler, which returns `Ok` to complete it, or `Err` with another
/// settlement. The next message of the session arrives after this one is settled, so an abandoned
/// message arrives again first (SES-20).
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionDelivery {
    /// The message, to which this derefs as a [`Delivery`] does.
    pub message: Received,
    /// Its session, which the consumer holds; use it for the session's state (SES-24). Messages
    /// that the handler receives or settles with it are no longer the consumer's responsibility.
    pub session: Arc<SessionReceiver>,
    pub(crate) origin: Origin,
}

/// The origin of a delivery: its link, and the port of the link.
#[derive(Clone)]
pub struct Origin {
    place: Arc<(Arc<dyn Port>, Arc<dyn Link>)>,
    reports_errors: bool,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origin")
    }
}

impl Origin {
    /// Returns the origin over this link and port.
    #[must_use]
    pub fn of(port: &Arc<dyn Port>, link: &Arc<dyn Link>) -> Self {
        Self { place: Arc::new((Arc::clone(port), Arc::clone(link))), reports_errors: true }
    }

    /// Sets whether settlements leave errors on the message (SET-46).
    pub(crate) const fn reporting_errors(mut self, reports_errors: bool) -> Self {
        self.reports_errors = reports_errors;
        self
    }

    /// Settles a message over its link, and waits for the answer.
    pub(crate) async fn settle(
        &self,
        message: &Received,
        outcome: Result<(), Refusal>,
    ) -> Result<(), BrokerError> {
        let token = self.token(message)?;
        if let Err(refusal) = &outcome {
            refusal.log();
        }
        let settlement = Settlement::of(outcome, self.reports_errors);
        self.link().ask(Request::Settle(token, settlement)).await.map(drop)
    }

    /// Begins a transaction that completes the message.
    pub(crate) async fn transaction(&self, message: &Received) -> Result<Transaction, BrokerError> {
        let token = self.token(message)?;
        let transaction = Transaction::begin(&self.place.0, Reach::CrossEntity).await?;
        transaction.run(self.link(), Request::Settle(token, Settlement::Complete)).await?;
        Ok(transaction)
    }

    fn link(&self) -> &dyn Link {
        &*self.place.1
    }

    fn token(&self, message: &Received) -> Result<LockToken, BrokerError> {
        let is_not = || Rejection::invalid_operation("the message is not locked");
        message.lock_token().ok_or_else(|| self.link().refuse(is_not()))
    }
}

impl Delivery {
    /// A delivery that no broker has made.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn by_hand(message: Received, origin: Origin) -> Self {
        Self { message, origin }
    }

    /// Begins a transaction that completes the message. Messages sent in it, to this or other
    /// queues and topics, take effect together with the completion at [`Transaction::commit`]
    /// (TXN-01, TXN-09). Afterwards the handler returns [`Refusal::already_settled`]. An error
    /// returned with `?` drops the transaction, which rolls it back, and the message is abandoned.
    ///
    /// # Errors
    /// As for
    /// [`Client::begin_cross_entity_transaction`](crate::Client::begin_cross_entity_transaction)
    /// and [`Receiver::complete`](crate::Receiver::complete). A delivery made by hand sends through
    /// the client that it was given (`TestDelivery::with_client`).
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

    /// Completes the message immediately, and waits until the broker has done so or refused it
    /// (SET-01), for a handler whose next action depends on it. In contrast, the settlement of the
    /// handler's outcome happens after the handler has ended, and its refusal appears only in the
    /// log. Afterwards the handler returns [`Refusal::already_settled`] in any case: any other
    /// outcome is refused without effect, and logged.
    ///
    /// # Errors
    /// As for [`Receiver::complete`](crate::Receiver::complete). `MessageLockLost` means that
    /// another receiver has the message, that it will be delivered again, or that it is already
    /// settled. After `CommunicationProblem`, `ServiceTimeout` and `InternalError` the message may
    /// be completed (ERR-06).
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
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

    /// Settles the message immediately as [`Err`] of this refusal would, and waits until the broker
    /// has done so or refused it; otherwise as [`Delivery::complete`]. A refused settlement has no
    /// fallback: while the lock lasts, the handler can try another one.
    ///
    /// # Errors
    /// Errors of the settlement, such as for [`Receiver::abandon`](crate::Receiver::abandon) or
    /// [`Receiver::dead_letter`](crate::Receiver::dead_letter).
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
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
    /// A delivery that no broker has made.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn by_hand(message: Received, session: Arc<SessionReceiver>, origin: Origin) -> Self {
        Self { message, session, origin }
    }

    /// As [`Delivery::transaction`].
    ///
    /// # Errors
    /// As there, and `SessionLockLost`.
    pub async fn transaction(&self) -> Result<Transaction, BrokerError> {
        self.origin.transaction(&self.message).await
    }

    /// As [`Delivery::complete`]. The next message of the session arrives after the handler has
    /// ended.
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

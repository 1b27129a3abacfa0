//! Transactions: several operations that take effect together or not at all (file 15).
//! [`Client`](crate::Client) begins them. Dropping one before its commit rolls it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};

use crate::port::{Link, Port, Request, Settlement};
use crate::{Received, Receiver, Sender, SessionReceiver};

/// Sends, settlements, cancellations and session states that take effect together at
/// [`Transaction::commit`] or not at all (TXN-01). They belong to one queue with its dead-letter
/// queues, or to one topic with one of its subscriptions (TXN-08). A transaction of
/// [`Client::begin_cross_entity_transaction`](crate::Client::begin_cross_entity_transaction) also
/// sends to other entities, via the first entity that it uses: the commit settles and hands over as
/// one step, and a later failure of the transfer does not undo it (TXN-09, TXN-10).
///
/// Until the commit its messages are invisible, and the messages that it settles stay locked, with
/// locks that can expire (TXN-03, TXN-07). Each operation is checked immediately: an operation that
/// would fail returns its error and is left out, and the transaction continues. A transaction times
/// out two minutes after its first operation (TXN-06), and ends with a connection that is not
/// resumed (TXN-12). Dropping it rolls it back.
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
/// # client.sender("orders")?.send(Message::new("two coffees")).await?;
/// let (receiver, sender) = (client.receiver("orders")?, client.sender("orders")?);
/// let order = receiver.receive(TimeSpan::ZERO).await?.unwrap();
/// let transaction = client.begin_transaction().await?;
/// transaction.complete(&receiver, &order).await?;
/// transaction.send(&sender, Message::new("one coffee more")).await?;
/// assert_eq!(client.admin().queue("orders").await?.counts.active, 1);
/// transaction.commit().await?;
/// let next = receiver.receive(TimeSpan::ZERO).await?.unwrap();
/// assert_eq!(next.body(), "one coffee more");
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    port: Arc<dyn Port>,
    id: TransactionId,
    operations: AtomicU32,
    is_open: bool,
}

/// Results of a commit, in the order of the operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitResult {
    parts: Vec<PartOutcome>,
}

impl Transaction {
    pub(crate) async fn begin(port: &Arc<dyn Port>, reach: Reach) -> Result<Self, BrokerError> {
        let id = port.begin(reach).await?;
        Ok(Self { port: Arc::clone(port), id, operations: AtomicU32::new(0), is_open: true })
    }

    /// Returns the id, unique among the transactions of its client.
    #[must_use]
    pub const fn id(&self) -> TransactionId {
        self.id
    }

    /// Sends a message at commit, also a scheduled one. The result of the commit contains its
    /// number (TXN-13).
    ///
    /// # Errors
    /// As for [`Sender::send`]; `QuotaExceeded` for the 101st message (TXN-05); `InvalidOperation`
    /// for an entity that the transaction does not cover (TXN-08); `TransactionTimedOut` (TXN-06);
    /// `TransactionUnknown` after the connection was lost for longer than its grace.
    pub async fn send(&self, sender: &Sender, mut message: Message) -> Result<(), BrokerError> {
        sender.tracing().add_context([&mut message]);
        self.run(sender.link(), Request::Send(Box::new(message))).await
    }

    /// Sends a message at commit that becomes available at an instant (SCH-13).
    ///
    /// # Errors
    /// As for [`Transaction::send`].
    pub async fn schedule(
        &self,
        sender: &Sender,
        message: Message,
        at: Timestamp,
    ) -> Result<(), BrokerError> {
        self.send(sender, message.with_scheduled_enqueue_time(at)).await
    }

    /// Sends messages as a batch at commit, within the size limit of a batch (SND-30). A single
    /// message is sent as a message.
    ///
    /// # Errors
    /// As for [`Transaction::send`].
    pub async fn send_batch(
        &self,
        sender: &Sender,
        mut messages: Vec<Message>,
    ) -> Result<(), BrokerError> {
        // Over every transport a single message is not a batch, because frames do not distinguish
        // them.
        match messages.pop() {
            Some(message) if messages.is_empty() => self.send(sender, message).await,
            last => {
                messages.extend(last);
                sender.tracing().add_context(&mut messages);
                self.run(sender.link(), Request::SendBatch(messages)).await
            }
        }
    }

    /// Completes a message at commit.
    ///
    /// # Errors
    /// As for [`Receiver::complete`] and [`Transaction::send`].
    pub async fn complete(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
    ) -> Result<(), BrokerError> {
        self.settle(receiver.as_ref(), message, Settlement::Complete).await
    }

    /// Gives a message back at commit, counted as a failed delivery.
    ///
    /// # Errors
    /// As for [`Receiver::abandon`] and [`Transaction::send`].
    pub async fn abandon(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = properties.to_vec();
        let settlement = Settlement::Abandon { properties, delay: None };
        self.settle(receiver.as_ref(), message, settlement).await
    }

    /// Gives a message back at commit, to be delivered again after the delay, which starts at the
    /// commit (RTY-09).
    ///
    /// # Errors
    /// As for [`Receiver::abandon_with_delay`] and [`Transaction::send`].
    pub async fn abandon_with_delay(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        delay: impl Into<TimeSpan>,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = properties.to_vec();
        let settlement = Settlement::Abandon { properties, delay: Some(delay.into()) };
        self.settle(receiver.as_ref(), message, settlement).await
    }

    /// Defers a message at commit.
    ///
    /// # Errors
    /// As for [`Receiver::defer`] and [`Transaction::send`].
    pub async fn defer(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = properties.to_vec();
        self.settle(receiver.as_ref(), message, Settlement::Defer { properties }).await
    }

    /// Moves a message to the dead-letter queue at commit.
    ///
    /// # Errors
    /// As for [`Receiver::dead_letter`] and [`Transaction::send`].
    pub async fn dead_letter(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        reason: Option<&str>,
        description: Option<&str>,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let settlement = Settlement::dead_letter(reason, description, properties);
        self.settle(receiver.as_ref(), message, settlement).await
    }

    /// Renews a lock at commit, to that time plus LockDuration. Until then the lock can expire;
    /// [`Receiver::renew_lock`] renews it immediately.
    ///
    /// # Errors
    /// As for [`Receiver::renew_lock`] and [`Transaction::send`].
    pub async fn renew_lock(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
    ) -> Result<(), BrokerError> {
        let receiver = receiver.as_ref();
        let token = receiver.token(message)?;
        self.run(&**receiver.link(), Request::Renew(vec![token])).await
    }

    /// Cancels scheduled messages at commit, all or none (SCH-05).
    ///
    /// # Errors
    /// As for [`Sender::cancel_scheduled`] and [`Transaction::send`].
    pub async fn cancel_scheduled(
        &self,
        sender: &Sender,
        sequences: Vec<SequenceNumber>,
    ) -> Result<(), BrokerError> {
        self.run(sender.link(), Request::CancelScheduled(sequences)).await
    }

    /// Sets the state of a session at commit, or clears it with `None` (SES-24).
    ///
    /// # Errors
    /// As for [`SessionReceiver::set_state`] and [`Transaction::send`].
    pub async fn set_state(
        &self,
        session: &SessionReceiver,
        state: Option<Bytes>,
    ) -> Result<(), BrokerError> {
        self.run(&**session.as_receiver().link(), Request::SetSessionState(state)).await
    }

    /// Commits all operations as one, and returns when the result is durable.
    ///
    /// # Errors
    /// Returns the error of the first operation that cannot be done; then nothing was done, and the
    /// transaction is rolled back (TXN-07). `QuotaExceeded` if the settlements, with the properties
    /// that they set, exceed the limit of a step (QUO-11). `TransactionTimedOut` (TXN-06). After
    /// `CommunicationProblem` and `InternalError` either everything or nothing took effect; after
    /// any other error nothing did (ERR-06).
    pub async fn commit(mut self) -> Result<CommitResult, BrokerError> {
        self.is_open = false;
        let operations = self.operations.load(Ordering::Relaxed);
        Ok(CommitResult { parts: self.port.commit(self.id, operations).await? })
    }

    /// Rolls the transaction back: no message was sent, and the messages to settle are locked as
    /// before (TXN-04). Dropping it does the same.
    ///
    /// # Errors
    /// `TransactionTimedOut` if it was already rolled back (TXN-06).
    pub async fn roll_back(mut self) -> Result<(), BrokerError> {
        self.is_open = false;
        self.port.roll_back(self.id).await
    }

    async fn settle(
        &self,
        receiver: &Receiver,
        message: &Received,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        let token = receiver.token(message)?;
        self.run(&**receiver.link(), Request::Settle(token, settlement)).await
    }

    /// Lets the entity check an operation, and adds it to the transaction if it would succeed.
    /// Dropping the future leaves it out.
    pub(crate) async fn run(&self, link: &dyn Link, request: Request) -> Result<(), BrokerError> {
        link.ask_in(self.id, request).await?;
        self.operations.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.is_open {
            self.port.forget(self.id);
        }
    }
}

impl CommitResult {
    /// Returns the result of each operation.
    #[must_use]
    pub fn parts(&self) -> &[PartOutcome] {
        &self.parts
    }

    /// Returns the numbers of the sent messages, in order; 0 for a dropped duplicate (DUP-02).
    /// Messages to other entities get their numbers there and are not included.
    #[must_use]
    pub fn sequence_numbers(&self) -> Vec<SequenceNumber> {
        let mut numbers = Vec::new();
        for part in &self.parts {
            match part {
                PartOutcome::Accepted(number) => numbers.push(*number),
                PartOutcome::AcceptedBatch(batch) => numbers.extend(batch),
                PartOutcome::Done | PartOutcome::Pending(_) | PartOutcome::Renewed(_) => {}
            }
        }
        numbers
    }
}

impl AsRef<Self> for Receiver {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsRef<Receiver> for SessionReceiver {
    fn as_ref(&self) -> &Receiver {
        self.as_receiver()
    }
}

//! Transactions: several operations of which all take effect, or none (file 15).

use peeklock_core::Entity;
use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use peeklock_core::time::Timestamp;
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId, Transactions};

use crate::{Received, Receiver, Sender, SessionReceiver};

/// Sends and settlements of one queue with its dead-letter queues, or of one topic with one of its
/// subscriptions, that take effect together at [`Transaction::commit`] or not at all (TXN-01, TXN-08,
/// TXN-14). One of [`Client::begin_cross_entity_transaction`](crate::Client::begin_cross_entity_transaction)
/// sends to other entities as well, by way of the first one that it uses: the commit settles and hands
/// over as one step, and what becomes of the transfer does not undo it (TXN-09, TXN-10).
///
/// Until then what it sends is nowhere to be seen, and what it settles stays locked, with locks that
/// run on (TXN-03, TXN-07). Each operation is checked at once: one that would fail is refused with its
/// error and is left out, the transaction goes on without it. A transaction times out two minutes after
/// its first operation (TXN-06). Dropping it rolls it back.
pub struct Transaction {
    transactions: Transactions,
    id: TransactionId,
    broker: peeklock_core::Broker,
}

/// What a commit has done, in the order of the operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    parts: Vec<PartOutcome>,
}

impl Transaction {
    pub(crate) fn begin(
        broker: &peeklock_core::Broker,
        transactions: &Transactions,
        reach: Reach,
    ) -> Result<Self, BrokerError> {
        let id = transactions.begin(reach).map_err(|rejection| broker.refuse(rejection, ""))?;
        Ok(Self { transactions: transactions.clone(), id, broker: broker.clone() })
    }

    /// Names it among the transactions of its client.
    #[must_use]
    pub const fn id(&self) -> TransactionId {
        self.id
    }

    /// Sends a message at commit; also one that has an instant for which it is scheduled. Its number
    /// is told by the commit (TXN-13).
    ///
    /// # Errors
    /// Those of [`Sender::send`]; `QuotaExceeded` for the 101st message (TXN-05); `InvalidOperation` for
    /// another queue than the transaction covers (TXN-08); `TransactionTimedOut` (TXN-06).
    pub async fn send(&self, sender: &Sender, message: Message) -> Result<(), BrokerError> {
        self.run(sender.entity(), sender.command(message)).await
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

    /// Sends messages at commit that are a batch, within its limit of size (SND-30).
    ///
    /// # Errors
    /// As for [`Transaction::send`].
    pub async fn send_batch(
        &self,
        sender: &Sender,
        messages: Vec<Message>,
    ) -> Result<(), BrokerError> {
        self.run(sender.entity(), sender.batch(messages)).await
    }

    /// Completes a message at commit.
    ///
    /// # Errors
    /// Those of [`Receiver::complete`], and of the transaction as for [`Transaction::send`].
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
    /// Those of [`Receiver::abandon`], and of the transaction as for [`Transaction::send`].
    pub async fn abandon(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let receiver = receiver.as_ref();
        let properties = receiver.overlay(properties)?;
        self.settle(receiver, message, Settlement::Abandon { properties }).await
    }

    /// Sets a message aside at commit.
    ///
    /// # Errors
    /// Those of [`Receiver::defer`], and of the transaction as for [`Transaction::send`].
    pub async fn defer(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let receiver = receiver.as_ref();
        let properties = receiver.overlay(properties)?;
        self.settle(receiver, message, Settlement::Defer { properties }).await
    }

    /// Moves a message to the dead-letter queue at commit.
    ///
    /// # Errors
    /// Those of [`Receiver::dead_letter`], and of the transaction as for [`Transaction::send`].
    pub async fn dead_letter(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
        reason: Option<&str>,
        description: Option<&str>,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let receiver = receiver.as_ref();
        let limits = &self.broker.settings().limits;
        let settlement = Settlement::dead_letter(reason, description, properties, limits)
            .map_err(|rejection| receiver.entity().refuse(rejection))?;
        self.settle(receiver, message, settlement).await
    }

    /// Prolongs a lock at commit, to then plus LockDuration. The lock runs on until then:
    /// [`Receiver::renew_lock`] prolongs it at once.
    ///
    /// # Errors
    /// Those of [`Receiver::renew_lock`], and of the transaction as for [`Transaction::send`].
    pub async fn renew_lock(
        &self,
        receiver: &impl AsRef<Receiver>,
        message: &Received,
    ) -> Result<(), BrokerError> {
        let receiver = receiver.as_ref();
        let token = receiver.token(message)?;
        self.run(receiver.entity(), Command::RenewLock { token }).await
    }

    /// Carries everything out as one, and answers when it is durable.
    ///
    /// # Errors
    /// If any part cannot be done, with the error of the first such part; then nothing was done, and
    /// the transaction is rolled back (TXN-07). `TransactionTimedOut` (TXN-06). `InternalError` leaves
    /// open whether all of it took effect or nothing; after any other nothing has (ERR-06).
    pub async fn commit(self) -> Result<Committed, BrokerError> {
        let ending = self
            .transactions
            .commit(self.id)
            .map_err(|rejection| self.broker.refuse(rejection, ""))?;
        let Some(ending) = ending else { return Ok(Committed { parts: Vec::new() }) };
        match ending.entity.call(ending.command).await? {
            Outcome::Committed(parts) => Ok(Committed { parts }),
            other => {
                let detail = format!("unexpected answer {other:?}");
                Err(ending.entity.refuse(Rejection::internal(detail)))
            }
        }
    }

    /// Ends it as if nothing of it had been: no message was sent, and what it settled is locked as
    /// before (TXN-04). Dropping it does the same.
    ///
    /// # Errors
    /// `TransactionTimedOut` if it was rolled back before (TXN-06).
    pub fn roll_back(self) -> Result<(), BrokerError> {
        self.transactions.roll_back(self.id).map_err(|rejection| self.broker.refuse(rejection, ""))
    }

    async fn settle(
        &self,
        receiver: &Receiver,
        message: &Received,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        let token = receiver.token(message)?;
        self.run(receiver.entity(), Command::Settle { token, settlement }).await
    }

    /// Has the entity check an operation, and keeps it if it would be carried out. Dropping the future
    /// leaves it out.
    async fn run(&self, entity: &Entity, command: Command) -> Result<(), BrokerError> {
        let question = self
            .transactions
            .issue(self.id, entity, command)
            .await
            .map_err(|rejection| entity.refuse(rejection))?;
        question.entity.call(question.command).await?;
        question.issued.confirm();
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.transactions.forget(self.id);
    }
}

impl Committed {
    /// What became of each operation.
    #[must_use]
    pub fn parts(&self) -> &[PartOutcome] {
        &self.parts
    }

    /// The numbers of the messages that were sent, in their order; 0 for a dropped duplicate (DUP-02).
    /// Those that go to another entity get theirs there.
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
        self.receiver()
    }
}

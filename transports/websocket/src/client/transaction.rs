//! Transactions: several operations of which all take effect, or none (file 15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use peeklock_core::time::Timestamp;

use super::core::{Ask, Lifeline};
use super::{Client, Received, Receiver, Sender, SessionReceiver};
use crate::frame::message::Properties;
use crate::frame::text::Token;
use crate::frame::transaction::{
    BeginTransaction, CommitTransaction, CommittedPart, RenewIn, SendIn, SettleIn, TransactionOnly,
};
use crate::frame::{Decision, Notice, Operation, Renew, Run, Settle};

/// Sends and settlements of one queue with its dead-letter queues, or of one topic with one of its
/// subscriptions, that take effect together at [`Transaction::commit`] or not at all (TXN-01, TXN-08).
/// One of [`Client::begin_cross_entity_transaction`] sends to other entities as well, by way of the first
/// one that it uses: the commit settles and hands over as one step, and what becomes of the transfer does
/// not undo it (TXN-09, TXN-10).
///
/// Until then what it sends is nowhere to be seen, and what it settles stays locked, with locks that
/// run on (TXN-03, TXN-07). Each operation is checked at once: one that would fail is refused with its
/// error and is left out, the transaction goes on without it. A transaction times out two minutes after
/// its first operation (TXN-06), and ends with a connection that is not resumed (TXN-12). Dropping it
/// rolls it back.
pub struct Transaction {
    core: Arc<Lifeline>,
    number: u64,
    operations: AtomicU32,
    is_open: bool,
}

/// What a commit has done, in the order of the operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    parts: Vec<Part>,
}

/// What became of one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The numbers of messages that were sent; 0 for a dropped duplicate (DUP-02).
    pub sequence_numbers: Vec<SequenceNumber>,
    /// The numbers under which messages wait for their transfer to another entity (TXN-09).
    pub pending_numbers: Vec<SequenceNumber>,
    /// The new end of a lock that was renewed.
    pub locked_until: Option<Timestamp>,
}

impl Client {
    /// Begins a transaction: sends and settlements that take effect together or not at all (TXN-01).
    ///
    /// # Errors
    /// `QuotaExceeded` if 1,000 are open on the connection (TXN-17); `ArgumentError` in the Basic tier
    /// (ENT-02).
    pub async fn begin_transaction(&self) -> Result<Transaction, BrokerError> {
        self.begin(BeginTransaction { cross_entity: false }).await
    }

    /// Begins a transaction that also sends to other queues and topics than the first one that it uses,
    /// by way of that one (TXN-09). That takes the Send right on both (VIA-02).
    ///
    /// # Errors
    /// As for [`Client::begin_transaction`].
    pub async fn begin_cross_entity_transaction(&self) -> Result<Transaction, BrokerError> {
        self.begin(BeginTransaction { cross_entity: true }).await
    }

    async fn begin(&self, begin: BeginTransaction) -> Result<Transaction, BrokerError> {
        match self.core.call(None, "", Operation::BeginTransaction(begin)).await? {
            Notice::Transaction(TransactionOnly { transaction }) => Ok(Transaction {
                core: Arc::clone(&self.core),
                number: transaction,
                operations: AtomicU32::new(0),
                is_open: true,
            }),
            _ => Err(self.core.refuse(Rejection::internal("unexpected answer"), "")),
        }
    }
}

impl Transaction {
    /// Sends a message at commit; also one that has an instant for which it is scheduled. Its number
    /// is told by the commit (TXN-13).
    ///
    /// # Errors
    /// Those of [`Sender::send`]; `QuotaExceeded` for the 101st message (TXN-05); `InvalidOperation` for
    /// another entity than the transaction covers (TXN-08); `TransactionTimedOut` (TXN-06);
    /// `TransactionUnknown` after the connection was lost for longer than its grace.
    pub async fn send(&self, sender: &Sender, message: Message) -> Result<(), BrokerError> {
        self.send_batch(sender, vec![message]).await
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
        let send = sender.batch(messages);
        let link = sender.link();
        let operation = Operation::SendIn(SendIn { transaction: self.number, send });
        link.call(operation).await?;
        self.joined();
        Ok(())
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
        self.settle(receiver.as_ref(), message, Decision::Complete, &[], [None, None]).await
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
        self.settle(receiver.as_ref(), message, Decision::Abandon, properties, [None, None]).await
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
        self.settle(receiver.as_ref(), message, Decision::Defer, properties, [None, None]).await
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
        let texts = [reason, description];
        self.settle(receiver.as_ref(), message, Decision::DeadLetter, properties, texts).await
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
        let lock_tokens = vec![Token(receiver.token(message)?)];
        let renew = Renew { link: receiver.link().number, ranges: Vec::new(), lock_tokens };
        let operation = Operation::RenewIn(RenewIn { transaction: self.number, renew });
        self.join(receiver, operation).await
    }

    /// Carries everything out as one, and answers when it is durable.
    ///
    /// # Errors
    /// If any part cannot be done, with the error of the first such part; then nothing was done, and
    /// the transaction is rolled back (TXN-07). `TransactionTimedOut` (TXN-06). `CommunicationProblem`
    /// and `InternalError` leave open whether all of it took effect or nothing; after any other nothing
    /// has (ERR-06).
    pub async fn commit(mut self) -> Result<Committed, BrokerError> {
        self.is_open = false;
        let operations = Some(self.operations.load(Ordering::Relaxed));
        let commit = CommitTransaction { transaction: self.number, operations };
        match self.core.call(None, "", Operation::Commit(commit)).await? {
            Notice::Committed(committed) => {
                Ok(Committed { parts: committed.parts.into_iter().map(Part::from).collect() })
            }
            _ => Err(self.core.refuse(Rejection::internal("unexpected answer"), "")),
        }
    }

    /// Ends it as if nothing of it had been: no message was sent, and what it settled is locked as
    /// before (TXN-04). Dropping it does the same.
    ///
    /// # Errors
    /// `TransactionTimedOut` if it was rolled back before (TXN-06).
    pub async fn roll_back(mut self) -> Result<(), BrokerError> {
        self.is_open = false;
        let operation = Operation::RollBack(TransactionOnly { transaction: self.number });
        self.core.call(None, "", operation).await.map(|_| ())
    }

    async fn settle(
        &self,
        receiver: &Receiver,
        message: &Received,
        decision: Decision,
        properties: &[(String, Value)],
        [reason, description]: [Option<&str>; 2],
    ) -> Result<(), BrokerError> {
        let settle = Settle {
            link: receiver.link().number,
            decision,
            ranges: Vec::new(),
            lock_tokens: vec![Token(receiver.token(message)?)],
            properties: (!properties.is_empty()).then(|| Properties(properties.to_vec())),
            reason: reason.map(str::to_owned),
            description: description.map(str::to_owned),
        };
        let operation = Operation::SettleIn(SettleIn { transaction: self.number, settle });
        self.join(receiver, operation).await
    }

    async fn join(&self, receiver: &Receiver, operation: Operation) -> Result<(), BrokerError> {
        let link = receiver.link();
        match link.call(operation).await? {
            Notice::Settled(mut settled) => match settled.failed.pop() {
                Some(failed) => Err(failed.error.into_error()),
                None => {
                    self.joined();
                    Ok(())
                }
            },
            _ => Err(link.unexpected()),
        }
    }

    fn joined(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.is_open {
            let only = TransactionOnly { transaction: self.number };
            let operation = Box::new(Operation::RollBack(only));
            let key = self.core.key();
            self.core.ask(Ask::Operation { key, link: None, operation, answer: None });
        }
    }
}

impl Committed {
    /// What became of each operation.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The numbers of the messages that were sent, in their order; 0 for a dropped duplicate (DUP-02).
    /// Those that go to another entity get theirs there.
    #[must_use]
    pub fn sequence_numbers(&self) -> Vec<SequenceNumber> {
        self.parts.iter().flat_map(|part| part.sequence_numbers.iter().copied()).collect()
    }
}

impl From<CommittedPart> for Part {
    fn from(part: CommittedPart) -> Self {
        let numbers = |runs: &[Run]| {
            let numbers = Run::expand(runs, crate::frame::LIST_COUNT_MAX);
            numbers.into_iter().map(SequenceNumber).collect()
        };
        Self {
            sequence_numbers: numbers(&part.sequence_numbers),
            pending_numbers: numbers(&part.pending_numbers),
            locked_until: part.locked_until_utc.map(|at| at.0),
        }
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

//! Implements the port of a client over a connection. The driver task owns the socket; this type
//! only passes requests to it.

use std::sync::Arc;

use peeklock_client::port::{
    AcceptedSession, BoxAnswer, BoxFuture, Deliveries, Link, Managed, Management, Port,
};
use peeklock_core::command::ReceiveMode;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};
use peeklock_sas::ConnectionString;

use super::core::{HandleRequest, Lifeline};
use super::deliveries::PushedLink;
use super::manage;
use crate::frame::{LIST_COUNT_MAX, Run};
use crate::operation::{
    BeginTransaction, CommitTransaction, CommittedPart, Notice, Operation, Role, TransactionOnly,
};

/// State that all handles of a client share.
pub(super) struct Connection {
    pub(super) core: Arc<Lifeline>,
    /// Connection string whose `EntityPath` limits the entities (SEC-20).
    pub(super) only: Option<Arc<ConnectionString>>,
}

impl Port for Connection {
    fn now(&self) -> Timestamp {
        self.core.now()
    }

    fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError {
        self.core.refuse(rejection, entity)
    }

    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError> {
        self.check(path)?;
        self.check(via.unwrap_or_default())?;
        Ok(Arc::new(match via {
            Some(via) => self.core.attach_via(path, via)?,
            None => self.core.attach(path, Role::Sender, ReceiveMode::PeekLock)?,
        }))
    }

    fn receiver(&self, path: &str, mode: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError> {
        self.check(path)?;
        Ok(Arc::new(self.core.attach(path, Role::Receiver, mode)?))
    }

    fn session<'a>(
        &'a self,
        path: &'a str,
        session_id: Option<&'a str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> BoxAnswer<'a, AcceptedSession> {
        Box::pin(async move {
            self.check(path)?;
            let (link, accepted) = self.core.accept(path, session_id, mode, wait).await?;
            Ok(AcceptedSession {
                link: Arc::new(link),
                session_id: accepted.session_id.into(),
                locked_until: accepted.locked_until_utc.0,
            })
        })
    }

    fn deliveries<'a>(
        &'a self,
        path: &'a str,
        unsettled_max: u32,
    ) -> BoxAnswer<'a, Box<dyn Deliveries>> {
        Box::pin(async move {
            self.check(path)?;
            let pushed = PushedLink::attach(&self.core, path, unsettled_max).await?;
            Ok(Box::new(pushed) as Box<dyn Deliveries>)
        })
    }

    fn manage<'a>(&'a self, path: &'a str, request: Management) -> BoxAnswer<'a, Managed> {
        Box::pin(async move {
            self.check(path)?;
            manage::manage(&self.core, path, request).await
        })
    }

    fn begin(&self, reach: Reach) -> BoxAnswer<'_, TransactionId> {
        Box::pin(async move {
            let begin = BeginTransaction { cross_entity: reach == Reach::CrossEntity };
            match self.core.call(None, "", Operation::BeginTransaction(begin)).await? {
                Notice::Transaction(begun) => Ok(TransactionId(begun.transaction)),
                _ => Err(self.unexpected()),
            }
        })
    }

    fn commit(
        &self,
        transaction: TransactionId,
        operations: u32,
    ) -> BoxAnswer<'_, Vec<PartOutcome>> {
        Box::pin(async move {
            let TransactionId(transaction) = transaction;
            let commit = CommitTransaction { transaction, operations: Some(operations) };
            match self.core.call(None, "", Operation::Commit(commit)).await? {
                Notice::Committed(committed) => {
                    Ok(committed.parts.into_iter().map(outcome).collect())
                }
                _ => Err(self.unexpected()),
            }
        })
    }

    fn roll_back(&self, transaction: TransactionId) -> BoxAnswer<'_, ()> {
        Box::pin(async move {
            let operation = Operation::RollBack(TransactionOnly { transaction: transaction.0 });
            self.core.call(None, "", operation).await.map(drop)
        })
    }

    fn forget(&self, transaction: TransactionId) {
        let operation = Operation::RollBack(TransactionOnly { transaction: transaction.0 });
        let (key, operation) = (self.core.key(), Box::new(operation));
        self.core.submit(HandleRequest::Operation { key, link: None, operation, answer: None });
    }

    fn reached(&self, is_reached: bool) -> BoxFuture<'_, ()> {
        Box::pin(self.core.until(is_reached))
    }

    fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.core.close())
    }
}

impl Connection {
    /// Refuses an entity outside of the connection string (SEC-20). The broker judges requests
    /// about the namespace.
    fn check(&self, path: &str) -> Result<(), BrokerError> {
        match &self.only {
            Some(string) if !path.is_empty() => {
                string.check_entity(path).map_err(|rejection| self.core.refuse(rejection, path))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn unexpected(&self) -> BrokerError {
        self.core.refuse(Rejection::internal("unexpected answer"), "")
    }
}

/// Converts the result of an operation. A batch with a single message looks like a single message.
fn outcome(part: CommittedPart) -> PartOutcome {
    let numbers = |runs: &[Run]| -> Vec<SequenceNumber> {
        Run::expand(runs, LIST_COUNT_MAX).into_iter().map(SequenceNumber).collect()
    };
    let (sent, pending) = (numbers(&part.sequence_numbers), numbers(&part.pending_numbers));
    match (&sent[..], part.locked_until_utc) {
        ([], _) if !pending.is_empty() => PartOutcome::Pending(pending),
        ([], Some(until)) => PartOutcome::Renewed(until.0),
        ([], None) => PartOutcome::Done,
        ([number], _) => PartOutcome::Accepted(*number),
        _ => PartOutcome::AcceptedBatch(sent),
    }
}

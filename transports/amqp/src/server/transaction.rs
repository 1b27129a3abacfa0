//! Transactions: declare and discharge at a coordinator, and the sends and settlements in between
//! (AMQP-95 to AMQP-100, file 15 of the specification). `peeklock-core` keeps the operations of a
//! transaction; this file connects them with links, deliveries and requests.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::Entity;
use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::request::Outcome as CommandOutcome;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{
    Operation, PartCheck, PartOutcome, PendingCommit, Reach, SPANS_SEVERAL, TransactionId,
};
use peeklock_link::pending::correlation;

use super::book::{
    ClientSettled, CommitRequest, DeclaredTransaction, TransactionBook, TransactionRoot, is_same,
    root_path,
};
use super::conversation::Conversation;
use super::outcomes::OutcomeKind;
use super::work::{
    AwaitedAnswers, LockedDelivery, PartKind, PendingAnswer, PendingSettlement, TransactionCommit,
    TransactionPart, UnpaidWork,
};
use crate::connection::{LinkId, ReceivedId, SentId, SessionId};
use crate::error::{AmqpError, condition};
use crate::message::{CoordinatorRequest, Discharge};
use crate::state::{Declared, DeliveryState, Outcome, Transactional};

fn unknown(id: TransactionId) -> Rejection {
    Rejection::new(Condition::TransactionUnknown, format!("transaction {id} is already ending"))
}

fn name(id: TransactionId) -> Bytes {
    Bytes::copy_from_slice(&id.0.to_be_bytes())
}

fn within(id: TransactionId, outcome: Outcome) -> DeliveryState {
    let state = Transactional { txn_id: name(id), outcome: Some(outcome) };
    DeliveryState::Transactional(Box::new(state))
}

impl Conversation {
    /// Handles a request to a coordinator.
    pub(super) async fn coordinate(
        &mut self,
        link: LinkId,
        delivery: Option<ReceivedId>,
        body: &Bytes,
    ) {
        let Some(delivery) = delivery else {
            // A request that was sent settled cannot be answered (AMQ-27).
            let text = "declare and discharge have an answer and must not be sent settled";
            self.amqp.detach(link, Some(AmqpError::new(condition::NOT_ALLOWED, text)));
            return self.detach(link);
        };
        match CoordinatorRequest::read(body) {
            Ok(CoordinatorRequest::Declare(declare)) if declare.global_id.is_some() => {
                let text = "transactions over several brokers are not supported";
                let error = AmqpError::new(condition::NOT_IMPLEMENTED, text);
                self.amqp.dispose_received(delivery, DeliveryState::rejected(error));
            }
            Ok(CoordinatorRequest::Declare(_)) => self.declare(link, delivery),
            Ok(CoordinatorRequest::Discharge(discharge)) => {
                self.discharge(delivery, &discharge).await
            }
            Err(error) => self.amqp.dispose_received(delivery, DeliveryState::rejected(error)),
        }
    }

    fn declare(&mut self, link: LinkId, delivery: ReceivedId) {
        // The reach of the transaction follows from the sessions that use it.
        let state = match self.engine.transactions.begin(Reach::CrossEntity) {
            Ok(id) => {
                let open = DeclaredTransaction {
                    coordinator: link,
                    root: None,
                    must_roll_back: false,
                    client_settled: Vec::new(),
                };
                self.book.open.insert(id, open);
                // Not wrapped in a transactional state, which clients would take for a failure
                // (AMQP-97).
                DeliveryState::Outcome(Outcome::Declared(Declared { txn_id: name(id) }))
            }
            Err(rejection) => DeliveryState::rejected(self.refuse(rejection, "")),
        };
        self.amqp.dispose_received(delivery, state);
    }

    async fn discharge(&mut self, delivery: ReceivedId, discharge: &Discharge) {
        let id = TransactionBook::id(&discharge.txn_id);
        if self.book.is_ending(id) {
            // The first discharge has ended the id, and at most one commit of a transaction waits.
            let error = self.refuse(unknown(id), "");
            return self.amqp.dispose_received(delivery, DeliveryState::rejected(error));
        }
        if !discharge.fail {
            let committing = CommitRequest { delivery, id };
            if self.engine.transactions.has_unanswered(id) {
                return self.book.waiting.push(committing);
            }
            return self.when_permitted(UnpaidWork::Commit(committing)).await;
        }
        let rolled_back = self.engine.transactions.roll_back(id);
        self.roll_back(id);
        let state = match rolled_back {
            Ok(()) => DeliveryState::accepted(),
            Err(rejection) => DeliveryState::rejected(self.refuse(rejection, "")),
        };
        self.amqp.dispose_received(delivery, state);
    }

    /// Carries out a commit whose operations are all answered. Returns whether there was one.
    pub(super) async fn commit_answered(&mut self) -> bool {
        let transactions = &self.engine.transactions;
        let ready = |committing: &CommitRequest| !transactions.has_unanswered(committing.id);
        let Some(at) = self.book.waiting.iter().position(ready) else { return false };
        let committing = self.book.waiting.remove(at);
        self.when_permitted(UnpaidWork::Commit(committing)).await;
        true
    }

    /// Sends the commit of a transaction to its entity.
    pub(super) fn commit(&mut self, committing: CommitRequest, permit: Permit) {
        let CommitRequest { delivery, id } = committing;
        let Some(open) = self.book.open.remove(&id) else {
            // Unknown or timed out.
            let unknown = match self.engine.transactions.commit(id) {
                Err(rejection) => rejection,
                Ok(_) => Rejection::internal(
                    "there is no coordinator for the transaction; attach one first",
                ),
            };
            let error = self.refuse(unknown, "");
            return self.amqp.dispose_received(delivery, DeliveryState::rejected(error));
        };
        let DeclaredTransaction { must_roll_back, client_settled, .. } = open;
        let ending = if must_roll_back {
            // If it has timed out, its messages were refused for that reason (TXN-06).
            self.engine.transactions.roll_back(id).and_then(|()| {
                Err(Rejection::new(
                    Condition::TransactionRolledBack,
                    format!("transaction {id} is rolled back: a message that it sent was refused"),
                ))
            })
        } else {
            self.engine.transactions.commit(id)
        };
        match ending {
            Ok(None) => self.amqp.dispose_received(delivery, DeliveryState::accepted()),
            Ok(Some(PendingCommit { entity, command, room })) => {
                let locks = match &command {
                    Command::Commit { parts } => {
                        parts.iter().map(|part| lock(&part.operation)).collect()
                    }
                    _ => Vec::new(),
                };
                let committed = TransactionCommit { delivery, locks, client_settled, _room: room };
                let expect = PendingAnswer::Committed(Box::new(committed));
                let permit = Some(Arc::new(permit));
                let slot =
                    self.engine.links.add_unlinked_request(entity.path().into(), 0, permit, expect);
                self.engine.links.submit_to(&entity, command, correlation(slot, 0));
            }
            Err(rejection) => {
                self.abandon_client_settled(client_settled);
                let error = self.refuse(rejection, "");
                self.amqp.dispose_received(delivery, DeliveryState::rejected(error));
            }
        }
    }

    /// Handles the answer to a commit: all of the transaction was carried out, or nothing.
    pub(super) fn committed(
        &mut self,
        committed: TransactionCommit,
        path: &str,
        result: Result<CommandOutcome, Rejection>,
    ) {
        let TransactionCommit { delivery, locks, client_settled, _room } = committed;
        let result = match result {
            Ok(CommandOutcome::Committed(outcomes)) => Ok(outcomes),
            Ok(_) => Err(Rejection::internal("unexpected answer")),
            Err(rejection) => Err(rejection),
        };
        let state = match result {
            Ok(outcomes) => {
                for (outcome, lock) in outcomes.into_iter().zip(locks) {
                    match (outcome, lock) {
                        (PartOutcome::Done, Some(lock)) => self.lock_settled(lock),
                        (PartOutcome::Renewed(until), Some(lock)) => self.lock_renewed(lock, until),
                        _ => {}
                    }
                }
                DeliveryState::accepted()
            }
            Err(rejection) => {
                self.abandon_client_settled(client_settled);
                DeliveryState::rejected(self.refuse(rejection, path))
            }
        };
        self.amqp.dispose_received(delivery, state);
    }

    /// Marks the named transaction, if any, for rollback, since an operation is not carried out;
    /// see [`Self::mark_for_rollback`].
    pub(super) fn mark_named_for_rollback(&mut self, transaction: Option<TransactionId>) {
        if let Some(id) = transaction {
            self.mark_for_rollback(id);
        }
    }

    /// Marks a transaction for rollback, since a message cannot join it and the client may not
    /// notice (AMQP-100).
    pub(super) fn mark_for_rollback(&mut self, id: TransactionId) {
        if let Some(open) = self.book.open.get_mut(&id) {
            open.must_roll_back = true;
        }
    }

    /// Ends a transaction without carrying it out.
    fn roll_back(&mut self, id: TransactionId) {
        if let Some(open) = self.book.open.remove(&id) {
            self.abandon_client_settled(open.client_settled);
        }
    }

    /// Abandons deliveries that the client has settled itself in a transaction that is rolled back.
    /// They become available immediately, with a higher delivery count (TXN-04).
    fn abandon_client_settled(&mut self, client_settled: Vec<ClientSettled>) {
        for ClientSettled { token, entity } in client_settled {
            let path = entity.path().into();
            let kind = OutcomeKind::Abandoned;
            let ended = PendingSettlement { token, kind, answer: None, sent: None };
            let expect = PendingAnswer::Settled(AwaitedAnswers::new([ended]));
            let slot = self.engine.links.add_unlinked_request(path, 0, None, expect);
            // Immediately, without the retry delay.
            let delay = Some(TimeSpan::ZERO);
            let settlement = Settlement::Abandon { properties: None, delay };
            let command = Command::Settle { token, settlement };
            self.engine.links.submit_to(&entity.as_broker(), command, correlation(slot, 0));
        }
    }

    /// Rolls back the transactions of a coordinator whose link has ended (TXN-12, AMQ-28).
    pub(super) fn roll_back_of(&mut self, coordinator: LinkId) {
        self.roll_back_those(|open| open.coordinator == coordinator);
    }

    /// Rolls back all transactions, since the connection ends.
    pub(super) fn roll_back_all(&mut self) {
        self.roll_back_those(|_| true);
    }

    fn roll_back_those(&mut self, which: impl Fn(&DeclaredTransaction) -> bool) {
        let over = self.book.open.iter().filter(|(_, open)| which(open)).map(|(id, _)| *id);
        for id in over.collect::<Vec<_>>() {
            self.engine.transactions.forget(id);
            self.roll_back(id);
        }
    }

    /// Ends transactions that have timed out, and abandons their settled deliveries (TXN-06).
    pub(super) fn expire_transactions(&mut self) {
        self.engine.transactions.expire();
        let transactions = self.engine.transactions.clone();
        let over = self.book.open.keys().filter(|id| transactions.part_count(**id).is_none());
        for id in over.copied().collect::<Vec<_>>() {
            self.roll_back(id);
        }
    }

    /// Makes a command part of a transaction if the entity would carry it out.
    pub(super) async fn join(
        &mut self,
        id: TransactionId,
        session: SessionId,
        entity: &Entity,
        command: Command,
        of: PartKind,
        permit: Permit,
    ) {
        match self.issue(id, session, entity, command).await {
            Ok(PartCheck { entity, command, issued }) => {
                let expect = PendingAnswer::Joined(Box::new(TransactionPart { id, issued, of }));
                let permit = Some(Arc::new(permit));
                let slot =
                    self.engine.links.add_unlinked_request(entity.path().into(), 0, permit, expect);
                self.engine.links.submit_to(&entity, command, correlation(slot, 0));
            }
            Err(rejection) => self.not_joined(id, of, rejection, entity.path()),
        }
    }

    /// Returns the check that a command must pass to become part of a transaction.
    pub(super) async fn issue(
        &mut self,
        id: TransactionId,
        session: SessionId,
        entity: &Entity,
        command: Command,
    ) -> Result<PartCheck, Rejection> {
        self.reach(id, session, entity).await?;
        self.engine.transactions.issue(id, entity, command).await
    }

    /// Checks the entity of an operation. A transaction covers the root of its coordinator's
    /// session, or else the first entity that it is used with. Links of that session may also send
    /// to other entities (AMQP-98).
    async fn reach(
        &mut self,
        id: TransactionId,
        session: SessionId,
        entity: &Entity,
    ) -> Result<(), Rejection> {
        let Some(coordinator) = self.book.open.get(&id).map(|open| open.coordinator.session())
        else {
            return Ok(());
        };
        let own = root_path(entity)?;
        if self.engine.transactions.part_count(id) == Some(0) {
            let root = self.fix_root(id, coordinator).await?;
            if let Some(open) = self.book.open.get_mut(&id) {
                open.root = Some(root.unwrap_or_else(|| Arc::clone(&own)));
            }
        }
        match self.book.open.get(&id).and_then(|open| open.root.as_ref()) {
            Some(covered) if !is_same(covered, &own) && coordinator != session => {
                Err(Rejection::invalid_operation(format!(
                    "{SPANS_SEVERAL}: transaction {id} covers `{covered}`, but this is `{own}`; to send to others, \
                     attach the coordinator in the session of the links that use it"
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Makes an unused transaction cover the root of its coordinator's session. Returns the path of
    /// that root.
    async fn fix_root(
        &mut self,
        id: TransactionId,
        coordinator: SessionId,
    ) -> Result<Option<Arc<str>>, Rejection> {
        while let Some(TransactionRoot { path: root, named }) = self.group_root(coordinator) {
            match self.access_at(&named).entity_of_a_transaction(&root).await {
                Ok(entity) => {
                    self.engine.transactions.anchor(id, entity)?;
                    return Ok(Some(root));
                }
                Err(gone) if gone.condition() == Condition::EntityNotFound => {
                    self.forget_root(coordinator);
                    if self.group_root(coordinator).is_some_and(|next| is_same(&next.path, &root)) {
                        // The detach of its links is in progress.
                        return Err(gone);
                    }
                }
                Err(rejection) => return Err(rejection),
            }
        }
        Ok(None)
    }

    /// Handles the answer of an entity to the check of an operation.
    pub(super) fn joined(
        &mut self,
        joining: TransactionPart,
        path: &str,
        result: Result<CommandOutcome, Rejection>,
    ) {
        let TransactionPart { id, issued, of } = joining;
        match result {
            Ok(outcome) => issued.confirm(&outcome),
            Err(rejection) => {
                // Dropping the issued parts leaves them out of the transaction.
                drop(issued);
                return self.not_joined(id, of, rejection, path);
            }
        }
        match of {
            PartKind::Sent(Some(delivery)) => {
                self.amqp.dispose_received(delivery, within(id, Outcome::Accepted))
            }
            PartKind::Sent(None) => {}
            PartKind::Settled { token, sent, answer: Some((delivery, outcome)) } => {
                self.answer_unsettled((token, sent), delivery, within(id, outcome));
            }
            PartKind::Settled { token, sent, answer: None } => {
                let client_settled = ClientSettled { token, entity: sent.entity };
                match self.book.open.get_mut(&id) {
                    Some(open) => open.client_settled.push(client_settled),
                    // The transaction was rolled back in the meantime.
                    None => self.abandon_client_settled(vec![client_settled]),
                }
            }
        }
    }

    /// Answers a settlement in a transaction. The delivery stays unsettled on its link. The commit
    /// settles it, or the client after a rollback (AMQP-66, TXN-04).
    fn answer_unsettled(
        &mut self,
        (token, sent): (LockToken, LockedDelivery),
        delivery: SentId,
        state: DeliveryState,
    ) {
        if self.amqp.dispose_sent_unsettled(delivery, state) {
            self.locked_deliveries.insert(token, sent);
        }
    }

    /// Handles an operation that did not join its transaction. If the client may not notice, the
    /// transaction is marked for rollback (AMQP-100). The answer is not wrapped in a transactional
    /// state, which clients would take for a success (AMQP-66).
    pub(super) fn not_joined(
        &mut self,
        id: TransactionId,
        of: PartKind,
        rejection: Rejection,
        path: &str,
    ) {
        let is_lost = match &of {
            PartKind::Settled { token, .. } => {
                let condition = rejection.condition();
                matches!(condition, Condition::MessageLockLost | Condition::SessionLockLost)
                    && !self.engine.transactions.has_settled(id, *token)
            }
            PartKind::Sent(_) => false,
        };
        let error = self.refuse(rejection, path);
        let must_roll_back = match of {
            PartKind::Sent(delivery) => {
                match delivery {
                    Some(delivery) => {
                        self.amqp.dispose_received(delivery, DeliveryState::rejected(error));
                    }
                    None => tracing::debug!(%error, "a message of a transaction is refused"),
                }
                true
            }
            PartKind::Settled { token, sent, answer: Some((delivery, _)) } => {
                let state = DeliveryState::rejected(error);
                match is_lost {
                    true => self.amqp.dispose_sent(delivery, state),
                    false => self.answer_unsettled((token, sent), delivery, state),
                }
                false
            }
            PartKind::Settled { token, sent, answer: None } => {
                let client_settled = ClientSettled { token, entity: sent.entity };
                let count_max =
                    self.engine.broker.settings().limits.transaction_operation_count_max;
                match self.book.open.get_mut(&id) {
                    Some(open) if open.client_settled.len() < count_max => {
                        open.client_settled.push(client_settled);
                    }
                    // The transaction is over, or already has the maximum number of such deliveries
                    // and will be rolled back.
                    _ => self.abandon_client_settled(vec![client_settled]),
                }
                true
            }
        };
        if must_roll_back {
            self.mark_for_rollback(id);
        }
    }
}

/// Returns the lock of an operation.
const fn lock(operation: &Operation) -> Option<LockToken> {
    match operation {
        Operation::Settle { token, .. } | Operation::RenewLock { token } => Some(*token),
        Operation::Send { .. }
        | Operation::SendBatch { .. }
        | Operation::SendVia { .. }
        | Operation::CancelScheduled { .. }
        | Operation::SetSessionState { .. } => None,
    }
}

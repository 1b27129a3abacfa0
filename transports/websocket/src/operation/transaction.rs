//! Begins transactions, commits them, or rolls them back (file 15 of the specification). They
//! belong to the conversation: they outlive a socket that is lost and resumed, and are rolled back
//! with the conversation (TXN-12).

use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::transaction::{Operation, PartOutcome, PendingCommit, Reach, TransactionId};
use peeklock_link::pending::correlation;

use super::{Notice, PendingAnswer, unexpected};
use crate::connection::{AdmittedRequest, Conversation, Done, WaitingCommit};
use crate::frame::text::Instant;
use crate::frame::{Run, bodies};

bodies! {
    struct TransactionOnly {
        transaction: u64,
    }
}

bodies! {
    struct BeginTransaction {
        /// Whether it also sends to other entities than the first one that it uses, through that
        /// one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cross_entity: bool,
    }
}

impl Conversation {
    pub(super) fn begin_transaction(
        &mut self,
        admitted: &AdmittedRequest,
        begin: &BeginTransaction,
    ) -> Done {
        let reach = if begin.cross_entity { Reach::CrossEntity } else { Reach::OneEntity };
        let id = self.engine.transactions.begin(reach)?;
        let notice = Notice::Transaction(TransactionOnly { transaction: id.0 });
        self.push_item(admitted.id, notice);
        Ok(())
    }
}

bodies! {
    struct CommitTransaction {
        transaction: u64,
        /// Expected number of operations: the messages of a request count as one, each settlement
        /// and each renewal as one. With another number, the transaction is rolled back.
        #[serde(skip_serializing_if = "Option::is_none")]
        operations: Option<u32>,
    }

    struct Committed {
        /// Results of the operations, in their order.
        parts: Vec<CommittedPart>,
    }

    struct CommittedPart {
        /// For sent messages: first number and count, as in `accepted`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sequence_numbers: Vec<Run>,
        /// For messages to another entity: the numbers under which they wait for their transfer, in
        /// the same form.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pending_numbers: Vec<Run>,
        /// For a renewal: the new end of the lock.
        #[serde(skip_serializing_if = "Option::is_none")]
        locked_until_utc: Option<Instant>,
    }
}

/// A commit under way.
pub(crate) struct TransactionCommit {
    /// Locks that it settles or renews, by part.
    locks: Vec<Option<LockToken>>,
    _room: Vec<Permit>,
}

impl Conversation {
    pub(super) fn commit(&mut self, admitted: AdmittedRequest, commit: &CommitTransaction) -> Done {
        let CommitTransaction { transaction, operations } = *commit;
        let id = TransactionId(transaction);
        if self.engine.transactions.has_unanswered(id) {
            // Requests before the commit are answered before it.
            self.commits.push(WaitingCommit { admitted, id, operations });
            return Ok(());
        }
        self.commit_now(admitted, id, operations).map_err(Into::into)
    }

    /// Carries out commits whose earlier requests are now answered.
    pub(super) fn commit_answered(&mut self) {
        for commit in std::mem::take(&mut self.commits) {
            if self.engine.transactions.has_unanswered(commit.id) {
                self.commits.push(commit);
                continue;
            }
            let WaitingCommit { admitted, id, operations } = commit;
            let request = admitted.id;
            if let Err(rejection) = self.commit_now(admitted, id, operations) {
                let error = self.wire_error(rejection, "");
                self.push_item(request, Notice::Error(error));
            }
        }
    }

    fn commit_now(
        &mut self,
        admitted: AdmittedRequest,
        id: TransactionId,
        operations: Option<u32>,
    ) -> Result<(), Rejection> {
        let count = self.engine.transactions.part_count(id);
        if let Some(wanted) = operations
            && let Some(count) = count
            && usize::try_from(wanted) != Ok(count)
        {
            self.engine.transactions.roll_back(id)?;
            return Err(Rejection::new(
                Condition::TransactionRolledBack,
                format!("transaction {id} has {count} operations, not {wanted}"),
            ));
        }
        let Some(PendingCommit { entity, command, room }) = self.engine.transactions.commit(id)?
        else {
            let notice = Notice::Committed(Committed { parts: Vec::new() });
            self.push_item(admitted.id, notice);
            return Ok(());
        };
        let locks = match &command {
            Command::Commit { parts } => parts.iter().map(|part| lock(&part.operation)).collect(),
            _ => Vec::new(),
        };
        let expect = PendingAnswer::Committed(TransactionCommit { locks, _room: room });
        let AdmittedRequest { id, permit } = admitted;
        let slot =
            self.engine.links.add_unlinked_request(entity.path().into(), id, Some(permit), expect);
        self.engine.links.submit_to(&entity, command, correlation(slot, 0));
        Ok(())
    }

    /// Applies a commit: its settled deliveries are settled for their links too.
    pub(super) fn committed(
        &mut self,
        committing: TransactionCommit,
        outcome: Outcome,
    ) -> Result<Notice, Rejection> {
        let Outcome::Committed(outcomes) = outcome else { return Err(unexpected()) };
        let mut parts = Vec::with_capacity(outcomes.len());
        for (outcome, lock) in outcomes.into_iter().zip(committing.locks) {
            let mut part = CommittedPart {
                sequence_numbers: Vec::new(),
                pending_numbers: Vec::new(),
                locked_until_utc: None,
            };
            match outcome {
                PartOutcome::Done => self.settled_in(lock),
                PartOutcome::Accepted(number) => Run::push(&mut part.sequence_numbers, number.0),
                PartOutcome::AcceptedBatch(numbers) => {
                    numbers.iter().for_each(|it| Run::push(&mut part.sequence_numbers, it.0));
                }
                PartOutcome::Pending(numbers) => {
                    numbers.iter().for_each(|it| Run::push(&mut part.pending_numbers, it.0));
                }
                PartOutcome::Renewed(until) => {
                    part.locked_until_utc = Some(Instant(until));
                    if let Some(lock) = lock {
                        self.engine.links.unsettled.record_renewal(lock, until);
                    }
                }
            }
            parts.push(part);
        }
        Ok(Notice::Committed(Committed { parts }))
    }

    fn settled_in(&mut self, lock: Option<LockToken>) {
        // The receiver may now have more unsettled deliveries.
        if let Some(held) = lock.and_then(|lock| self.engine.links.remove_settled(lock)) {
            self.engine.links.update_limits(held.link);
        }
    }
}

/// Returns the lock that an operation settles or renews.
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

impl Conversation {
    pub(super) fn roll_back(&mut self, admitted: &AdmittedRequest, only: &TransactionOnly) -> Done {
        self.engine.transactions.roll_back(TransactionId(only.transaction))?;
        self.done(admitted)
    }
}

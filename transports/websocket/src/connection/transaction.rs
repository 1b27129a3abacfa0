//! Transactions (file 15). They belong to the conversation: they outlive a socket that is lost and
//! resumed, and are rolled back with the conversation (TXN-12).

use std::sync::Arc;

use peeklock_core::command::{Command, InboundMessage, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::permits::Permit;
use peeklock_core::transaction::{
    Ending, Issued, Operation, PartOutcome, Question, Reach, TransactionId,
};

use peeklock_link::pending::correlation;

use super::Conversation;
use super::inbound::{Asked, Done};
use super::pending::{Expect, Keyed};
use crate::frame::text::Instant;
use crate::frame::transaction::{
    BeginTransaction, CommitTransaction, Committed, CommittedPart, RenewIn, SendIn, SettleIn,
    TransactionOnly,
};
use crate::frame::{Notice, Run, Settled};

/// Operations of one request that are to become part of a transaction.
pub(super) struct Joining {
    pub(super) keyed: Keyed,
    /// By their index; those that the entity has answered are gone.
    issued: Vec<Option<Issued>>,
    /// Whether they are answered as a send, which fails as a whole.
    is_send: bool,
}

/// A commit that waits for operations to be answered.
pub(super) struct WaitingCommit {
    asked: Asked,
    id: TransactionId,
    operations: Option<u32>,
}

impl WaitingCommit {
    /// Whether its answer will have this id.
    pub(super) const fn is_asked_as(&self, id: u32) -> bool {
        id != 0 && self.asked.id == id
    }
}

/// A commit on its way.
pub(super) struct Committing {
    /// Locks that it settles or renews, by part.
    locks: Vec<Option<LockToken>>,
    _room: Vec<Permit>,
}

impl Conversation {
    pub(super) fn begin_transaction(&mut self, asked: &Asked, begin: &BeginTransaction) -> Done {
        let reach = if begin.cross_entity { Reach::CrossEntity } else { Reach::OneEntity };
        let id = self.transactions.begin(reach)?;
        let notice = Notice::Transaction(TransactionOnly { transaction: id.0 });
        self.say(asked.id, notice);
        Ok(())
    }

    pub(super) async fn send_in(&mut self, asked: Asked, sent: SendIn) -> Done {
        let SendIn { transaction, send } = sent;
        let number = send.link;
        self.sender(number)?;
        let messages = send.messages.into_iter().map(|message| self.inbound(message));
        let mut messages = messages.collect::<Result<Vec<InboundMessage>, Rejection>>()?;
        let command = match messages.pop() {
            Some(message) if messages.is_empty() => Command::Send { message },
            last => {
                messages.extend(last);
                Command::SendBatch { messages }
            }
        };
        let keyed =
            Keyed { link: number, keys: vec![0], tokens: Vec::new(), left: 0, failed: Vec::new() };
        self.join(asked, TransactionId(transaction), keyed, vec![command], true).await
    }

    pub(super) async fn settle_in(&mut self, asked: Asked, settle: SettleIn) -> Done {
        let SettleIn { transaction, settle } = settle;
        let number = settle.link;
        self.receiver(number)?;
        let settlement = self.settlement(&settle)?;
        let keyed = self.keyed(number, &settle.ranges, &settle.lock_tokens)?;
        let commands = keyed
            .tokens
            .iter()
            .map(|token| Command::Settle { token: *token, settlement: settlement.clone() })
            .collect();
        self.join(asked, TransactionId(transaction), keyed, commands, false).await
    }

    pub(super) async fn renew_in(&mut self, asked: Asked, renew: RenewIn) -> Done {
        let RenewIn { transaction, renew } = renew;
        let number = renew.link;
        self.receiver(number)?;
        let keyed = self.keyed(number, &renew.ranges, &renew.lock_tokens)?;
        let commands =
            keyed.tokens.iter().map(|token| Command::RenewLock { token: *token }).collect();
        self.join(asked, TransactionId(transaction), keyed, commands, false).await
    }

    /// Has the entity check operations, one by one; those that it would carry out become part of the
    /// transaction. What is for another entity is asked of that by way of which it goes (TXN-09); it takes
    /// the Send right there, too (VIA-02).
    async fn join(
        &mut self,
        asked: Asked,
        id: TransactionId,
        mut keyed: Keyed,
        commands: Vec<Command>,
        is_send: bool,
    ) -> Done {
        let number = keyed.link;
        let (entity, path) = {
            let link = self.link(number)?;
            (link.entity.clone(), Arc::clone(&link.path))
        };
        let mut checks = Vec::with_capacity(commands.len());
        let mut issued = Vec::with_capacity(commands.len());
        for (index, command) in commands.into_iter().enumerate() {
            match self.transactions.issue(id, &entity, command).await {
                Ok(Question { entity: asked_of, command, issued: part }) => {
                    let is_via = asked_of.id() != entity.id();
                    checks.push((index, command, is_via.then_some(asked_of)));
                    issued.push(Some(part));
                }
                Err(rejection) if is_send => return Err(rejection.into()),
                Err(rejection) => {
                    let key = keyed.keys.get(index).copied().unwrap_or(0);
                    let error = self.wire_error(rejection.clone(), &path);
                    keyed.fail(key, &rejection, |_| error);
                    issued.push(None);
                }
            }
        }
        keyed.left = checks.len();
        if checks.is_empty() {
            let notice = Notice::Settled(Settled { failed: keyed.failed });
            self.say(asked.id, notice);
            return Ok(());
        }
        let joining = Joining { keyed, issued, is_send };
        let slot = self.await_answer(asked, number, Expect::Joined(joining));
        for (index, command, via) in checks {
            match via {
                Some(via) => self.links.submit_to(&via, command, correlation(slot, index)),
                None => {
                    self.links.submit(number, command, correlation(slot, index));
                }
            }
        }
        Ok(())
    }

    /// Takes the answer to a check.
    pub(super) fn joined(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
        path: &str,
    ) {
        let error =
            result.err().map(|rejection| (self.wire_error(rejection.clone(), path), rejection));
        let Some((_, _, Expect::Joined(joining))) = self.links.asked_mut(slot) else { return };
        let issued = joining.issued.get_mut(index).and_then(Option::take);
        let keyed = &mut joining.keyed;
        keyed.left = keyed.left.saturating_sub(1);
        match error {
            None => {
                if let Some(issued) = issued {
                    issued.confirm();
                }
            }
            Some((error, rejection)) => {
                drop(issued);
                let key = keyed.keys.get(index).copied().unwrap_or(0);
                keyed.fail(key, &rejection, |_| error);
            }
        }
        if keyed.left > 0 {
            return;
        }
        if let Some((id, _, Expect::Joined(joining))) = self.links.answered(slot) {
            let failed = joining.keyed.failed;
            let notice = if joining.is_send {
                let error = failed.into_iter().next().map(|failed| Notice::Error(failed.error));
                error.unwrap_or_else(|| Notice::Done(Default::default()))
            } else {
                Notice::Settled(Settled { failed })
            };
            self.say(id, notice);
        }
        self.commit_answered();
    }

    pub(super) fn commit(&mut self, asked: Asked, commit: &CommitTransaction) -> Done {
        let CommitTransaction { transaction, operations } = *commit;
        let id = TransactionId(transaction);
        if self.transactions.is_unanswered(id) {
            // What was asked before it is answered before it.
            self.commits.push(WaitingCommit { asked, id, operations });
            return Ok(());
        }
        self.commit_now(asked, id, operations).map_err(Into::into)
    }

    /// Carries out commits that have waited long enough.
    fn commit_answered(&mut self) {
        for commit in std::mem::take(&mut self.commits) {
            if self.transactions.is_unanswered(commit.id) {
                self.commits.push(commit);
                continue;
            }
            let WaitingCommit { asked, id, operations } = commit;
            let request = asked.id;
            if let Err(rejection) = self.commit_now(asked, id, operations) {
                let error = self.wire_error(rejection, "");
                self.say(request, Notice::Error(error));
            }
        }
    }

    fn commit_now(
        &mut self,
        asked: Asked,
        id: TransactionId,
        operations: Option<u32>,
    ) -> Result<(), Rejection> {
        let count = self.transactions.part_count(id);
        if let Some(wanted) = operations
            && let Some(count) = count
            && usize::try_from(wanted) != Ok(count)
        {
            self.transactions.roll_back(id)?;
            return Err(Rejection::new(
                Condition::TransactionRolledBack,
                format!("transaction {id} has {count} operations and not {wanted}"),
            ));
        }
        let Some(Ending { entity, command, room }) = self.transactions.commit(id)? else {
            let notice = Notice::Committed(Committed { parts: Vec::new() });
            self.say(asked.id, notice);
            return Ok(());
        };
        let locks = match &command {
            Command::Commit { parts } => parts.iter().map(|part| lock(&part.operation)).collect(),
            _ => Vec::new(),
        };
        let expect = Expect::Committed(Committing { locks, _room: room });
        let Asked { id, permit } = asked;
        let slot = self.links.ask_of(entity.path().into(), id, Some(permit), expect);
        self.links.submit_to(&entity, command, correlation(slot, 0));
        Ok(())
    }

    /// What a commit has done: deliveries that it settled are settled for their links, too.
    pub(super) fn committed(
        &mut self,
        committing: Committing,
        outcomes: Vec<PartOutcome>,
    ) -> Notice {
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
                        self.links.unsettled.renewed(lock, until);
                    }
                }
            }
            parts.push(part);
        }
        Notice::Committed(Committed { parts })
    }

    fn settled_in(&mut self, lock: Option<LockToken>) {
        // There may be room for more unsettled deliveries.
        if let Some(held) = lock.and_then(|lock| self.links.settled(lock)) {
            self.links.limit(held.link);
        }
    }

    pub(super) fn roll_back(&mut self, asked: &Asked, only: &TransactionOnly) -> Done {
        self.transactions.roll_back(TransactionId(only.transaction))?;
        self.done(asked);
        Ok(())
    }
}

/// The lock that an operation is for.
const fn lock(operation: &Operation) -> Option<LockToken> {
    match operation {
        Operation::Settle { token, .. } | Operation::RenewLock { token } => Some(*token),
        Operation::Send { .. } | Operation::SendBatch { .. } | Operation::SendVia { .. } => None,
    }
}

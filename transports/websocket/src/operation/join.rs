//! Operations that join a transaction (TXN-02). `operation.rs` calls it. The entity checks each
//! operation when it is issued.

use std::sync::Arc;

use peeklock_core::admission::COMMAND_BYTES;
use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_core::transaction::{PartCheck, PendingPart, TransactionId};
use peeklock_link::PendingRequest;
use peeklock_link::pending::correlation;

use super::settle_ranges::{LockOperation, NamedDeliveries};
use super::{Notice, Numbered, PendingAnswer, Renew, SetSessionState, Settle, Settled};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::bodies;

/// Operations of a request that are to join a transaction.
pub(crate) struct JoinChecks {
    named: NamedDeliveries,
    /// By index; none after the entity has answered.
    issued: Vec<Option<PendingPart>>,
    /// Whether they are one operation, such as a send, which fails as a whole.
    is_whole: bool,
}

impl Conversation {
    /// Joins one operation for each lock.
    async fn join_each(
        &mut self,
        admitted: AdmittedRequest,
        id: TransactionId,
        mut named: NamedDeliveries,
        of_lock: LockOperation,
    ) -> Done {
        let tokens = std::mem::take(&mut named.tokens).into_iter();
        let commands = tokens.map(move |token| of_lock.command(token));
        self.join(admitted, id, named, commands, false).await
    }

    /// Joins one operation, which fails as a whole.
    async fn join_whole(
        &mut self,
        admitted: AdmittedRequest,
        id: TransactionId,
        link: u32,
        command: Command,
    ) -> Done {
        let named = NamedDeliveries { keys: vec![0], ..NamedDeliveries::none(link) };
        self.join(admitted, id, named, std::iter::once(command), true).await
    }

    /// Has the entity check operations one by one; those that it would carry out join the
    /// transaction. Operations for another entity are checked by the entity that they pass
    /// (TXN-09), which requires the Send right there too (VIA-02).
    async fn join(
        &mut self,
        admitted: AdmittedRequest,
        id: TransactionId,
        mut named: NamedDeliveries,
        commands: impl Iterator<Item = Command> + Send,
        is_whole: bool,
    ) -> Done {
        let number = named.link;
        let link = self.link(number)?;
        let (entity, path) = (link.entity.clone(), Arc::clone(&link.path));
        let (mut checks, mut issued) = (Vec::new(), Vec::new());
        for (index, command) in commands.enumerate() {
            self.engine.steps.add(1);
            self.engine.steps.yield_if_due().await;
            match self.engine.transactions.issue(id, &entity, command).await {
                Ok(PartCheck { entity: target, command, issued: part }) => {
                    let is_via = target.id() != entity.id();
                    checks.push((index, command, is_via.then_some(target)));
                    issued.push(Some(part));
                }
                Err(rejection) if is_whole => return Err(rejection.into()),
                Err(rejection) => {
                    named.fail(index, &rejection, |rejection| {
                        self.wire_error(rejection.clone(), &path)
                    });
                    issued.push(None);
                }
            }
        }
        named.left = checks.len();
        // The transaction pays only for the operations that it keeps. A request with more checks than
        // its frame has paid for delays all later requests, so there is at most one at a time.
        let is_wide = checks.len() > named.elements.max(1);
        let slot = self.await_answer(
            admitted,
            number,
            PendingAnswer::Joined(JoinChecks { named, issued, is_whole }),
        );
        if is_wide {
            self.handing_over = Some(slot);
        }
        if checks.is_empty() {
            self.answer_joined(slot);
        }
        for (index, command, via) in checks {
            match via {
                Some(via) => self.engine.links.submit_to(&via, command, correlation(slot, index)),
                None => drop(self.engine.links.submit(number, command, correlation(slot, index))),
            }
        }
        Ok(())
    }

    /// Takes the result of a check; answers after the last one.
    pub(super) fn joined(&mut self, slot: usize, index: usize, result: Result<Outcome, Rejection>) {
        let Some((_, path, PendingAnswer::Joined(joining))) = self.engine.links.request_mut(slot)
        else {
            return;
        };
        // Counts as progress, although no later request starts.
        self.started_bytes += COMMAND_BYTES;
        let issued = joining.issued.get_mut(index).and_then(Option::take);
        let named = &mut joining.named;
        named.left = named.left.saturating_sub(1);
        match (result, issued) {
            (Ok(outcome), Some(issued)) => issued.confirm(&outcome),
            (Ok(_), None) => {}
            // The issued part is dropped, which leaves the operation out.
            (Err(rejection), _) => named.fail(index, &rejection, |rejection| {
                (&self.engine.broker.refuse(rejection.clone(), &path)).into()
            }),
        }
        if named.left == 0 {
            self.handing_over = self.handing_over.filter(|handing_over| *handing_over != slot);
            self.answer_joined(slot);
            self.commit_answered();
        }
    }

    fn answer_joined(&mut self, slot: usize) {
        let answered = self.engine.links.remove_request(slot);
        let Some(PendingRequest { id, expect: PendingAnswer::Joined(joining), .. }) = answered
        else {
            return;
        };
        let failed = joining.named.failed;
        let notice = if joining.is_whole {
            let error = failed.into_iter().next().map(|failed| Notice::Error(failed.error));
            error.unwrap_or_else(|| Notice::Done(Default::default()))
        } else {
            Notice::Settled(Settled { failed })
        };
        self.push_item(id, notice);
    }
}

bodies! {
    struct SendIn {
        transaction: u64,
        /// Several messages are a batch, with its limits.
        send: super::Send,
    }
}

impl Conversation {
    pub(super) async fn send_in(&mut self, admitted: AdmittedRequest, sent: SendIn) -> Done {
        let SendIn { transaction, send } = sent;
        let link = send.link;
        let command = self.send_command(send)?;
        self.join_whole(admitted, TransactionId(transaction), link, command).await
    }
}

bodies! {
    struct SettleIn {
        transaction: u64,
        settle: Settle,
    }
}

impl Conversation {
    pub(super) async fn settle_in(&mut self, admitted: AdmittedRequest, settle: SettleIn) -> Done {
        let SettleIn { transaction, settle } = settle;
        self.receiver(settle.link)?;
        let of_lock = LockOperation::Settle(self.settlement(&settle)?);
        let named = self.named_deliveries(settle.link, &settle.ranges, &settle.lock_tokens)?;
        self.join_each(admitted, TransactionId(transaction), named, of_lock).await
    }
}

bodies! {
    struct RenewIn {
        transaction: u64,
        renew: Renew,
    }
}

impl Conversation {
    pub(super) async fn renew_in(&mut self, admitted: AdmittedRequest, renew: RenewIn) -> Done {
        let RenewIn { transaction, renew } = renew;
        self.receiver(renew.link)?;
        let named = self.named_deliveries(renew.link, &renew.ranges, &renew.lock_tokens)?;
        self.join_each(admitted, TransactionId(transaction), named, LockOperation::Renew).await
    }
}

bodies! {
    struct CancelScheduledIn {
        transaction: u64,
        cancel_scheduled: Numbered,
    }
}

impl Conversation {
    pub(super) async fn cancel_scheduled_in(
        &mut self,
        admitted: AdmittedRequest,
        cancel: CancelScheduledIn,
    ) -> Done {
        let CancelScheduledIn { transaction, cancel_scheduled } = cancel;
        let link = cancel_scheduled.link;
        self.sender(link)?;
        let command = Command::CancelScheduled { sequences: cancel_scheduled.into() };
        self.join_whole(admitted, TransactionId(transaction), link, command).await
    }
}

bodies! {
    struct SetSessionStateIn {
        transaction: u64,
        set_session_state: SetSessionState,
    }
}

impl Conversation {
    pub(super) async fn set_session_state_in(
        &mut self,
        admitted: AdmittedRequest,
        set: SetSessionStateIn,
    ) -> Done {
        let SetSessionStateIn { transaction, set_session_state } = set;
        let SetSessionState { link, state } = set_session_state;
        let command = self.session_command(link, SessionCommand::SetState { state })?;
        self.join_whole(admitted, TransactionId(transaction), link, command).await
    }
}

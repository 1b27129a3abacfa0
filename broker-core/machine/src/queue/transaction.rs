//! Transactions: one command that carries many operations out, or none (TXN-01 to TXN-14).
//!
//! Before the commit the queue holds nothing of a transaction. Its owner keeps the operations, and
//! has each checked when it is issued (TXN-07). So its sent messages are not visible, its
//! settled messages stay locked (TXN-03), and a rollback has nothing to undo (TXN-04).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::Queue;
use super::lock::LockInForce;
use super::session::SessionIndex;
use crate::command::{InboundMessage, Outcome, Settlement};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::Intake as _;
use crate::path::SubQueue;
use crate::transaction::{Operation, Part, PartOutcome, in_transaction};
use crate::{Ctx, StepOutput};

/// A part that was checked and can be carried out.
pub(crate) enum PlannedOperation {
    Send(InboundMessage, Option<SequenceNumber>),
    SendBatch(Vec<InboundMessage>, Vec<SequenceNumber>),
    SendVia(Arc<str>, Vec<InboundMessage>),
    Settle(LockInForce, Settlement),
    Renew(LockInForce),
    Cancel(Vec<SequenceNumber>),
    SetState(SessionIndex, Option<Bytes>),
}

impl Queue {
    /// Checks whether an operation could be carried out now; the rejection is the same as for the
    /// operation itself. The commit decides again (TXN-07). The only effect is to reserve numbers
    /// for scheduled messages, so that their sender can cancel them (SCH-13).
    pub(crate) fn check(
        &mut self,
        sub_queue: SubQueue,
        operation: Operation,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let planned =
            self.plan(Part { member: None, sub_queue, operation, numbers: Vec::new() }, ctx)?;
        let messages = match &planned {
            PlannedOperation::Send(message, _) => std::slice::from_ref(message),
            PlannedOperation::SendBatch(messages, _) => messages.as_slice(),
            PlannedOperation::SendVia(..)
            | PlannedOperation::Settle(..)
            | PlannedOperation::Renew(_)
            | PlannedOperation::Cancel(_)
            | PlannedOperation::SetState(..) => &[],
        };
        Ok(self.reserve_numbers(messages, self.last_sequence, ctx, step))
    }

    /// Checks all parts for a topic that coordinates the transaction (TXN-08).
    pub(super) fn check_all(&self, parts: Vec<Part>, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        self.plan_all((1..).zip(parts), ctx).map(drop)
    }

    /// Carries all parts out in their order, or none. Messages get consecutive numbers (TXN-01,
    /// TXN-13).
    pub(super) fn commit(
        &mut self,
        parts: Vec<Part>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let planned = self.plan_all((1..).zip(parts), ctx)?;
        let outcomes = self.carry_all_out(planned, ctx, step);
        Ok(Answer::after_commit(Outcome::Committed(outcomes)))
    }

    /// Carries out parts that were planned in the same step.
    pub(crate) fn carry_all_out(
        &mut self,
        planned: Vec<PlannedOperation>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Vec<PartOutcome> {
        let outcomes = planned.into_iter().map(|part| self.carry_out(part, ctx, step)).collect();
        self.touch(ctx.now);
        outcomes
    }

    /// Checks everything, so that carrying it out cannot fail: each part by itself, each lock
    /// settled once, and all messages together. Each part comes with its number in the transaction.
    pub(crate) fn plan_all(
        &self,
        parts: impl IntoIterator<Item = (usize, Part)>,
        ctx: &Ctx<'_>,
    ) -> Result<Vec<PlannedOperation>, Rejection> {
        let parts: Vec<(usize, Part)> = parts.into_iter().collect();
        // The contents of cloned messages are shared.
        let messages: Vec<InboundMessage> =
            parts.iter().flat_map(|(_, part)| part.operation.messages()).cloned().collect();
        let own = parts
            .iter()
            .filter(|(_, part)| !matches!(part.operation, Operation::SendVia { .. }))
            .flat_map(|(_, part)| part.operation.messages());
        let own: Vec<InboundMessage> = own.cloned().collect();
        let (mut settled, mut cancelled, mut state_bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut planned = Vec::with_capacity(parts.len());
        for (number, part) in parts {
            let name = part.operation.name();
            let one = self.plan(part, ctx).and_then(|one| {
                let again = match &one {
                    PlannedOperation::Settle(lock, _) => {
                        (!settled.insert(lock.token)).then_some(lock)
                    }
                    PlannedOperation::Renew(lock) => settled.contains(&lock.token).then_some(lock),
                    PlannedOperation::Cancel(sequences) => {
                        let twice = sequences.iter().find(|it| !cancelled.insert(**it));
                        if let Some(sequence) = twice {
                            return Err(Rejection::message_not_found(*sequence));
                        }
                        None
                    }
                    PlannedOperation::SetState(_, state) => {
                        state_bytes += state.as_ref().map_or(0, |state| state.len() as u64);
                        None
                    }
                    PlannedOperation::Send(..)
                    | PlannedOperation::SendBatch(..)
                    | PlannedOperation::SendVia(..) => None,
                };
                match again {
                    Some(lock) => Err(Rejection::message_lock_lost(lock.token)),
                    None => Ok(one),
                }
            });
            let why = format!("operation {number} of the transaction, {name}");
            planned.push(one.map_err(|rejection| in_transaction(&why, &rejection))?);
        }
        if !messages.is_empty() {
            self.admit_together(&own, &messages, ctx).map_err(|rejection| {
                in_transaction("the messages of the transaction together", &rejection)
            })?;
        }
        if state_bytes > 0 {
            let total =
                messages.iter().map(|message| u64::from(message.envelope.size)).sum::<u64>();
            self.refuse_over_quota(total.saturating_add(state_bytes), ctx).map_err(
                |rejection| {
                    in_transaction(
                        "the messages and states of the transaction together",
                        &rejection,
                    )
                },
            )?;
        }
        Ok(planned)
    }

    fn plan(&self, part: Part, ctx: &Ctx<'_>) -> Result<PlannedOperation, Rejection> {
        let Part { sub_queue, operation, numbers, member: _ } = part;
        match operation {
            Operation::Send { message } => {
                self.admit(sub_queue, std::slice::from_ref(&message), ctx)?;
                let number = numbers.first().copied();
                Ok(PlannedOperation::Send(message, number.filter(|number| number.0 > 0)))
            }
            Operation::SendBatch { messages } => {
                self.admit_batch(sub_queue, &messages, ctx)?;
                Ok(PlannedOperation::SendBatch(messages, numbers))
            }
            Operation::SendVia { destination, messages } => {
                self.admit_via(sub_queue, &messages, ctx)?;
                Ok(PlannedOperation::SendVia(destination, messages))
            }
            Operation::Settle { token, mut settlement } => {
                let lock = self.settleable(sub_queue, token, &mut settlement, ctx)?;
                Ok(PlannedOperation::Settle(lock, settlement))
            }
            Operation::RenewLock { token } => {
                Ok(PlannedOperation::Renew(self.renewable(sub_queue, token, ctx)?))
            }
            Operation::CancelScheduled { sequences } => {
                self.cancellable(sub_queue, &sequences)?;
                Ok(PlannedOperation::Cancel(sequences))
            }
            Operation::SetSessionState { receiver, state } => {
                self.refuse_without_sessions(sub_queue)?;
                let index = self.session_held_by(receiver, ctx.now)?;
                self.admit_session_state(index, state.as_ref(), ctx)?;
                Ok(PlannedOperation::SetState(index, state))
            }
        }
    }

    fn carry_out(
        &mut self,
        part: PlannedOperation,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> PartOutcome {
        match part {
            PlannedOperation::Send(message, number) => {
                PartOutcome::Accepted(self.accept_as(message, number, ctx, step))
            }
            PlannedOperation::SendBatch(messages, numbers) => {
                let numbers = numbers.into_iter().map(|number| (number.0 > 0).then_some(number));
                let numbers = numbers.chain(std::iter::repeat(None));
                let accepted = messages
                    .into_iter()
                    .zip(numbers)
                    .map(|(message, number)| self.accept_as(message, number, ctx, step));
                PartOutcome::AcceptedBatch(accepted.collect())
            }
            PlannedOperation::SendVia(destination, messages) => {
                let pending = messages
                    .into_iter()
                    .map(|message| self.store_pending(message, Arc::clone(&destination), ctx, step))
                    .collect();
                PartOutcome::Pending(pending)
            }
            PlannedOperation::Settle(lock, settlement) => {
                self.settle_lock_in_force(&lock, settlement, ctx, step);
                PartOutcome::Done
            }
            PlannedOperation::Renew(lock) => {
                PartOutcome::Renewed(self.renew_lock_in_force(&lock, ctx, step))
            }
            PlannedOperation::Cancel(sequences) => {
                self.cancel(&sequences, ctx, step);
                PartOutcome::Done
            }
            PlannedOperation::SetState(index, state) => {
                self.put_session_state(index, state, ctx, step);
                PartOutcome::Done
            }
        }
    }
}

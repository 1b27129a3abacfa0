//! Transactions: one command that carries many operations out, or none (TXN-01 to TXN-14).
//!
//! Before the commit nothing of a transaction is here: whoever began it keeps its operations, and has
//! each of them checked when it is issued (TXN-07). So messages that it sends are nowhere to be seen,
//! those that it settles stay locked (TXN-03), and a rollback has nothing to undo (TXN-04).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Queue;
use super::lock::HeldLock;
use crate::command::{InboundMessage, Outcome, Settlement};
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::path::SubQueue;
use crate::transaction::{Operation, Part, PartOutcome, in_transaction};
use crate::{Ctx, Step};

/// A part of which it is certain that it can be carried out.
pub(crate) enum Planned {
    Send(InboundMessage),
    SendBatch(Vec<InboundMessage>),
    SendVia(Arc<str>, Vec<InboundMessage>),
    Settle(HeldLock, Settlement),
    Renew(HeldLock),
}

impl Queue {
    /// Says whether an operation would be carried out now, with the error that it would give itself.
    /// Changes nothing, and promises nothing: the commit decides (TXN-07).
    pub(crate) fn check(
        &self,
        sub_queue: SubQueue,
        operation: Operation,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.plan(Part { member: None, sub_queue, operation }, ctx)?;
        Ok(Answer::Now(Outcome::Done, Gate::Open))
    }

    /// Says whether all parts would be carried out, for a topic that coordinates (TXN-08).
    pub(super) fn check_all(&self, parts: Vec<Part>, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        self.plan_all((1..).zip(parts), ctx).map(drop)
    }

    /// Carries all parts out in their order, or none of them; messages get consecutive numbers
    /// (TXN-01, TXN-13).
    pub(super) fn commit(
        &mut self,
        parts: Vec<Part>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        let planned = self.plan_all((1..).zip(parts), ctx)?;
        let outcomes = self.carry_all_out(planned, ctx, step);
        Ok(Answer::after_commit(Outcome::Committed(outcomes)))
    }

    /// Carries out what was planned in this very step.
    pub(crate) fn carry_all_out(
        &mut self,
        planned: Vec<Planned>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Vec<PartOutcome> {
        let outcomes = planned.into_iter().map(|part| self.carry_out(part, ctx, step)).collect();
        self.touch(ctx.now);
        outcomes
    }

    /// Checks everything, so that nothing can fail when it is carried out: each part by itself, each
    /// lock settled once, and all messages as one batch. Parts come with their number in the transaction.
    pub(crate) fn plan_all(
        &self,
        parts: impl IntoIterator<Item = (usize, Part)>,
        ctx: &Ctx<'_>,
    ) -> Result<Vec<Planned>, Rejection> {
        let parts: Vec<(usize, Part)> = parts.into_iter().collect();
        // Their contents are shared, not copied.
        let messages: Vec<InboundMessage> =
            parts.iter().flat_map(|(_, part)| part.operation.messages()).cloned().collect();
        let own = parts
            .iter()
            .filter(|(_, part)| !matches!(part.operation, Operation::SendVia { .. }))
            .flat_map(|(_, part)| part.operation.messages());
        let own: Vec<InboundMessage> = own.cloned().collect();
        let mut settled = BTreeSet::new();
        let mut planned = Vec::with_capacity(parts.len());
        for (number, part) in parts {
            let name = part.operation.name();
            let one = self.plan(part, ctx).and_then(|one| {
                let again = match &one {
                    Planned::Settle(held, _) => (!settled.insert(held.token)).then_some(held),
                    Planned::Renew(held) => settled.contains(&held.token).then_some(held),
                    Planned::Send(_) | Planned::SendBatch(_) | Planned::SendVia(..) => None,
                };
                match again {
                    Some(held) => Err(Rejection::message_lock_lost(held.token)),
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
        Ok(planned)
    }

    fn plan(&self, part: Part, ctx: &Ctx<'_>) -> Result<Planned, Rejection> {
        let Part { sub_queue, operation, member: _ } = part;
        match operation {
            Operation::Send { message } => {
                self.admit(sub_queue, std::slice::from_ref(&message), ctx)?;
                Ok(Planned::Send(message))
            }
            Operation::SendBatch { messages } => {
                self.admit_batch(sub_queue, &messages, ctx)?;
                Ok(Planned::SendBatch(messages))
            }
            Operation::SendVia { destination, messages } => {
                self.admit_via(sub_queue, &messages, ctx)?;
                Ok(Planned::SendVia(destination, messages))
            }
            Operation::Settle { token, settlement } => {
                let held = self.settleable(sub_queue, token, &settlement, ctx)?;
                Ok(Planned::Settle(held, settlement))
            }
            Operation::RenewLock { token } => {
                Ok(Planned::Renew(self.renewable(sub_queue, token, ctx)?))
            }
        }
    }

    fn carry_out(&mut self, part: Planned, ctx: &Ctx<'_>, step: &mut Step) -> PartOutcome {
        match part {
            Planned::Send(message) => PartOutcome::Accepted(self.accept(message, ctx, step)),
            Planned::SendBatch(messages) => {
                let accepted =
                    messages.into_iter().map(|message| self.accept(message, ctx, step)).collect();
                PartOutcome::AcceptedBatch(accepted)
            }
            Planned::SendVia(destination, messages) => {
                let entrusted = messages
                    .into_iter()
                    .map(|message| self.entrust(message, Arc::clone(&destination), ctx, step))
                    .collect();
                PartOutcome::Pending(entrusted)
            }
            Planned::Settle(held, settlement) => {
                self.settle_held(&held, settlement, ctx, step);
                PartOutcome::Done
            }
            Planned::Renew(held) => PartOutcome::Renewed(self.renew_held(&held, ctx)),
        }
    }
}
